"""What `replog log verify` and `replog log repair` do for each log under a path, as rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from replog.cli.dump.rows import Row
from replog.cli.errors import UsageError
from replog.errors import CorruptCheckpointError
from replog.log.directories.directory_state import METADATA_TOPIC
from replog.log.disk_space import reading_errors
from replog.log.file_names import LOG_SUFFIX, parse_file_name, parse_partition_dir_name
from replog.log.recovery.promises import read_promises
from replog.log.repair.local_identity import damaged_identity
from replog.log.repair.log_offsets import doubtful_start, noted_offset, read_offsets
from replog.log.repair.lost_folder import LostFolder, lost_folder
from replog.log.repair.repair import identity_finding, repair_log, start_finding
from replog.log.repair.verification import Finding, FindingKind, LogVerifier
from replog_checkpoints import META_PROPERTIES_FILE, FileSystem, OsFileSystem

RECORDS_AT_STAKE = frozenset({FindingKind.DAMAGED, FindingKind.MISSING, FindingKind.TORN, FindingKind.UNREADABLE})


def log_directories(path: Path) -> list[Path]:
    """Returns the partition folder `path`, or those in the log directory `path`, by name.

    Raises:
        UsageError: `path` is neither.
    """
    is_dir = path.is_dir()
    if (is_dir and _holds_segments(path)) or ((is_dir or not path.exists()) and _is_lost(path)):
        return [path]
    if not is_dir:
        raise UsageError("PATH", str(path), f"{path} is not a directory: name a partition's folder, or a log directory")
    found = [child for child in _partition_folders(path) if _is_log_directory(path) or _is_replica(child)]
    if not found:
        inner = sorted(found for depth in ("*", "*/*") for found in path.glob(f"{depth}/{META_PROPERTIES_FILE}"))
        advice = f". Log directories are in it: name one, such as {inner[0].parent}" if inner else ""
        raise UsageError("PATH", str(path), f"{path} holds no segments and no partition folders{advice}")
    return found


def verify_rows(directory: Path, fs: FileSystem | None = None) -> Iterator[Row]:
    """Verifies a log; yields a `finding` row for each thing that does not fit, then one `verified` row.

    Args:
        directory: The partition folder.
        fs: The disk that it is on; None: this machine's.

    Raises:
        TooManyOpenFilesError: This process may open no more files.
        StorageError: A file cannot be read.
    """
    fs, name = OsFileSystem() if fs is None else fs, str(directory.resolve())
    with reading_errors("verified", str(directory)):
        lost = lost_folder(fs, name)
        yield from _verify_rows(fs, name) if lost is None else _lost_rows(lost)


def _lost_rows(lost: LostFolder) -> Iterator[Row]:
    yield finding_row(lost.finding)
    yield {
        "kind": "verified",
        "path": lost.directory,
        "segments": 0,
        "flushed_offset": lost.end_offset,
        "findings": 1,
    }


def _verify_rows(fs: FileSystem, name: str) -> Iterator[Row]:
    recovery_point, flushed_offset, findings_count = None, noted_offset(fs, name), 0
    try:
        offsets = read_offsets(fs, name)
        recovery_point, flushed_offset = offsets.recovery_point, offsets.flushed_offset
        doubtful = doubtful_start(fs, name)
        if doubtful is not None:
            findings_count += 1
            yield finding_row(start_finding(doubtful))
    except CorruptCheckpointError as error:
        findings_count += 1
        yield {
            "kind": "finding",
            "problem": "checkpoint",
            "path": error.path,
            "reason": f"line {error.line}: {error.reason}",
        }
    promises = read_promises(fs, name)
    verifier = LogVerifier(
        fs,
        name,
        flushed_offset,
        is_closed=promises.clean,
        is_compacted=promises.is_compacted,
        log_start_offset=promises.log_start_offset,
    )
    first_bad: Finding | None = None
    damaged = damaged_identity(fs, name)
    if damaged is not None:
        findings_count += 1
        yield finding_row(identity_finding(damaged))
    for finding in verifier.run():
        findings_count += 1
        if first_bad is None and finding.kind in RECORDS_AT_STAKE:
            first_bad = finding
        yield finding_row(finding)
    totals = verifier.totals
    row: Row = {
        "kind": "verified",
        "path": name,
        "segments": totals.segments,
        "batches": totals.batches,
        "records": totals.records,
        "size_bytes": totals.bytes,
        "start_offset": totals.start_offset,
        "end_offset": totals.end_offset,
        "recovery_point": recovery_point,
        "flushed_offset": flushed_offset,
        "findings": findings_count,
    }
    if first_bad is not None:
        row |= {
            "first_bad_offset": first_bad.offset,
            "first_bad_byte": first_bad.position,
            "first_bad_file": first_bad.path,
        }
    yield row


def repair_rows(directory: Path, *, accept_loss: bool, forget_flushed_offset: bool = False) -> Iterator[Row]:
    """Repairs a log; yields a `finding` row for each thing found, and a `left` row for each that is left.

    The last row is `repaired`, and names what was given up, or `intact` where nothing was found.

    Raises:
        CorruptRecordError: Flushed records are damaged and `accept_loss` is False.
        StorageError: The directory is in use, there is no log in it, or the disk failed.
    """
    report = repair_log(
        OsFileSystem(),
        str(directory.resolve()),
        accept_loss=accept_loss,
        now_ms=time.time_ns() // 1_000_000,
        forget_flushed_offset=forget_flushed_offset,
    )
    for finding in report.found:
        yield finding_row(finding)
    for finding in report.left:
        yield finding_row(finding) | {"kind": "left"}
    row: Row = {
        "kind": "repaired" if report.found else "intact",
        "path": str(directory),
        "end_offset": report.end_offset,
        "offsets_given_up": report.offsets_given_up,
    }
    if report.given_up:
        row["given_up"] = [{"first_offset": start, "last_offset": end - 1} for start, end in report.given_up]
    if report.withdraws_clean_stop:
        row["next_start"] = _next_start(directory)
    if report.recovery is not None:
        row |= {
            "bytes_cut": report.recovery.bytes_cut,
            "segments_removed": report.recovery.segments_removed,
            "segments_scanned": report.recovery.segments_scanned,
        }
    yield row


def _next_start(directory: Path) -> str:
    """Says what the next start makes of a log of which a repair has given something up."""
    if parse_partition_dir_name(directory.name) != (METADATA_TOPIC, 0):
        return "as after a crash; where the partition has other replicas, this one follows them and fetches what was given up"
    if directory.exists():  # a part of the log is left, and with it its votes
        return (
            "refused, unless this node is the only voter, or has no vote: then move the folder away, and repair again"
        )
    return (
        "under a new directory id, as a node that follows: `replog quorum remove-voter` and `add-voter` make it a voter again; "
        "partitions whose only replica is in this log directory have no leader until `replog topics elect-leaders --topic NAME "
        "--unclean`: their records are there"
    )


def finding_row(finding: Finding) -> Row:
    """Makes the row of a finding; position and offset are left out where there are none.

    `{"kind": "finding", "problem": ..., "path": ..., "position": ..., "offset": ..., "reason": ...}`
    """
    row: Row = {"kind": "finding", "problem": finding.kind.value, "path": finding.path}
    if finding.position is not None:
        row["position"] = finding.position
    if finding.offset is not None:
        row["offset"] = finding.offset
    return row | {"reason": finding.reason}


def _is_lost(path: Path) -> bool:
    return lost_folder(OsFileSystem(), str(path.absolute())) is not None


def _partition_folders(path: Path) -> list[Path]:
    """Returns the folders in `path` that are named as those of partitions, by name; other things may be named so, too."""
    return sorted(
        child for child in path.iterdir() if child.is_dir() and parse_partition_dir_name(child.name) is not None
    )


def _is_log_directory(path: Path) -> bool:
    return (path / META_PROPERTIES_FILE).is_file()


def _is_replica(path: Path) -> bool:
    return _holds_segments(path) or _is_lost(path)


def _holds_segments(path: Path) -> bool:
    parsed = (parse_file_name(child.name) for child in path.iterdir())
    return any(found is not None and found[1] == LOG_SUFFIX for found in parsed)
