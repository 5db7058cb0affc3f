"""`send_many`: the same log as one `send` after the other, whatever the records are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from fake_cluster import FakeCluster
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.client import Producer
from replog.client.bulk import RECORD_BYTES_MAX, take_chunk
from replog.client.partitioner import murmur2
from replog.errors import RecordTooLargeError, UnknownTopicOrPartitionError

Pair = tuple[bytes | None, bytes | None]

LARGE = b"L" * (RECORD_BYTES_MAX + 1)


def make(cluster: FakeCluster, **options: object) -> Producer:
    return Producer(cluster.bootstrap, transport=cluster.transport(), **options)  # type: ignore[arg-type]


def written(cluster: FakeCluster) -> Counter[Pair]:
    return Counter((record.key, record.value) for log in cluster.logs.values() for record in log.records())


pairs = st.lists(
    st.tuples(
        st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 80]),
        st.none() | st.binary(max_size=40) | st.sampled_from([LARGE, b"m" * 3000]),
    ),
    max_size=80,
)


@settings(max_examples=40, deadline=None)
@given(pairs, st.sampled_from([1, 200, 5_000, 256 * 1024]), st.sampled_from([None, 1]))
def test_every_record_arrives_once_at_its_partition_in_order(
    records: list[Pair], batch_size_bytes: int, partition: int | None
) -> None:
    async def send() -> FakeCluster:
        cluster = FakeCluster()
        cluster.create_topic("t", 3)
        async with make(cluster, batch_size_bytes=batch_size_bytes) as producer:
            bulk = await producer.send_many("t", iter(records), partition=partition, timestamp_ms=5)
            ranges = await bulk
            assert bulk.records_count == sum(r.records_count for r in ranges) == len(records)
            for number in range(3):
                covered = [o for r in ranges if r.partition == number for o in range(r.base_offset, r.base_offset + r.records_count)]  # fmt: skip
                assert sorted(covered) == list(range(len(cluster.logs["t", number].records())))
        return cluster

    cluster = asyncio.run(send())
    assert written(cluster) == Counter(records)
    for number in range(3):
        log = [(record.key, record.value) for record in cluster.logs["t", number].records()]
        if partition is not None:
            assert log == (records if number == partition else [])
            continue
        assert all((murmur2(key) & 0x7FFFFFFF) % 3 == number for key, _ in log if key is not None)
        for key in {key for key, _ in log} - {None}:
            assert [pair for pair in log if pair[0] == key] == [pair for pair in records if pair[0] == key]


async def test_what_comes_before_a_wrong_record_is_sent() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster, max_request_bytes=50_000) as producer:
        good = [(b"%d" % i, b"v") for i in range(10)]
        with pytest.raises(TypeError, match="value is str"):
            await producer.send_many("t", [*good, (None, "text"), (None, b"after")])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="key is int"):
            await producer.send_many("t", [(b"before key", b""), (1, b"v")])  # type: ignore[list-item]
        with pytest.raises(RecordTooLargeError):
            await producer.send_many("t", [(b"before large", b""), (None, b"x" * 50_000)])

        def failing() -> Iterator[Pair]:
            yield b"before error", b""
            raise KeyError("the caller's own")

        with pytest.raises(KeyError):
            await producer.send_many("t", failing())
        await producer.flush()
    expected = [*good, (b"before key", b""), (b"before large", b""), (b"before error", b"")]
    assert written(cluster) == Counter(expected)


async def test_no_such_partition() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition 7"):
            await producer.send_many("t", [(None, b"v")], partition=7)


async def test_nothing_to_send() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        assert await (await producer.send_many("t", [])) == []


async def test_a_partitioner_of_the_users_own_is_asked_for_each_record() -> None:
    asked: list[tuple[bytes | None, int]] = []

    class LastByte:
        def partition(
            self, topic: str, key: bytes | None, size_bytes: int, partitions_count: int, available: Sequence[int]
        ) -> int:
            asked.append((key, size_bytes))
            return (key or b"\0")[-1] % partitions_count

    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster, partitioner=LastByte()) as producer:
        await (await producer.send_many("t", [(bytes((i,)), b"v") for i in range(20)]))
    assert len(asked) == 20
    for number in range(2):
        assert all(record.key and record.key[0] % 2 == number for record in cluster.logs["t", number].records())


async def test_records_without_keys_fill_whole_batches_of_one_partition() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    async with make(cluster, batch_size_bytes=100_000) as producer:
        await (await producer.send_many("t", [(None, b"x" * 90)] * 5_000))
    sizes = sorted(len(batch) for request in cluster.nodes[1].produced for batch in request.batches)
    assert sizes[-1] > 99_000
    assert sum(sizes) / len(sizes) > 30_000


async def test_memory_is_bounded_and_send_many_waits() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    node = cluster.nodes[1]
    async with make(cluster, buffer_memory_bytes=10_000, batch_size_bytes=1_000) as producer:
        node.hold_replies = True
        sending = asyncio.create_task(producer.send_many("t", [(None, b"x" * 50)] * 1_000))
        await asyncio.sleep(0.05)
        assert not sending.done()
        assert 5_000 < producer._accumulator.used_bytes <= 10_000
        await node.release_held()
        await (await sending)
        assert producer._accumulator.used_bytes == 0
    assert sum(len(log.values()) for log in cluster.logs.values()) == 1_000


def test_a_chunk_ends_at_its_size() -> None:
    rest: Iterator[Pair] = iter([(b"k", b"v" * 100)] * 10)
    chunk = take_chunk(rest, 1, 300)
    assert (len(chunk.rows), chunk.has_keys, chunk.is_last) == (3, True, False)
    assert chunk.size_bytes >= 300
    assert len(take_chunk(rest, 1, 10_000).rows) == 7
    assert take_chunk(rest, 1, 300).is_last
