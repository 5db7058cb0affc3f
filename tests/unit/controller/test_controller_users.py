"""Users as the controller has them: what may be kept of a password, and how it comes to everybody."""

from __future__ import annotations

import pytest
from controller_kit import Quorum
from msgspec.structs import replace

from replog.access.credentials import ScramCredential, ScramMechanism
from replog.controller.requests import (
    AlterableScramCredential,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
)
from replog.controller.state import users
from replog.errors import ErrorCode, PolicyViolationError, UnsupportedVersionError
from replog.metadata.records import FeatureLevelRecord

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
KEPT = ScramCredential(b"salt", b"k" * 32, b"s" * 32, 4096)
KEPT_512 = ScramCredential(b"salt", b"k" * 64, b"s" * 64, 16_384)


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    return quorum


def alter(quorum: Quorum, *wishes: AlterableScramCredential) -> dict[str, ErrorCode]:
    response = quorum.ask(AlterUserScramCredentials(wishes))
    assert isinstance(response, AlterUserScramCredentialsResponse)
    return {each.name: each.error for each in response.users}


def given(name: str, kept: ScramCredential = KEPT, mechanism: ScramMechanism = SHA_256) -> AlterableScramCredential:
    return AlterableScramCredential(name, mechanism, kept)


def test_users_are_added_changed_and_removed(quorum: Quorum) -> None:
    assert alter(quorum, given("alice"), given("alice", KEPT_512, SHA_512), given("bob")) == {"alice": 0, "bob": 0}
    assert dict(quorum.image.scram_credentials) == {
        ("alice", SHA_256): KEPT,
        ("alice", SHA_512): KEPT_512,
        ("bob", SHA_256): KEPT,
    }
    other = replace(KEPT, salt=b"other")
    assert alter(quorum, given("bob", other), AlterableScramCredential("alice", SHA_256)) == {"bob": 0, "alice": 0}
    assert dict(quorum.image.scram_credentials) == {("alice", SHA_512): KEPT_512, ("bob", SHA_256): other}


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (given(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (given("n" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (given("x", replace(KEPT, iterations=4095)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (given("x", replace(KEPT, iterations=16_385)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (given("x", replace(KEPT, salt=b"")), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (given("x", replace(KEPT, salt=bytes(1025))), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (given("x", KEPT_512), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (AlterableScramCredential("x", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_is_refused_leaves_the_others_and_changes_nothing_of_the_user(
    quorum: Quorum, wish: AlterableScramCredential, error: ErrorCode
) -> None:
    assert alter(quorum, given("good"), given(wish.name, KEPT_512, SHA_512), wish) == {"good": 0, wish.name: error}
    assert set(quorum.image.scram_credentials) == {("good", SHA_256)}


def test_one_credential_is_altered_once(quorum: Quorum) -> None:
    assert alter(quorum, given("a"), given("a"), given("b")) == {"a": ErrorCode.DUPLICATE_RESOURCE, "b": 0}


def test_there_are_bounds(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyViolationError, match="1,000 credentials at most"):
        alter(quorum, *(given(f"user-{number}") for number in range(1_001)))
    monkeypatch.setattr(users, "CREDENTIALS_MAX", 2)
    assert alter(quorum, given("a"), given("b"), given("c")) == {"a": 0, "b": 0, "c": ErrorCode.POLICY_VIOLATION}


def test_a_cluster_of_an_earlier_level_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of an earlier version would end at the first record that it does not know."""
    monkeypatch.setattr(
        "replog.controller.state.features.FeatureControl.bootstrap_records",
        lambda _: (FeatureLevelRecord("metadata.version", 3),),
    )
    quorum = Quorum(1)
    quorum.claim(1)
    quorum.commit()
    with pytest.raises(UnsupportedVersionError, match=r"users need metadata\.version 4"):
        alter(quorum, given("a"))
