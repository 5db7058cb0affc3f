"""Repair of one log that nobody has open: derived files are made again, and a tail that was never flushed is cut.

Nothing that was flushed is given up unless the caller says so: whoever runs a repair may have another copy.

| step                                                     | a crash after it                                             |
|----------------------------------------------------------|--------------------------------------------------------------|
| 0 `flushed-offset` lowered to the damage (loss accepted) | the recovery point says the same about less: repair again     |
| 1 recovery point lowered to the damage (loss accepted)   | the damage is a torn tail now: the next start cuts it         |
|   or raised to behind what is missing                    | repair again                                                  |
|   indexes without a `.log` deleted                        | the next start goes on behind what is missing                 |
| 2 wrong indexes, snapshots, epoch file deleted; beside a  | the next start makes them again: a segment without `.index`   |
|   wrong `.txnindex` the `.index`                          | is scanned                                                    |
| 3 opened as after a crash: scanned, cut, rebuilt, flushed | see `loader_recovery`                                         |
| 4 recovery point raised to the log end                   | done                                                          |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import replog_checkpoints as checkpoints
from replog.errors import CorruptCheckpointError, CorruptRecordError, DirectoryLockedError, StorageError
from replog.log.completeness import read_complete_from, write_complete_from
from replog.log.config import CleanupPolicy, LogConfig
from replog.log.directory_identity import LOCAL_CLUSTER_ID
from replog.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    parse_file_name,
    parse_partition_dir_name,
)
from replog.log.flushed_offset import FlushedOffsetFile
from replog.log.loaded_log import RecoveryReport
from replog.log.log import Log
from replog.log.promises import read_promises
from replog.log.verification import Finding, FindingKind, LogVerifier
from replog_checkpoints import FileSystem, TopicPartition, parent_of

_LOCK_FILE = ".lock"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did.

    Attributes:
        found: what did not fit before.
        left: what does not fit after it: files that cannot be made from the records.
        recovery: what was scanned and cut.
        end_offset_before: where readable records ended, or would have without the damage, as far as known; exclusive.
        end_offset: where they end now, exclusive.
    """

    found: tuple[Finding, ...]
    left: tuple[Finding, ...]
    recovery: RecoveryReport | None
    end_offset_before: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """What the checkpoints of the directory above, and the file beside the log, say about it; None: nothing.

    Attributes:
        recovery_point: As checkpointed.
        log_start_offset: As checkpointed.
        flushed_offset: Everything below it was flushed.
    """

    recovery_point: int | None
    log_start_offset: int | None
    flushed_offset: int | None


def read_offsets(fs: FileSystem, directory: str) -> LogOffsets:
    """Recovery point, log start and flushed offset of the log in `directory`.

    Raises:
        CorruptCheckpointError: a checkpoint cannot be read.
    """
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    noted = noted_offset(fs, directory)
    if key is None:
        return LogOffsets(None, None, noted)
    points = _read_checkpoint(fs, _recovery_point_path(directory))
    starts = _read_checkpoint(fs, f"{parent_of(directory)}/{checkpoints.LOG_START_OFFSET_FILE}")
    known = [offset for offset in (points.get(key), noted) if offset is not None]
    return LogOffsets(points.get(key), starts.get(key), max(known, default=None))


def noted_offset(fs: FileSystem, directory: str) -> int | None:
    """Returns what the log's own file says is flushed; None: nothing, or the recovery point is exact (a clean stop)."""
    return None if read_promises(fs, directory).clean else FlushedOffsetFile.load(fs, directory).offset


