"""Step 5, first half: everything read back with the Python consumer, record by record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from examples.demo.groups import GroupCounter, Groups
from examples.demo.ledger import NOBODY, Ledger, ReadCheck, ReadResult
from replog.client import Consumer

if TYPE_CHECKING:
    from examples.demo.source import Flights

POLL_RECORDS_MAX = 2_000


async def read_flights(
    bootstrap_servers: str, topic: str, flights: Flights, ledger: Ledger, on_records: Callable[[int], None]
) -> tuple[ReadResult, Groups]:
    """Reads every partition up to its end offset of now; checks each record and adds up the groups from its JSON."""
    check = ReadCheck(ledger)
    counter = GroupCounter()
    async with Consumer(bootstrap_servers, client_id="replog-demo") as consumer:
        partitions = await consumer.assign_topic(topic)
        ends = await consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records = await consumer.poll(max_records=POLL_RECORDS_MAX)
            for record in records:
                row = check.expect(record.partition, record.offset)
                if row != NOBODY and (record.key, record.value) != (flights.keys[row], flights.values[row]):
                    check.differs()
                flight = json.loads(record.value or b"{}")
                counter.add(flight["carrier"], flight["origin"], flight["dep_delay"])
            on_records(len(records))
    return check.result(), counter.groups()
