"""Repair of one log that nobody has open: derived files are made again, and a tail that was never flushed is cut.

Of a log of `open_log` the `meta.properties` above it is made again, too, before anything else: see `local_identity`.  So is a
log start in doubt settled: see `doubtful_start`.  A log of which only the checkpoints know is given up: see `lost_folder`.

Nothing that was flushed is given up unless the caller says so: whoever runs a repair may have another copy.

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
from collections.abc import Generator
from pathlib import PurePosixPath

from msgspec import Struct

import replog_checkpoints as checkpoints
from replog.errors import DirectoryLockedError, DiskFullError, StorageError
from replog.log.config import Cleanup, LogConfig
from replog.log.directories.identity import LOCAL_CLUSTER_ID, refuse_later_format
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
from replog.log.repair.local_identity import DamagedIdentity, damaged_identity
from replog.log.repair.log_offsets import (
    DoubtfulStart,
    LogOffsets,
    doubtful_start,
    note_given_up,
    read_offsets,
    write_recovery_point,
)
from replog.log.repair.lost_folder import LostFolder, lost_folder
from replog.log.repair.plan import OffsetRange, RepairPlan, make_plan, ranges_given_up, refusal
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog.log.state import LogState
from replog_checkpoints import FileSystem, Lock, parent_of

_LOCK_FILE = ".lock"
_CONFIG = LogConfig(cleanup_policy=Cleanup.COMPACT)
"""Segments are only cut and indexed, so few settings of the log's topic matter: it may be compacted."""


class RepairReport(Struct, frozen=True):
    """What a repair did.

    Attributes:
        found: What did not fit before.
        left: What does not fit after it: files that cannot be made from the records.
        recovery: What was scanned and cut; None: the log fits, and was not opened.
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


class _Surveyed(Struct, frozen=True):
    """What a verification has found in a log, and what follows from it.

    Attributes:
        found: What does not fit.
        holes: Ranges of offsets that are missing.
        end_offset: Where the records end, as far as they can be read; exclusive.
        offsets: What is said about the log beside it.
        plan: What is going to be done.
        identity: What is wrong with the `meta.properties` of a local log; None: nothing.
        start: The log start that is in doubt; None: none is.
    """

    found: tuple[Finding, ...]
    holes: tuple[OffsetRange, ...]
    end_offset: int
    offsets: LogOffsets
    plan: RepairPlan
    identity: DamagedIdentity | None
    start: DoubtfulStart | None


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
            removed, and the recovery point alone says what was flushed.

    Raises:
        CorruptRecordError: Flushed records are damaged and `accept_loss` is False, or the log could not be opened without
            them either; nothing was changed.
        CorruptCheckpointError: A checkpoint that says what was flushed cannot be read, or the folder is that of another
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
        outcome: What holds where there is no room, or no descriptor.
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
    """Finds what does not fit, and decides.  Changes nothing."""
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
    plan = make_plan(found, verifier.holes, offsets, forgets_note=forgets_note, is_compacted=promises.is_compacted)
    if plan.gives_up and not accept_loss:
        raise refusal(found, offsets.flushed_offset)
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
        write_recovery_point(fs, directory, log.log_end_offset)
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


def _refuse_what_stays_shut(
    fs: FileSystem, directory: str, plan: RepairPlan, found: tuple[Finding, ...], now_ms: int
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


def _prepare(fs: FileSystem, directory: str, plan: RepairPlan, offsets: LogOffsets, found: tuple[Finding, ...]) -> None:
    """Promises durably only what the log is going to keep, then removes what does not fit it."""
    if plan.gives_up:
        _let_others_decide(fs, directory, offsets)
    _raise_claim(fs, directory, plan)
    note = FlushedOffsetFile.load(fs, directory)
    if plan.forgets_note:
        note.remove()
    elif plan.note_max is not None:  # opened as after a crash, when a note from before a clean stop counts
        note.lower_to(plan.note_max)
    if plan.holes_end_offset is not None or (plan.lost_offset is not None and offsets.recovery_point is not None):
        write_recovery_point(fs, directory, plan.recovery_point)
    _remove_wrong(fs, directory, found)


def _let_others_decide(fs: FileSystem, directory: str, offsets: LogOffsets) -> None:
    """Makes the next start of a broker on this log directory one that proves nothing about the replica, durably."""
    parent = parent_of(directory)
    checkpoints.remove_clean_shutdown(fs, f"{parent}/{checkpoints.CLEAN_SHUTDOWN_FILE}")
    key = parse_partition_dir_name(PurePosixPath(directory).name)
    is_in_directory = fs.exists(f"{parent}/{checkpoints.META_PROPERTIES_FILE}")
    if key is not None and is_in_directory and not _is_local(fs, directory):
        note_given_up(fs, parent, key, offsets.flushed_offset or 0)


def _raise_claim(fs: FileSystem, directory: str, plan: RepairPlan) -> None:
    """Raises the claim of completeness to behind the missing offsets, durably; one that is higher stays.

    What is behind them stays, and is complete from there on.
    """
    claim = None if plan.is_compacted else read_complete_from(fs, directory)
    if claim is not None and plan.holes_end_offset is not None and claim < plan.holes_end_offset:
        write_complete_from(fs, directory, plan.holes_end_offset)


def _remove_wrong(fs: FileSystem, directory: str, found: tuple[Finding, ...]) -> None:
    if any(finding.kind is FindingKind.MISSING for finding in found):
        _remove_orphans(fs, directory)
    _remove_derived(fs, directory, found)


def _open(fs: FileSystem, directory: str, plan: RepairPlan, now_ms: int) -> Log:
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
