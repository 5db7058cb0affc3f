"""Single lines of the checkpoints of a log directory that is not open, each written durably with its witness."""

from __future__ import annotations

from pathlib import PurePosixPath

from replog.log.directories.offset_checkpoints import OffsetCheckpoint
from replog.log.disk_space import NO_LIMITS, DiskSpace
from replog.log.recovery.offset_witness import GIVEN_UP_FILE, WITNESS_FILES, OffsetWitness
from replog_checkpoints import FileSystem, TopicPartition, parent_of


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
