"""Which directory of a node gets a vote, as the command line finds it."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.cli.commands.quorum import _directory_to_add
from replog.errors import DuplicateVoterError, InvalidRequestError
from replog.rpc.quorum_messages import QuorumMember

OLD, NEW = UUID(int=1), UUID(int=2)


def member(node_id: int, directory_id: UUID, *, is_voter: bool, age_ms: int = 5) -> QuorumMember:
    return QuorumMember(node_id, directory_id, "", is_voter, 10, age_ms, age_ms)


def test_the_directory_that_an_observer_fetches_with() -> None:
    members = (member(1, OLD, is_voter=True), member(4, OLD, is_voter=False, age_ms=-1), member(4, NEW, is_voter=False))
    assert _directory_to_add(members, 4, None) == NEW
    assert _directory_to_add(members, 4, OLD) == OLD
    with pytest.raises(InvalidRequestError, match="does not follow the metadata log"):
        _directory_to_add(members, 5, None)


def test_a_voter_is_told_that_it_is_one() -> None:
    members = (member(1, OLD, is_voter=True), member(1, NEW, is_voter=False))
    with pytest.raises(DuplicateVoterError, match="node 1 is a voter already"):
        _directory_to_add(members, 1, None)
    assert _directory_to_add(members, 1, NEW) == NEW, "the quorum decides about another directory"
