"""Repair of one log that is not open: derived files are made again, and a tail that was never flushed is cut.

For a log of `open_log`, the `meta.properties` above it is made again before anything else: see `local_identity`.  A log start in
doubt is settled: see `doubtful_start`.  A log that only the checkpoints know is given up: see `lost_folder`.

Nothing that was flushed is given up unless the caller says so: there may be another copy.

| step                                                     | a crash after it                                             |
|----------------------------------------------------------|--------------------------------------------------------------|
| - opened in memory as the steps would leave it          | nothing was changed, nor by a refusal                         |
| 0 `.kafka_cleanshutdown` removed (loss accepted)         | the next start is one after a crash                           |
|   noted in `given-up-offset-checkpoint` (loss accepted)  | the replica leaves ISR and ELR, and fetches what it lacks     |
|   `flushed-offset` lowered to the damage (loss accepted) | the recovery point says the same about less: repair again     |
| 1 recovery point lowered to the damage (loss accepted)   | the damage is a torn tail now: the next start cuts it         |
|   or raised to behind what is missing                    | repair again                                                  |
|   indexes without a `.log` deleted                        | the next start goes on behind what is missing                 |
| 2 wrong indexes, snapshots, epoch file deleted; beside a  | the next start makes them again: a segment without `.index`   |
|   wrong `.txnindex` the `.index`                          | is scanned                                                    |
| 3 opened as after a crash: scanned, cut, rebuilt, flushed | see `unclean_segments`                                        |
| 4 recovery point raised to the log end                   | done                                                          |
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.errors import CorruptRecordError, DirectoryLockedError, DiskFullError, StorageError
from replog.log.config import Cleanup, LogConfig
from replog.log.directories.identity import LOCAL_CLUSTER_ID, damaged_checkpoint, refuse_later_format
from replog.log.disk_space import disk_full, is_disk_full
from replog.log.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_file_name,
    parse_partition_dir_name,
)
from replog.log.log import Log
from replog.log.recovery.completeness import read_complete_from, write_complete_from
from replog.log.recovery.flushed_offset import FlushedOffsetFile
from replog.log.recovery.loaded_log import RecoveryReport
from replog.log.recovery.loader import LogLoader
from replog.log.recovery.misplaced import misplaced_replica
from replog.log.recovery.promises import read_promises
from replog.log.recovery.read_only_view import ReadOnlyView
from replog.log.repair.checkpoint_lines import note_given_up
from replog.log.repair.doubtful_start import DoubtfulStart, doubtful_start
from replog.log.repair.given_up import OffsetRange, ranges_given_up
from replog.log.repair.local_identity import DamagedIdentity, damaged_identity
from replog.log.repair.lost_folder import LostFolder, lost_folder
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog.log.state import LogState
from replog_checkpoints import FileSystem, Lock, TopicPartition, parent_of

_LOCK_FILE = ".lock"
_CONFIG = LogConfig(cleanup_policy=Cleanup.COMPACT)
"""Segments are only cut and indexed, so few settings of the log's topic matter: it may be compacted."""


class RepairReport(Struct, frozen=True):
    """The actions of a repair.

    Attributes:
        found: The findings before it.
        left: The findings after it: files that cannot be made from the records.
        recovery: The report of the scan and the cuts; None: the log fits, and was not opened.
        end_offset_before: Where readable records ended, or would have without the damage, as far as known; exclusive.
        end_offset: Where they end now, exclusive.
        given_up: The ranges [start, end) of offsets that were acknowledged, or readable, and are not there any more.
        withdraws_clean_stop: Whether the next start of this log directory counts as one after a crash: what was given up here
            may be whole in other replicas.
    """

    found: tuple[Finding, ...]
    left: tuple[Finding, ...]
    recovery: RecoveryReport | None
    end_offset_before: int
    end_offset: int
    given_up: tuple[OffsetRange, ...] = ()
    withdraws_clean_stop: bool = False

    @property
    def offsets_given_up(self) -> int:
        """How many offsets are in `given_up`."""
        return sum(end - start for start, end in self.given_up)


