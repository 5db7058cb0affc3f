"""What happened in one run, line by line with its virtual time: faults, what clients did, what the metadata say, and what
the nodes log.  Equal runs have equal logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from enum import Enum
from typing import TextIO

from msgspec import Struct
from msgspec.structs import asdict

from replog.testing.simulated_process import PROCESS
from replog.testing.virtual_loop import VirtualLoop

SHOWN_MAX = 300


class EventLog:
    """Writes nowhere until `to` is set, and costs nothing until then.

    Attributes:
        to: where lines go.
    """

    def __init__(self, loop: VirtualLoop, to: TextIO | None = None) -> None:
        self.to = to
        self._loop = loop

    def note(self, what: str, facts: str) -> None:
        """One line."""
        if self.to is not None:
            print(f"{self._loop.time():10.6f} {what:<9} {facts}", file=self.to)

    def note_record(self, offset: int, record: object) -> None:
        """A metadata record has committed: what it changes."""
        if self.to is not None:
            self.note("metadata", f"{offset}: {shown(record)}")

    @contextlib.contextmanager
    def with_node_logs(self) -> Iterator[None]:
        """What the nodes log is a part of it meanwhile."""
        handler = _NodeLogs(self)
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.setLevel(level)
            root.removeHandler(handler)


class _NodeLogs(logging.Handler):
    def __init__(self, events: EventLog) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        text = record.getMessage().replace("\n", " ")[:SHOWN_MAX]
        self._events.note("log", f"{'-' if process is None else process.name} {record.levelname.lower()}: {text}")


def shown(record: object) -> str:
    """A metadata record without what it leaves as it is."""
    if not isinstance(record, Struct):
        return repr(record)
    values = asdict(record)
    facts = " ".join(f"{name}={_plain(value)}" for name, value in values.items() if value is not None)
    return f"{type(record).__name__} {facts}"


def _plain(value: object) -> str:
    return value.name.lower() if isinstance(value, Enum) else str(value)
