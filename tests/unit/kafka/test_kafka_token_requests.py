"""Delegation tokens over a node's port: who may make them, who is told of them, and who logs in with one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from replog.access.credentials import ScramMechanism
from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import Principal
from replog.access.token_key import token_password
from replog.client.security.sasl import ScramClient
from replog.controller.requests import CreateAcls
from replog.errors import ErrorCode
from replog.protocol import login as login_module
from replog.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from replog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from replog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from replog.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from tests.envelopes import ADMIN, sender
from tests.kafka.raw_client import RawClient
from tests.unit.kafka.kafka_node_kit import Served, serving
from tests.unit.kafka.rights_kit import BehindEverybody, govern
from tests.unit.kafka.test_kafka_logins import KEYS, add, authenticate, handshake, in_thread, log_in, metadata
from tests.unit.kafka.tls_kit import principals

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECRET = "secret-of-the-cluster"
Renewer = CreateDelegationTokenRequest.CreatableRenewers
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
ALL = DescribeDelegationTokenRequest(None)


@contextlib.asynccontextmanager
async def serving_tokens(**others: object) -> AsyncIterator[Served]:
    """A node where alice and bob log in by passwords, and admin may do everything."""
    rights = {"authorizer_class_name": STANDARD, "super_users": "User:admin"}
    async with serving(**KEYS | {"delegation_token_secret_key": SECRET} | rights | others) as it:
        for name in ("alice", "bob", "admin"):
            await add(it, name, "pw")
        yield it


async def logged_in(it: Served, name: str = "alice") -> RawClient:
    client = await it.client()
    assert (await in_thread(log_in, client, name)).error_code == ErrorCode.NONE
    return client


async def create(
    it: Served, client: RawClient, request: CreateDelegationTokenRequest | None = None, version: int = 3
) -> CreateDelegationTokenResponse:
    asked = request or CreateDelegationTokenRequest(None, None, max_lifetime_ms=-1)
    answer: CreateDelegationTokenResponse = await it.ask(asked, version, CreateDelegationTokenResponse, client)
    if not answer.error_code:
        await it.until(lambda: answer.token_id in it.kafka.image.delegation_tokens)
    return answer


async def described(it: Served, client: RawClient, request: DescribeDelegationTokenRequest = ALL) -> list[Any]:
    answer = await it.ask(request, 3, DescribeDelegationTokenResponse, client)
    assert answer.error_code == ErrorCode.NONE
    return [(one.token_id, one.hmac, one.principal_name) for one in answer.tokens]


def log_in_by_token(
    client: RawClient, token: CreateDelegationTokenResponse, mechanism: ScramMechanism = ScramMechanism.SHA_256
) -> SaslAuthenticateResponse:
    """Returns the last answer of a login with a token."""
    assert handshake(client, mechanism.sasl_name).error_code == ErrorCode.NONE
    scram = ScramClient(mechanism.sasl_name, token.token_id, "nonce", by_token=True)
    first = authenticate(client, scram.first())
    assert first.error_code == ErrorCode.NONE, "who has no token hears so at the end"
    told = scram.server_first(first.auth_bytes)
    last = authenticate(client, scram.final(scram.salted(token_password(token.hmac), told), told))
    if not last.error_code:
        scram.verify(last.auth_bytes)
    return last


@pytest.mark.parametrize("version", CreateDelegationTokenRequest.VERSIONS)
async def test_a_user_makes_a_token_and_is_told_of_it(version: int) -> None:
    async with serving_tokens() as it:
        client = await logged_in(it)
        request = CreateDelegationTokenRequest(renewers=[Renewer("User", "bob")], max_lifetime_ms=60_000)
        made = await create(it, client, request, version)
        assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "alice")
        assert made.token_requester_principal_name == ("alice" if version >= 3 else "")
        assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + 60_000
        told = (await it.ask(ALL, min(version, 3), DescribeDelegationTokenResponse, client)).tokens[0]
        assert (told.token_id, told.hmac, told.max_timestamp) == (made.token_id, made.hmac, made.max_timestamp_ms)
        assert [(each.principal_type, each.principal_name) for each in told.renewers] == [("User", "bob")]


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_who_logs_in_with_a_token_is_its_owner_until_it_expires(mechanism: ScramMechanism) -> None:
    async with serving_tokens() as it:
        made = await create(it, await logged_in(it), CreateDelegationTokenRequest(max_lifetime_ms=60_000))
        client = await it.client()
        last = await in_thread(log_in_by_token, client, made, mechanism)
        assert last.error_code == ErrorCode.NONE
        assert 0 < last.session_lifetime_ms <= 60_000
        assert principals(it) == [Principal("alice"), Principal("alice", token_authenticated=True)]
        assert await it.ask(MetadataRequest(), 12, MetadataResponse, client)


async def test_a_token_that_there_is_not_logs_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tokens() as it:
        key = it.kafka.token_key
        assert key is not None
        token = CreateDelegationTokenResponse(token_id="A" * 22, hmac=key.hmac_of("A" * 22))
        last = await in_thread(log_in_by_token, await it.client(), token)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "there is no delegation token" in caplog.text


async def test_a_token_without_its_hmac_logs_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_tokens() as it:
        made = await create(it, await logged_in(it))
        wrong = CreateDelegationTokenResponse(token_id=made.token_id, hmac=bytes(64))
        last = await in_thread(log_in_by_token, await it.client(), wrong)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "the HMAC of delegation token" in caplog.text
        by_password = await in_thread(log_in, await it.client(), made.token_id, token_password(made.hmac))
        assert by_password.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "a token is no password of a user"


async def test_a_token_ends_at_the_renewal_of_the_login_and_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "RENEWAL_S_MIN", 0.0)
    async with serving_tokens() as it:
        owner = await logged_in(it)
        made, client = await create(it, owner), await it.client()
        for _ in range(2):
            assert (await in_thread(log_in_by_token, client, made)).error_code == ErrorCode.NONE
        ended = await it.ask(ExpireDelegationTokenRequest(made.hmac, -1), 2, ExpireDelegationTokenResponse, owner)
        assert ended.error_code == ErrorCode.NONE
        await it.until(lambda: not it.kafka.image.delegation_tokens)
        assert await it.ask(MetadataRequest(), 12, MetadataResponse, client), "what is logged in goes on, as in Kafka"
        for again in (client, await it.client()):
            last = await in_thread(log_in_by_token, again, made)
            assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await in_thread(again.is_closed)


async def test_a_connection_whose_token_has_expired_ends_at_its_next_request() -> None:
    async with serving_tokens() as it:
        made = await create(it, await logged_in(it), CreateDelegationTokenRequest(max_lifetime_ms=1_000))
        client = await it.client()
        assert (await in_thread(log_in_by_token, client, made)).error_code == ErrorCode.NONE
        await it.until(lambda: it.kafka.wall_ms() > made.expiry_timestamp_ms + 10)
        await in_thread(metadata, client)
        assert await in_thread(client.is_closed)
        last = await in_thread(log_in_by_token, await it.client(), made)
        assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "it is still in the metadata"
        assert it.kafka.image.delegation_tokens


REQUESTS = (
    (CreateDelegationTokenRequest(), 3, CreateDelegationTokenResponse),
    (RenewDelegationTokenRequest(b"h"), 2, RenewDelegationTokenResponse),
    (ExpireDelegationTokenRequest(b"h"), 2, ExpireDelegationTokenResponse),
    (ALL, 3, DescribeDelegationTokenResponse),
)


async def test_nobody_asks_for_tokens_with_a_token_or_in_plain_text() -> None:
    plain = {"listeners": ["SASL_PLAINTEXT://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"]}
    async with serving_tokens(**plain) as it:
        made = await create(it, await logged_in(it))
        by_token = await it.client()
        await in_thread(log_in_by_token, by_token, made)
        endpoint = it.kafka.endpoint(it.kafka.node_id, "PLAINTEXT")
        assert endpoint is not None
        in_plain_text = await in_thread(RawClient, f"{endpoint.host}:{endpoint.port}")
        with in_plain_text.connection:
            for client in (by_token, in_plain_text):
                for request, version, response in REQUESTS:
                    answer = await it.ask(request, version, response, client)
                    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                    assert getattr(answer, "expiry_timestamp_ms", -1) == -1


async def test_without_a_key_there_are_no_tokens() -> None:
    async with serving_tokens(delegation_token_secret_key=None) as it:
        client = await logged_in(it)
        for request, version, response in REQUESTS:
            answer = await it.ask(request, version, response, client)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        await in_thread(handshake, other := await it.client())
        first = ScramClient("SCRAM-SHA-256", "A" * 22, "nonce", by_token=True).first()
        assert (await in_thread(authenticate, other, first)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def allow(it: Served, kind: ResourceKind, name: str, operation: AclOperation) -> None:
    entry = AclEntry(kind, name, PatternType.LITERAL, "User:bob", "*", operation, Permission.ALLOW)
    await it.kafka.change(CreateAcls((entry,)), 5_000, sender(ADMIN))
    await it.until(lambda: entry in it.kafka.image.acls.values())


@pytest.mark.parametrize("is_behind", [False, True])
async def test_tokens_for_others_take_a_right_on_the_owner(is_behind: bool) -> None:
    """Whether the broker refuses, or the controller what a broker lets through."""
    async with serving_tokens() as it:
        authorizer, bob = it.kafka.authorizer, await logged_in(it, "bob")
        if is_behind:
            govern(it, BehindEverybody())
        for_alice = CreateDelegationTokenRequest("User", "alice", max_lifetime_ms=-1)
        refused = await create(it, bob, for_alice)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("alice", "bob")
        assert refused.issue_timestamp_ms == refused.expiry_timestamp_ms == refused.max_timestamp_ms == -1
        govern(it, authorizer)
        await allow(it, ResourceKind.USER, "User:alice", AclOperation.CREATE_TOKENS)
        made = await create(it, bob, for_alice)
        assert (made.principal_name, made.token_requester_principal_name) == ("alice", "bob")
        renewal = await it.ask(RenewDelegationTokenRequest(made.hmac, -1), 2, RenewDelegationTokenResponse, bob)
        assert renewal.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "who asked for it does not renew it"


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (ResourceKind.DELEGATION_TOKEN, AclOperation.DESCRIBE),
        (ResourceKind.USER, AclOperation.DESCRIBE_TOKENS),
    ],
)
async def test_tokens_of_others_are_told_to_who_may_know_them(kind: ResourceKind, operation: AclOperation) -> None:
    async with serving_tokens() as it:
        made = await create(it, await logged_in(it))
        bob = await logged_in(it, "bob")
        assert await described(it, bob) == []
        await allow(it, kind, made.token_id if kind is ResourceKind.DELEGATION_TOKEN else "User:alice", operation)
        whole = [(made.token_id, made.hmac, "alice")]
        assert await described(it, bob) == whole
        assert await described(it, bob, DescribeDelegationTokenRequest([Owner("User", "alice")])) == whole
        for owners in ([], [Owner("User", "bob")], [Owner("Group", "alice")]):
            assert await described(it, bob, DescribeDelegationTokenRequest(owners)) == []


async def test_a_principal_of_another_type_has_no_tokens() -> None:
    async with serving_tokens() as it:
        admin = await logged_in(it, "admin")
        for request in (
            CreateDelegationTokenRequest("Group", "alice"),
            CreateDelegationTokenRequest(None, "alice"),
            CreateDelegationTokenRequest(renewers=[Renewer("Group", "x")]),
        ):
            assert (await create(it, admin, request)).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
