"""Counting votes of one election, real or pre-vote."""

from __future__ import annotations

from collections.abc import Collection

from replog_quorum.voters import Voter, VoterSet


class VoteTally:
    """Who has granted and who has refused.  The first answer of a voter counts; answers of others are ignored."""

    def __init__(self, voters: VoterSet, granted_by: int) -> None:
        self._voters = voters
        self._own_id = granted_by
        self._answers: dict[int, bool] = {granted_by: True}

    def record(self, voter_id: int, *, granted: bool) -> None:
        """Notes the answer of a voter."""
        if voter_id in self._voters.ids:
            self._answers.setdefault(voter_id, granted)

    def use(self, voters: VoterSet) -> None:
        """Uses another set, which is in force now: answers of voters in both, with one directory, still count."""
        kept = {voter.voter_id for voter in voters if voter == self._voters.get(voter.voter_id)} | {self._own_id}
        self._answers = {voter_id: granted for voter_id, granted in self._answers.items() if voter_id in kept}
        self._voters = voters

    @property
    def unanswered(self) -> tuple[Voter, ...]:
        """Voters still to be asked."""
        return tuple(voter for voter in self._voters if voter.voter_id not in self._answers)

    @property
    def granting_voters(self) -> tuple[int, ...]:
        """Voters that granted, in the order of the voter set."""
        return tuple(voter_id for voter_id in self._voters.ids if self._answers.get(voter_id, False))

    @property
    def is_won(self) -> bool:
        """A majority has granted."""
        return len(self.granting_voters) >= self._voters.majority_size

    @property
    def is_lost(self) -> bool:
        """A majority can no longer be reached."""
        return self.is_lost_without(())

    def is_lost_without(self, gone: Collection[int]) -> bool:
        """Whether a majority cannot be reached unless one of `gone` comes back and answers."""
        waited_for = [voter for voter in self.unanswered if voter.voter_id not in gone]
        return len(self.granting_voters) + len(waited_for) < self._voters.majority_size
