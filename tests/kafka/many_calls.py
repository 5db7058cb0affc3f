"""Programs in Java that run one after another in one JVM (`java/ManyCalls.java`)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.kafka.line_driver import Driver, driver


class Called(NamedTuple):
    """How a program ended, and what it printed."""

    status: int
    output: str
    errors: str


class ManyCalls:
    """A JVM that is started by the first call, and again by the one after a call that ended it or took too long."""

    def __init__(self, command: Callable[[], list[str]]) -> None:
        """Takes what starts the JVM.

        Args:
            command: The function that returns the command line.
        """
        self._command = command
        self._running = ExitStack()
        self._driver: Driver | None = None

    def call(self, main_class: str, *arguments: str, stdin: str) -> Called:
        """Runs a program to its end."""
        words = (word.encode().hex() for word in (main_class, stdin, *arguments))
        try:
            status, output, errors = self._started().ask(*words)
        except BaseException:
            self.close()
            raise
        return Called(int(status), bytes.fromhex(output).decode(), bytes.fromhex(errors).decode())

    def close(self) -> None:
        """Ends the JVM."""
        self._driver = None
        self._running.close()

    def _started(self) -> Driver:
        if self._driver is None:
            folder = Path(self._running.enter_context(tempfile.TemporaryDirectory(prefix="many-calls-")))
            self._driver = self._running.enter_context(driver(self._command(), folder))
        return self._driver
