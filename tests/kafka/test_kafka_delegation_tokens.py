"""Delegation tokens at Kafka's brokers and at ours, by our clients and by Kafka's own tools."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from kafka_install import KafkaInstall
from secure_doors import PASSWORD, USER, SecureDoors
from test_kafka_security import a_topic

from replog.client import Admin, Consumer, Producer, Security
from replog.client.protocol.questions.delegation_tokens import HeldToken
from replog.errors import (
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    SaslAuthenticationError,
)

T = TypeVar("T")

WAIT_S = 60
DAY_MS = 24 * 3_600_000
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_users = itertools.count(1)


def holding(doors: SecureDoors, held: HeldToken, mechanism: str = "SCRAM-SHA-512") -> Security:
    """A login with a token, over TLS."""
    return Security.delegation_token(
        held.token.token_id,
        held.hmac.reveal(),
        mechanism=mechanism,  # type: ignore[arg-type] # one of the two
        tls=doors.tls(),
    )


async def eventually(call: Callable[[], Awaitable[T]]) -> T:
    """Returns the answer once brokers, and the controller of Kafka, have heard of the token."""
    answers: list[T] = []
    async with asyncio.timeout(WAIT_S):
        while not answers:
            with contextlib.suppress(SaslAuthenticationError, DelegationTokenNotFoundError):
                answers.append(await call())
            await asyncio.sleep(0.05)
    return answers[0]


async def _end(admin: Admin, held: HeldToken) -> None:
    """Ends the token until it is not found.

    Kafka's controller decides by a cache that follows its log: a renewal that comes before the cache has heard of
    the end writes the token anew, for good. An end that comes early ends it once more.
    """
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(DelegationTokenNotFoundError):
            await forever(lambda: admin.expire_delegation_token(held.hmac))


async def forever(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        await call()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_job_with_a_token_writes_and_reads(doors: SecureDoors, mechanism: str) -> None:
    topic, servers = await a_topic(doors), doors.at("SASL_SSL")
    async with Admin(servers, security=doors.scram()) as admin:
        held = await admin.create_delegation_token(renewers=["bob"], max_lifetime_ms=DAY_MS // 2)
    token = held.token
    assert (token.owner, token.requester, token.renewers) == (USER, USER, ("bob",))
    assert token.expiry_timestamp_ms == token.max_timestamp_ms == token.issue_timestamp_ms + DAY_MS // 2
    security = holding(doors, held, mechanism)

    async def write() -> None:
        async with Producer(servers, security=security) as producer:
            await (await producer.send(topic, b"v"))

    await eventually(write)
    async with Consumer(servers, security=security) as consumer, asyncio.timeout(WAIT_S):
        await consumer.assign_topic(topic)
        assert [each.value for each in await consumer.poll()] == [b"v"]
    async with Admin(servers, security=security) as admin:
        with pytest.raises(DelegationTokenRequestNotAllowedError, match="not with a delegation token"):
            await admin.create_delegation_token()


async def test_owner_and_renewers_renew_and_end_a_token(doors: SecureDoors) -> None:
    renewer = f"renewer-{next(_users)}"
    await asyncio.to_thread(doors.add_user, renewer, "canary-of-a-renewer")
    as_renewer = Security.scram(renewer, "canary-of-a-renewer", tls=doors.tls())
    servers = doors.at("SASL_SSL")
    async with Admin(servers, security=doors.scram()) as owner, Admin(servers, security=as_renewer) as other:
        own, shared = await owner.create_delegation_token(), await owner.create_delegation_token(renewers=[renewer])
        with pytest.raises(DelegationTokenOwnerMismatchError):
            await eventually(lambda: other.renew_delegation_token(own.hmac))
        soon_ms = await eventually(lambda: other.renew_delegation_token(shared.hmac, period_ms=60_000))
        assert soon_ms < shared.token.expiry_timestamp_ms
        later_ms = await owner.expire_delegation_token(shared.hmac, period_ms=2 * DAY_MS)
        assert soon_ms < later_ms < shared.token.max_timestamp_ms
        told: list[HeldToken] = []
        async with asyncio.timeout(WAIT_S):
            while not told:  # the broker may hear of a token later than the controller
                told = list(await other.describe_delegation_tokens([renewer]))
        assert [(each.token.token_id, each.hmac) for each in told] == [(shared.token.token_id, shared.hmac)]
        assert own.token.token_id in {each.token.token_id for each in await owner.describe_delegation_tokens([USER])}
        await _end(other, shared)
        with pytest.raises(DelegationTokenNotFoundError):
            await owner.renew_delegation_token(shared.hmac)


async def test_a_consumer_whose_token_is_ended_hears_it_when_its_login_is_renewed(doors: SecureDoors) -> None:
    """Goal: it raises what says so, as where a user is deleted; nothing waits for its time-out."""
    topic, servers = await a_topic(doors), doors.at("RENEWED")
    async with Admin(servers, security=doors.scram()) as admin:
        held = await admin.create_delegation_token()

        async def connect() -> None:
            async with Admin(servers, security=holding(doors, held)) as holder:
                await holder.list_topics()

        await eventually(connect)
        async with Consumer(servers, security=holding(doors, held)) as consumer, asyncio.timeout(WAIT_S):
            await consumer.assign_topic(topic)
            await consumer.poll(timeout_ms=100)
            await admin.expire_delegation_token(held.hmac)
            with pytest.raises(SaslAuthenticationError, match=rf'with delegation token "{held.token.token_id}"'):
                await forever(consumer.poll)


def settings(doors: SecureDoors, folder: Path, name: str, password: str, *, by_token: bool = False) -> str:
    """Writes a file of settings for Kafka's tools; returns its name."""
    path = folder / f"client-{by_token}.properties"
    tokenauth = ' tokenauth="true"' if by_token else ""
    path.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={doors.certs}/ca.pem\n"
        f"sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={MODULE} required username="{name}" password="{password}"{tokenauth};\n'
    )
    return str(path)


@pytest.mark.served("kafka-delegation-tokens: create, describe, renew, expire", client="tools")
def test_kafkas_own_tools_make_use_and_end_tokens_of_ours(
    our_doors: SecureDoors, kafka: KafkaInstall, tmp_path: Path
) -> None:
    doors, servers = our_doors, ("--bootstrap-server", our_doors.at("SASL_SSL"))
    as_user = ("--command-config", settings(doors, tmp_path, USER, PASSWORD))

    def tool(*words: str) -> str:
        return kafka.run(TOOL, *servers, *as_user, *words).output

    made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(rf"^(\S{{22}})\s+(\S{{88}})\s+User:{USER}\s+User:{USER}\s+\[User:bob\]", made, re.MULTILINE)
    assert found is not None, made
    token_id, token_hmac = found.groups()
    assert token_id in tool("--describe", "--owner-principal", f"User:{USER}")
    assert "expiry date" in tool("--renew", "--renew-time-period", "-1", "--hmac", token_hmac)
    topic = asyncio.run(_written(doors))
    holder = settings(doors, tmp_path, token_id, token_hmac, by_token=True)
    consumed = kafka.run(
        CONSOLE, *servers, "--consumer.config", holder, "--topic", topic, "--from-beginning", "--max-messages", "1"
    )
    assert "by-a-user" in consumed.output
    assert "expiry date" in tool("--expire", "--expiry-time-period", "-1", "--hmac", token_hmac)
    assert token_id not in tool("--describe")


async def _written(doors: SecureDoors) -> str:
    topic = await a_topic(doors)
    async with Producer(doors.at("SASL_SSL"), security=doors.scram()) as producer:
        await (await producer.send(topic, b"by-a-user"))
    return topic
