"""Writes the table of `docs/REQUEST_COSTS.md`: what the costliest request of each API costs the loop of a broker.

PYTHONPATH=.:tests/unit/kafka python -m tests.unit.kafka.request_costs_page     writes it, in some minutes
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import threading
import time
from asyncio import events
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from test_kafka_request_costs import TurnCalls, exchanged, node, wide_requests

PAGE = Path(__file__).parents[3] / "docs" / "REQUEST_COSTS.md"
BEGIN, END = "<!-- written by tests/unit/kafka/request_costs_page.py -->\n", "<!-- end -->\n"
LINE = re.compile(r"^\| (\w+) \| (.+) \| ([\d,]+) \| (\d+) \|$", re.MULTILINE)

CALLS_NAMES = 3_000
HELD_NAMES = 9_000


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        api: The name of the API.
        request: The request whose longest turn makes the most calls.
        calls: The calls of functions in that turn, with `CALLS_NAMES` names.
        held_ms: The processor time of the longest step of any of its requests, with `HELD_NAMES` names.
    """

    api: str
    request: str
    calls: int
    held_ms: int


class Watch(Protocol):
    """What measures one request."""

    most: float

    def counting(self) -> contextlib.AbstractContextManager[None]: ...


class StepTimes:
    """Measures the processor time of each step of the loop of this thread, without looks for cycles of objects.

    Attributes:
        most: The milliseconds of the longest one.
    """

    def __init__(self) -> None:
        self.most = 0.0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        self.most = 0.0
        run, thread_id = events.Handle._run, threading.get_ident()  # type: ignore[attr-defined]

        def timed(handle: asyncio.Handle) -> None:
            begun_s = time.thread_time()
            run(handle)
            if threading.get_ident() == thread_id:
                self.most = max(self.most, (time.thread_time() - begun_s) * 1e3)

        gc.disable()
        events.Handle._run = timed  # type: ignore[attr-defined]
        try:
            yield
        finally:
            events.Handle._run = run  # type: ignore[attr-defined]
            gc.enable()


async def costliest(count: int, watch: Watch) -> dict[str, tuple[float, str]]:
    """By API, what is measured of its costliest request, and what that is called."""
    found: dict[str, tuple[float, str]] = {}
    async with node() as it:
        requests = wide_requests(count)
        while (wide := await asyncio.to_thread(next, requests, None)) is not None:
            client = await it.client()
            client.connection.settimeout(None)
            with watch.counting():
                await asyncio.to_thread(exchanged, client, wide.data)
            client.connection.close()
            found[wide.api] = max(found.get(wide.api, (-1.0, "")), (watch.most, wide.name))
    return found


def rows() -> list[Row]:
    """What the page says."""
    return [
        Row(api, request, int(calls.replace(",", "")), int(held_ms))
        for api, request, calls, held_ms in LINE.findall(PAGE.read_text(encoding="utf-8"))
    ]


def _table(calls: dict[str, tuple[float, str]], held: dict[str, tuple[float, str]]) -> str:
    lines = [
        f"| {api} | {request.replace('|', ' ')} | {most:,.0f} | {held[api][0]:.0f} |\n"
        for api, (most, request) in sorted(calls.items())
    ]
    head = (
        f"| API | request with the most calls in a turn | calls, {CALLS_NAMES:,} names | ms, {HELD_NAMES:,} names |\n"
    )
    return f"{head}|---|---|---|---|\n{''.join(lines)}"


def main() -> None:
    """Measures, and writes the table."""
    calls = asyncio.run(costliest(CALLS_NAMES, TurnCalls()))
    held = asyncio.run(costliest(HELD_NAMES, StepTimes()))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{_table(calls, held)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
