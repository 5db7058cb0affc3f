"""The clients of others log in at a broker of ours, by each mechanism that they have; Kafka's tools manage its users."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from client_kafka_python import KafkaConsumer, KafkaProducer  # where it is imported without its warnings
from confluent_kafka import Consumer, KafkaError, Producer
from kafka_install import KafkaInstall
from kafka_tools import Tools
from secure_doors import PASSWORD, USER, SecureDoors

from replog.client import Admin, Security, SyncAdmin
from replog.errors import SaslAuthenticationError

TIMEOUT_S = 60
VALUES = [b"%d" % number for number in range(20)]
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")

_numbers = itertools.count(1)

Client = Callable[[SecureDoors, str, str], "list[bytes | None]"]


def confluent(doors: SecureDoors, mechanism: str, topic: str) -> list[bytes | None]:
    """librdkafka writes and reads."""
    shared: dict[str, Any] = {
        "bootstrap.servers": doors.at("SASL_SSL"),
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(doors.certs / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    if mechanism == "OAUTHBEARER":
        shared["oauth_cb"] = lambda _config: (doors.token(), 2e9)
    producer = Producer(shared)
    for value in VALUES:
        producer.produce(topic, value)
    assert not producer.flush(TIMEOUT_S)
    consumer = Consumer(shared | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(len(VALUES), TIMEOUT_S)]
    finally:
        consumer.close()


class _Token:
    def __init__(self, doors: SecureDoors) -> None:
        self._doors = doors

    def token(self) -> str:
        return self._doors.token()


def pure_python(doors: SecureDoors, mechanism: str, topic: str) -> list[bytes | None]:
    """kafka-python does the same."""
    shared: dict[str, Any] = {
        "bootstrap_servers": doors.at("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(doors.certs / "ca.pem"),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        from kafka.net.sasl.oauth import AbstractTokenProvider as Provider

        shared["sasl_oauth_token_provider"] = type("Token", (_Token, Provider), {})(doors)
    else:
        shared |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(**shared)
    try:
        for one in [producer.send(topic, value) for value in VALUES]:
            one.get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **shared
    )
    try:
        return [message.value for _, message in zip(VALUES, consumer, strict=False)]
    finally:
        consumer.close()


class _AioToken(AbstractTokenProvider):
    def __init__(self, doors: SecureDoors) -> None:
        self._doors = doors

    async def token(self) -> str:
        return self._doors.token()


def aio(doors: SecureDoors, mechanism: str, topic: str) -> list[bytes | None]:
    """aiokafka does the same."""
    shared: dict[str, Any] = {
        "bootstrap_servers": doors.at("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(doors.certs / "ca.pem")),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }

    async def run() -> list[bytes | None]:
        if mechanism == "OAUTHBEARER":
            shared["sasl_oauth_token_provider"] = _AioToken(doors)
        async with asyncio.timeout(TIMEOUT_S):
            async with AIOKafkaProducer(**shared) as producer:
                for value in VALUES:
                    await producer.send_and_wait(topic, value)
            async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **shared) as consumer:
                return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(run())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [confluent, pure_python, aio])
async def test_clients_log_in_write_and_read(our_doors: SecureDoors, client: Client, mechanism: str) -> None:
    topic = f"logins-of-others-{next(_numbers)}"
    async with Admin(our_doors.at("PLAINTEXT")) as admin:
        await admin.create_topic(topic, 1, 1)
    assert await asyncio.to_thread(client, our_doors, mechanism, topic) == VALUES


def test_librdkafka_with_a_wrong_password_hears_so(our_doors: SecureDoors) -> None:
    told: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": our_doors.at("SASL_PLAINTEXT"),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": "wrong",
            "error_cb": told.append,
        }
    )
    producer.produce("t", b"v")
    while not any(error.code() == KafkaError._AUTHENTICATION for error in told):
        producer.poll(0.1)


async def test_javas_tools_log_in_and_manage_users(our_doors: SecureDoors, kafka: KafkaInstall, tmp_path: Path) -> None:
    """Goal: kafka-configs adds a user, who logs in by Java's console clients, and takes it away again."""
    user, topic, path = f"java-{next(_numbers)}", f"java-logins-{next(_numbers)}", tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={our_doors.certs / 'ca.pem'}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="canary";\n'
    )
    plain, secure = Tools(kafka, our_doors.at("PLAINTEXT")), Tools(kafka, our_doors.at("SASL_SSL"))
    entity = ("--entity-type", "users", "--entity-name", user)

    def run(tools: Tools, *words: str, stdin: str = "") -> str:
        return tools.run(*words, stdin=stdin)

    given = "SCRAM-SHA-512=[iterations=8192,password=canary]"
    done = await asyncio.to_thread(run, plain, "kafka-configs", "--alter", *entity, "--add-config", given)
    assert done == f"Completed updating config for user {user}.\n"
    told = await asyncio.to_thread(run, plain, "kafka-configs", "--describe", *entity)
    assert told == f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-512=iterations=8192\n"
    made = ("kafka-topics", "--create", "--topic", topic, "--command-config", str(path))
    assert await asyncio.to_thread(run, secure, *made) == f"Created topic {topic}.\n"
    own = ("kafka-console-producer", "--topic", topic, "--producer.config", str(path))
    await asyncio.to_thread(run, secure, *own, stdin="a\nb\n")
    reading = ("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2")
    assert await asyncio.to_thread(run, secure, *reading, "--consumer.config", str(path)) == "a\nb\n"
    removed = ("kafka-configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    assert await asyncio.to_thread(run, plain, *removed) == f"Completed updating config for user {user}.\n"
    with SyncAdmin(our_doors.at("PLAINTEXT")) as admin:
        assert user not in admin.list_users()
    security = Security.scram(user, "canary", tls=our_doors.tls())
    async with Admin(our_doors.at("SASL_SSL"), security=security) as gone:
        with pytest.raises(SaslAuthenticationError):
            await gone.list_topics()
