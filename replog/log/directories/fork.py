"""A log that begins with the records of another one below an offset, and shares its sealed segments by hard links.

    flights-3/00000000000000000000.log       <- one file ->   try-3/00000000000000000000.log
    flights-3/00000000000001042000.log       the segment that holds the end of the fork  -> copied up to there

What is linked is not copied, so that ten gigabytes take as long as ten files: all but the segment that holds the end, and those that are
not on stable storage yet, for an fsync that fails by one name is not told by another.  Neither log can be seen in the other: nothing is
written into a sealed segment, one that is to be cut, or to be appended to again, is copied first (`SegmentFiles.own`), and indexes are
replaced by a rename.  A file goes when its last name does.

The owner of the log links (`begin_fork`), since only between two of its steps do list and names of the segments agree.  The
rest is done in any thread (`finish_fork`), in a folder of another name, which the next start removes:

| a crash                            | what it leaves                                            |
|------------------------------------|-----------------------------------------------------------|
| before the folder has its name     | the log as it was; where the metadata have the fork, the next start makes it |
| after                              | both logs                                                 |

Forks of a topic in a cluster (`ForkTopic`), and why their replicas agree:

1. The end of a fork is a high watermark that the leader of the source told before the records of the copy were written, and the
   metadata have it.  So all that it holds is committed, no replica chooses its own end, and a replica that makes its fork late,
   after a restart, makes the same one.
2. The ISR of the copy is that of the source.  Each member has all that is below any high watermark, and does not cut it: what is
   below the end is the same bytes in all of them, save what retention and compaction took.
3. A pass of compaction that reached beyond the end may have removed records for the sake of some behind it.  Such a log is no
   source any more.  Nor is one that ends below the end, which only damage or an unclean election explains.
4. A member of ISR or ELR that cannot make its fork never takes an empty log for it: it is offline until the controller does
   not count on it, and then fetches all from the leader, as a damaged one does (`ForkFailedError`).
5. The leader epoch of the copy is higher than that of the source was, so that the epochs below the end stay as they are, and a
   replica that lags finds by them where it agrees with the leader, as always.
6. A transaction that is open at the end can never be committed in the copy.  To end the fork at the last stable offset would not do:
   the markers of other transactions lie above it.  The leader aborts what is open from below the end (`ReplicaManager`).
7. A producer that wrote the source begins anew at sequence 0 in the copy.  The leader forgets the batches of before, or it
   would take a new one for a repeat of one of them, and acknowledge it without writing it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.errors import ForkFailedError
from replog.log.epoch_cache import epoch_path
from replog.log.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_path
from replog.log.log import Log
from replog.log.producers.files import snapshot_offsets
from replog.log.recovery.completeness import write_complete_from
from replog.log.segments.files import copy_file
from replog.log.segments.segment import OFFSET_MAX, LogSegment
from replog_checkpoints import FileSystem, OpenMode, PartitionMetadata, parent_of

_SHARED: Final = ".shared"
"""The end of the name that a segment of the log has in the folder until it is copied: a log that is cut leaves it alone."""

_PIECE_BYTES: Final = 1 << 20


class Fork(Struct, frozen=True):
    """A fork whose sealed segments are linked; made by `begin_fork`.

    Attributes:
        folder: The folder that it is made in.
        source: The folder of the log that it is made from.
        end_offset: The end (exclusive) of its records.
        log_start_offset: Its first offset that may be read.
        recovery_point: The offset below which everything is on stable storage.
        epochs: Its (epoch, start offset) entries.
        complete_from: The claim of the log about missing offsets.
        is_compacted: Whether gaps between batches say nothing.
        copied: The segments that are not linked: the base offset of each, and how many bytes it has of the log's; the last may have none.
    """

    folder: str
    source: str
    end_offset: int
    log_start_offset: int
    recovery_point: int
    epochs: Sequence[tuple[int, int]]
    complete_from: int | None
    is_compacted: bool
    copied: Sequence[tuple[int, int]]

    @property
    def copied_bytes(self) -> int:
        """How many bytes of records are copied."""
        return sum(size_bytes for _, size_bytes in self.copied)


def begin_fork(fs: FileSystem, log: Log, folder: str, end_offset: int) -> Fork:
    """Links the sealed segments of a log below an offset into a new folder.  The owner of the log calls it.

    Args:
        fs: The disk.
        log: The log; it goes on by itself.
        folder: The folder to make, on the same disk.
        end_offset: Where the fork ends, at the border of a batch; where the log ends below it, there.

    Raises:
        ForkFailedError: Compaction has gone beyond the end.
        CorruptRecordError: The segment that holds the end is damaged.
        OSError: The disk failed, is another one, or is full; some of the folder may be there.
    """
    end_offset = min(end_offset, log.log_end_offset)
    if log.first_dirty_offset > end_offset:
        raise ForkFailedError(
            f"{log.directory} was compacted up to {log.first_dirty_offset}: not all of the records below {end_offset} are there"
        )
    fs.make_dirs(folder)
    copied: list[tuple[int, int]] = []
    linked_end_offset, next_offset = min(end_offset, log.checkpointed_recovery_point), 0
    next_offsets = [*log.segment_base_offsets[1:], OFFSET_MAX]
    for (segment, size_bytes), next_offset in zip(log.files().segments, next_offsets, strict=True):
        if segment.base_offset >= end_offset:
            break
        if next_offset <= linked_end_offset:
            _link(fs, segment, folder)
            continue
        found = segment.find(end_offset) if next_offset > end_offset else None
        copied.append((segment.base_offset, size_bytes if found is None else found.position))
        fs.link(segment.path, file_path(folder, segment.base_offset, LOG_SUFFIX) + _SHARED)
    if not copied or next_offset <= end_offset:
        copied.append((end_offset, 0))
    return Fork(
        folder,
        log.directory,
        end_offset,
        min(log.log_start_offset, end_offset),
        min(log.checkpointed_recovery_point, copied[0][0]),
        [(epoch, start) for epoch, start in log.leader_epochs.entries if start < end_offset],
        None if log.complete_from is None else min(log.complete_from, end_offset),
        log.first_dirty_offset > 0,
        copied,
    )


def _link(fs: FileSystem, segment: LogSegment, folder: str) -> None:
    for path in segment.file_names:
        try:
            fs.link(path, f"{folder}/{path.rpartition('/')[2]}")
        except FileNotFoundError:  # it has no such index
            if path == segment.path:
                raise


def finish_fork(fs: FileSystem, fork: Fork, metadata: PartitionMetadata | None = None) -> None:
    """Writes the other files of a fork, so that its folder lacks its name only.  In any thread.

    Args:
        fs: The disk.
        fork: The fork.
        metadata: Whose folder it is; None: as that of the log says.

    Raises:
        OSError: The disk failed or is full.
    """
    for base_offset, size_bytes in fork.copied:
        _copy_segment(fs, fork.folder, base_offset, size_bytes)
    with contextlib.suppress(
        FileNotFoundError
    ):  # the log was deleted meanwhile: recovery finds the producers by the records
        offsets = [offset for offset in snapshot_offsets(fs, fork.source) if offset <= fork.end_offset]
        for offset in offsets[-1:]:  # it tells of those before
            target = file_path(fork.folder, offset, SNAPSHOT_SUFFIX)
            copy_file(fs, file_path(fork.source, offset, SNAPSHOT_SUFFIX), target)
    if fork.complete_from is not None:
        write_complete_from(fs, fork.folder, fork.complete_from)
    checkpoints.write_leader_epochs(fs, epoch_path(fork.folder), fork.epochs)
    name = checkpoints.PARTITION_METADATA_FILE
    metadata = metadata or checkpoints.read_partition_metadata(fs, f"{fork.source}/{name}")
    if metadata is not None:
        checkpoints.write_partition_metadata(fs, f"{fork.folder}/{name}", metadata)
    fs.sync_dir(fork.folder)


def name_fork(fs: FileSystem, fork: Fork, target: str) -> None:
    """Gives the folder of a finished fork its name, durably.

    Raises:
        OSError: The disk failed or is full.
    """
    fs.rename(fork.folder, target)
    fs.sync_dir(parent_of(target))


def _copy_segment(fs: FileSystem, folder: str, base_offset: int, size_bytes: int) -> None:
    """Copies the first bytes of a segment.  They are not fsynced, and the recovery point says so."""
    path = file_path(folder, base_offset, LOG_SUFFIX)
    copy = fs.open(path, OpenMode.CREATE)
    try:
        if size_bytes:
            shared = fs.open(path + _SHARED, OpenMode.READ)
            try:
                for start in range(0, size_bytes, _PIECE_BYTES):
                    copy.pwrite([shared.pread(min(_PIECE_BYTES, size_bytes - start), start)], start)
            finally:
                shared.close()
    finally:
        copy.close()
    with contextlib.suppress(FileNotFoundError):
        fs.remove(path + _SHARED)
