"""The log directories that a real Kafka 4.1.1 wrote (`tests/data/kafka/4.1.1`), and records in the shape of its `expected.json`.

`clean` is a node's directory after a clean stop, `killed` another node's after kill -9.  Tests open copies; the originals
are only read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, TypeAlias

import replog_checkpoints as checkpoints
from replog.log import Log, LogConfig
from replog.records import (
    BatchHeader,
    ControlRecordType,
    Record,
    TimestampType,
    control_record_type,
    decode_batch,
    scan,
)
from replog_checkpoints import OsFileSystem

ROOT = Path(__file__).parent / "data" / "kafka" / "4.1.1"
DIRECTORIES = ("clean", "killed")
METADATA = "__cluster_metadata"
NOW_MS = 1_795_250_000_000
"""Shortly after Kafka wrote the files: no producer is forgotten yet."""

CONFIG = LogConfig(segment_bytes=1 << 20, segment_index_bytes=65536, retention_ms=-1)
"""What the topics were created with."""

Row: TypeAlias = list[Any]
"""offset, timestamp type (1 create, 2 append), timestamp in ms, key, value, headers, leader epoch; bytes as `shown`."""

Rows: TypeAlias = list[Row]


_EXPECTED: dict[str, dict[str, Any]] = json.loads((ROOT / "expected.json").read_text())["topics"]
TOPICS = tuple(_EXPECTED)
_DIGEST_ABOVE_BYTES = 64
_METADATA_INDEX_BYTES = {".index": 10_485_760, ".timeindex": 10_485_756}


def expected_rows(topic: str, isolation: str = "read_uncommitted") -> Rows:
    """What Kafka's consumer read, `read_uncommitted` or `read_committed`."""
    rows: Rows | str = _EXPECTED[topic][isolation]
    return expected_rows(topic) if isinstance(rows, str) else rows


def end_offset(topic: str) -> int:
    """Log end of a topic's only partition: all of it was replicated before the stop."""
    return _offset("clean", checkpoints.REPLICATION_OFFSET_FILE, topic)


def recovery_point(directory: str, topic: str) -> int:
    """As Kafka left it in its checkpoint."""
    return _offset(directory, checkpoints.RECOVERY_POINT_FILE, topic)


def log_start_offset(directory: str, topic: str) -> int:
    """As Kafka left it in its checkpoint; 0 where it says nothing."""
    return _offset(directory, checkpoints.LOG_START_OFFSET_FILE, topic)


def copy_partition(directory: str, topic: str, parent: Path) -> Path:
    """A writable copy of one partition folder, exactly as Kafka left it.

    The killed node's metadata indexes are kept without the zeros that Kafka had allocated ahead (10 MiB each).
    """
    copy = parent / f"{topic}-0"
    shutil.copytree(ROOT / directory / copy.name, copy)
    if (directory, topic) == ("killed", METADATA):
        for suffix, size_bytes in _METADATA_INDEX_BYTES.items():
            with (copy / f"{0:020d}{suffix}").open("r+b") as file:
                file.truncate(size_bytes)
    return copy


def open_log(folder: Path, *, recovery_point: int, log_start_offset: int, clean: bool, now_ms: int = NOW_MS) -> Log:
    """Opens a copy for writing."""
    return Log.open(
        OsFileSystem(),
        str(folder),
        CONFIG,
        topic_partition=folder.name,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
        now_ms=now_ms,
    )


def tree_digest(folder: Path) -> dict[str, str]:
    """Name -> size and SHA-256 of every file: two are equal when no byte has changed."""
    return {
        str(path.relative_to(folder)): f"{path.stat().st_size} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def batches(log: Log, *, max_bytes: int = 10_000) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from the log start to the log end, headers and bytes."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes=max_bytes, end_offset=log.log_end_offset, min_one_batch=True):
        for header in scan(data):
            found.append((header, data[header.position : header.end_position]))
            offset = header.next_offset
    return found


def rows(log: Log) -> Rows:
    """Every data record from the log start on, as a consumer with `read_uncommitted` gets them."""
    found: Rows = []
    for header, batch in batches(log):
        if not header.is_control:
            found += [row(header, record) for record in decode_batch(batch) if record.offset >= log.log_start_offset]
    return found


def committed_rows(log: Log) -> Rows:
    """The same as far as nothing is undecided, without aborted transactions.

    Found as a consumer finds them: by the log's aborted ranges and the markers.
    """
    stable_end = log.last_stable_offset(log.log_end_offset)
    waiting = sorted(
        log.aborted_transactions(log.log_start_offset, log.log_end_offset), key=lambda aborted: aborted.first_offset
    )
    aborting: set[int] = set()
    found: Rows = []
    for header, batch in batches(log):
        if header.base_offset >= stable_end:
            break
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        if header.is_control:
            if control_record_type(decode_batch(batch)[0]) is ControlRecordType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += [row(header, record) for record in decode_batch(batch) if record.offset >= log.log_start_offset]
    return found


def row(header: BatchHeader, record: Record) -> Row:
    """One record in the shape of `expected.json`."""
    kind = 2 if header.timestamp_type is TimestampType.LOG_APPEND_TIME else 1
    headers = [[name, shown(value)] for name, value in record.headers]
    where = (record.offset, kind, record.timestamp)
    return [*where, shown(record.key), shown(record.value), headers, header.partition_leader_epoch]


def shown(data: bytes | None) -> str | None:
    """Hex, or a digest of what is long."""
    if data is None:
        return None
    return data.hex() if len(data) <= _DIGEST_ABOVE_BYTES else "sha256:" + hashlib.sha256(data).hexdigest()


def _offset(directory: str, name: str, topic: str) -> int:
    return (checkpoints.read_offset_checkpoint(OsFileSystem(), str(ROOT / directory / name)) or {}).get((topic, 0), 0)
