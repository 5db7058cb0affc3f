"""Our clients at brokers with TLS and SASL: who is believed, who is not, and what the errors say."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from secure_doors import PASSWORD, RENEWAL_MS, USER, SecureDoors

from replog import Table, Worker, scan
from replog.client import Admin, Consumer, ConsumerRecord, Producer, Security, SyncAdmin, SyncConsumer, SyncProducer
from replog.client.protocol.secure_link import SecureLink
from replog.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    MalformedFrameError,
    RequestTimedOutError,
    SaslAuthenticationError,
    TlsAuthenticationError,
    UnsupportedSaslMechanismError,
)

WAIT_S = 60
_numbers = itertools.count(1)

Made = Callable[[SecureDoors], Security]


async def a_topic(doors: SecureDoors) -> str:
    name = f"secured-{next(_numbers)}"
    async with Admin(doors.at("PLAINTEXT")) as admin:
        await admin.create_topic(name, 1, 1)
    return name


BELIEVED = {
    "tls": ("SSL", lambda doors: doors.tls()),
    "tls-with-certificate": ("MTLS", lambda doors: doors.mtls()),
    "tls-by-another-name": ("SSL", lambda doors: doors.tls(server_name="localhost")),
    "scram-512": ("SASL_SSL", lambda doors: doors.scram()),
    "scram-256": ("SASL_SSL", lambda doors: Security.scram(USER, PASSWORD, mechanism="SCRAM-SHA-256", tls=doors.tls())),
    "scram-in-the-open": ("SASL_PLAINTEXT", lambda _: Security.scram(USER, PASSWORD)),
    "plain": ("SASL_SSL", lambda doors: Security.plain(USER, PASSWORD, tls=doors.tls())),
    "plain-in-the-open": ("SASL_PLAINTEXT", lambda _: Security.plain(USER, PASSWORD, insecure=True)),
    "token": ("SASL_SSL", lambda doors: Security.oauth(doors.token, tls=doors.tls())),
    "kafkas-names": (
        "SASL_SSL",
        lambda doors: Security.from_settings(
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(doors.certs / "ca.pem"),
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{USER}" password="{PASSWORD}";',
            }
        ),
    ),
}


KAFKA_ALONE = {"plain-in-the-open"}
"""What brokers of ours refuse to be configured for."""


def cases(table: Mapping[str, tuple[Any, ...]]) -> Any:
    """Each case at Kafka's brokers, and at ours."""
    return pytest.mark.parametrize(
        ("doors", "case"),
        [
            pytest.param(brokers, case, id=f"{case}-{name}", marks=marks)
            for brokers, name, marks in (("their_doors", "kafka", pytest.mark.kafka), ("our_doors", "replog", ()))
            for case, (door, *_) in table.items()
            if brokers == "their_doors" or case not in KAFKA_ALONE
        ],
        indirect=["doors"],
    )


@cases(BELIEVED)
async def test_records_pass_where_both_sides_believe_each_other(doors: SecureDoors, case: str) -> None:
    door, made = BELIEVED[case]
    topic, servers, security = await a_topic(doors), doors.at(door), made(doors)
    async with asyncio.timeout(WAIT_S):
        async with Producer(servers, security=security) as producer:
            await (await producer.send(topic, b"v" * 300_000))
        async with Consumer(servers, security=security) as consumer:
            await consumer.assign_topic(topic)
            record = await anext(consumer)
        assert record.value == b"v" * 300_000
        async with Admin(servers, security=security) as admin:
            assert topic in await admin.list_topics()


async def test_the_clients_without_async_take_it_too(doors: SecureDoors) -> None:
    topic, servers, security = await a_topic(doors), doors.at("SASL_SSL"), doors.scram()

    def work() -> bytes | None:
        with SyncProducer(servers, security=security) as producer:
            producer.send(topic, b"v").result(WAIT_S)
        with SyncConsumer(servers, security=security) as consumer:
            consumer.assign_topic(topic)
            (record,) = consumer.poll()
        with SyncAdmin(servers, security=security) as admin:
            assert topic in admin.list_topics()
        return record.value

    assert await asyncio.to_thread(work) == b"v"


