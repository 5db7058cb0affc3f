"""Our producer and consumer write and read records of Apache Kafka and of a replog broker: only what is committed.

All of it with the oldest Kafka that they are for comes in campaigns (`mark.campaign`), a little of it always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import client_functions as functions
import pytest
from brokers import KINDS, OLDEST_KAFKA, Broker, broker_of
from confluent_kafka import Producer as OtherProducer
from raw_client import RawClient

from replog.client import Admin, Consumer, Producer
from replog.client.admin.health import BrokerStanding, cluster_health
from replog.client.protocol.fetch_session import LinkFetchSession
from replog.errors import OffsetOutOfRangeError, RecordDecodeError, RecordTooLargeError, UnknownTopicOrPartitionError
from replog.wire.messages.fetch import FetchRequest, FetchResponse

COUNT = 5_000


def served(function: str) -> pytest.MarkDecorator:
    """A cell of docs/KAFKA_CLIENTS.md, in our own column: with both kinds of brokers."""
    return pytest.mark.served(function, client="replog")


@pytest.fixture(scope="session", params=KINDS)
def serving(request: pytest.FixtureRequest) -> Broker:
    """The brokers, of each kind in its turn."""
    return broker_of(request)


@pytest.fixture
def one(serving: Broker) -> str:
    """A topic with one partition."""
    return serving.topic(1)


@pytest.fixture
def three(serving: Broker) -> str:
    """A topic with three partitions."""
    return serving.topic(3)


@pytest.fixture
def twelve(serving: Broker) -> str:
    """A topic with twelve partitions."""
    return serving.topic(12)


async def read_values(consumer: Consumer, count: int) -> list[bytes | None]:
    async with asyncio.timeout(60):
        found: list[bytes | None] = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                return found
    raise AssertionError("the consumer ended")


@served(functions.PRODUCE)
@served(functions.CONSUME)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_in_order_with_keys_headers_and_times(serving: Broker, three: str, codec: Any) -> None:
    topic = three
    async with Producer(serving.servers, compression=codec) as producer:
        sent = [
            await producer.send(
                topic, b"%d" % number, key=b"k%d" % (number % 7), headers=[("h", b"x")], timestamp_ms=number + 1
            )
            for number in range(COUNT)
        ]
        placed = [await each for each in sent]
    async with Consumer(serving.servers) as consumer:
        await consumer.assign([(topic, number) for number in range(3)], start="earliest")
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with asyncio.timeout(60):
            while sum(map(len, seen.values())) < COUNT:
                for record in await consumer.poll(timeout_ms=500):
                    number = int(record.value or b"")
                    assert (record.key, record.timestamp, list(record.headers)) == (
                        b"k%d" % (number % 7), number + 1, [("h", b"x")],
                    )  # fmt: skip
                    assert (placed[number].partition, placed[number].offset) == (record.partition, record.offset)
                    seen[record.partition].append(number)
        assert all(numbers == sorted(numbers) for numbers in seen.values())


@dataclass
class Order:
    """What is in the records of the test below."""

    number: int


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_member_begins_at_the_record_that_it_could_not_decode(
    serving: Broker, one: str, compression: Any
) -> None:
    async with Producer(serving.servers, key=str, value=Order, compression=compression) as producer:
        await producer.send_many(one, [(Order(number), f"k{number}") for number in range(100)])
    async with Producer(serving.servers, compression=compression) as other:
        await other.send_many(one, [b"no order", None, b'{"number":102}'])
    settings: Any = {"group_id": f"of-{one}", "auto_offset_reset": "earliest"}
    for begin in (0, 100):
        async with Consumer(serving.servers, key=str, value=Order, **settings) as consumer, asyncio.timeout(60):
            await consumer.subscribe([one])
            for number in range(begin, 100):
                record = await consumer.getone()
                assert (record.offset, record.key, record.value) == (number, f"k{number}", Order(number))
            with pytest.raises(RecordDecodeError, match=r"JSON is malformed|Expected") as raised:
                await consumer.getone()
            assert (raised.value.record.offset, raised.value.record.value) == (100, b"no order")
    async with Consumer(serving.servers, value=Order, on_undecodable="skip", **settings) as consumer:
        await consumer.subscribe([one])
        async with asyncio.timeout(60):
            found = [(await consumer.getone()).value for _ in range(2)]
    assert (found, consumer.undecodable_count) == ([None, Order(102)], 1)


@served(functions.ACKS)
@served(functions.IDEMPOTENCE)
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_each_way_of_acknowledging(serving: Broker, one: str, acks: Any) -> None:
    topic = one
    async with Producer(serving.servers, acks=acks, enable_idempotence=acks == "all") as producer:
        for number in range(100):
            await producer.send(topic, b"%d" % number)
    async with Consumer(serving.servers) as consumer:
        await consumer.assign([(topic, 0)], start="earliest")
        assert await read_values(consumer, 100) == [b"%d" % number for number in range(100)]


@served(functions.TOO_LARGE)
async def test_a_record_that_is_too_large_is_refused_and_the_next_one_taken(serving: Broker, one: str) -> None:
    async with Producer(serving.servers) as producer:
        with pytest.raises(RecordTooLargeError):
            await (await producer.send(one, b"x" * 2_000_000))
        assert (await (await producer.send(one, b"next"))).offset == 0


async def test_batches_are_as_small_as_the_topic_wants_them(serving: Broker) -> None:
    topic = await asyncio.to_thread(serving.topic, 1, max_message_bytes=20_000)
    async with Producer(serving.servers) as producer:
        await (await producer.send_many(topic, [b"x" * 1_000] * 200))
        sent = [await producer.send(topic, b"x" * 1_000) for _ in range(200)]
        assert [(await each).offset for each in sent] == list(range(200, 400))


@served(functions.SEEK)
@served(functions.OFFSETS)
async def test_places_by_time_and_beyond_the_ends(serving: Broker, one: str) -> None:
    topic = one
    async with Producer(serving.servers) as producer:
        for number in range(10):
            await (await producer.send(topic, b"%d" % number, timestamp_ms=1_000 + number))
    async with Consumer(serving.servers) as consumer:
        found = await consumer.offsets_for_times({(topic, 0): 1_004})
        assert [each.offset for each in found.values() if each is not None] == [4]
        await consumer.assign([(topic, 0)], start={(topic, 0): 99})
        with pytest.raises(OffsetOutOfRangeError, match="offset 99 does not exist; the log has offsets 0 to 10"):
            await consumer.poll(timeout_ms=10_000)


async def test_fetches_name_what_is_new_and_a_session_that_is_gone_begins_anew(
    serving: Broker, twelve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a reader of many partitions does not name and hear of all of them each time, and none is forgotten on the way."""
    topic, count = twelve, 12
    sent: list[tuple[int, int, int]] = []
    real = LinkFetchSession.request

    def noted(self: LinkFetchSession, fetch: Any) -> Any:
        request = real(self, fetch)
        named = sum(len(each.partitions) for each in request.topics)
        sent.append((request.session_id, request.session_epoch, named))
        return request

    monkeypatch.setattr(LinkFetchSession, "request", noted)
    async with Producer(serving.servers) as producer, Consumer(serving.servers, fetch_max_wait_ms=100) as consumer:
        await consumer.assign([(topic, number) for number in range(count)], start="earliest")

        async def write_and_read(value: bytes) -> None:
            for number in range(count):
                await (await producer.send(topic, value, partition=number))
            found = await read_values(consumer, count)
            assert found == [value] * count

        await write_and_read(b"first")
        await until(lambda: any(named == 0 for _, _, named in sent[-2:]))
        session_id, epoch, _ = next(each for each in sent if each[2] == count)
        assert (session_id, epoch) == (0, 0)
        assert max(named for asked_of, _, named in sent if asked_of) < count
        session_id = sent[-1][0]
        assert session_id
        before = len(sent)
        raw = RawClient(serving.servers)
        await asyncio.to_thread(raw.ask, FetchRequest(session_id=session_id, session_epoch=-1), 17, FetchResponse)
        raw.connection.close()
        await write_and_read(b"second")
        assert any(each[:2] == (0, 0) for each in sent[before:])
        consumer.seek((topic, 3), 0)
        assert await read_values(consumer, 2) == [b"first", b"second"]
        await write_and_read(b"third")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_topic_that_is_not_there_is_an_error_of_its_own(serving: Broker) -> None:
    async with Producer(serving.servers) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="does not exist"):
            await producer.send("no-such-topic", b"x")


