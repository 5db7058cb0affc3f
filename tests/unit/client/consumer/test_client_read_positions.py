"""What readers handed out is exactly what lies below their positions, whatever interrupts them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from fake_cluster import FakeCluster
from reading_kit import FIRST_OFFSET, HEALTHY, SICK, Account, damage, filled_cluster

from replog.client import Consumer
from replog.client.consumer.start import first_offsets
from replog.client.types import FetchedBatches
from replog.errors import CorruptRecordError, OffsetOutOfRangeError, ReplogError
from tests.cancelling import WAITS_MAX, cancelled_at_wait

SEEDS = range(25)


def consumer_of(cluster: FakeCluster) -> Consumer:
    settings: dict[str, Any] = {"fetch_max_wait_ms": 20, "max_partition_fetch_bytes": 20_000}
    return Consumer(cluster.bootstrap, transport=cluster.transport(), **settings)


async def read_once(consumer: Consumer, rng: random.Random) -> list[Any]:
    kind = rng.choice(["one", "poll", "poll", "batches"])
    if kind == "one":
        return [await anext(consumer)]
    if kind == "poll":
        return await consumer.poll(rng.choice([1, 5, 100, 1_000]), timeout_ms=2_000)
    return await consumer.fetch_batches(timeout_ms=2_000)


async def read_disturbed(consumer: Consumer, account: Account, rng: random.Random) -> None:
    """One call, now and then cancelled at one of its waits; an error that it raises is mended as its text says."""

    async def read() -> None:
        account.take(await read_once(consumer, rng))

    try:
        await cancelled_at_wait(rng.choice([1, 1, 2, 3, 6, WAITS_MAX]), read())
    except (OffsetOutOfRangeError, CorruptRecordError):
        account.seek(consumer, SICK, rng.choice([10_000, FIRST_OFFSET]))  # where the next error waits
    for partition, next_offset in account.next_offsets.items():
        assert consumer.position(partition) == next_offset


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_cancellation_and_no_error_of_a_neighbour_skips_a_record(seed: int) -> None:
    rng = random.Random(seed)
    cluster = filled_cluster()
    damage(cluster, SICK, rng.randrange(3, 20))
    account = Account([*HEALTHY, SICK], 400)
    async with consumer_of(cluster) as consumer, asyncio.timeout(60):
        await consumer.assign(account.next_offsets, start=account.next_offsets)
        while any(account.next_offsets[partition] < account.end_offset for partition in HEALTHY):
            await read_disturbed(consumer, account, rng)
            if rng.random() < 0.2:
                account.seek(consumer, SICK, 400)  # nothing wrong, nothing there


async def read_until(consumer: Consumer, account: Account, offset: int) -> None:
    while account.next_offsets[HEALTHY[0]] < offset:
        account.take(await consumer.poll(1_000))


async def test_what_was_found_is_handed_out_before_an_error_of_a_neighbour() -> None:
    cluster = filled_cluster(20)
    damage(cluster, HEALTHY[1], 4)
    account = Account(HEALTHY, 20)
    async with consumer_of(cluster) as consumer:
        await consumer.assign(HEALTHY, start=dict.fromkeys(HEALTHY, FIRST_OFFSET))
        with pytest.raises(ReplogError):
            await read_until(consumer, account, 21)
        damaged = consumer.position(HEALTHY[1])
        assert account.next_offsets == {HEALTHY[0]: consumer.position(HEALTHY[0]), HEALTHY[1]: damaged}
        consumer.seek(HEALTHY[1], 20)
        await read_until(consumer, account, 20)
    assert damaged == 15


def test_where_to_read_on_is_the_lowest_offset_in_whatever_order_records_came() -> None:
    places = [(0, 5), (0, 6), (1, 3), (0, 4), (0, 2), (0, 3)]
    found = [FetchedBatches("t", partition, offset, offset + 1, 0, b"") for partition, offset in places]
    assert first_offsets(found) == {("t", 0): 2, ("t", 1): 3}
