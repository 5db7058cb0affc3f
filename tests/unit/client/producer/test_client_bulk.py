"""`send_many`: the same log as one `send` after the other, whatever the records are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_kit import until
from fake_cluster import FakeCluster
from hypothesis import given, settings
from hypothesis import strategies as st

from replog import open_log
from replog.client import Producer
from replog.client.producer.bulk import RECORD_BYTES_MAX, take_chunk
from replog.client.producer.partitioner import murmur2
from replog.errors import RecordTooLargeError, UnknownTopicOrPartitionError
from tests.quiet import quiet_for

Pair = tuple[bytes | None, bytes | None]

LARGE = b"L" * (RECORD_BYTES_MAX + 1)


def make(cluster: FakeCluster, **options: object) -> Producer:
    return Producer(cluster.bootstrap, transport=cluster.transport(), **options)  # type: ignore[arg-type]


def written(cluster: FakeCluster) -> Counter[Pair]:
    return Counter((record.value, record.key) for log in cluster.logs.values() for record in log.records())


pairs = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=40) | st.sampled_from([LARGE, b"m" * 3000]),
        st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 80]),
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
        log = [(record.value, record.key) for record in cluster.logs["t", number].records()]
        if partition is not None:
            assert log == (records if number == partition else [])
            continue
        assert all((murmur2(key) & 0x7FFFFFFF) % 3 == number for _, key in log if key is not None)
        for key in {key for _, key in log} - {None}:
            assert [pair for pair in log if pair[1] == key] == [pair for pair in records if pair[1] == key]


async def test_what_comes_before_a_wrong_record_is_sent() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster, max_request_bytes=50_000) as producer:
        good = [(b"v", b"%d" % i) for i in range(10)]
        with pytest.raises(TypeError, match=r"value is .*\(str\); expected bytes"):
            await producer.send_many("t", [*good, "text", b"after"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=r"key is (int|1 \(int\))"):
            await producer.send_many("t", [(b"", b"before key"), (b"v", 1)])  # type: ignore[list-item]
        with pytest.raises(RecordTooLargeError):
            await producer.send_many("t", [(b"", b"before large"), b"x" * 50_000])

        def failing() -> Iterator[Pair]:
            yield b"", b"before error"
            raise KeyError("the caller's own")

        with pytest.raises(KeyError):
            await producer.send_many("t", failing())
        await producer.flush()
    expected = [*good, (b"", b"before key"), (b"", b"before large"), (b"", b"before error")]
    assert written(cluster) == Counter(expected)


async def test_no_such_partition() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster, delivery_timeout_ms=50) as producer:  # as long as it waits for the partition
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition 7"):
            await producer.send_many("t", [b"v"], partition=7)


async def test_values_and_pairs_are_what_append_many_takes(tmp_path: Path) -> None:
    records = [b"value", (b"value", b"key"), (None, b"key"), (b"two", None), None, b"ab"]
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        await (await producer.send_many("t", records))
    with open_log(tmp_path / "log") as log:
        log.append_many(records)
        kept = [(record.value, record.key) for record in log]
    assert [(record.value, record.key) for record in cluster.logs["t", 0].records()] == kept
    assert kept[:2] == [(b"value", None), (b"value", b"key")]


@pytest.mark.parametrize("records", [b"ab", "ab", [(b"v", b"k", b"?")], [["v", b"k"]], [bytearray(b"v")], ["ab"]])
async def test_what_is_no_record_is_a_type_error(records: Any) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t")
    async with make(cluster) as producer:
        with pytest.raises(TypeError):
            await producer.send_many("t", records)
    assert cluster.logs["t", 0].values() == []


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
        await (await producer.send_many("t", [(b"v", bytes((i,))) for i in range(20)]))
    assert len(asked) == 20
    for number in range(2):
        assert all(record.key and record.key[0] % 2 == number for record in cluster.logs["t", number].records())


async def test_records_without_keys_fill_whole_batches_of_one_partition() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    async with make(cluster, batch_size_bytes=100_000) as producer:
        await (await producer.send_many("t", [b"x" * 90] * 5_000))
    sizes = sorted(len(batch) for request in cluster.nodes[1].produced for batch in request.batches)
    assert sizes[-1] > 99_000
    assert sum(sizes) / len(sizes) > 30_000


async def test_memory_is_bounded_and_send_many_waits() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 3)
    node = cluster.nodes[1]
    async with make(cluster, buffer_memory_bytes=10_000, batch_size_bytes=1_000) as producer:
        node.hold_replies = True
        sending = asyncio.create_task(producer.send_many("t", [b"x" * 50] * 1_000))
        await until(lambda: producer._accumulator.memory.held_bytes > 5_000)
        await quiet_for(0.05)
        assert not sending.done()
        assert producer._accumulator.memory.held_bytes <= 10_000
        await node.release_held()
        await (await sending)
        assert producer._accumulator.memory.held_bytes == 0
    assert sum(len(log.values()) for log in cluster.logs.values()) == 1_000


def test_a_chunk_ends_at_its_size() -> None:
    rest: Iterator[Pair] = iter([(b"k", b"v" * 100)] * 10)
    chunk = take_chunk(rest, 1, 300)
    assert (len(chunk.rows), chunk.has_keys, chunk.is_last) == (3, True, False)
    assert chunk.size_bytes >= 300
    assert len(take_chunk(rest, 1, 10_000).rows) == 7
    assert take_chunk(rest, 1, 300).is_last


class First:
    """A partitioner that is asked for each record."""

    def partition(self, *_: object) -> int:
        return 0


@pytest.mark.parametrize("partitioner", [None, First()])
async def test_headers_go_with_their_records(partitioner: Any) -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 1)
    headers = [("a", b"1"), ("a", None), ("é", b"")]
    records: list[Any] = [b"bare", (b"v", b"k", headers), (b"v", None, ()), (LARGE, b"k", tuple(headers)), (None, b"k")]
    async with make(cluster, partitioner=partitioner) as producer:
        await (await producer.send_many("t", records))
        for wrong in ({"a": b"1"}, 0, None, "a", [("a", "text")], [("a",)]):
            with pytest.raises(TypeError, match="headers"):
                await producer.send_many("t", [b"before", (b"v", b"k", wrong)])  # type: ignore[list-item]
        with pytest.raises(RecordTooLargeError):
            await producer.send_many("t", [(b"v", b"k", [("a", bytes(1 << 20))])])
        with pytest.raises(TypeError, match="not 4 things"):
            await producer.send_many("t", [(b"v", b"k", (), 7)])  # type: ignore[list-item]
    found = [(r.value, r.key, r.headers) for r in cluster.logs["t", 0].records()]
    given = tuple((name, data) for name, data in headers)
    expected = [(b"bare", None, ()), (b"v", b"k", given), (b"v", None, ()), (LARGE, b"k", given), (None, b"k", ())]
    assert (found[:5], found[5:]) == (expected, [(b"before", None, ())] * 6)


async def test_one_record_is_sent_and_waited_for() -> None:
    cluster = FakeCluster()
    cluster.create_topic("t", 2)
    async with make(cluster) as producer:
        done = await producer.send_and_wait("t", b"v", b"k", 1, 7, [("a", b"1")])
        assert (done.topic, done.partition, done.offset) == ("t", 1, 0)
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send_and_wait("missing", b"v")
    (record,) = cluster.logs["t", 1].records()
    assert (record.value, record.key, record.timestamp, record.headers) == (b"v", b"k", 7, (("a", b"1"),))
