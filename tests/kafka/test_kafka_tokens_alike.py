"""A real Kafka and a replog broker with the same users answer requests about delegation tokens the same, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from brokers import of_kafka, of_replog
from kafka_install import KafkaInstall
from kafka_node import KafkaNode
from served_cluster import QUICK, ServedCluster, run
from sides import CLOSED, Side, Sides
from waiting import until

from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.access.token_key import token_password
from replog.client import SyncAdmin
from replog.client.security.sasl import ScramClient
from replog.cluster import LocalCluster
from replog.cluster.processes import KeptPorts
from replog.config.access_keys import AuthorizerClass
from replog.wire.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)

pytestmark = pytest.mark.cluster

Create, Created = (
    create_delegation_token.CreateDelegationTokenRequest,
    create_delegation_token.CreateDelegationTokenResponse,
)
Renew, Renewed = renew_delegation_token.RenewDelegationTokenRequest, renew_delegation_token.RenewDelegationTokenResponse
Expire, Expired = (
    expire_delegation_token.ExpireDelegationTokenRequest,
    expire_delegation_token.ExpireDelegationTokenResponse,
)
Describe = describe_delegation_token.DescribeDelegationTokenRequest
Described = describe_delegation_token.DescribeDelegationTokenResponse
Renewer, Owner = Create.CreatableRenewers, Describe.DescribeDelegationTokenOwner

KEY = "key-of-both"
USERS = ("admin", "alice", "bob")
PASSWORD = "pw-of-each"
LIFETIME_MS, EXPIRY_MS = 10 * 3_600_000, 3_600_000
SHARED: dict[str, Any] = {
    "authorizer.class.name": AuthorizerClass.STANDARD.value,
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": KEY,
    "delegation.token.max.lifetime.ms": LIFETIME_MS,
    "delegation.token.expiry.time.ms": EXPIRY_MS,
}
"""Settings of both."""

_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Doors:
    """The two brokers, and connections of users to both."""

    def __init__(self, plain: Sides, addresses: dict[str, str]) -> None:
        self.plain = plain
        self._addresses = addresses
        self._users: dict[str, Sides] = {}

    def connected(self) -> Sides:
        """New connections to the listeners where one logs in."""
        return Sides(*(Side(replace(side.broker, servers=self._addresses[side.name])) for side in self.plain))

    def of(self, user: str) -> Sides:
        """The connections of a user."""
        if user not in self._users:
            self._users[user] = self.connected()
            for side in self._users[user]:
                assert log_in(side, user, PASSWORD)["error_code"] == 0
        return self._users[user]

    def close(self) -> None:
        for pair in (self.plain, *self._users.values()):
            pair.hang_up()


def log_in(side: Side, name: str, password: str, *, by_token: bool = False) -> Any:
    """Returns the last answer of a login."""
    authenticated = sasl_authenticate.SaslAuthenticateResponse
    side.answer(sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-256"), 1, sasl_handshake.SaslHandshakeResponse)
    scram = ScramClient("SCRAM-SHA-256", name, "nonce", by_token=by_token)
    first = side.answer(sasl_authenticate.SaslAuthenticateRequest(scram.first()), 2, authenticated)
    if first["error_code"]:
        return first
    told = scram.server_first(
        bytes.fromhex(first["auth_bytes"]) if isinstance(first["auth_bytes"], str) else first["auth_bytes"]
    )
    proof = scram.final(scram.salted(password, told), told)
    return side.answer(sasl_authenticate.SaslAuthenticateRequest(proof), 2, authenticated)


@pytest.fixture(scope="module")
def doors(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """The two brokers, each with a listener where users log in, and with an entry that lets bob make tokens for alice."""
    folder, kept = tmp_path_factory.mktemp("tokens"), KeptPorts()
    theirs, plain, ours = kept.take(3)
    node = KafkaNode(kafka, folder / "kafka")
    listeners = f"PLAINTEXT://127.0.0.1:{node.port},LOGIN://127.0.0.1:{theirs}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{node.controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.login.scram-sha-256.sasl.jaas.config": _JAAS,
    }
    own: dict[str, Any] = {
        "listeners": [f"PLAINTEXT://127.0.0.1:{plain}", f"LOGIN://127.0.0.1:{ours}"],
        "listener.security.protocol.map": ["PLAINTEXT:PLAINTEXT", "LOGIN:SASL_PLAINTEXT"],
    }
    try:
        with node._config.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in (settings | SHARED).items())
        node.start()
        cluster = run(LocalCluster.start(folder / "ours", nodes=1, config={**QUICK, **SHARED, **own}, first_port=plain))
        try:
            pair = Sides(Side(of_kafka(node)), Side(of_replog(ServedCluster(cluster))))
            for side in pair:
                _prepare(side)
            made = Doors(pair, {"kafka": f"127.0.0.1:{theirs}", "replog": f"127.0.0.1:{ours}"})
            yield made
            made.close()
        finally:
            run(cluster.kill_all())
    finally:
        node.give_up()
        kept.release()


def _prepare(side: Side) -> None:
    entry = AclEntry(
        ResourceKind.USER,
        "User:alice",
        PatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.CREATE_TOKENS,
        Permission.ALLOW,
    )
    with SyncAdmin(side.broker.servers) as admin:
        for name in USERS:
            admin.set_password(name, PASSWORD, mechanisms=["SCRAM-SHA-256"])
            until(lambda name=name: name in admin.list_users())  # type: ignore[misc] # of this round
        admin.create_acls([entry])
        until(lambda: len(admin.describe_acls()) == 1)


def lasting(answer: Any) -> Any:
    """An answer with times as they are to the first of them, and without what is of one token."""
    if isinstance(answer, list):
        return sorted(map(lasting, answer), key=str)
    if not isinstance(answer, dict):
        return answer
    began = answer.get("issue_timestamp_ms", answer.get("issue_timestamp", 0))
    found = {name: lasting(value) for name, value in answer.items() if name not in {"token_id", "hmac"}}
    return {name: value - began if "timestamp" in name and value > 0 else value for name, value in found.items()}


def alike(pair: Sides, request: Any, version: int, answer: type[Any]) -> dict[str, Any]:
    """Asks both, fails where the answers differ but in times of a moment, and returns both by the name of the broker."""
    found = {side.name: side.answer(request, version, answer) for side in pair}
    assert CLOSED not in found.values()
    theirs, ours = (lasting(found[name]) for name in ("kafka", "replog"))
    assert theirs == ours, f"version {version} of {request}"
    return found


MADE = (
    ("alice", Create(None, None), 0),
    ("alice", Create("", "", max_lifetime_ms=-1), 0),
    (
        "alice",
        Create(renewers=[Renewer("User", "bob"), Renewer("User", "bob"), Renewer("User", "x")], max_lifetime_ms=5_000),
        0,
    ),
    ("alice", Create("User", "alice", max_lifetime_ms=2**63 - 1), 0),
    ("alice", Create(renewers=[Renewer("Group", "bob")]), 67),
    ("alice", Create(renewers=[Renewer("user", "bob")]), 67),
    ("alice", Create("User", "bob"), 65),
    ("alice", Create("Group", "alice"), 65),
    ("bob", Create("User", "alice", max_lifetime_ms=1), 0),
    ("bob", Create("User", "alice", renewers=[Renewer("Group", "x")]), 67),
    ("bob", Create("User", "admin"), 65),
    ("admin", Create("User", "nobody-there", max_lifetime_ms=1), 0),
)
"""Who asks for what, and the code of the answer; an owner is told from version 3 on."""


@pytest.mark.parametrize("version", Create.VERSIONS)
@pytest.mark.parametrize("case", range(len(MADE)))
def test_tokens_are_made_and_refused_alike(doors: Doors, case: int, version: int) -> None:
    user, request, code = MADE[case]
    told = alike(doors.of(user), request, version, Created)["replog"]["error_code"]
    assert told == (0 if code == 65 and version < 3 else code)


class Token:
    """A token of alice on each of the brokers, which bob may renew, too."""

    def __init__(self, doors: Doors, **others: int) -> None:
        self._doors = doors
        request = Create(None, None, [Renewer("User", "bob")], others.get("max_lifetime_ms", -1))
        self.made = alike(doors.of("alice"), request, 3, Created)
        for side in doors.of("admin"):  # whose it is not: nothing changes at the controller
            until(lambda side=side: side.answer(self.renewal(side), 2, Renewed)["error_code"] == 63)  # type: ignore[misc] # of this round
        for side in doors.of("alice"):
            until(lambda side=side: self.is_described(side))  # type: ignore[misc] # of this round

    def is_described(self, side: Side) -> bool:
        tokens = side.answer(Describe(None), 3, Described)["tokens"]
        return self.made[side.name]["token_id"] in {each["token_id"] for each in tokens}

    def renewal(self, side: Side, period_ms: int = -1) -> Any:
        return Renew(self.hmac(side), period_ms)

    def hmac(self, side: Side) -> bytes:
        made = self.made[side.name]["hmac"]
        return bytes.fromhex(made) if isinstance(made, str) else made

    def expiry(self, user: str, kind: Any, answer: type[Any], period_ms: int, version: int) -> set[int]:
        """Returns the seconds for which the token holds from its making on, or the code with the time that is told, at both."""
        found = set()
        for side in self._doors.of(user):
            told = side.answer(kind(self.hmac(side), period_ms), version, answer)
            after_s = (told["expiry_timestamp_ms"] - self.made[side.name]["issue_timestamp_ms"]) // 60_000
            found.add((told["error_code"], told["expiry_timestamp_ms"]) if told["error_code"] else after_s)
        return found


@pytest.mark.parametrize("version", Renew.VERSIONS)
def test_tokens_are_renewed_and_ended_alike(doors: Doors, version: int) -> None:
    """Goal: the same time, by the minute, and the same refusals."""
    token = Token(doors)
    for user, period_ms, told in (
        ("alice", -1, EXPIRY_MS // 60_000),
        ("bob", 0, EXPIRY_MS // 60_000),
        ("alice", 120_000, 2),
        ("bob", 2**63 - 1, EXPIRY_MS // 60_000),
        ("admin", -1, (63, 0)),
    ):
        assert token.expiry(user, Renew, Renewed, period_ms, version) == {told}, (user, period_ms)
    for user, period_ms, told in (
        ("bob", 2**63 - 1, LIFETIME_MS // 60_000),
        ("alice", 180_000, 3),
        ("admin", -1, (63, 0)),
        ("alice", 0, 0),
    ):
        assert token.expiry(user, Expire, Expired, period_ms, version) == {told}, (user, period_ms)
    for side in doors.of("admin"):  # who may not renew it, and hears first that it has expired
        until(lambda side=side: side.answer(token.renewal(side), version, Renewed)["error_code"] == 66)  # type: ignore[misc] # of this round
    assert token.expiry("alice", Renew, Renewed, -1, version) == {(66, 0)}
    assert token.expiry("alice", Expire, Expired, 5, version) == {(66, 0)}
    assert token.expiry("bob", Expire, Expired, -1, version) == {0}
    alice = doors.of("alice")
    for side in alice:
        until(lambda side=side: side.answer(token.renewal(side), version, Renewed)["error_code"] == 62)  # type: ignore[misc] # of this round
    alike(alice, Renew(b"", -1), version, Renewed)
    alike(alice, Expire(b"no-hmac", -1), version, Expired)


@pytest.mark.parametrize("version", Describe.VERSIONS)
def test_tokens_are_described_alike(doors: Doors, version: int) -> None:
    token = Token(doors, max_lifetime_ms=LIFETIME_MS)
    for user in USERS:
        for owners in (
            None,
            [],
            [("User", "alice")],
            [("User", "bob")],
            [("Group", "alice")],
            [("User", "alice"), ("User", "bob")],
        ):
            request = Describe(None if owners is None else [Owner(*each) for each in owners])
            found = [
                [
                    each
                    for each in side.answer(request, version, Described)["tokens"]
                    if each["token_id"] == token.made[side.name]["token_id"]
                ]
                for side in doors.of(user)
            ]
            assert lasting(found[0]) == lasting(found[1]), (user, owners)
            assert len(found[0]) == (owners is None or ("User", "alice") in owners or ("User", "bob") in owners)


def test_who_may_not_ask_is_told_so_alike_and_who_holds_a_token_logs_in(doors: Doors) -> None:
    token, holder = Token(doors), doors.connected()
    lifetimes = []
    for side in holder:
        made = token.made[side.name]
        told = log_in(side, made["token_id"], token_password(token.hmac(side)), by_token=True)
        assert told["error_code"] == 0
        lifetimes.append(told["session_lifetime_ms"] // 60_000)
    assert abs(lifetimes[0] - lifetimes[1]) <= 1
    for pair in (doors.plain, holder):
        for version in Create.VERSIONS:
            for request in (Create(None, None), Create("User", "bob")):
                assert alike(pair, request, version, Created)["replog"]["error_code"] == 64
            alike(pair, Describe(None), version, Described)
        for version in Renew.VERSIONS:
            alike(pair, Renew(b"h", -1), version, Renewed)
            alike(pair, Expire(b"h", -1), version, Expired)
    holder.hang_up()


def test_what_proves_nothing_is_not_believed_alike(doors: Doors) -> None:
    token = Token(doors)
    for name, password, by_token in (
        (None, "AAAA", True), (None, None, False), ("A" * 22, "AAAA", True), ("alice", PASSWORD, True),
    ):  # fmt: skip
        pair = doors.connected()
        told = {
            log_in(
                side,
                name or token.made[side.name]["token_id"],
                password or token_password(token.hmac(side)),
                by_token=by_token,
            )["error_code"]
            for side in pair
        }
        assert told == {58}, (name, by_token)
        pair.hang_up()
