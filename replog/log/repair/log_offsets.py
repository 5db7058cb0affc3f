"""What is said about a log beside its records: checkpoints of the log directory above it, and the log's own `flushed-offset`.

The directory is not open: single lines of its checkpoints are written durably, each with its witness.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.log.directories.identity import damaged_checkpoint
from replog.log.directories.offset_checkpoints import OffsetCheckpoint
from replog.log.disk_space import NO_LIMITS, DiskSpace
from replog.log.file_names import parse_partition_dir_name
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.offset_witness import (
    GIVEN_UP_FILE,
    WITNESS_FILES,
    OffsetWitness,
    Starts,
    contradicted,
    described,
    read_witnessed,
    witness_path,
)
from replog.log.recovery.promises import read_promises
from replog_checkpoints import FileSystem, TopicPartition, parent_of


class DoubtfulStart(Struct, frozen=True):
    """A log whose start two files contradict each other about.

    It is unknown which of the two is damaged.  The lowest start hides no record.  Records that had been deleted below the true start,
    inside of a segment, are there again.

    Attributes:
        path: The checkpoint.
        key: Topic and partition.
        starts: The starts that the two name; None: that of the first segment.
    """

    path: str
    key: TopicPartition
    starts: Starts

    @property
    def lowest(self) -> int | None:
        """The start that hides nothing; None: that of the first segment."""
        return None if None in self.starts else min(offset for offset in self.starts if offset is not None)

    @property
    def reason(self) -> str:
        """The trouble, for people."""
        return f"with {witness_path(self.path)} it names different log starts: {described(self.starts)}"

    def mend(self, fs: FileSystem) -> None:
        """Writes the lowest start into both files, durably.

        The checkpoint first, unlike a running writer: a witness that named what the checkpoint said until then would settle
        on it, if a crash came between, although it may be the higher one.
        """
        offsets = checkpoints.read_offset_checkpoint(fs, self.path) or {}
        kept = {key: offset for key, offset in offsets.items() if key != self.key}
        settled = kept if self.lowest is None else {**kept, self.key: self.lowest}
        checkpoints.write_offset_checkpoint(fs, self.path, settled)
        witness = OffsetWitness(fs, self.path)
        witness.read(settled)
        witness.settle(self.key)
        witness.announce(settled)


def doubtful_start(fs: FileSystem, directory: str) -> DoubtfulStart | None:
    """Returns the doubt about the start of the log in `directory`; None: there is none.

    Raises:
        CorruptCheckpointError: The checkpoint cannot be read; the error is the leaf library's.
        OSError: The disk failed.
    """
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    if key is None:
        return None
    path = f"{parent_of(directory)}/{checkpoints.LOG_START_OFFSET_FILE}"
    starts = contradicted(fs, path, key)
    return None if starts is None else DoubtfulStart(path, key, starts)


class LogOffsets(Struct, frozen=True):
    """What the checkpoints of the directory above, and the file beside the log, say about it; None: nothing.

    Attributes:
        recovery_point: The recovery point as checkpointed.
        log_start_offset: The log start as checkpointed.
        flushed_offset: The end of what was flushed, exclusive: the higher one of what the recovery point and the file say.
    """

    recovery_point: int | None
    log_start_offset: int | None
    flushed_offset: int | None


def read_offsets(fs: FileSystem, directory: str, *, forgets_note: bool = False) -> LogOffsets:
    """Reads the recovery point, log start and flushed offset of the log in `directory`.

    Args:
        fs: The disk.
        directory: The partition folder.
        forgets_note: Whether the file beside the log counts for nothing.

    Raises:
        CorruptCheckpointError: A checkpoint cannot be read.
    """
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    noted = None if forgets_note else noted_offset(fs, directory)
    if key is None:
        return LogOffsets(None, None, noted)
    points = _read_checkpoint(fs, _recovery_point_path(directory))
    start = _read_starts(fs, f"{parent_of(directory)}/{checkpoints.LOG_START_OFFSET_FILE}").get(key)
    doubtful = doubtful_start(fs, directory)
    known = [offset for offset in (points.get(key), noted) if offset is not None]
    return LogOffsets(points.get(key), start if doubtful is None else doubtful.lowest, max(known, default=None))


def noted_offset(fs: FileSystem, directory: str) -> int | None:
    """Returns what the log's own file says is flushed; None: nothing, or the recovery point is exact (a clean stop)."""
    return None if read_promises(fs, directory).clean else FlushedOffsetFile.load(fs, directory).offset


def _recovery_point_path(directory: str) -> str:
    return f"{parent_of(directory)}/{checkpoints.RECOVERY_POINT_FILE}"


def _read_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offset_checkpoint(fs, path) or {}
    except checkpoints.DamagedCheckpointError as error:
        raise damaged_checkpoint(error) from error


def _read_starts(fs: FileSystem, path: str) -> Mapping[TopicPartition, int]:
    try:
        return read_witnessed(fs, path)
    except checkpoints.DamagedCheckpointError as error:
        raise damaged_checkpoint(error) from error


def write_recovery_point(fs: FileSystem, directory: str, offset: int) -> None:
    """Writes the recovery point of a log into the checkpoint of its log directory; a folder that is in none has none."""
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    path = _recovery_point_path(directory)
    points = _read_checkpoint(fs, path)
    is_in_directory = fs.exists(f"{parent_of(directory)}/{checkpoints.META_PROPERTIES_FILE}")
    if key is not None and (key in points or is_in_directory):
        checkpoints.write_offset_checkpoint(fs, path, {**points, key: offset})


def forget_line(fs: FileSystem, path: str, key: TopicPartition) -> None:
    """Removes the line of a replica from the checkpoint at `path`, and any doubt about it; nothing where there is none.

    Raises:
        DamagedCheckpointError: The checkpoint cannot be read.
        StorageError, OSError: The line may still be there.
    """
    checkpoint = _read(fs, path)
    if not checkpoint.may_name(key):
        return
    job = checkpoint.prepare({each: at for each, at in checkpoint.offsets.items() if each != key}, gone=[key])
    if job is not None:
        job.run()


def note_given_up(fs: FileSystem, directory: str, key: TopicPartition, end_offset: int) -> None:
    """Notes that a repair gives up records of a replica, so that its broker tells the controller before it does anything.

    Args:
        fs: The disk.
        directory: The log directory.
        key: Topic and partition.
        end_offset: Where the replica's records ended, as far as known; exclusive.

    Raises:
        DamagedCheckpointError: The file cannot be read.
        StorageError, OSError: It is not noted, so nothing may be given up.
    """
    checkpoint = _read(fs, f"{directory}/{GIVEN_UP_FILE}")
    offsets = {**checkpoint.offsets, key: end_offset}
    checkpoint.write(offsets)
    checkpoint.write(offsets)  # only now its witness says that nothing else can be there


def _read(fs: FileSystem, path: str) -> OffsetCheckpoint:
    witness = OffsetWitness(fs, path) if PurePosixPath(path).name in WITNESS_FILES else None
    checkpoint = OffsetCheckpoint(fs, path, DiskSpace(fs, parent_of(path), NO_LIMITS), witness)
    checkpoint.read()
    return checkpoint
