"""What the tests of compaction share: logs of keys and values, one pass over them, and what is left."""

from __future__ import annotations

from typing import Any

from log_test_kit import T0, content, open_log

from replog.log import Cleanup, CompactionSettings, CompactionStats, Log, LogConfig
from replog.records import (
    ControlRecordType,
    control_record_type,
    decode_batch,
    encode_batch,
    encode_end_transaction_marker,
    parse_header,
)
from replog_checkpoints import FileSystem

HORIZON_MS = 1000
COMPACTED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    cleanup_policy=Cleanup.COMPACT,
    min_cleanable_dirty_ratio=0,
    delete_retention_ms=HORIZON_MS,
)
Pair = tuple[bytes | None, bytes | None]


def keyed_batch(*pairs: Pair, timestamp_ms: int = T0, **fields: Any) -> bytes:
    """One batch as a client sends it."""
    return encode_batch([(timestamp_ms + i, key, value, ()) for i, (key, value) in enumerate(pairs)], **fields)


def put(log: Log, *pairs: Pair, leader_epoch: int = 0, **fields: Any) -> int:
    """Appends one batch; returns its base offset."""
    timestamp_ms = T0 + log.log_end_offset
    data = keyed_batch(*pairs, timestamp_ms=timestamp_ms, **fields)
    return log.append_as_leader(data, leader_epoch=leader_epoch, now_ms=T0).base_offset


def end_transaction(log: Log, producer_id: int, *, is_commit: bool, leader_epoch: int = 0) -> None:
    """Appends a marker."""
    data = encode_end_transaction_marker(
        base_offset=0, leader_epoch=leader_epoch, timestamp_ms=T0, producer_id=producer_id, producer_epoch=0,
        coordinator_epoch=1, is_commit=is_commit,
    )  # fmt: skip
    log.append_as_leader(data, leader_epoch=leader_epoch, now_ms=T0)


def new_log(fs: FileSystem, config: LogConfig = COMPACTED) -> Log:
    """An empty log."""
    return open_log(fs, config=config)


def seal(log: Log) -> None:
    """Everything so far may be compacted."""
    log.roll(T0)
    log.flush()


def compact(
    log: Log, *, now_ms: int = T0, settings: CompactionSettings | None = None, high_watermark: int | None = None
) -> CompactionStats | None:
    """One whole pass; None: there was nothing to do."""
    job = log.prepare_compaction(now_ms, log.log_end_offset if high_watermark is None else high_watermark, settings)
    if job is None:
        return None
    job.run()
    return log.complete_compaction(job, now_ms)


def records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every data record."""
    return [
        (record.offset, record.key, record.value)
        for data in content(log)
        if not parse_header(data).is_control
        for record in decode_batch(data)
    ]


def shown(log: Log) -> list[str]:
    """A line for each batch."""
    return [_shown_batch(data) for data in content(log)]


def _shown_batch(data: bytes) -> str:
    header = parse_header(data)
    who = f" by {header.producer_id}" if header.has_producer_id else ""
    where = f"{header.base_offset}-{header.last_offset}{who}:"
    found = decode_batch(data)
    if not found:
        return f"{where} empty"
    if header.is_control:
        what = "commit" if control_record_type(found[0]) is ControlRecordType.COMMIT else "abort"
        return f"{where} {what}"
    parts = [f"{one.offset} {_text(one.key)}={_text(one.value)}" for one in found]
    return f"{where} {', '.join(parts)}"


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode()
