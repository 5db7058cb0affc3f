"""Counting votes of one election, real or pre-vote."""

from __future__ import annotations

from collections.abc import Sequence

from replog_quorum.arithmetic import majority_size


class VoteTally:
    """Who has granted and who has refused.  The first answer of a voter counts; answers of others are ignored."""

    def __init__(self, voters: Sequence[int], granted_by: int) -> None:
        self._voters = tuple(voters)
        self._answers: dict[int, bool] = {granted_by: True}

    def record(self, voter_id: int, *, granted: bool) -> None:
        """Note the answer of a voter."""
        if voter_id in self._voters:
            self._answers.setdefault(voter_id, granted)

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Voters still to be asked."""
        return tuple(voter_id for voter_id in self._voters if voter_id not in self._answers)

    @property
    def granting_voters(self) -> tuple[int, ...]:
        """Voters that granted, in the order of the voter set."""
        return tuple(voter_id for voter_id in self._voters if self._answers.get(voter_id, False))

    @property
    def is_won(self) -> bool:
        """A majority has granted."""
        return len(self.granting_voters) >= majority_size(len(self._voters))

    @property
    def is_lost(self) -> bool:
        """A majority can no longer be reached."""
        return len(self.granting_voters) + len(self.unanswered) < majority_size(len(self._voters))
