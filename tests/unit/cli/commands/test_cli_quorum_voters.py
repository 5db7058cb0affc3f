"""Which directory of a node gets a vote, as the command line finds it."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.cli.commands.quorum import _directory_to_add, summary
from replog.errors import DuplicateVoterError, InvalidRequestError
from replog.rpc.node_messages import DescribeQuorumResponse, QuorumMember

OLD, NEW = UUID(int=1), UUID(int=2)


def member(node_id: int, directory_id: UUID, *, is_voter: bool, age_ms: int = 5) -> QuorumMember:
    return QuorumMember(node_id, directory_id, "", is_voter, 10, age_ms, age_ms)


def test_the_directory_that_an_observer_fetches_with() -> None:
    members = (member(1, OLD, is_voter=True), member(4, OLD, is_voter=False, age_ms=-1), member(4, NEW, is_voter=False))
    assert _directory_to_add(members, 4, None) == NEW
    assert _directory_to_add(members, 4, OLD) == OLD
    with pytest.raises(InvalidRequestError, match="does not follow the metadata log"):
        _directory_to_add(members, 5, None)


def test_a_node_that_follows_with_another_directory_than_it_votes_with_is_named() -> None:
    silent, follows = member(2, OLD, is_voter=True, age_ms=-1), member(2, NEW, is_voter=False)
    others = (member(1, OLD, is_voter=True), member(3, NEW, is_voter=False))

    def said(*members: QuorumMember) -> list[str]:
        return summary(DescribeQuorumResponse(1, 4, 9, 0, 9, is_dynamic=True, members=members))[2:]

    (line,) = said(*others, silent, follows)
    assert line.startswith("node 2 does not vote")
    assert "put directory.id=AAAAAAAAAAAAAAAAAAAAAQ back" in line
    assert said(*others, silent) == [], "it is not there at all"
    assert said(*others, member(2, OLD, is_voter=True), follows) == [], "a directory that it had before"


def test_a_voter_is_told_that_it_is_one() -> None:
    members = (member(1, OLD, is_voter=True), member(1, NEW, is_voter=False))
    with pytest.raises(DuplicateVoterError, match="node 1 is a voter already"):
        _directory_to_add(members, 1, None)
    assert _directory_to_add(members, 1, NEW) == NEW, "the quorum decides about another directory"
