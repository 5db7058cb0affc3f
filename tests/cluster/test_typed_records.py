"""Records with codecs, with a real broker: the programs of docs/RECORDS.md, and what workers do about what cannot be decoded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from fractions import Fraction
from typing import Any

import msgspec
import pytest

import replog
from replog import Admin, Consumer, Producer, Worker
from replog.client import ConsumerRecord
from replog.codecs import registry as registry_module
from replog.codecs.registry import SchemaRegistry
from replog.errors import (
    ConfigError,
    RecordDecodeError,
    RegistryNotAvailableError,
    RequestTimedOutError,
)
from replog.worker import DeadLetter
from replog.worker import worker as worker_module
from tests.lint import page_examples
from tests.schema_registry import served_registry

DEADLINE_S = 60


class Order(msgspec.Struct):
    total: int


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with replog.embedded() as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            for topic in ("orders", "dead"):
                await admin.create_topic(topic, 1)
        yield broker.bootstrap_servers


async def fill(servers: str) -> None:
    """Five records, of which the third is none of ours."""
    async with Producer(servers) as producer:
        await producer.send_many("orders", [b'{"total":0}', b'{"total":1}', (b"no order", b"k"), None, b'{"total":4}'])


async def work(worker: Worker[Any, Any], until: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run())
        while not until() and not running.done():
            await asyncio.sleep(0.01)
        worker.stop()
        await running


async def committed(servers: str) -> int:
    async with Admin(servers) as admin:
        return next(iter((await admin.group_offsets("g")).values()))


async def dead_letter(servers: str) -> ConsumerRecord:
    async with Consumer(servers) as consumer, asyncio.timeout(DEADLINE_S):
        await consumer.assign_topic("dead")
        return await consumer.getone()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_worker_writes_what_cannot_be_decoded_to_the_dead_letters_as_it_is(
    servers: str, is_async: bool
) -> None:
    seen: list[int | None] = []

    def handle(record: ConsumerRecord[bytes, Order]) -> None:
        seen.append(record.value.total if record.value else None)

    async def handle_async(record: ConsumerRecord[bytes, Order]) -> None:
        handle(record)

    await fill(servers)
    handler = handle_async if is_async else handle
    await work(
        Worker(handler, "orders", group="g", bootstrap_servers=servers, value=Order, dead_letter_topic="dead"),
        lambda: len(seen) == 4,
    )
    letter = await dead_letter(servers)
    assert (seen, await committed(servers)) == ([0, 1, None, 4], 5)
    assert (letter.key, letter.value) == (b"k", b"no order")
    told = DeadLetter.from_headers(letter.headers)
    assert told is not None
    assert (told.offset, told.attempts) == (2, 0)
    assert told.error == (
        "RecordDecodeError: orders-0 offset 2: the value cannot be decoded by Json(Order): DecodeError: JSON is malformed: "
        "invalid character (byte 4)"
    )


async def test_a_worker_without_dead_letters_ends_in_front_of_what_cannot_be_decoded_or_skips_it(servers: str) -> None:
    seen: list[Order | None] = []

    async def handle(record: ConsumerRecord[bytes, Order]) -> None:
        seen.append(record.value)

    await fill(servers)
    for _ in range(2):  # the next start begins there
        with pytest.raises(RecordDecodeError, match="Mend the codec and start the worker again") as raised:
            await work(Worker(handle, "orders", group="g", bootstrap_servers=servers, value=Order), lambda: False)
        assert (raised.value.record.value, await committed(servers)) == (b"no order", 2)
    skipping = Worker(handle, "orders", group="g", bootstrap_servers=servers, value=Order, on_undecodable="skip")
    await work(skipping, lambda: len(seen) == 4)
    assert (seen, await committed(servers)) == ([Order(0), Order(1), None, Order(4)], 5)


async def test_a_worker_tries_again_where_the_trouble_is_not_the_records(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as it takes; and a decoding error of another consumer's, which the handler raises, is the handler's."""
    monkeypatch.setattr(worker_module, "CODEC_PAUSE_S", 0.001)
    troubles: list[Exception] = [RequestTimedOutError("no answer")] * 9
    values: list[str | None] = []

    class Moody:
        def encode(self, value: str, /) -> bytes:
            return value.encode()

        def decode(self, data: bytes, /) -> str:
            if troubles:
                raise troubles.pop()
            return data.decode()

    async def handle(record: ConsumerRecord[bytes, str]) -> None:
        values.append(record.value)
        if len(values) == 1:
            raise RecordDecodeError("of another consumer", ConsumerRecord(*record[:5], b"", b"", ()))

    await fill(servers)
    settings: dict[str, Any] = {"retries": 1, "retry_backoff_ms": 1, "bootstrap_servers": servers}
    worker = Worker(handle, "orders", group="g", value=Moody(), dead_letter_topic="dead", **settings)
    await work(worker, lambda: len(values) == 6)
    assert values == ['{"total":0}', '{"total":0}', '{"total":1}', "no order", None, '{"total":4}']
    assert not troubles


