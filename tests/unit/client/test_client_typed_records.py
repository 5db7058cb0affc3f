"""Records with codecs: what is not theirs is told, skipped or not sent, and nothing beside it is lost or handed out twice."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import msgspec
import pytest
from fake_cluster import FakeCluster
from reading_kit import Account

from replog.client import Consumer, Producer, SyncConsumer, SyncProducer, TopicPartition
from replog.codecs import Json
from replog.errors import ConfigError, RecordDecodeError, RecordEncodeError, RequestTimedOutError
from replog.records import decode_records, encode_batch
from tests.cancelling import WAITS_MAX, cancelled_at_wait

BAD = b"\xff"
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]


class Order(msgspec.Struct):
    table: str


def cluster_of(*batches: list[bytes | None], partitions: int = 1) -> FakeCluster:
    """A topic whose partitions all have these values, in these batches."""
    cluster = FakeCluster(1)
    cluster.create_topic("t", partitions)
    for partition in range(partitions):
        for values in batches:
            cluster.logs["t", partition].append(encode_batch([(1_000, b"k", value, ()) for value in values]))
    return cluster


def consumer_of(cluster: FakeCluster, **settings: Any) -> Consumer[bytes, str]:
    return Consumer(cluster.bootstrap, transport=cluster.transport(), value=str, fetch_max_wait_ms=20, **settings)


async def test_a_reader_stays_in_front_of_what_cannot_be_decoded_and_goes_on_behind_it() -> None:
    cluster = cluster_of([b"a", b"b", BAD, b"c"], [b"d"])
    async with consumer_of(cluster) as consumer:
        await consumer.assign_topic("t")
        assert [(record.offset, record.value) for record in await consumer.poll()] == [(0, "a"), (1, "b")]
        for _ in range(3):
            with pytest.raises(
                RecordDecodeError, match=r't-0 offset 2: the value .*by seek\(\("t", 0\), 3\)'
            ) as raised:
                await consumer.poll()
            assert consumer.position(("t", 0)) == 2
        assert (raised.value.record.value, raised.value.record.key, raised.value.field) == (BAD, b"k", "value")
        consumer.seek(("t", 0), raised.value.record.offset + 1)
        found = [(await anext(consumer)).value for _ in range(2)]
        assert found == ["c", "d"]


async def read_once(consumer: Consumer[bytes, str], account: Account, rng: random.Random) -> None:
    kind = rng.choice(["one", "poll", "poll", "batches"])
    if kind == "batches":
        account.take(await consumer.fetch_batches(timeout_ms=100))
    elif kind == "poll":
        account.take(await consumer.poll(rng.choice([1, 3, 100]), timeout_ms=100))
    else:
        account.take([await anext(consumer)])


@pytest.mark.parametrize("seed", range(25))
async def test_nothing_is_lost_or_handed_out_twice_beside_what_cannot_be_decoded(seed: int) -> None:
    rng = random.Random(seed)
    batches = [[rng.choice([b"a", b"b", b"c", BAD, None]) for _ in range(rng.randrange(1, 6))] for _ in range(60)]
    end = sum(map(len, batches))
    account = Account(PARTITIONS, end)
    account.next_offsets = dict.fromkeys(PARTITIONS, 0)
    told: list[tuple[int, int]] = []
    cluster = cluster_of(*batches, partitions=2)
    async with consumer_of(cluster, max_partition_fetch_bytes=500) as consumer, asyncio.timeout(60):
        await consumer.assign(PARTITIONS)
        while min(account.next_offsets.values()) < end:
            try:
                await cancelled_at_wait(rng.choice([1, 2, 3, WAITS_MAX]), read_once(consumer, account, rng))
            except RecordDecodeError as error:
                place = TopicPartition(error.record.topic, error.record.partition)
                told.append((account.next_offsets[place], error.record.offset))
                account.seek(consumer, place, error.record.offset + 1)
            for partition, next_offset in account.next_offsets.items():
                assert consumer.position(partition) == next_offset
    assert told
    assert all(handed_out == offset for handed_out, offset in told)  # all before it


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_or_handed_out_twice_without_async_either(seed: int) -> None:
    rng = random.Random(seed)
    kinds: list[bytes | None] = [b"a", BAD, None]
    batches = [[rng.choice(kinds) for _ in range(rng.randrange(1, 6))] for _ in range(40)]
    account = Account(PARTITIONS, sum(map(len, batches)))
    told: list[tuple[int, int]] = []
    account.next_offsets = dict.fromkeys(PARTITIONS, 0)
    cluster = cluster_of(*batches, partitions=2)
    settings: dict[str, Any] = {"fetch_max_wait_ms": 20, "max_partition_fetch_bytes": 500}
    with SyncConsumer(cluster.bootstrap, transport=cluster.transport(), value=str, **settings) as consumer:
        consumer.assign(PARTITIONS)
        while min(account.next_offsets.values()) < account.end_offset:
            try:
                kind = (
                    rng.choice(["iterate", "poll", "batches"]) if told else "poll"
                )  # batches are raw: nothing is told there
                if kind == "iterate":  # also leaves records that are polled and not handed out
                    left = sum(account.end_offset - offset for offset in account.next_offsets.values())
                    for _, record in zip(range(min(left, rng.randrange(1, 9))), consumer, strict=False):
                        account.take([record])
                elif kind == "poll":
                    account.take(consumer.poll(rng.choice([1, 3, 100]), timeout_ms=50))
                else:
                    account.take(consumer.fetch_batches(timeout_ms=50))
            except RecordDecodeError as error:
                place = TopicPartition(error.record.topic, error.record.partition)
                told.append((account.next_offsets[place], error.record.offset))
                account.seek(consumer, place, error.record.offset + 1)
            for partition, next_offset in account.next_offsets.items():
                assert consumer.position(partition) == next_offset
    assert told
    assert all(handed_out == offset for handed_out, offset in told)


async def test_what_cannot_be_decoded_is_skipped_counted_and_told_seldom(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of([BAD, b"a", BAD], [BAD] * 3, [None, b"b"], [BAD])
    async with consumer_of(cluster, on_undecodable="skip") as consumer:
        await consumer.assign_topic("t")
        with caplog.at_level(logging.WARNING):
            found = [await anext(consumer) for _ in range(3)]
            assert await consumer.poll(timeout_ms=1) == []
        assert [(record.offset, record.value) for record in found] == [(1, "a"), (6, None), (7, "b")]
        assert (consumer.undecodable_count, consumer.position(("t", 0))) == (6, 9)
        lines = [line.getMessage() for line in caplog.records if line.msg.startswith("left out")]
        assert [line.split()[3] for line in lines] == ["1", "2", "4"]
        assert lines[0].endswith("can't decode byte 0xff in position 0: invalid start byte")


async def test_a_read_that_skips_and_skips_ends_when_its_time_is_over() -> None:
    cluster = cluster_of(*[list[bytes | None]([b"\xff" * 5_000]) * 4] * 200)  # 4 MB
    async with consumer_of(cluster, on_undecodable="skip", max_partition_fetch_bytes=8 << 20) as consumer:
        await consumer.assign_topic("t")
        while not consumer.undecodable_count:
            assert await consumer.poll(timeout_ms=0) == []
            await asyncio.sleep(0)
        assert consumer.undecodable_count < 100
        async with asyncio.timeout(60):
            while consumer.position(("t", 0)) < 800:
                await consumer.poll(timeout_ms=0)
        assert consumer.undecodable_count == 800


class Moody:
    """A codec whose server does not answer for a while."""

    def __init__(self) -> None:
        self.is_down = True

    def encode(self, value: str, /) -> bytes:
        return value.encode()

    def decode(self, data: bytes, /) -> str:
        if self.is_down and data == b"b":
            raise RequestTimedOutError("the server of the codec does not answer")
        return data.decode()


@pytest.mark.parametrize("policy", ["raise", "skip"])
async def test_trouble_that_is_not_the_records_skips_none_of_them(policy: Any) -> None:
    codec, cluster = Moody(), cluster_of([b"a"], [b"b"], [b"c"])
    settings: dict[str, Any] = {"on_undecodable": policy, "fetch_max_wait_ms": 20}
    async with Consumer(cluster.bootstrap, transport=cluster.transport(), value=codec, **settings) as consumer:
        await consumer.assign_topic("t")
        assert [record.value for record in await consumer.poll()] == ["a"]
        for _ in range(2):
            with pytest.raises(RequestTimedOutError, match="the server of the codec"):
                await consumer.poll()
        codec.is_down = False
        found = [(await anext(consumer)).value for _ in range(2)]
        assert (found, consumer.undecodable_count) == (["b", "c"], 0)


async def test_what_cannot_be_encoded_is_not_sent_and_what_can_is() -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    async with Producer(cluster.bootstrap, transport=cluster.transport(), key=str, value=Order) as producer:
        wrong: Any = {"table": "7"}
        refused: list[tuple[Any, Any]] = [(wrong, "k"), (Order("7"), b"k")]
        for value, key in refused:
            with pytest.raises(RecordEncodeError, match=r"of a record for t was not sent, for"):
                await producer.send("t", value, key)
        await producer.send("t", Order("0"), "k0")
        await producer.send("t", None, "k1")
        await producer.send_many("t", [Order("2"), (Order("3"), "k3"), (None, "k4"), None])
        many: Any = [Order("6"), wrong, Order("7")]
        with pytest.raises(RecordEncodeError):
            await producer.send_many("t", many)
    data = b"".join(cluster.logs["t", 0].batches)
    read = [(record.key, record.value) for record in decode_records(data)]
    orders = [value and b'{"table":"%s"}' % value for value in (b"0", None, b"2", b"3", None, None, b"6")]
    assert read == list(zip([b"k0", b"k1", None, b"k3", b"k4", None, None], orders, strict=True))


async def test_an_encoded_value_goes_the_long_way_too() -> None:
    """Without a place in a batch, with a partitioner of one's own, and where a record is large."""

    class First:
        def partition(self, *_: object) -> int:
            return 0

    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    large = Order("x" * 20_000)
    for partitioner in (None, First()):
        settings: Any = {"partitioner": partitioner, "transport": cluster.transport()}
        async with Producer(cluster.bootstrap, value=Order, **settings) as producer:
            await producer.send("t", large)
            await producer.send_many("t", [large, Order("1")], partition=None)
    async with Consumer(cluster.bootstrap, transport=cluster.transport(), value=Order) as consumer:
        await consumer.assign_topic("t")
        found = [(await anext(consumer)).value for _ in range(6)]
    assert found == [large, large, Order("1")] * 2


