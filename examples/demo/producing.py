"""Step 3: every row as a record, idempotent and acknowledged by all in-sync replicas."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from examples.demo.ledger import Ledger
from examples.demo.pauses import Acknowledgements
from replog.client import Producer

if TYPE_CHECKING:
    from examples.demo.source import Flights
    from replog.client import BulkDelivery

WINDOW_ROWS = 2_000
"""Rows that are sorted by key before they are sent: rows of one key go to one partition, in order, so that the
offsets of a delivery can be told apart row by row."""


async def produce_flights(
    bootstrap_servers: str,
    topic: str,
    flights: Flights,
    ledger: Ledger,
    acknowledgements: Acknowledgements,
    on_acknowledged: Callable[[int, int], None],
) -> None:
    """Sends every row and returns when all are acknowledged.

    Args:
        on_acknowledged: The function that is told partition and count.

    Raises:
        ReplogError: A record was not acknowledged within the producer's delivery time-out.
    """
    waiting: set[asyncio.Task[None]] = set()
    async with Producer(bootstrap_servers, client_id="replog-demo") as producer:

        async def settle(bulk: BulkDelivery, rows: list[int]) -> None:
            taken = 0
            for delivered in await bulk:
                count = delivered.records_count
                ledger.acknowledge(delivered.partition, delivered.base_offset, rows[taken : taken + count])
                taken += count
                acknowledgements.add(count)
                on_acknowledged(delivered.partition, count)

        try:
            for key, rows in _windows(flights):
                bulk = await producer.send_many(topic, [(flights.values[row], key) for row in rows])
                waiting.add(asyncio.create_task(settle(bulk, rows)))
                waiting = await _without_finished(waiting)
            await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def _windows(flights: Flights) -> Iterator[tuple[bytes, list[int]]]:
    """Yields a key and the rows of it, for each key of one window after the other."""
    for start in range(0, flights.count, WINDOW_ROWS):
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for row in range(start, min(start + WINDOW_ROWS, flights.count)):
            by_key[flights.keys[row]].append(row)
        yield from by_key.items()


async def _without_finished(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Returns the unfinished tasks; raises what made one fail."""
    for task in tasks:
        if task.done():
            task.result()
    return {task for task in tasks if not task.done()}
