"""Who votes: voters with the directory that holds their log (KIP-853; docs/KAFKA.md 5.6).

Why the directory counts: a vote and a fetch offset are promises about what is on a disk.  A node whose disk was lost comes
back under the same id with an empty one, and must not be taken for the voter that made those promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from uuid import UUID

from msgspec import Struct

from replog_quorum.errors import QuorumConfigError


class Voter(Struct, frozen=True):
    """One voter.

    Attributes:
        voter_id: The node id, not negative.
        directory_id: The id of its metadata log's directory; None in a static configuration, which matches any.
        endpoint: The "host:port" where it listens.
    """

    voter_id: int
    directory_id: UUID | None
    endpoint: str

    def matches(self, voter_id: int, directory_id: UUID | None) -> bool:
        """Whether somebody who names itself so is this voter."""
        return voter_id == self.voter_id and (self.directory_id is None or directory_id == self.directory_id)


class VoterSet(Struct, frozen=True, dict=True):
    """All voters, ascending by id.

    Raises:
        QuorumConfigError: There is no voter at all, or ids are negative, repeated or not ascending.
    """

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        ids = [voter.voter_id for voter in self.voters]
        if not ids or ids != sorted(set(ids)) or ids[0] < 0:
            raise QuorumConfigError("voters", tuple(ids), "must be distinct, ascending, not negative and at least one")

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Node ids, ascending."""
        return tuple(self._by_id)

    @cached_property
    def is_static(self) -> bool:
        """Whether a directory is not known: the set can only come from a configuration."""
        return any(voter.directory_id is None for voter in self.voters)

    @property
    def majority_size(self) -> int:
        """How many voters make a majority."""
        return len(self.voters) // 2 + 1

    def get(self, voter_id: int) -> Voter | None:
        """Returns the voter of this id, whatever its directory."""
        return self._by_id.get(voter_id)

    def contains(self, voter_id: int, directory_id: UUID | None) -> bool:
        """Whether (id, directory) is a voter; a voter without a directory matches any."""
        voter = self._by_id.get(voter_id)
        return voter is not None and (voter.directory_id is None or voter.directory_id == directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Returns this set with `voter` added, or put in the place of the one of its id."""
        others = [other for other in self.voters if other.voter_id != voter.voter_id]
        return VoterSet(tuple(sorted((*others, voter), key=lambda one: one.voter_id)))

    def without(self, voter_id: int) -> VoterSet:
        """Returns this set without one voter.

        Raises:
            QuorumConfigError: Nobody would be left.
        """
        return VoterSet(tuple(voter for voter in self.voters if voter.voter_id != voter_id))

    @cached_property
    def _by_id(self) -> dict[int, Voter]:
        return {voter.voter_id: voter for voter in self.voters}
