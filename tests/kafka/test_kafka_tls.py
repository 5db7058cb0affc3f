"""The clients of others over TLS, each with a certificate of its own: they are who it says, and work as in plain text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from client_kafka_python import KafkaConsumer, KafkaProducer  # where it is imported without its warnings
from confluent_kafka import Consumer, KafkaException, Producer
from kafka_install import KafkaInstall
from kafka_tools import Tools

from replog.access.principal import Principal
from tests.unit.kafka.kafka_node_kit import Served
from tests.unit.kafka.tls_kit import TlsFiles, principals, serving_tls

COUNT = 200
TIMEOUT_S = 30
VALUES = [b"%d" % number * 500 for number in range(COUNT)]

Client = Callable[[str, TlsFiles, Path | None], "list[bytes | None]"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def confluent(servers: str, files: TlsFiles, own: Path | None) -> list[bytes | None]:
    """librdkafka writes, and a group of its own reads."""
    shared: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "ssl",
        "ssl.ca.location": str(files.authority.path),
        **({} if own is None else {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}),
    }
    producer = Producer(shared | {"message.timeout.ms": 5_000})
    for value in VALUES:
        producer.produce("t", value)
    if producer.flush(TIMEOUT_S):
        raise KafkaException("nothing was written")
    consumer = Consumer(shared | {"group.id": "confluent", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        return [message.value() for message in consumer.consume(COUNT, TIMEOUT_S)]
    finally:
        consumer.close()


def pure_python(servers: str, files: TlsFiles, own: Path | None) -> list[bytes | None]:
    """kafka-python does the same."""
    shared: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(files.authority.path),
        **({} if own is None else {"ssl_certfile": str(own), "ssl_keyfile": str(own)}),
    }
    producer = KafkaProducer(**shared)
    try:
        sent = [producer.send("t", value) for value in VALUES]
        for one in sent:
            one.get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(
        "t", group_id="python", auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **shared
    )
    try:
        return [message.value for _, message in zip(VALUES, consumer, strict=False)]
    finally:
        consumer.close()


def aio(servers: str, files: TlsFiles, own: Path | None) -> list[bytes | None]:
    """aiokafka does the same, with `asyncio`'s TLS."""
    shared: dict[str, Any] = {
        "bootstrap_servers": servers,
        "security_protocol": "SSL",
        "ssl_context": files.context(own),
    }

    async def run() -> list[bytes | None]:
        async with asyncio.timeout(2 * TIMEOUT_S):
            async with AIOKafkaProducer(**shared) as producer:
                for value in VALUES:
                    await producer.send_and_wait("t", value)
            async with AIOKafkaConsumer("t", group_id="aio", auto_offset_reset="earliest", **shared) as consumer:
                return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(run())


@pytest.mark.parametrize("client", [confluent, pure_python, aio])
async def test_clients_write_and_read_over_tls(files: TlsFiles, client: Client) -> None:
    async with serving_tls(files) as it:
        await it.create()
        seen = asyncio.create_task(_seen(it))
        assert await asyncio.to_thread(client, it.node.address, files, files.client) == VALUES
        assert await seen == Principal("CN=billing,O=Example")


async def _seen(it: Served) -> Principal | None:
    """Who the first client is that is known."""
    await it.until(lambda: any(principals(it)))
    return next(filter(None, principals(it)))


async def test_librdkafka_without_a_certificate_is_refused(files: TlsFiles) -> None:
    async with serving_tls(files) as it:
        await it.create()
        with pytest.raises(KafkaException, match="nothing was written"):
            await asyncio.to_thread(_briefly, it.node.address, files)


def _briefly(servers: str, files: TlsFiles) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "security.protocol": "ssl", "ssl.ca.location": str(files.authority.path)}
    )
    producer.produce("t", b"v")
    if producer.flush(3):
        raise KafkaException("nothing was written")


async def test_javas_tools_make_a_topic_write_and_read(files: TlsFiles, kafka: KafkaInstall, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={files.client}\nssl.truststore.location={files.authority.path}\n"
    )
    known = ("--command-config", str(settings))
    async with serving_tls(files) as it:
        tools = Tools(kafka, it.node.address)
        made = await asyncio.to_thread(tools.run, "kafka-topics", "--create", "--topic", "java", *known)
        assert made == "Created topic java.\n"
        own = ("--topic", "java", "--producer.config", str(settings))
        await asyncio.to_thread(tools.run, "kafka-console-producer", *own, stdin="a\nb\n")
        reading = ("--from-beginning", "--max-messages", "2", "--consumer.config", str(settings))
        read = await asyncio.to_thread(tools.run, "kafka-console-consumer", "--topic", "java", *reading)
        assert read == "a\nb\n"