def test_clients_without_async_have_codecs_too() -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    transport: Any = cluster.transport()
    with SyncProducer(cluster.bootstrap, transport=transport, value=Json()) as producer:
        producer.send("t", {"a": 1})
        producer.send("t", "two").result()
    with SyncConsumer(cluster.bootstrap, transport=cluster.transport(), value=Json(dict)) as consumer:
        consumer.assign_topic("t")
        assert next(consumer).value == {"a": 1}
        with pytest.raises(RecordDecodeError, match=r"Json\(dict\): ValidationError"):
            next(consumer)
        assert consumer.position(("t", 0)) == 1
        consumer.seek(("t", 0), 2)
        assert consumer.poll(timeout_ms=1) == []
        assert consumer.undecodable_count == 0


@pytest.mark.parametrize(
    ("client", "setting", "advice"),
    [
        (Producer, "value_serializer", r"use value: a type such as str, or a codec \(docs/RECORDS.md\)"),
        (SyncConsumer, "key_deserializer", "use key: a type such as str"),
        (Consumer, "value_codec", "did you mean value"),
        (Consumer, "on_undecodeable", "did you mean on_undecodable"),
    ],
)
def test_other_names_of_codecs_are_refused_with_ours(client: Any, setting: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        client("localhost:1", **{setting: str})