class LogOffsets(Struct, frozen=True):
    """The facts about a log in the checkpoints above it and in the file beside it; None: there is none.

    Attributes:
        recovery_point: The recovery point as checkpointed.
        log_start_offset: The log start as checkpointed.
        flushed_offset: The exclusive end of the flushed records: the higher one of the recovery point and the file's.
    """

    recovery_point: int | None
    log_start_offset: int | None
    flushed_offset: int | None


class _Plan(Struct, frozen=True):
    """The records that a repair gives up, and its promises about the log before it opens it.

    Attributes:
        lost_offset: The offset from which on everything is given up; None: nothing that was flushed is.
        holes_end_offset: The end of the missing offsets that are given up, exclusive; None: none are.
        recovery_point: The recovery point with which the log is opened.
        log_start_offset: The log start with which the log is opened.
        note_max: The most that the log's own file may say then; None: anything.
        forgets_note: Whether that file is removed.
        is_compacted: Whether a cleaner has been there: its gaps are no holes, even where `complete-from` says so.
    """

    lost_offset: int | None
    holes_end_offset: int | None
    recovery_point: int
    log_start_offset: int
    note_max: int | None
    forgets_note: bool
    is_compacted: bool

    @property
    def gives_up(self) -> bool:
        """Whether anything that was flushed is."""
        return self.lost_offset is not None or self.holes_end_offset is not None

    def bounded(self, noted: int | None) -> int | None:
        """Returns the offset in the log's own file, `noted` now, after the repair has lowered or removed it."""
        if noted is None or self.forgets_note:
            return None
        return noted if self.note_max is None else min(noted, self.note_max)


class _Surveyed(Struct, frozen=True):
    """The findings of a verification of a log, and what follows from them.

    Attributes:
        found: The findings.
        holes: Ranges of offsets that are missing.
        end_offset: Where the records end, as far as they can be read; exclusive.
        offsets: The offsets of the log in the files beside it.
        plan: The plan of the repair.
        identity: The trouble with the `meta.properties` of a local log; None: there is none.
        start: The log start that is in doubt; None: none is.
    """

    found: tuple[Finding, ...]
    holes: tuple[OffsetRange, ...]
    end_offset: int
    offsets: LogOffsets
    plan: _Plan
    identity: DamagedIdentity | None
    start: DoubtfulStart | None


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
    start = _read_checkpoint(fs, f"{parent_of(directory)}/{checkpoints.LOG_START_OFFSET_FILE}").get(key)
    doubtful = doubtful_start(fs, directory)
    known = [offset for offset in (points.get(key), noted) if offset is not None]
    return LogOffsets(points.get(key), start if doubtful is None else doubtful.lowest, max(known, default=None))


def noted_offset(fs: FileSystem, directory: str) -> int | None:
    """Returns the flushed offset in the log's own file; None: there is none, or the recovery point is exact (a clean stop)."""
    return None if read_promises(fs, directory).clean else FlushedOffsetFile.load(fs, directory).offset


def repair_log(
    fs: FileSystem, directory: str, *, accept_loss: bool, now_ms: int, forget_flushed_offset: bool = False
) -> RepairReport:
    """Mends what can be mended in the log in `directory`; see the module.

    Args:
        fs: The disk.
        directory: The partition folder; the log directory above it is locked meanwhile, as by a broker.
        accept_loss: Whether records from the first damaged one on may be given up, flushed or not.
        now_ms: Wall time.
        forget_flushed_offset: Whether another program has cut the log since `flushed-offset` was written: that file is
            removed, and the recovery point alone says which records were flushed.

    Raises:
        CorruptRecordError: Flushed records are damaged and `accept_loss` is False, or the log could not be opened without
            them either; nothing was changed.
        CorruptCheckpointError: A checkpoint of the flushed records cannot be read, or the folder is that of another
            partition; nothing was changed.
        ForeignDirectoryError: A later version of replog formatted the directory, or a bit flipped where that stands.
        DirectoryLockedError: A process has the log directory open.
        DiskFullError: There was no room, or (`TooManyOpenFilesError`) no descriptor: the text says whether anything was changed.
            Repair again, once there is.
        StorageError: There is no log, or the disk failed.
    """
    with _repair_errors(directory, "Nothing was changed"):
        lock = _take_lock(fs, parent_of(directory))
    try:
        with _repair_errors(directory, "Nothing was changed"):
            refuse_later_format(fs, parent_of(directory))
            lost = lost_folder(fs, directory)
            if lost is not None and not accept_loss:
                raise lost.error()
        if lost is not None:
            with _repair_errors(directory, "It has begun, and another repair ends it"):
                return _give_up_folder(fs, lost, now_ms)
        with _repair_errors(directory, "Nothing was changed"):
            surveyed = _survey(fs, directory, accept_loss=accept_loss, forgets_note=forget_flushed_offset)
            if surveyed.found:
                _refuse_what_stays_shut(fs, directory, surveyed.plan, surveyed.found, now_ms)
        with _repair_errors(directory, "It has begun, and another repair ends it"):
            return _mend(fs, directory, surveyed, now_ms)
    finally:
        lock.release()