async def test_a_token_may_come_from_a_coroutine(doors: SecureDoors) -> None:
    topic, asked = await a_topic(doors), []

    async def token() -> str:
        await asyncio.sleep(0)
        asked.append(1)
        return doors.token()

    async with Admin(doors.at("SASL_SSL"), security=Security.oauth(token, tls=doors.tls())) as admin:
        assert topic in await admin.list_topics()
    assert asked


REFUSED = {
    "wrong-name": (
        "SSL",
        lambda doors: doors.tls(server_name="other.example"),
        TlsAuthenticationError,
        "not for other.example",
    ),
    "expired": ("EXPIRED", lambda doors: doors.tls(), TlsAuthenticationError, "has expired: renew it at the broker"),
    "unknown-authority": (
        "SSL",
        lambda doors: Security.tls(ca=str(doors.strangers / "ca.pem")),
        TlsAuthenticationError,
        "authority that this client does not know: give ca",
    ),
    "authorities-of-the-system": ("SSL", lambda _: Security.tls(), TlsAuthenticationError, "does not know: give ca"),
    "no-certificate": ("MTLS", lambda doors: doors.tls(), TlsAuthenticationError, "cert"),
    "a-strangers-certificate": (
        "MTLS",
        lambda doors: doors.tls(cert=str(doors.strangers / "client.pem")),
        TlsAuthenticationError,
        "cert must be signed by an authority that the broker knows",
    ),
    "wrong-password": (
        "SASL_SSL",
        lambda doors: doors.scram("canary-of-a-wrong-password"),
        SaslAuthenticationError,
        'user "alice" by SCRAM-SHA-512 failed.*Check user and password',
    ),
    "wrong-password-plain": (
        "SASL_SSL",
        lambda doors: Security.plain(USER, "canary-of-a-wrong-password", tls=doors.tls()),
        SaslAuthenticationError,
        'user "alice" by PLAIN failed',
    ),
    "unknown-user": (
        "SASL_PLAINTEXT",
        lambda _: Security.scram("nobody", "canary-of-nobody"),
        SaslAuthenticationError,
        'user "nobody" by SCRAM-SHA-512',
    ),
    "old-token": (
        "SASL_SSL",
        lambda doors: Security.oauth(lambda: doors.token(-100), tls=doors.tls()),
        SaslAuthenticationError,
        "Check what token_provider returns",
    ),
    "mechanism": ("PLAIN_ONLY", lambda doors: doors.scram(), UnsupportedSaslMechanismError, "it offers PLAIN"),
    "login-where-none-is": ("SSL", lambda doors: doors.scram(), IllegalSaslStateError, "has no SASL at this listener"),
}


@cases(REFUSED)
async def test_who_is_not_believed_is_told_at_once_and_why(doors: SecureDoors, case: str) -> None:
    """Goal: no attempt after the first, no password in the text, and the next step."""
    door, made, error, text = REFUSED[case]
    security = made(doors)
    async with asyncio.timeout(WAIT_S / 4):
        async with Admin(doors.at(door), security=security) as admin:
            with pytest.raises(error, match=text) as raised:
                await admin.list_topics()
        with pytest.raises(error, match=text):
            async with Producer(doors.at(door), security=security):
                pass
    assert isinstance(raised.value, AuthenticationError)
    assert "canary" not in str(raised.value)


async def test_tls_at_a_port_of_plain_text_says_so(doors: SecureDoors) -> None:
    async with Admin(doors.at("PLAINTEXT"), security=doors.tls()) as admin:
        with pytest.raises(RequestTimedOutError, match=r"cut in the handshake of TLS\. Is this the port of an SSL"):
            await admin.list_topics(timeout_ms=1_000)


async def test_plain_text_at_a_port_of_tls_says_so(doors: SecureDoors) -> None:
    async with Admin(doors.at("SSL")) as admin:
        with pytest.raises(MalformedFrameError, match="a TLS alert: that listener speaks TLS, use"):
            await admin.list_topics()


