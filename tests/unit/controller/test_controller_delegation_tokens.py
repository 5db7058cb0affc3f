"""Delegation tokens as the controller has them: for whom they are made, how long they hold, and when they are gone."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from controller_kit import WALL_MS, Quorum
from msgspec.structs import replace

from replog.access.delegation_tokens import DelegationToken
from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.access.token_key import TokenKey
from replog.controller.config import ControllerConfig
from replog.controller.requests import (
    ClientChange,
    CreateDelegationToken,
    CreateDelegationTokenResponse,
    ExpireDelegationToken,
    ExpireDelegationTokenResponse,
    RenewDelegationToken,
    RenewDelegationTokenResponse,
)
from replog.controller.state import delegation_tokens
from replog.errors import (
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    InvalidRequestError,
    PolicyViolationError,
    UnsupportedVersionError,
)
from replog.metadata.records import FeatureLevelRecord

CHECK_MS = 500
CONFIG = ControllerConfig(
    token_key=TokenKey("key"),
    delegation_token_max_lifetime_ms=10_000,
    delegation_token_expiry_time_ms=4_000,
    delegation_token_expiry_check_interval_ms=CHECK_MS,
    max_delegation_tokens=4,
    max_delegation_tokens_per_requester=3,
)


def of(user: str, change: ClientChange) -> Envelope[ClientChange]:
    return Envelope(change, ClientIdentity(Principal(user), "10.0.0.9"))


CREATE = of("carol", CreateDelegationToken("alice", ("bob",)))


def started(config: ControllerConfig = CONFIG) -> Quorum:
    quorum = Quorum(1, 2, config=config)
    quorum.claim(1)
    quorum.commit()
    return quorum


@pytest.fixture
def quorum() -> Quorum:
    return started()


def create(quorum: Quorum, request: Envelope[ClientChange] = CREATE) -> CreateDelegationTokenResponse:
    response = quorum.ask(request)
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def wait(quorum: Quorum, duration_ms: int) -> None:
    quorum.now_ms += duration_ms
    quorum.tick()
    quorum.commit()


def expiry_ms(quorum: Quorum, request: Envelope[ClientChange]) -> int:
    response = quorum.ask(request)
    assert isinstance(response, RenewDelegationTokenResponse | ExpireDelegationTokenResponse)
    return response.expiry_timestamp_ms - WALL_MS


def test_a_token_is_what_was_asked_for_and_its_hmac_is_that_of_kafka(quorum: Quorum) -> None:
    wait(quorum, 100)
    made = create(quorum)
    token = made.token
    now_ms = WALL_MS + quorum.now_ms
    assert token == DelegationToken(token.token_id, "alice", "carol", ("bob",), now_ms, now_ms + 10_000, now_ms + 4_000)
    assert made.hmac == hmac.digest(b"key", token.token_id.encode(), hashlib.sha512)
    assert dict(quorum.image.delegation_tokens) == {token.token_id: token}
    assert len(token.token_id) == 22


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "holds_ms"),
    [(-1, 10_000, 4_000), (0, 10_000, 4_000), (2**63 - 1, 10_000, 4_000), (5_000, 5_000, 4_000), (1, 1, 1)],
)
def test_a_token_holds_no_longer_than_both_sides_let_it(
    quorum: Quorum, wanted_ms: int, max_ms: int, holds_ms: int
) -> None:
    token = create(quorum, replace(CREATE, change=replace(CREATE.change, max_lifetime_ms=wanted_ms))).token
    made_ms = token.issue_timestamp_ms
    assert (token.max_timestamp_ms - made_ms, token.expiry_timestamp_ms - made_ms) == (max_ms, holds_ms)


def test_owner_and_renewers_renew_a_token_up_to_its_end(quorum: Quorum) -> None:
    token_hmac = create(quorum).hmac
    assert expiry_ms(quorum, of("bob", RenewDelegationToken(token_hmac, 1_000))) == 1_000
    assert expiry_ms(quorum, of("alice", RenewDelegationToken(token_hmac, 60_000))) == 4_000
    assert expiry_ms(quorum, of("alice", ExpireDelegationToken(token_hmac, 9_000))) == 9_000
    wait(quorum, 8_000)
    assert expiry_ms(quorum, of("alice", RenewDelegationToken(token_hmac))) == 10_000
    for request in (of("carol", RenewDelegationToken(token_hmac)), of("dave", ExpireDelegationToken(token_hmac))):
        with pytest.raises(DelegationTokenOwnerMismatchError):
            quorum.ask(request)


def test_a_token_that_is_ended_is_gone(quorum: Quorum) -> None:
    token_hmac = create(quorum).hmac
    assert expiry_ms(quorum, of("bob", ExpireDelegationToken(token_hmac))) == quorum.now_ms
    assert not quorum.image.delegation_tokens
    for request in (of("alice", RenewDelegationToken(token_hmac)), of("alice", ExpireDelegationToken(b""))):
        with pytest.raises(DelegationTokenNotFoundError):
            quorum.ask(request)


def test_a_token_that_has_expired_cannot_be_renewed_and_is_removed_soon() -> None:
    quorum = started(replace(CONFIG, delegation_token_expiry_check_interval_ms=10**6))
    token_hmac = create(quorum).hmac
    wait(quorum, 4_001)
    for request in (of("alice", RenewDelegationToken(token_hmac)), of("alice", ExpireDelegationToken(token_hmac, 1))):
        with pytest.raises(DelegationTokenExpiredError):
            quorum.ask(request)
    wait(quorum, 10**6)
    assert not quorum.image.delegation_tokens


def test_rounds_that_remove_tokens_are_short_and_miss_none(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "EXPIRED_PER_ROUND_MAX", 1)
    for _ in range(3):
        create(quorum, replace(CREATE, change=replace(CREATE.change, max_lifetime_ms=1)))
    kept = create(quorum, replace(CREATE, client=of("dave", CREATE.change).client))
    for _ in range(4):
        wait(quorum, CHECK_MS)
    assert list(quorum.image.delegation_tokens) == [kept.token.token_id]


def test_tokens_of_one_requester_and_of_all_are_bounded(quorum: Quorum) -> None:
    for _ in range(3):
        create(quorum)
    with pytest.raises(PolicyViolationError, match="user carol has asked for 3"):
        quorum.ask(CREATE)
    create(quorum, replace(CREATE, client=of("dave", CREATE.change).client))
    with pytest.raises(PolicyViolationError, match="there are 4"):
        quorum.ask(replace(CREATE, client=of("erin", CREATE.change).client))
    with pytest.raises(PolicyViolationError, match="name fewer renewers"):
        quorum.ask(replace(CREATE, change=replace(CREATE.change, renewers=("n" * 1000,) * 5)))


@pytest.mark.parametrize("name", ["", "n" * 1025])
def test_a_name_that_is_none_is_refused(quorum: Quorum, name: str) -> None:
    for request in (
        replace(CREATE, change=replace(CREATE.change, owner=name)),
        replace(CREATE, change=replace(CREATE.change, renewers=("a", name))),
    ):
        with pytest.raises(InvalidRequestError, match="the name of a user"):
            quorum.ask(request)


@pytest.mark.parametrize(
    "request_", [CREATE, of("a", RenewDelegationToken(b"h")), of("a", ExpireDelegationToken(b"h"))]
)
def test_without_a_key_or_a_level_that_knows_them_there_are_none(
    request_: Envelope[ClientChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DelegationTokenDisabledError):
        started(replace(CONFIG, token_key=None)).ask(request_)
    earlier = (FeatureLevelRecord("metadata.version", 3),)
    monkeypatch.setattr("replog.controller.state.features.FeatureControl.bootstrap_records", lambda _: earlier)
    quorum = started()
    with pytest.raises(UnsupportedVersionError, match="delegation tokens"):
        quorum.ask(request_)


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_the_next_controller_renews_the_tokens_of_the_last(quorum: Quorum, *, from_snapshot: bool) -> None:
    token_hmac = create(quorum).hmac
    quorum.restart(2, from_snapshot=from_snapshot)
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    assert expiry_ms(quorum, of("alice", RenewDelegationToken(token_hmac, 3_000))) == quorum.now_ms + 3_000


def test_no_text_of_a_request_or_an_answer_has_the_hmac(quorum: Quorum) -> None:
    made = create(quorum)
    texts = [
        repr(made),
        repr(of("a", RenewDelegationToken(made.hmac))),
        repr(of("a", ExpireDelegationToken(made.hmac))),
    ]
    assert all(repr(made.hmac)[2:20] not in text for text in texts)
    assert "key" not in repr(CONFIG.token_key)