def _give_up_folder(fs: FileSystem, lost: LostFolder, now_ms: int) -> RepairReport:
    end_offset = lost.give_up(fs, _CONFIG, now_ms)
    given_up = ((lost.log_start_offset, lost.end_offset),) if lost.end_offset > lost.log_start_offset else ()
    return RepairReport((lost.finding,), (), None, lost.end_offset, end_offset, given_up, withdraws_clean_stop=True)


def _take_lock(fs: FileSystem, path: str) -> Lock:
    try:
        return fs.lock(f"{path}/{_LOCK_FILE}")
    except BlockingIOError as error:
        raise DirectoryLockedError(f"{path} is in use by another process: stop it first") from error


@contextlib.contextmanager
def _repair_errors(directory: str, outcome: str) -> Generator[None]:
    """Turns the errors of the disk within it into ours.

    Args:
        directory: The partition folder.
        outcome: The state if there is no room, or no descriptor.
    """
    try:
        yield
    except DiskFullError as error:  # of the log that was opened, which cannot know
        if not isinstance(error.__cause__, OSError):
            raise
        raise disk_full("a repair did not end", directory, error.__cause__, outcome) from error
    except OSError as error:
        if is_disk_full(error):
            raise disk_full("a repair did not end", directory, error, outcome) from error
        raise StorageError(f"{directory} cannot be repaired: {error}. Check the disk, then repair again") from error


def _survey(fs: FileSystem, directory: str, *, accept_loss: bool, forgets_note: bool) -> _Surveyed:
    """Verifies the log, and decides.  Changes nothing."""
    if _is_amid_swap(fs, directory):
        raise StorageError(
            f"{directory} holds segments that a compaction was about to put in place when its process ended: nothing is lost, "
            "and the next start ends that. Nothing was changed: start first, and repair what it refuses"
        )
    if (elsewhere := misplaced_replica(fs, directory)) is not None:
        raise elsewhere
    offsets = read_offsets(fs, directory, forgets_note=forgets_note)
    promises = read_promises(fs, directory)
    verifier = LogVerifier(
        fs,
        directory,
        offsets.flushed_offset,
        deep=False,
        is_closed=promises.clean,
        is_compacted=promises.is_compacted,
        log_start_offset=promises.log_start_offset,
    )
    found = tuple(verifier.run())
    if verifier.totals.segments == 0 and not any(finding.kind is FindingKind.DAMAGED for finding in found):
        raise StorageError(f"{directory} holds no segments: there is nothing to repair")
    plan = _plan(found, verifier.holes, offsets, forgets_note=forgets_note, is_compacted=promises.is_compacted)
    if plan.gives_up and not accept_loss:
        raise _refusal(found, offsets.flushed_offset)
    identity, start = damaged_identity(fs, directory), doubtful_start(fs, directory)
    return _Surveyed(found, tuple(verifier.holes), verifier.totals.end_offset, offsets, plan, identity, start)


def _is_amid_swap(fs: FileSystem, directory: str) -> bool:
    """Whether all segments are still under the names that a compaction gives them: a repair would take them for lost."""
    names = fs.list_dir(directory) if fs.is_dir(directory) else []
    return any(name.endswith(LOG_SUFFIX + SWAP_SUFFIX) for name in names) and not any(
        name.endswith(LOG_SUFFIX) for name in names
    )


