"""Record batches of a segment, and with `deep` the records in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from replog.cli.common import shown_bytes
from replog.cli.dump.rows import Row, damage
from replog.errors import CorruptRecordError, ReplogError
from replog.log.segments.scan import read_batch, scan_headers
from replog.records import (
    BatchHeader,
    ControlRecordType,
    Record,
    check_crc,
    control_record_type,
    decode_batch,
    decode_leader_change,
    parse_header,
)

if TYPE_CHECKING:
    from replog_checkpoints import File


def dump_batches(file: File, *, deep: bool, is_metadata: bool) -> Iterator[Row]:
    """Yields a row for each batch, in the order of the file; ends at the first place where no batch can be read.

    Args:
        file: The open file of a segment.
        deep: Whether there is a row for each record too.
        is_metadata: Whether the values are records of the metadata log.
    """
    try:
        for position, header in scan_headers(file, 0, file.size()):
            batch = read_batch(file, position, header.size_bytes)
            yield from _dump_batch(batch, position, header, deep=deep, is_metadata=is_metadata)
    except CorruptRecordError as error:
        yield damage(error.position, error.reason)


def _dump_batch(batch: bytes, position: int, header: BatchHeader, *, deep: bool, is_metadata: bool) -> Iterator[Row]:
    yield _batch_row(position, header)
    try:
        check_crc(batch, parse_header(batch))
        if deep:
            for record in decode_batch(batch):
                yield _record_row(record, is_control=header.is_control, is_metadata=is_metadata)
    except CorruptRecordError as error:
        yield damage(position, error.reason)
    except ReplogError as error:
        yield damage(position, str(error))


def _batch_row(position: int, header: BatchHeader) -> Row:
    row: Row = {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records_count": header.records_count,
        "position": position,
        "size_bytes": header.size_bytes,
        "partition_leader_epoch": header.partition_leader_epoch,
        "timestamp_type": header.timestamp_type.name.lower(),
        "max_timestamp": header.max_timestamp,
        "codec": _codec_name(header),
    }
    if header.has_producer_id:
        row |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
    if header.is_transactional:
        row["is_transactional"] = True
    if header.is_control:
        row["is_control"] = True
    if header.has_delete_horizon:
        row["delete_horizon"] = header.base_timestamp
    return row


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except ReplogError:
        return f"unknown ({header.attributes & 7})"


def _record_row(record: Record, *, is_control: bool, is_metadata: bool) -> Row:
    row: Row = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
    if is_control:
        return row | _control_fields(record)
    if is_metadata:
        return row | _metadata_fields(record)
    row |= {"key": shown_bytes(record.key), "value": shown_bytes(record.value)}
    if record.headers:
        row["headers"] = [[name, shown_bytes(data)] for name, data in record.headers]
    return row


def _control_fields(record: Record) -> Row:
    kind = control_record_type(record)
    fields: Row = {"control": "unknown" if kind is None else kind.name.lower()}
    if kind is ControlRecordType.LEADER_CHANGE:
        change = decode_leader_change(record)
        fields |= {
            "leader_id": change.leader_id,
            "voters": list(change.voters),
            "granting_voters": list(change.granting_voters),
        }
    return fields


def _metadata_fields(record: Record) -> Row:
    """Returns name and fields of one metadata record; where it is none of ours, why not, and its value."""
    from replog.metadata.tree import record_leaf
    from replog.rpc.metadata_records import decode_metadata_record

    try:
        decoded = decode_metadata_record(record.value, offset=record.offset)
    except ReplogError as error:
        return {"unreadable": str(error), "value": shown_bytes(record.value)}
    return {"record": type(decoded).__name__} | dict(record_leaf(decoded))