@pytest.mark.parametrize("policy", ["raise", "skip"])
async def test_no_record_is_passed_over_while_a_registry_does_not_answer(
    servers: str, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(registry_module, "PAUSE_S", 0.0)
    with served_registry() as registry:
        async with Producer(servers, value=SchemaRegistry(registry.url).json(Order, subject="orders")) as producer:
            await producer.send_many("orders", [Order(number) for number in range(5)])
        registry.refusal = 503
        codec = SchemaRegistry(registry.url).json(Order, subject="orders")
        async with Consumer(servers, value=codec, on_undecodable=policy) as consumer, asyncio.timeout(DEADLINE_S):
            await consumer.assign_topic("orders")
            for _ in range(2):
                with pytest.raises(RegistryNotAvailableError):
                    await consumer.getone()
            registry.refusal = 0
            found = [(await consumer.getone()).value for _ in range(5)]
    assert (found, consumer.undecodable_count) == ([Order(number) for number in range(5)], 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on_undecodable": "dead_letter"}, "name the dead_letter_topic, too"),
        ({"on_undecodable": "drop"}, 'must be one of "raise", "skip", "dead_letter"'),
        ({"value_deserializer": str}, "Worker has no setting value_deserializer: use value"),
        ({"consumer_settings": {"value": str}}, "which the worker sets itself"),
        ({"value": int}, "Is it JSON"),
    ],
)
def test_a_worker_refuses_settings_that_mean_nothing(settings: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Worker(print, "orders", group="g", **settings)


def test_an_argument_of_a_worker_without_its_name_says_the_right_call() -> None:
    misplaced: Any = ["127.0.0.1:9092"]
    for function in (Worker, replog.run):
        with pytest.raises(ConfigError, match=r'write Worker\(handler, "orders", group="readers"'):
            function(print, "orders", *misplaced, group="g")


async def test_the_programs_of_the_page_run(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, own, passing, with_schemas = page_examples.blocks("docs/RECORDS.md")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", program.replace("127.0.0.1:9092", servers)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await process.stdout.readline() == b"table-7 Order(table='7', total=12)\n"
    finally:
        process.kill()
        await process.communicate()
    names: dict[str, Any] = {}
    exec(own, names)
    exec(passing, names)
    printed: list[tuple[object, ...]] = []
    names["print"] = lambda *shown: printed.append(shown)
    async with Producer(servers) as producer:
        await producer.send_many("dead", [b"1/3", b"none", b"2/3"])
    async with Consumer(servers, value=names["Share"]()) as consumer, asyncio.timeout(DEADLINE_S):
        await consumer.assign_topic("dead")
        reading = asyncio.create_task(names["read"](consumer))
        while len(printed) < 3:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
    assert printed == [(Fraction(1, 3),), ("passed over:", 1, b"none"), (Fraction(2, 3),)]
    monkeypatch.setenv("no_proxy", "*")
    with served_registry() as registry:
        exec(with_schemas.replace("http://127.0.0.1:8081", registry.url), names)
        for codec in (names["fares_as_json"], names["fares_as_avro"]):
            fare = names["Fare"]("a", 1)
            assert codec.decode(codec.encode(fare)) == fare