def _mend(fs: FileSystem, directory: str, surveyed: _Surveyed, now_ms: int) -> RepairReport:
    found, offsets, plan = surveyed.found, surveyed.offsets, surveyed.plan
    told = found
    if surveyed.start is not None:
        surveyed.start.mend(fs)
        told = (start_finding(surveyed.start), *told)
    if surveyed.identity is not None:
        surveyed.identity.mend(fs)
        told = (identity_finding(surveyed.identity), *told)
    if not found:
        if plan.forgets_note:
            FlushedOffsetFile.load(fs, directory).remove()
        return RepairReport(told, (), None, surveyed.end_offset, surveyed.end_offset)
    _prepare(fs, directory, plan, offsets, found)
    log = _open(fs, directory, plan, now_ms)
    try:
        if plan.lost_offset is not None:  # a batch whose offset has changed is no torn write
            log.truncate_to(max(plan.lost_offset, log.log_start_offset))
        log.close(now_ms)
    except BaseException:
        log.close_for_good()
        raise
    if (
        offsets.recovery_point is not None or plan.gives_up
    ):  # without one the next start would take a hole for a torn tail
        _write_recovery_point(fs, directory, log.log_end_offset)
    end_offset = log.log_end_offset
    after = LogVerifier(fs, directory, end_offset, deep=False, is_closed=True, is_compacted=plan.is_compacted)
    left = tuple(after.run())
    before = max(surveyed.end_offset, offsets.flushed_offset or 0)
    given_up = ranges_given_up(surveyed.holes, plan.log_start_offset, before, end_offset)
    return RepairReport(told, left, log.recovery, before, end_offset, given_up, plan.gives_up)


def identity_finding(damaged: DamagedIdentity) -> Finding:
    """Returns the finding as which a damaged identity is reported: a file that is made again."""
    return Finding(FindingKind.DERIVED, damaged.path, None, None, damaged.reason)


def start_finding(doubtful: DoubtfulStart) -> Finding:
    """Returns the finding as which a log start in doubt is reported."""
    return Finding(FindingKind.CHECKPOINT, doubtful.path, None, None, doubtful.reason)


def _plan(
    found: tuple[Finding, ...],
    holes: Sequence[tuple[int, int]],
    offsets: LogOffsets,
    *,
    forgets_note: bool,
    is_compacted: bool,
) -> _Plan:
    """Decides which records are given up, and which may be promised before the log is opened: none from the damage on."""
    lost_offset = _first_lost_offset(found, offsets.flushed_offset)
    kept_holes = [end for start, end in holes if lost_offset is None or start < lost_offset]
    holes_end = max(kept_holes, default=None)
    recovery_point, note_max = offsets.recovery_point, offsets.flushed_offset
    if lost_offset is not None:
        is_below_start = lost_offset <= (offsets.log_start_offset or 0)  # then nothing at all is promised
        note_max = 0 if is_below_start else lost_offset
        recovery_point = note_max if recovery_point is None else min(recovery_point, note_max)
        holes_end = None if holes_end is None else min(holes_end, lost_offset)
    if holes_end is not None:  # above the recovery point a hole would be a torn tail
        recovery_point = max(recovery_point or 0, holes_end)
    return _Plan(
        lost_offset,
        holes_end,
        recovery_point or 0,
        offsets.log_start_offset or 0,
        note_max,
        forgets_note,
        is_compacted,
    )


def _refuse_what_stays_shut(
    fs: FileSystem, directory: str, plan: _Plan, found: tuple[Finding, ...], now_ms: int
) -> None:
    """Opens the log in memory as the repair is going to leave it.

    Raises:
        CorruptRecordError: It would be refused all the same; nothing was changed.
    """
    view = ReadOnlyView(fs, directory)
    _remove_wrong(view, directory, found)
    _raise_claim(view, directory, plan)
    note = FlushedOffsetFile(view, directory, plan.bounded(FlushedOffsetFile.load(fs, directory).offset))
    loader = LogLoader(
        view,
        directory,
        _CONFIG,
        plan.recovery_point,
        note,
        plan.log_start_offset,
        clean=False,
        now_ms=now_ms,
        is_read_only=True,
        is_compacted=plan.is_compacted,
    )
    LogState(view, directory, _CONFIG, PurePosixPath(directory).name, loader.load(), None, now_ms).close()


