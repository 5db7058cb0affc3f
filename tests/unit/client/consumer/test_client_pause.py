"""Partitions that are paused: nothing of them is handed out, nothing of what was fetched is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from client_kit import until
from fake_cluster import FakeCluster
from hypothesis import given
from hypothesis import strategies as st
from reading_kit import filled_cluster

from replog.client import Consumer, OffsetAndTimestamp, SyncConsumer, TopicPartition
from replog.client.consumer.backlog import Backlog
from replog.client.consumer.fetch_state import FetchedChunk, PartitionFetch
from replog.errors import ErrorCode, InvalidRequestError
from replog.records import encode_batch
from replog.rpc.messages import FetchResult

COUNT = 60
TOPIC_ID = UUID(int=1)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


@pytest.fixture
def cluster() -> FakeCluster:
    return filled_cluster(COUNT)


@pytest_asyncio.fixture
async def consumer(cluster: FakeCluster) -> AsyncIterator[Consumer]:
    async with Consumer(cluster.bootstrap, transport=cluster.transport()) as found:
        await found.assign_topic("t")
        yield found


async def offsets(consumer: Consumer, count: int) -> dict[int, list[int]]:
    """Reads so many records; their offsets by partition."""
    found: dict[int, list[int]] = {}
    async with asyncio.timeout(60):
        for _ in range(count):
            record = await consumer.getone()
            found.setdefault(record.partition, []).append(record.offset)
    return found


async def test_a_paused_partition_goes_on_where_it_was(consumer: Consumer) -> None:
    before = await offsets(consumer, 20)
    paused = PARTITIONS[next(iter(before))]
    position = consumer.position(paused)
    consumer.pause(paused)
    assert consumer.paused() == [paused]
    meanwhile = await offsets(consumer, 2 * COUNT - (20 - len(before[paused.partition])))
    assert paused.partition not in meanwhile
    assert await consumer.poll(1, 20) == []
    assert consumer.position(paused) == position
    consumer.resume(paused)
    assert await offsets(consumer, COUNT - position) == {paused.partition: list(range(position, COUNT))}


async def test_what_was_fetched_is_not_fetched_again(cluster: FakeCluster, consumer: Consumer) -> None:
    await until(lambda: consumer._reader.backlog.held_bytes >= 3 * COUNT * 1_000)
    consumer.pause(*PARTITIONS)
    assert await consumer.poll(1, 0) == []
    assert consumer._reader.backlog.held_bytes >= 3 * COUNT * 1_000
    for node in cluster.nodes.values():
        node.is_silent = True  # nothing more comes
    consumer.resume(*PARTITIONS)
    assert sum(map(len, (await offsets(consumer, 3 * COUNT)).values())) == 3 * COUNT


async def test_a_reader_that_waits_goes_on_when_a_partition_is_resumed(consumer: Consumer) -> None:
    await offsets(consumer, 1)
    consumer.pause(*PARTITIONS)
    waiting = asyncio.create_task(offsets(consumer, 3 * COUNT - 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    consumer.resume(*PARTITIONS)
    assert set(await waiting) <= {0, 1, 2}


async def test_a_seek_while_it_is_paused_counts_and_keeps_the_pause(consumer: Consumer) -> None:
    await offsets(consumer, 1)
    consumer.pause(*PARTITIONS)
    consumer.seek(PARTITIONS[0], COUNT - 2)
    assert await consumer.poll(1, 20) == []
    consumer.resume(PARTITIONS[0])
    assert await offsets(consumer, 2) == {0: [COUNT - 2, COUNT - 1]}


async def test_pausing_twice_and_resuming_what_goes_on_change_nothing(consumer: Consumer) -> None:
    consumer.resume(PARTITIONS[0])
    consumer.pause(PARTITIONS[0], PARTITIONS[0])
    consumer.pause(PARTITIONS[0])
    consumer.resume(PARTITIONS[0])
    assert consumer.paused() == []
    assert sum(map(len, (await offsets(consumer, 3 * COUNT)).values())) == 3 * COUNT
    with pytest.raises(InvalidRequestError, match="t-9 is not assigned"):
        consumer.pause(PARTITIONS[0], ("t", 9))
    assert consumer.paused() == []


def test_without_async(cluster: FakeCluster) -> None:
    """What a loop has polled of a paused partition is not handed out either."""
    with SyncConsumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
        consumer.assign_topic("t")
        first = next(consumer)
        paused = PARTITIONS[first.partition]
        consumer.pause(paused)
        others = [next(consumer).partition for _ in range(2 * COUNT)]
        assert paused.partition not in others
        assert consumer.position(paused) == 1
        consumer.resume(paused)
        assert [next(consumer).offset for _ in range(COUNT - 1)] == list(range(1, COUNT))
        assert consumer.lag(paused) == 0


async def test_offsets_by_time(consumer: Consumer) -> None:
    asked = {PARTITIONS[0]: 1_000, PARTITIONS[1]: 10**12}
    assert await consumer.offsets_for_times(asked) == {PARTITIONS[0]: OffsetAndTimestamp(0, 1_000), PARTITIONS[1]: None}


async def test_records_by_partition(consumer: Consumer) -> None:
    found: dict[TopicPartition, list[int]] = {}
    while sum(map(len, found.values())) < 3 * COUNT:
        for partition, records in (await consumer.getmany(timeout_ms=5_000, max_records=7)).items():
            found.setdefault(partition, []).extend(record.offset for record in records)
    assert found == {partition: list(range(COUNT)) for partition in PARTITIONS}


# ---- the backlog by itself ------------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.sampled_from(["add", "decode", "take", "park", "unpark", "drop"]), st.integers(0, 1)))


@given(STEPS)
def test_any_order_hands_out_each_partition_in_order_and_releases_each_chunk_once(steps: list[tuple[str, int]]) -> None:
    released: list[FetchedChunk] = []
    added: list[FetchedChunk] = []
    backlog = Backlog(released.append, lambda: None)
    states = [PartitionFetch(TopicPartition("t", number), TOPIC_ID, 0) for number in range(2)]
    expected = [0, 0]
    parked: set[int] = set()

    def take(count: int) -> None:
        for record in backlog.take(count):
            assert record.partition not in parked
            assert record.offset == expected[record.partition]
            expected[record.partition] += 1

    for step, number in [*steps, ("unpark", 0), ("unpark", 1)]:
        state = states[number]
        match step:
            case "add":
                chunk = fetched(state)
                added.append(chunk)
                backlog.add(chunk)
            case "decode" if backlog.has_chunks:
                backlog.decode_next()
            case "take":
                take(2)
            case "park" if number not in parked:
                backlog.park(state)
                parked.add(number)
            case "unpark":
                backlog.unpark(state)
                parked.discard(number)
            case "drop":
                backlog.drop(state)
                state.fetch_offset = state.position
    while backlog.has_chunks:
        backlog.decode_next()
    take(10_000)
    assert expected == [state.fetch_offset for state in states]
    assert len(released) == len(added) == len({id(chunk) for chunk in released})


def fetched(state: PartitionFetch) -> FetchedChunk:
    """Two batches of three records, as they follow at the fetch offset."""
    start = state.fetch_offset
    data = b"".join(encode_batch([(1, None, b"v", ())] * 3, base_offset=start + 3 * index) for index in range(2))
    result = FetchResult(TOPIC_ID, state.partition.partition, ErrorCode.NONE, start, high_watermark=10**6)
    chunk = state.accept(result, data, None)
    assert chunk is not None
    return chunk