def repair_log(
    fs: FileSystem, directory: str, *, accept_loss: bool, now_ms: int, forget_flushed_offset: bool = False
) -> RepairReport:
    """Mends what can be mended in the log in `directory`; see the module.

    Args:
        fs: the disk.
        directory: of the log; the directory above it is locked meanwhile, as by a broker.
        accept_loss: records from the first damaged one on may be given up, flushed or not.
        now_ms: wall time.
        forget_flushed_offset: Whether another program has cut the log since `flushed-offset` was written: that file is
            removed first, and the recovery point alone says what was flushed.

    Raises:
        CorruptRecordError: flushed records are damaged and `accept_loss` is False; nothing was changed.
        CorruptCheckpointError: a checkpoint that says what was flushed cannot be read; nothing was changed.
        DirectoryLockedError: a process has the directory open.
        StorageError: there is no log, or the disk failed.
    """
    try:
        lock = fs.lock(f"{parent_of(directory)}/{_LOCK_FILE}")
    except BlockingIOError as error:
        raise DirectoryLockedError(f"{parent_of(directory)} is in use by another process: stop it first") from error
    try:
        if forget_flushed_offset:
            FlushedOffsetFile.load(fs, directory).remove()
        return _repair(fs, directory, accept_loss=accept_loss, now_ms=now_ms)
    except OSError as error:
        raise StorageError(f"{directory} cannot be repaired: {error}. Check the disk, then repair again") from error
    finally:
        lock.release()


def _repair(fs: FileSystem, directory: str, *, accept_loss: bool, now_ms: int) -> RepairReport:
    offsets = read_offsets(fs, directory)
    promises = read_promises(fs, directory)
    verifier = LogVerifier(
        fs,
        directory,
        offsets.flushed_offset,
        deep=False,
        flush_end=noted_offset(fs, directory),
        is_closed=promises.clean,
        is_compacted=promises.is_compacted,
        log_start_offset=promises.log_start_offset,
    )
    found = tuple(verifier.run())
    if verifier.totals.segments == 0 and not any(finding.kind is FindingKind.DAMAGED for finding in found):
        raise StorageError(f"{directory} holds no segments: there is nothing to repair")
    if not found:
        end_offset = verifier.totals.end_offset
        return RepairReport((), (), None, end_offset, end_offset)
    missing = [finding for finding in found if finding.kind is FindingKind.MISSING]
    if missing and not accept_loss:
        raise _refusal(found, offsets.flushed_offset)
    has_claim = not promises.is_compacted and read_complete_from(fs, directory) is not None
    if missing and has_claim:  # what is behind them stays, and is complete from there on
        write_complete_from(fs, directory, verifier.holes_end_offset)
    recovery_point, flushed_offset = offsets.recovery_point, offsets.flushed_offset
    lost_offset = _first_lost_offset(found, flushed_offset)
    if lost_offset is not None:
        if not accept_loss:
            raise _refusal(found, flushed_offset)
        offsets = _give_up(fs, directory, offsets, lost_offset)
    elif flushed_offset is not None:  # the log is opened as after a crash, when a note from before a clean stop counts
        FlushedOffsetFile.load(fs, directory).lower_to(flushed_offset)
    if missing and (lost_offset is None or lost_offset >= verifier.holes_end_offset):
        recovered_from = max(
            offsets.recovery_point or 0, verifier.holes_end_offset
        )  # above it a hole would be a torn tail
        offsets = replace(offsets, recovery_point=recovered_from)
        _write_recovery_point(fs, directory, recovered_from)
    if missing:
        _remove_orphans(fs, directory)
    _remove_derived(fs, directory, found)
    log = _open(fs, directory, offsets, now_ms)
    if lost_offset is not None:
        log.truncate_to(max(lost_offset, log.log_start_offset))  # a batch whose offset has changed is no torn write
    log.close(now_ms)
    if recovery_point is not None or missing:  # without one the next start would take a hole for a torn tail
        _write_recovery_point(fs, directory, log.log_end_offset)
    left = tuple(LogVerifier(fs, directory, log.log_end_offset, deep=False, is_closed=True).run())
    before = max(verifier.totals.end_offset, flushed_offset or 0)
    return RepairReport(found, left, log.recovery, before, log.log_end_offset)


def _give_up(fs: FileSystem, directory: str, offsets: LogOffsets, lost_offset: int) -> LogOffsets:
    """Promises nothing from the damage on, durably; nothing at all where that lies below the start of the log."""
    if lost_offset <= (offsets.log_start_offset or 0):
        lost_offset = 0
    FlushedOffsetFile.load(fs, directory).lower_to(lost_offset)
    recovery_point = lost_offset if offsets.recovery_point is None else min(offsets.recovery_point, lost_offset)
    if offsets.recovery_point is not None:
        _write_recovery_point(fs, directory, recovery_point)
    return replace(offsets, recovery_point=recovery_point)


