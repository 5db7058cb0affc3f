"""Leader-epoch cache: which leader epoch began at which offset (docs/KAFKA.md 3.5, KIP-101).

Why: two replicas that compare the end of an epoch find the last offset they share.  A high watermark cannot do that: it
lags, and cutting there loses acknowledged records.

Worked example, entries (0, 0) (3, 120) in a log that ends at 150::

    end of epoch 0  -> (0, 120)     the next epoch began there
    end of epoch 2  -> (0, 120)     2 never wrote here; the last epoch before it ended at 120
    end of epoch 3  -> (3, 150)     the latest epoch ends where the log ends
    end of epoch 4  -> None         unknown here

Every change is written before it counts (unlike Kafka, which lags after a truncation: an entry cut from memory
but not from the file would come back, above records of an older epoch written since).

| crash                          | what the next start finds                                                       |
|--------------------------------|---------------------------------------------------------------------------------|
| assign, before the append      | an entry at or above the log end: cut on open                                   |
| cut, before the log is cut     | an entry is missing; the recovery point was lowered first, so the scan adds it   |
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import replog_checkpoints as checkpoints
from replog.errors import InvariantViolationError
from replog.log.disk_space import disk_full, is_disk_full
from replog_checkpoints import FileSystem


def epoch_path(directory: str) -> str:
    """Returns the path of the leader-epoch checkpoint in a partition folder."""
    return f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"


def write_epochs(fs: FileSystem, directory: str, entries: Sequence[tuple[int, int]]) -> None:
    """Replaces the leader-epoch checkpoint, durably.

    Raises:
        DiskFullError: There is no room; the old file is still there, and nothing follows that needs the new one.
        OSError: The disk failed.
    """
    try:
        checkpoints.write_leader_epochs(fs, epoch_path(directory), entries)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full("the leader-epoch checkpoint cannot be written", directory, error) from error
        raise


EpochStart: TypeAlias = tuple[int, int]
"""An epoch, and the offset at which it began."""

_epoch, _start = itemgetter(0), itemgetter(1)


class CachedEpochEnd(NamedTuple):
    """Where an epoch ended: `end_offset` is exclusive; `epoch` is the largest known one at or below the one asked."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """Ordered (epoch, start offset) entries of one log.

    Why a plain list: epochs and offsets both rise, and it is searched by either; a log has a few, and a sorted map for one
    of the two took 1.9 KB more of every log.

    Args:
        entries: The (epoch, start offset) entries as read from the checkpoint.
        write: A function that makes the given entries durable; called before every change.

    Invariants:
        - epochs and start offsets strictly rise;
        - the entries in memory were written: if there is no room for new ones, the old ones stay.
    """

    __slots__ = ("_entries", "_write")

    def __init__(self, entries: Sequence[EpochStart], write: Callable[[Sequence[EpochStart]], None]) -> None:
        self._entries = list(entries)
        self._write = write

    @property
    def entries(self) -> list[EpochStart]:
        """(epoch, start offset), oldest first."""
        return self._entries.copy()

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch that began here; None when there is none."""
        return self._entries[-1][0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; entries that contradict it are removed.

        Raises:
            InvariantViolationError: The epoch or the offset is negative.
        """
        self.assign_all([(epoch, start_offset)])

    def assign_all(self, starts: Sequence[EpochStart]) -> None:
        """Notes several epochs as `assign` does one, and writes once."""
        entries = self._entries
        for epoch, start_offset in starts:
            entries = _assigned(entries, epoch, start_offset)
        self._replace(entries)

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that began at or above `end_offset`."""
        self._replace(self._entries[: bisect_left(self._entries, end_offset, key=_start)])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forgets epochs that ended at or below `start_offset`; the epoch in force there now begins there."""
        following = bisect_right(self._entries, start_offset, key=_start)
        if following:
            self._replace([(self._entries[following - 1][0], start_offset), *self._entries[following:]])

    def clear(self) -> None:
        """Forgets everything: the log was emptied."""
        self._replace([])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> CachedEpochEnd | None:
        """Returns where `epoch` ended in a log that ends at `log_end_offset`; None when this log cannot know."""
        latest = self.latest_epoch
        if latest is None or epoch < 0 or epoch > latest:
            return None
        if epoch == latest:
            return CachedEpochEnd(epoch, log_end_offset)
        following = bisect_right(self._entries, epoch, key=_epoch)
        found = self._entries[following - 1][0] if following else epoch  # before all: it ended where they begin
        return CachedEpochEnd(found, self._entries[following][1])

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch in which `offset` was written; None below the first entry."""
        following = bisect_right(self._entries, offset, key=_start)
        return self._entries[following - 1][0] if following else None

    def _replace(self, entries: list[EpochStart]) -> None:
        if entries != self._entries:
            self._write(entries)
            self._entries = entries


def _assigned(entries: list[EpochStart], epoch: int, start_offset: int) -> list[EpochStart]:
    """Returns the entries with one more, without those that contradict it."""
    if epoch < 0 or start_offset < 0:
        raise InvariantViolationError(f"leader epoch {epoch} at offset {start_offset} cannot be")
    if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
        return entries
    kept = entries[: bisect_left(entries, start_offset, key=_start)]  # the others never wrote a record
    if kept and kept[-1][0] == epoch:
        return kept
    return [*kept[: bisect_left(kept, epoch, key=_epoch)], (epoch, start_offset)]