async def test_no_login_at_a_port_of_sasl_says_so(doors: SecureDoors) -> None:
    async with Admin(doors.at("SASL_PLAINTEXT")) as admin:
        with pytest.raises(RequestTimedOutError, match="Does this listener want a login"):
            await admin.list_topics(timeout_ms=1_000)


async def test_logins_are_renewed_while_requests_go_on(doors: SecureDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: for several times the session's length each record is acknowledged, and no connection is lost.

    A broker cuts a connection whose session has expired.
    """
    lost: list[SecureLink] = []
    renewals: list[SecureLink] = []
    lose, renew = SecureLink.connection_lost, SecureLink._begin_renewal
    monkeypatch.setattr(SecureLink, "connection_lost", lambda link, exc: lost.append(link) or lose(link, exc))
    monkeypatch.setattr(SecureLink, "_begin_renewal", lambda link: renewals.append(link) or renew(link))
    topic, servers = await a_topic(doors), doors.at("RENEWED")
    loop = asyncio.get_running_loop()
    async with (
        Producer(servers, security=doors.scram()) as producer,
        Consumer(servers, security=doors.scram()) as consumer,
    ):
        await consumer.assign_topic(topic)
        end_s, sent, read = loop.time() + 3.5 * RENEWAL_MS / 1000, 0, 0
        while loop.time() < end_s:
            await (await producer.send(topic, b"%d" % sent))
            sent += 1
            while read < sent:
                read += len(await consumer.poll())
        assert not lost
    assert read == sent > 10
    assert len(renewals) >= 3 * 3  # a watch, the produces, the fetches


async def test_a_user_that_is_deleted_is_told_by_the_next_calls(doors: SecureDoors) -> None:
    """Goal: what is sent fails, and what is read raises, once a login is not renewed; nothing waits for its time-out."""
    user, topic, servers = f"user-{next(_numbers)}", await a_topic(doors), doors.at("RENEWED")
    await asyncio.to_thread(doors.add_user, user, "canary-of-a-user")
    security = Security.scram(user, "canary-of-a-user", tls=doors.tls())
    async with (
        Producer(servers, security=security, close_timeout_ms=0) as producer,
        Consumer(servers, security=security) as consumer,
        asyncio.timeout(WAIT_S),
    ):
        await (await producer.send(topic, b"v"))
        await consumer.assign_topic(topic)
        assert len(await consumer.poll()) == 1
        await asyncio.to_thread(doors.delete_user, user)

        async def sending() -> None:
            await (await producer.send(topic, b"v"))

        for call in (consumer.poll, sending):
            with pytest.raises(SaslAuthenticationError, match=f'login of user "{user}"'):
                await _forever(call)


async def _forever(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        await call()


async def test_workers_tables_and_scans_take_it_too(doors: SecureDoors) -> None:
    """Goal: what is built of clients has one argument for it: a worker with retries and dead letters, a table, a scan."""
    topic, servers, security = await a_topic(doors), doors.at("SASL_SSL"), doors.scram()
    async with Admin(servers, security=security) as admin:
        for name in (f"{topic}.retry.1", f"{topic}-dead"):
            await admin.create_topic(name, 1, 1)
    async with Producer(servers, security=security) as producer:
        await (await producer.send(topic, b"v", key=b"k"))
    handled: list[bytes | None] = []

    async def handle(record: ConsumerRecord) -> None:
        handled.append(record.value)
        if len(handled) == 2:
            worker.stop()
        raise ValueError

    worker = Worker(
        *(handle, topic), group=f"group-of-{topic}", bootstrap_servers=servers, security=security, retries=0,
        retry_delays=[0.01], dead_letter_topic=f"{topic}-dead",
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        await worker.run()
        async with Table(topic, bootstrap_servers=servers, security=security) as table:
            assert dict(table) == {b"k": b"v"}
    assert handled == [b"v", b"v"]
    found = await asyncio.to_thread(
        lambda: scan(topic, bootstrap_servers=servers, security=security, columns=["value"]).read_all()
    )
    assert found.to_pylist() == [{"value": b"v"}]
