"""The facts about one log in its directory's checkpoints, for opening that log alone.

A log that stands by itself (copied out of its directory, in the place of another one, or whose checkpoints are unreadable) is
promised nothing: its last segment is checked, and it begins with its first segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.log.file_names import parse_partition_dir_name
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.misplaced import misplaced_replica
from replog.log.recovery.offset_witness import contradicted, read_witnessed
from replog_checkpoints import FileSystem, TopicPartition, parent_of


class Promises(Struct, frozen=True):
    """Lower bounds that hold for a log.

    Attributes:
        recovery_point: The exclusive end of the flushed records; 0: unknown.
        flushed_offset: The same, from the file beside the log, exact after kill -9; 0: unknown.
        log_start_offset: The log start; 0: unknown, the log begins with its first segment.
        clean: Whether the last stop was clean.
        high_watermark: The high watermark, exclusive; None: unknown.
        is_compacted: Whether a cleaner has been there; gaps say nothing then.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    clean: bool = False
    high_watermark: int | None = None
    flushed_offset: int = 0
    is_compacted: bool = False


def read_promises(fs: FileSystem, directory: str) -> Promises:
    """Reads the checkpoints beside a partition folder and the file in it; nothing where they are missing or damaged.

    Call it before the log is looked at: a running writer only ever adds to it what these do not promise yet.

    Raises:
        OSError: The disk failed.
    """
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    flushed_offset = FlushedOffsetFile.load(fs, directory).offset or 0
    if key is None or misplaced_replica(fs, directory) is not None:
        return Promises(flushed_offset=flushed_offset)
    parent = parent_of(directory)
    recovery_point = _offsets(fs, f"{parent}/{checkpoints.RECOVERY_POINT_FILE}").get(key)
    return Promises(
        recovery_point or 0,
        _log_start_offset(fs, f"{parent}/{checkpoints.LOG_START_OFFSET_FILE}", key),
        clean=recovery_point is not None and _is_clean(fs, f"{parent}/{checkpoints.CLEAN_SHUTDOWN_FILE}"),
        high_watermark=_high_watermark(fs, f"{parent}/{checkpoints.REPLICATION_OFFSET_FILE}", key),
        flushed_offset=flushed_offset,
        is_compacted=key in _offsets(fs, f"{parent}/{checkpoints.CLEANER_OFFSET_FILE}"),
    )


def _offsets(fs: FileSystem, path: str) -> Mapping[TopicPartition, int]:
    try:
        return checkpoints.read_offset_checkpoint(fs, path) or {}
    except checkpoints.DamagedCheckpointError:
        return {}


def _witnessed(fs: FileSystem, path: str) -> Mapping[TopicPartition, int]:
    try:
        return read_witnessed(fs, path)
    except checkpoints.DamagedCheckpointError:
        return {}


def _log_start_offset(fs: FileSystem, path: str, key: TopicPartition) -> int:
    """Returns the checkpointed start; where its witness contradicts it the lowest one, which hides nothing."""
    offset = _witnessed(fs, path).get(key, 0)
    try:
        starts = contradicted(fs, path, key)
    except checkpoints.DamagedCheckpointError:
        return offset
    return offset if starts is None else min(start or 0 for start in starts)


def _high_watermark(fs: FileSystem, path: str, key: TopicPartition) -> int | None:
    """Returns the checkpointed high watermark; where its witness contradicts it the lowest one, which shows nothing too early."""
    offset = _witnessed(fs, path).get(key)
    try:
        marks = contradicted(fs, path, key)
    except checkpoints.DamagedCheckpointError:
        return offset
    return offset if marks is None else min(mark or 0 for mark in marks)


def _is_clean(fs: FileSystem, path: str) -> bool:
    try:
        return checkpoints.read_clean_shutdown(fs, path) is not None
    except checkpoints.DamagedCheckpointError:
        return False
