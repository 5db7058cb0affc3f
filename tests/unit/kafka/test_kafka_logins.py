"""A real port where clients log in: the order of messages, who is believed, who is not, and what nobody may do before."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from replog.access.credentials import ScramMechanism
from replog.access.principal import Principal
from replog.access.scram import credential_of, salted_password
from replog.broker.node import client_ports
from replog.client.security.sasl import ScramClient
from replog.controller.requests import AlterableScramCredential, AlterUserScramCredentials
from replog.errors import ErrorCode
from replog.protocol import login as login_module
from replog.protocol.login import FRAMES_MAX
from replog.tcp import connection as connection_module
from replog.tcp.connection import ConnectionLimits
from replog.tcp.listener import ListenerLimits
from replog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.envelopes import ADMIN, sender
from tests.kafka.raw_client import RawClient
from tests.unit.kafka.kafka_node_kit import Served, serving
from tests.unit.kafka.tls_kit import principals

UNKNOWN_MAX = 100
MECHANISM = ScramMechanism.SHA_256
KEYS = {
    "listeners": ["SASL_PLAINTEXT://127.0.0.1:0"],
    "inter_broker_listener": "127.0.0.1:0",
    "connection_failed_authentication_delay_ms": 1,
}


async def add(it: Served, name: str, password: str | None) -> None:
    """Gives a user a password, or takes it away."""
    kept = None
    if password is not None:
        kept = credential_of(MECHANISM, salted_password(MECHANISM, password.encode(), b"s", 4096), b"s", 4096)
    answer = await it.kafka.change(
        AlterUserScramCredentials((AlterableScramCredential(name, MECHANISM, kept),)), 5000, sender(ADMIN)
    )
    assert answer.users[0].error is ErrorCode.NONE
    await it.until(lambda: ((name, MECHANISM) in it.kafka.image.scram_credentials) == (password is not None))


@contextlib.asynccontextmanager
async def serving_logins(**others: object) -> AsyncIterator[Served]:
    """A node with one listener, where alice can log in."""
    async with serving(**KEYS | others) as it:
        await add(it, "alice", "pw")
        yield it


def handshake(client: RawClient, mechanism: str = MECHANISM.sasl_name, version: int = 1) -> SaslHandshakeResponse:
    answer: SaslHandshakeResponse = client.ask(SaslHandshakeRequest(mechanism), version, SaslHandshakeResponse)
    return answer


def authenticate(client: RawClient, data: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = client.ask(SaslAuthenticateRequest(data), version, SaslAuthenticateResponse)
    return answer


def log_in(client: RawClient, name: str = "alice", password: str = "pw", version: int = 2) -> SaslAuthenticateResponse:
    """Returns the last answer of a login."""
    assert handshake(client).error_code == ErrorCode.NONE
    scram = ScramClient(MECHANISM.sasl_name, name, "nonce")
    first = authenticate(client, scram.first(), version)
    assert first.error_code == ErrorCode.NONE
    assert first.session_lifetime_ms == 0
    told = scram.server_first(first.auth_bytes)
    return authenticate(client, scram.final(scram.salted(password, told), told), version)


def refusals(it: Served) -> int:
    ports = it.node._clients
    assert ports is not None
    return sum(ports.read().refused.values())


async def in_thread(function: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_client_that_logs_in_is_that_user(version: int) -> None:
    async with serving_logins() as it:
        client = await it.client()
        versions = await in_thread(client.ask, ApiVersionsRequest("raw", "1"), 3, ApiVersionsResponse)
        assert {17, 36, 50, 51} <= {each.api_key for each in versions.api_keys}
        assert principals(it) == [None]
        last = await in_thread(log_in, client, "alice", "pw", version)
        assert (last.error_code, last.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert (await it.ask(MetadataRequest(topics=None), 12, MetadataResponse, client)).cluster_id == "c"
        assert principals(it) == [Principal("alice")]
        again = await in_thread(handshake, client)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE, "nothing is to be renewed"


@pytest.mark.parametrize(("name", "password"), [("alice", "PW"), ("bob", "pw")])
async def test_who_is_not_believed_hears_the_same_and_is_counted(
    name: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_logins() as it:
        client = await it.client()
        last = await in_thread(log_in, client, name, password)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert last.error_message == "Authentication failed: user, password or token of SCRAM-SHA-256 are wrong"
        assert await in_thread(client.is_closed)
        assert refusals(it) == 1
        assert f"'{name}'" in caplog.text


async def test_a_user_that_is_removed_cannot_log_in_and_stays_so() -> None:
    async with serving_logins() as it:
        known = await it.client()
        assert (await in_thread(log_in, known)).error_code == ErrorCode.NONE
        await add(it, "alice", None)
        assert (await in_thread(log_in, await it.client())).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await it.ask(MetadataRequest(), 12, MetadataResponse, known)


async def test_the_mechanisms_are_told_and_another_one_ends_the_connection() -> None:
    async with serving_logins() as it:
        for mechanism, version, code in (
            ("PLAIN", 1, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            ("", 1, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            (MECHANISM.sasl_name, 0, ErrorCode.UNSUPPORTED_VERSION),
        ):
            client = await it.client()
            answer = await in_thread(handshake, client, mechanism, version)
            assert (answer.error_code, answer.mechanisms) == (code, ["SCRAM-SHA-512", "SCRAM-SHA-256"])
            assert await in_thread(client.is_closed)
        assert refusals(it) == 3


def metadata(client: RawClient) -> None:
    client.send(MetadataRequest(), 12)


def authenticate_first(client: RawClient) -> None:
    client.send(SaslAuthenticateRequest(b"n,,n=alice,r=n"), 2)


def two_mechanisms(client: RawClient) -> None:
    handshake(client)
    client.send(SaslHandshakeRequest("SCRAM-SHA-512"), 1)


def versions_within(client: RawClient) -> None:
    handshake(client)
    client.send(ApiVersionsRequest(), 0)


def metadata_within(client: RawClient) -> None:
    handshake(client)
    authenticate(client, b"n,,n=alice,r=n")
    client.send(MetadataRequest(), 12)


def unknown_version(client: RawClient) -> None:
    handshake(client)
    client.connection.sendall(struct.pack(">ihhi", 8, SaslAuthenticateRequest.API_KEY, 99, 1))


def damaged(client: RawClient) -> None:
    client.connection.sendall(
        struct.pack(">ihhi", 14, SaslHandshakeRequest.API_KEY, 1, 1) + b"\xff\xff\x7f\xff\xff\xff"
    )


def huge_frame(client: RawClient) -> None:
    client.connection.sendall(struct.pack(">ihhi", 64 << 20, SaslHandshakeRequest.API_KEY, 1, 1))


def huge_name(client: RawClient) -> None:
    handshake(client)
    assert authenticate(client, b"n,,n=" + b"a" * 60_000 + b",r=n").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def empty_name(client: RawClient) -> None:
    handshake(client)
    assert authenticate(client, b"n,,n=,r=n").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def other_authorization(client: RawClient) -> None:
    handshake(client)
    assert authenticate(client, b"n,a=bob,n=alice,r=n").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def many_versions(client: RawClient) -> None:
    for _ in range(FRAMES_MAX):
        client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    client.send(ApiVersionsRequest(), 0)


ATTACKS = (
    metadata, authenticate_first, two_mechanisms, versions_within, metadata_within, unknown_version, damaged, huge_frame,
    huge_name, empty_name, other_authorization, many_versions,
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_nobody_may_do_before_a_login_ends_the_connection(attack: Any) -> None:
    """Goal: the connection ends, nothing of it reaches a handler, and others go on."""
    async with serving_logins() as it:
        client = await it.client()
        await in_thread(attack, client)
        assert await in_thread(client.is_closed)
        assert (await in_thread(log_in, await it.client())).error_code == ErrorCode.NONE
        assert not any(name == "Metadata" for name, _ in _served(it)), "no handler was asked"


async def test_a_login_that_fails_before_what_is_no_frame_holds_no_connection() -> None:
    """Trap: nobody ended it, not even its time, and it was not read any more: a thousand of them kept out everybody until a restart."""
    asked = struct.pack(">hhih", SaslHandshakeRequest.API_KEY, 1, 7, 1) + b"c" + struct.pack(">h", 2) + b"no"
    async with serving_logins() as it:
        client = await it.client()
        client.connection.sendall(struct.pack(">i", len(asked)) + asked + struct.pack(">i", -1))
        assert (await in_thread(client.receive, SaslHandshakeResponse, 1)).error_code != ErrorCode.NONE
        assert await in_thread(client.is_closed)
        assert refusals(it) == 1
        ports = it.node._clients
        assert ports is not None
        await it.until(lambda: not ports.read().connections)


def _served(it: Served) -> list[tuple[str, int]]:
    ports = it.node._clients
    assert ports is not None
    return list(ports.read().counts.requests)


async def test_frames_are_as_large_as_ever_behind_a_login() -> None:
    async with serving_logins(sasl_server_max_receive_size=1024) as it:
        client = await it.client()
        assert (await in_thread(log_in, client)).error_code == ErrorCode.NONE
        topics = [MetadataRequest.MetadataRequestTopic(name="x" * 200) for _ in range(1_000)]
        answer = await it.ask(MetadataRequest(topics), 12, MetadataResponse, client)
        assert answer.topics


@pytest.fixture
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ListenerLimits(unknown_max=UNKNOWN_MAX, connection=ConnectionLimits(first_request_s=0.5, stalled_s=0.5))
    monkeypatch.setattr(client_ports, "limits_within", lambda *_: limits)
    monkeypatch.setattr(connection_module, "CHECK_S", 0.2)


@pytest.mark.usefixtures("_short_limits")
async def test_who_does_not_log_in_has_a_time_also_while_it_asks() -> None:
    async with serving_logins() as it:
        silent, asking = await it.client(), await it.client()
        await in_thread(asking.ask, ApiVersionsRequest(), 0, ApiVersionsResponse)
        await in_thread(handshake, asking)
        assert await in_thread(silent.is_closed)
        assert await in_thread(asking.is_closed)


@pytest.mark.usefixtures("_short_limits")
async def test_a_thousand_that_say_nothing_leave_those_that_are_known() -> None:
    async with serving_logins() as it:
        known = await it.client()
        assert (await in_thread(log_in, known)).error_code == ErrorCode.NONE
        ports = it.node._clients
        assert ports is not None
        host, _, port = (it.node.address or "").rpartition(":")
        made: list[socket.socket] = []
        try:
            for _ in range(1_000):
                made.append(await in_thread(socket.create_connection, (host, int(port))))
                assert ports.read().connections <= UNKNOWN_MAX + 1
            assert await it.ask(MetadataRequest(), 12, MetadataResponse, known)
            await it.until(lambda: ports.read().connections == 1)
        finally:
            for each in made:
                each.close()
        assert (await in_thread(log_in, await it.client())).error_code == ErrorCode.NONE


async def test_a_login_is_renewed_by_the_same_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "RENEWAL_S_MIN", 0.0)
    async with serving_logins(connections_max_reauth_ms=60_000) as it:
        await add(it, "bob", "pw")
        client = await it.client()
        for _ in range(FRAMES_MAX):
            assert (await in_thread(log_in, client)).session_lifetime_ms == 60_000
            assert await it.ask(MetadataRequest(), 12, MetadataResponse, client)
        assert (await in_thread(log_in, client, "bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await in_thread(client.is_closed)
        other = await it.client()
        await in_thread(log_in, other)
        answer = await in_thread(handshake, other, "SCRAM-SHA-512")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await in_thread(other.is_closed)


async def test_a_login_is_not_renewed_twice_within_a_second() -> None:
    async with serving_logins(connections_max_reauth_ms=60_000) as it:
        client = await it.client()
        for _ in range(2):
            assert (await in_thread(log_in, client)).error_code == ErrorCode.NONE
        assert (await in_thread(handshake, client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await it.ask(MetadataRequest(), 12, MetadataResponse, client)


async def test_a_login_that_has_run_out_ends_at_the_next_request_and_may_be_renewed_instead() -> None:
    async with serving_logins(connections_max_reauth_ms=1) as it:
        late, renewing = await it.client(), await it.client()
        for client in (late, renewing):
            assert (await in_thread(log_in, client)).session_lifetime_ms == 1
        logged_in_s = time.monotonic()
        await it.until(lambda: time.monotonic() > logged_in_s + 0.002)
        await in_thread(metadata, late)
        assert await in_thread(late.is_closed)
        assert (await in_thread(log_in, renewing)).error_code == ErrorCode.NONE
        assert refusals(it) == 0


async def test_while_a_login_is_renewed_nothing_else_is_taken_up() -> None:
    async with serving_logins(connections_max_reauth_ms=60_000) as it:
        client = await it.client()
        await in_thread(log_in, client)
        await in_thread(handshake, client)
        await in_thread(metadata, client)
        assert await in_thread(client.is_closed)


async def test_at_a_listener_without_logins_they_are_refused() -> None:
    async with serving() as it:
        client = await it.client()
        assert (await in_thread(handshake, client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await in_thread(authenticate, client, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await it.ask(MetadataRequest(), 12, MetadataResponse, client)
