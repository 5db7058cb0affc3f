"""What type checkers must accept of the clients' outcomes; `make lint` has mypy and pyright look at it.  It is never run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_type

from replog.client import BulkDelivery, DeliveredRange, Delivery, Producer, RecordMetadata


async def wait_for_deliveries(producer: Producer) -> None:
    first, second = await producer.send("t", b"0"), await producer.send("t", b"1")
    assert_type(first, Delivery)
    done, pending = await asyncio.wait([first, second], timeout=1, return_when=asyncio.FIRST_COMPLETED)
    assert_type(done, set[Delivery])
    assert_type(pending, set[Delivery])
    for delivery in done:
        assert_type(delivery.result(), RecordMetadata)
    assert_type(await first, RecordMetadata)
    assert_type(await asyncio.gather(first, second), tuple[RecordMetadata, RecordMetadata])
    assert_type(await asyncio.wait_for(first, 1), RecordMetadata)
    assert_type(await asyncio.shield(first), RecordMetadata)


async def wait_for_bulk(producer: Producer) -> None:
    bulk = await producer.send_many("t", [b"0", (b"1", b"key")])
    done, _ = await asyncio.wait({bulk})
    assert_type(done, set[BulkDelivery])
    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(bulk.wait())
    assert_type(told.result(), Sequence[DeliveredRange])


def told(delivery: Delivery) -> None:
    print(delivery.exception())


async def call_back(producer: Producer) -> None:
    delivery = await producer.send("t", b"0")
    delivery.add_done_callback(told)
    assert_type(delivery.remove_done_callback(told), int)
