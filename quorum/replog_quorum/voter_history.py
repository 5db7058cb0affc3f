"""The voter sets of a log: the last one is in force, committed or not (KIP-853; docs/KAFKA.md 5.6).

Why not the last committed one: a leader cannot know which uncommitted set a majority already acts by; as sets change by
one voter at a time, majorities of neighbours overlap, and that is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog_quorum.errors import QuorumInvariantError
from replog_quorum.voters import VoterSet

CONFIGURED_OFFSET = -1


class VoterHistory:
    """Configured set, then every set of the snapshot and the log with the offset of its record.

    Invariants:
        - offsets ascend;
        - the set in force is the last one.
    """

    def __init__(self, configured: VoterSet, found: Sequence[tuple[int, VoterSet]]) -> None:
        self.configured = configured
        self._sets: list[tuple[int, VoterSet]] = [(CONFIGURED_OFFSET, configured)]
        for offset, voters in found:
            self.add(offset, voters)
        self._note_joined_offsets()

    @property
    def in_force(self) -> VoterSet:
        """The set that elects and commits now."""
        return self._sets[-1][1]

    @property
    def offset(self) -> int:
        """Where the record of the set in force is; `CONFIGURED_OFFSET` if it is the configured one."""
        return self._sets[-1][0]

    @property
    def previous(self) -> VoterSet | None:
        """The set before the one in force; None for the configured one."""
        return self._sets[-2][1] if len(self._sets) > 1 else None

    @property
    def is_dynamic(self) -> bool:
        """Whether the set in force stands in the log, with directories: then it can be changed."""
        return self.offset != CONFIGURED_OFFSET and not self.in_force.is_static

    def add(self, offset: int, voters: VoterSet) -> None:
        """Adds a set that was appended at `offset`.

        Raises:
            QuorumInvariantError: The offset is not above that of the last set.
        """
        if offset <= self.offset:
            raise QuorumInvariantError(f"a voter set at offset {offset} follows one at {self.offset}")
        self._sets.append((offset, voters))
        self._note_joined_offsets()

    def truncate(self, log_end_offset: int) -> None:
        """Forgets sets at or above the end of a log that was cut; the one before is in force again."""
        self._sets = [self._sets[0], *(entry for entry in self._sets[1:] if entry[0] < log_end_offset)]
        self._note_joined_offsets()

    def install(self, end_offset: int, voters: VoterSet | None) -> None:
        """Takes the set of a snapshot that replaced the log; the sets of the log are forgotten."""
        self._sets = [(CONFIGURED_OFFSET, self.configured)]
        if voters is not None:
            self._sets.append((end_offset - 1, voters))
        self._note_joined_offsets()

    def forget_before(self, log_start_offset: int) -> None:
        """Forgets sets before the log start, but for the last of them, which can come into force again."""
        if len(self._sets) <= 2:
            return
        outdated = [entry for entry in self._sets[1:] if entry[0] < log_start_offset]
        if len(outdated) > 1:
            self._sets = [self._sets[0], *self._sets[len(outdated) :]]

    def _note_joined_offsets(self) -> None:
        """Computes voter id -> offset of the record that made it a voter, without interruption since.

        Why: below it the replica did not know that it votes, so what it fetched there may be on no disk.
        """
        joined = dict.fromkeys(self.in_force.ids, self.offset)
        for voter in self.in_force:
            for offset, voters in reversed(self._sets):
                if not voters.contains(voter.voter_id, voter.directory_id):
                    break
                joined[voter.voter_id] = offset
        self.joined_offsets = joined
