"""Where the controller stands in the metadata log, and the timeline snapshots that let it go back (kafka-reference 6.2).

Offsets are exclusive ends.  A timeline snapshot at epoch `e` holds the state after everything below offset `e`.
There are no transactions, so what is stable is what is committed.
"""

from __future__ import annotations

from replog.errors import InvariantViolationError
from replog_timeline import SnapshotRegistry


class OffsetControl:
    """Committed end, next write offset, and one snapshot per boundary of a batch between the two.

    Invariants:
        - `committed_end_offset` never decreases and is always a snapshot: there is always a state to go back to;
        - inactive: nothing beyond `committed_end_offset` has been replayed.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._next_write_offset: int | None = None
        self.committed_end_offset = 0
        self.committed_epoch = -1
        registry.get_or_create_snapshot(0)

    @property
    def next_write_offset(self) -> int | None:
        """Offset of the next record this controller appends; None when it is not active."""
        return self._next_write_offset

    @property
    def has_pending(self) -> bool:
        """Whether something was replayed that has not committed."""
        return self._next_write_offset is not None and self._next_write_offset > self.committed_end_offset

    def activate(self) -> None:
        """Appends follow what is committed."""
        self._next_write_offset = self.committed_end_offset

    def deactivate(self) -> None:
        """Forget everything that is not committed."""
        self._registry.revert_to_snapshot(self.committed_end_offset)
        self._next_write_offset = None

    def append(self, records_count: int) -> None:
        """An own batch has been replayed: from now on it is where one can stand.

        Raises:
            InvariantViolationError: not active.
        """
        if self._next_write_offset is None:
            raise InvariantViolationError("append on an inactive controller")
        self._next_write_offset += records_count
        self._registry.get_or_create_snapshot(self._next_write_offset)

    def commit(self, base_offset: int, end_offset: int, epoch: int) -> None:
        """A batch has committed; on a standby its records have just been replayed.

        Raises:
            InvariantViolationError: it does not follow the last one, or it ends where no own batch ended.
        """
        self.check_follows(base_offset, end_offset)
        if self._next_write_offset is None:
            self._registry.get_or_create_snapshot(end_offset)
        elif not self._registry.has_snapshot(end_offset):
            raise InvariantViolationError(f"commit at {end_offset} is not the end of a batch of this controller")
        self.committed_end_offset = end_offset
        self.committed_epoch = epoch
        self._registry.delete_snapshots_up_to(end_offset)

    def check_follows(self, base_offset: int, end_offset: int) -> None:
        """Raises InvariantViolationError unless [base_offset, end_offset) follows what is committed."""
        if base_offset != self.committed_end_offset or end_offset < base_offset:
            raise InvariantViolationError(
                f"committed batch [{base_offset}, {end_offset}) does not follow {self.committed_end_offset}"
            )