@pytest.mark.kafka
@pytest.mark.parametrize("serving", [OLDEST_KAFKA], indirect=True)
async def test_the_oldest_kafka_takes_and_gives_records_and_is_administered(serving: Broker) -> None:
    async with (
        Admin(serving.servers) as admin,
        Producer(serving.servers) as producer,
        Consumer(serving.servers) as consumer,
    ):
        topic = (await admin.create_topic("smoke", 1, 1, {"retention.ms": 5_000_000})).name
        await admin.create_partitions(topic, 2)
        await consumer.assign([(topic, 1)])
        sent = [await producer.send(topic, b"%d" % number, partition=1) for number in range(10)]
        assert [(await each).offset for each in sent] == list(range(10))
        assert await read_values(consumer, 10) == [b"%d" % number for number in range(10)]
        assert (await consumer.end_offsets([(topic, 1)]))[topic, 1] == 10
        health = await cluster_health(admin)
        assert ([one.state for one in health.brokers], health.is_healthy) == ([BrokerStanding.IN_SERVICE], True)
        await admin.delete_topic(topic)
        assert topic not in await admin.list_topics()


@pytest.mark.kafka
@pytest.mark.parametrize("serving", ["kafka"], indirect=True)
async def test_a_reader_of_kafka_sees_no_record_of_an_aborted_transaction(serving: Broker, one: str) -> None:
    topic = one

    def write() -> None:
        producer = OtherProducer({"bootstrap.servers": serving.servers, "transactional.id": f"of-{topic}"})
        producer.init_transactions(30)
        for number, is_committed in enumerate((True, False, True, False)):
            producer.begin_transaction()
            for value in range(3):
                producer.produce(topic, b"%d-%d" % (number, value))
            producer.flush(30)
            producer.commit_transaction(30) if is_committed else producer.abort_transaction(30)

    await asyncio.to_thread(write)
    async with Producer(serving.servers) as last:
        await (await last.send(topic, b"last"))
    async with Consumer(serving.servers) as consumer:
        await consumer.assign([(topic, 0)], start="earliest")
        expected = [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2", b"last"]
        assert await read_values(consumer, len(expected)) == expected
        assert consumer.position((topic, 0)) == 17  # with four markers