def _prepare(fs: FileSystem, directory: str, plan: _Plan, offsets: LogOffsets, found: tuple[Finding, ...]) -> None:
    """Promises durably only the records that the log is going to keep, then removes files that do not fit them."""
    if plan.gives_up:
        _let_others_decide(fs, directory, offsets)
    _raise_claim(fs, directory, plan)
    note = FlushedOffsetFile.load(fs, directory)
    if plan.forgets_note:
        note.remove()
    elif plan.note_max is not None:  # opened as after a crash, when a note from before a clean stop counts
        note.lower_to(plan.note_max)
    if plan.holes_end_offset is not None or (plan.lost_offset is not None and offsets.recovery_point is not None):
        _write_recovery_point(fs, directory, plan.recovery_point)
    _remove_wrong(fs, directory, found)


def _let_others_decide(fs: FileSystem, directory: str, offsets: LogOffsets) -> None:
    """Makes the next start of a broker on this log directory one that proves nothing about the replica, durably."""
    parent = parent_of(directory)
    checkpoints.remove_clean_shutdown(fs, f"{parent}/{checkpoints.CLEAN_SHUTDOWN_FILE}")
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    is_in_directory = fs.exists(f"{parent}/{checkpoints.META_PROPERTIES_FILE}")
    if key is not None and is_in_directory and not _is_local(fs, directory):
        note_given_up(fs, parent, key, offsets.flushed_offset or 0)


def _raise_claim(fs: FileSystem, directory: str, plan: _Plan) -> None:
    """Raises the claim of completeness to behind the missing offsets, durably; one that is higher stays.

    The records behind them stay, and are complete from there on.
    """
    claim = None if plan.is_compacted else read_complete_from(fs, directory)
    if claim is not None and plan.holes_end_offset is not None and claim < plan.holes_end_offset:
        write_complete_from(fs, directory, plan.holes_end_offset)


def _remove_wrong(fs: FileSystem, directory: str, found: tuple[Finding, ...]) -> None:
    if any(finding.kind is FindingKind.MISSING for finding in found):
        _remove_orphans(fs, directory)
    _remove_derived(fs, directory, found)


def _open(fs: FileSystem, directory: str, plan: _Plan, now_ms: int) -> Log:
    return Log.open(
        fs,
        directory,
        _CONFIG,
        topic_partition=PurePosixPath(directory).name,
        recovery_point=plan.recovery_point,
        log_start_offset=plan.log_start_offset,
        clean=False,
        now_ms=now_ms,
        is_compacted=plan.is_compacted,
    )


def _first_lost_offset(found: tuple[Finding, ...], flushed_offset: int | None) -> int | None:
    """Returns the first damaged offset; None: nothing that was flushed is damaged."""
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
    """Whether it is a log of `open_log`, whose topic id is used nowhere else: the next `open_log` gives it another one."""
    try:
        meta = checkpoints.read_meta_properties(fs, f"{parent_of(directory)}/{checkpoints.META_PROPERTIES_FILE}")
    except checkpoints.DamagedCheckpointError:
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
    """Returns the file to remove where `path` is wrong: beside a wrong transaction index the offset index.

    A segment without offset index is scanned, and a scan writes the transaction index too (or removes it).
    """
    if path.endswith(TRANSACTION_INDEX_SUFFIX):
        return path.removesuffix(TRANSACTION_INDEX_SUFFIX) + INDEX_SUFFIX
    return path


def _recovery_point_path(directory: str) -> str:
    return f"{parent_of(directory)}/{checkpoints.RECOVERY_POINT_FILE}"


def _read_checkpoint(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offset_checkpoint(fs, path) or {}
    except checkpoints.DamagedCheckpointError as error:
        raise damaged_checkpoint(error) from error


def _write_recovery_point(fs: FileSystem, directory: str, offset: int) -> None:
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    path = _recovery_point_path(directory)
    points = _read_checkpoint(fs, path)
    is_in_directory = fs.exists(f"{parent_of(directory)}/{checkpoints.META_PROPERTIES_FILE}")
    if key is not None and (key in points or is_in_directory):
        checkpoints.write_offset_checkpoint(fs, path, {**points, key: offset})
