"""What type checkers must know of records with codecs; `make lint` has mypy and pyright look at it.  It is never run."""

from __future__ import annotations

import dataclasses
from typing import Any, assert_type

import msgspec
import pydantic

import replog
from replog import Consumer, Producer, Worker
from replog.client import ConsumerRecord, SyncConsumer, SyncProducer, TopicPartition
from replog.codecs import Json


class Order(msgspec.Struct):
    table: str


@dataclasses.dataclass
class Ride:
    taxi: str


class Flight(pydantic.BaseModel):
    number: str


class Own:
    def encode(self, value: complex, /) -> bytes:
        return repr(value).encode()

    def decode(self, data: bytes, /) -> complex:
        return complex(data.decode())


async def plain(producer: Producer, consumer: Consumer) -> None:
    assert_type(producer, Producer[bytes, bytes])
    assert_type(consumer, Consumer[bytes, bytes])
    assert_type(Producer("localhost:9092"), Producer[bytes, bytes])
    async with Consumer("localhost:9092", group_id="g") as made:
        assert_type(made, Consumer[bytes, bytes])
        assert_type((await made.poll())[0], ConsumerRecord)
        assert_type((await made.getone()).value, bytes | None)
    await producer.send("t", b"value", b"key")
    await producer.send_many("t", [b"value", (None, b"key")])


async def typed() -> None:
    async with Producer("localhost:9092", key=str, value=Order) as producer:
        assert_type(producer, Producer[str, Order])
        await producer.send("t", Order("7"), "key")
        await producer.send("t", None)
        await producer.send("t", b"bytes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await producer.send_many("t", [Order("7"), (Order("8"), "key"), None])
    async with Consumer("localhost:9092", value=Ride, on_undecodable="skip") as consumer:
        assert_type(consumer, Consumer[bytes, Ride])
        async for record in consumer:
            assert_type(record, ConsumerRecord[bytes, Ride])
            assert_type(record.value, Ride | None)
        assert_type(await consumer.getmany(), dict[TopicPartition, list[ConsumerRecord[bytes, Ride]]])
    assert_type(Consumer("localhost:9092", value=Flight), Consumer[bytes, Flight])
    assert_type(Consumer("localhost:9092", value=Own()), Consumer[bytes, complex])
    assert_type(Consumer("localhost:9092", value=Json(Order)), Consumer[bytes, Order])
    assert_type(Consumer("localhost:9092", value=Json()), Consumer[bytes, Any])
    assert_type(Consumer("localhost:9092", value=Json(Order | Ride)), Consumer[bytes, Any])


def without_async() -> None:
    assert_type(SyncProducer("localhost:9092"), SyncProducer[bytes, bytes])
    with SyncProducer("localhost:9092", value=Order) as producer:
        assert_type(producer, SyncProducer[bytes, Order])
        producer.send("t", Order("7"))
    with SyncConsumer("localhost:9092", key=str, value=Order) as consumer:
        assert_type(consumer, SyncConsumer[str, Order])
        assert_type(consumer.poll(), list[ConsumerRecord[str, Order]])
        for record in consumer:
            assert_type(record.key, str | None)


async def charge(record: ConsumerRecord[bytes, Order]) -> None:
    print(record.value)


def keep(record: ConsumerRecord) -> None:
    assert_type(record.value, bytes | None)


def work() -> None:
    replog.run(charge, "orders", group="billing", value=Order, concurrency=8)
    replog.run(keep, "orders", group="billing")
    assert_type(Worker(charge, "orders", group="billing", value=Order), Worker[bytes, Order])
    assert_type(Worker(keep, "orders", group="billing"), Worker[bytes, bytes])
    replog.run(charge, "orders", group="billing", value=Ride)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
