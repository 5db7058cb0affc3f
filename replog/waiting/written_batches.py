"""The batches that the owner of a state has replayed and handed over, each end a timeline snapshot to go back to.

    committed <= ends of batches <= next offset

An offset is an exclusive end.  The snapshot at epoch `e` holds the state after everything below offset `e`.
"""

from __future__ import annotations

from collections import deque

from replog.errors import InvariantViolationError
from replog_timeline import SnapshotRegistry


class WrittenBatches:
    """Where the next batch goes, and the ends of those that have not committed.

    Invariants:
        - nothing is remembered while nothing is written;
        - every end that has not committed is a snapshot.

    Args:
        registry: The registry of the state that the batches change.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._ends: deque[int] = deque()
        self._next_offset: int | None = None

    @property
    def next_offset(self) -> int | None:
        """Offset of the next record; None while nothing may be written."""
        return self._next_offset

    def next_offset_or_raise(self) -> int:
        """Returns the offset of the next record.

        Raises:
            InvariantViolationError: Nothing may be written.
        """
        if self._next_offset is None:
            raise InvariantViolationError("an append by one who does not lead")
        return self._next_offset

    def begin(self, next_offset: int) -> None:
        """Begins to write at `next_offset`."""
        self._next_offset = next_offset

    def stop(self) -> None:
        """Forgets everything: nothing may be written any more."""
        self._next_offset = None
        self._ends.clear()

    def move_to(self, next_offset: int) -> None:
        """Moves the end of the written batches to `next_offset`; from then on the state can go back to it.

        Raises:
            InvariantViolationError: Nothing may be written, or the log would shrink.
        """
        if next_offset < self.next_offset_or_raise():
            raise InvariantViolationError(f"the log goes back from {self._next_offset} to {next_offset}")
        self._next_offset = next_offset
        self._ends.append(next_offset)
        self._registry.get_or_create_snapshot(next_offset)

    def take_back(self, base_offset: int) -> None:
        """Takes the state back to that of everything below `base_offset`: nothing from there on was appended.

        Args:
            base_offset: The offset at which a batch begins that has not committed.
        """
        self._next_offset = base_offset
        while self._ends and self._ends[-1] > base_offset:
            self._ends.pop()
        self._registry.revert_to_snapshot(base_offset)

    def commit_up_to(self, end_offset: int) -> int | None:
        """Forgets the batches below `end_offset`, which have committed.

        Returns:
            The end of the last one of them; None where there is none.
        """
        committed = None
        while self._ends and self._ends[0] <= end_offset:
            committed = self._ends.popleft()
        return committed