def _open(fs: FileSystem, directory: str, offsets: LogOffsets, now_ms: int) -> Log:
    """As after a crash.  Segments are only cut and indexed, so few settings of its topic matter: it may be compacted."""
    return Log.open(
        fs,
        directory,
        LogConfig(cleanup_policy=CleanupPolicy.COMPACT),
        topic_partition=PurePosixPath(directory).name,
        recovery_point=offsets.recovery_point or 0,
        log_start_offset=offsets.log_start_offset or 0,
        clean=False,
        now_ms=now_ms,
    )


def _first_lost_offset(found: tuple[Finding, ...], flushed_offset: int | None) -> int | None:
    """The first damaged offset; None: nothing that was flushed is damaged."""
    damaged = (finding for finding in found if finding.offset is not None and finding.kind is not FindingKind.MISSING)
    offset = min((finding.offset for finding in damaged if finding.offset is not None), default=None)
    return None if offset is None or (flushed_offset is not None and offset >= flushed_offset) else offset


def _refusal(found: tuple[Finding, ...], flushed_offset: int | None) -> CorruptRecordError:
    first = next(finding for finding in found if finding.offset is not None)
    promised = (
        "how far it was flushed is not known"
        if flushed_offset is None
        else f"everything below offset {flushed_offset} was flushed"
    )
    return CorruptRecordError(
        first.path,
        first.position or 0,
        f"{first.reason} (offset {first.offset}), and {promised}. Nothing was changed: restore the file, copy the replica "
        f"from another broker, or give up the records from offset {first.offset} on with --accept-loss; where Apache Kafka or "
        "an older replog has cut the log since the last run, --forget-flushed-offset",
    )


def _remove_derived(fs: FileSystem, directory: str, found: tuple[Finding, ...]) -> None:
    removed = {_to_remove(finding.path) for finding in found if finding.kind is FindingKind.DERIVED}
    if _is_local(fs, directory):
        removed |= {
            finding.path for finding in found if finding.path.endswith(f"/{checkpoints.PARTITION_METADATA_FILE}")
        }
    for path in removed:
        if fs.exists(path):
            fs.remove(path)
    fs.sync_dir(directory)


def _is_local(fs: FileSystem, directory: str) -> bool:
    """Whether it is a log of `open_log`, whose topic id nobody else knows: the next `open_log` gives it another one."""
    try:
        meta = checkpoints.read_meta_properties(fs, f"{parent_of(directory)}/{checkpoints.META_PROPERTIES_FILE}")
    except checkpoints.CorruptCheckpointError:
        return False
    return meta is not None and meta.cluster_id == LOCAL_CLUSTER_ID


def _remove_orphans(fs: FileSystem, directory: str) -> None:
    """Removes indexes whose `.log` is gone: they would still promise the records that were given up."""
    names = fs.list_dir(directory)
    for name in names:
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] in SEGMENT_SUFFIXES and f"{parsed[0]:020d}{LOG_SUFFIX}" not in names:
            fs.remove(f"{directory}/{name}")
    fs.sync_dir(directory)


def _to_remove(path: str) -> str:
    """A segment without offset index is scanned, and a scan writes the transaction index too (or removes it)."""
    if path.endswith(TRANSACTION_INDEX_SUFFIX):
        return path.removesuffix(TRANSACTION_INDEX_SUFFIX) + INDEX_SUFFIX
    return path


def _recovery_point_path(directory: str) -> str:
    return f"{parent_of(directory)}/{checkpoints.RECOVERY_POINT_FILE}"


def _read_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offset_checkpoint(fs, path) or {}
    except checkpoints.CorruptCheckpointError as error:
        raise CorruptCheckpointError(error.path, error.line, error.reason) from error


def _write_recovery_point(fs: FileSystem, directory: str, offset: int) -> None:
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    path = _recovery_point_path(directory)
    points = _read_checkpoint(fs, path)
    is_in_directory = fs.exists(f"{parent_of(directory)}/{checkpoints.META_PROPERTIES_FILE}")
    if key is not None and (key in points or is_in_directory):
        checkpoints.write_offset_checkpoint(fs, path, {**points, key: offset})
