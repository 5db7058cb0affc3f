"""The files of a log directory as rows; which is decoded how is told by its name, as the log itself finds its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from msgspec import to_builtins
from msgspec.structs import asdict

import replog_checkpoints as checkpoints
from replog.cli.common import shown_bytes
from replog.cli.dump.rows import Row, damage
from replog.cli.errors import UsageError
from replog.errors import CorruptRecordError, ReplogError
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    parse_file_name,
)
from replog.log.producers.snapshot import decode_snapshot
from replog.log.recovery.offset_witness import GIVEN_UP_FILE
from replog.log.segments.index_entries import MemoryEntries
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES, OffsetIndex
from replog.log.segments.scan import read_batch, scan_headers
from replog.log.segments.time_index import TIME_ENTRY_BYTES, TimeIndex
from replog.log.segments.transaction_index import TRANSACTION_ENTRY_BYTES, TransactionIndex, parse_witness
from replog.log.snapshots.files import parse_snapshot_name
from replog.metadata.topic_names import OFFSETS_TOPIC, RESERVED_NAME, TRANSACTIONS_TOPIC
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
from replog_checkpoints import FileSystem, OpenMode, OsFileSystem

if TYPE_CHECKING:
    from replog.coordinator.records import RecordCodec
    from replog_checkpoints import File


Fields: TypeAlias = Callable[[Record], Row]
"""Returns what a row shows of a record beside its place and time."""


def dump_batches(file: File, *, deep: bool, fields: Fields) -> Iterator[Row]:
    """Yields a row for each batch, in the order of the file; ends at the first place where no batch can be read.

    Args:
        file: The open file of a segment.
        deep: Whether there is a row for each record too.
        fields: The function for the records of this topic.
    """
    try:
        for position, header in scan_headers(file, 0, file.size()):
            batch = read_batch(file, position, header.size_bytes)
            yield from _dump_batch(batch, position, header, deep=deep, fields=fields)
    except CorruptRecordError as error:
        yield damage(error.position, error.reason)


def _dump_batch(batch: bytes, position: int, header: BatchHeader, *, deep: bool, fields: Fields) -> Iterator[Row]:
    yield _batch_row(position, header)
    try:
        check_crc(batch, parse_header(batch))
        if deep:
            for record in decode_batch(batch):
                row: Row = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
                yield row | (_control_fields if header.is_control else fields)(record)
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


def _plain_fields(record: Record) -> Row:
    row: Row = {"key": shown_bytes(record.key), "value": shown_bytes(record.value)}
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


def _group_fields(record: Record) -> Row:
    from replog.coordinator.group_records import GROUP_RECORDS

    return _coordinator_fields(record, GROUP_RECORDS)


def _transaction_fields(record: Record) -> Row:
    from replog.coordinator.transactions.records import TRANSACTION_RECORDS, TransactionStatus

    row = _coordinator_fields(record, TRANSACTION_RECORDS)
    if isinstance(value := row["value"], dict) and "transaction_status" in value:
        with suppress(ValueError):  # a newer one than we know stays a number
            value["transaction_status"] = TransactionStatus(value["transaction_status"]).name.lower()
    return row


def _coordinator_fields(record: Record, codec: RecordCodec) -> Row:
    """Returns name and fields of one record of a coordinator; where it is none that is known, its key and value."""
    try:
        decoded = codec.decode(record.key, record.value)
    except ReplogError as error:
        return {"unreadable": str(error)} | _plain_fields(record)
    if decoded is None:
        return {"record": "unknown"} | _plain_fields(record)
    name = type(decoded.key).__name__.removesuffix("Key")
    return {"record": name, "key": to_builtins(decoded.key), "value": to_builtins(decoded.value)}


def _offsets(fs: FileSystem, path: str) -> Iterator[Row]:
    for (topic, partition), offset in (checkpoints.read_offset_checkpoint(fs, path) or {}).items():
        yield {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}


def _leader_epochs(fs: FileSystem, path: str) -> Iterator[Row]:
    for epoch, start_offset in checkpoints.read_leader_epochs(fs, path) or []:
        yield {"kind": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _quorum_state(fs: FileSystem, path: str) -> Iterator[Row]:
    if (state := checkpoints.read_quorum_state(fs, path)) is not None:
        yield {"kind": "quorum_state"} | {name: _plain(value) for name, value in asdict(state).items()}


def _meta_properties(fs: FileSystem, path: str) -> Iterator[Row]:
    if (meta := checkpoints.read_meta_properties(fs, path)) is not None:
        identity = {"cluster.id": meta.cluster_id, "node.id": meta.node_id}
        yield {"kind": "meta_properties"} | identity | {"directory.id": _plain(meta.directory_id)} | dict(meta.extra)


def _partition_metadata(fs: FileSystem, path: str) -> Iterator[Row]:
    if (metadata := checkpoints.read_partition_metadata(fs, path)) is not None:
        named = {} if metadata.folder_name is None else {"partition": metadata.folder_name}
        yield {"kind": "partition_metadata", "topic_id": str(metadata.topic_id), **named}


def _clean_shutdown(fs: FileSystem, path: str) -> Iterator[Row]:
    if (marker := checkpoints.read_clean_shutdown(fs, path)) is not None:
        yield {"kind": "clean_shutdown", "broker_epoch": marker.broker_epoch}


READERS: Final[dict[str, Callable[[FileSystem, str], Iterator[Row]]]] = {
    checkpoints.RECOVERY_POINT_FILE: _offsets,
    checkpoints.LOG_START_OFFSET_FILE: _offsets,
    checkpoints.REPLICATION_OFFSET_FILE: _offsets,
    checkpoints.CLEANER_OFFSET_FILE: _offsets,
    GIVEN_UP_FILE: _offsets,
    checkpoints.LEADER_EPOCH_FILE: _leader_epochs,
    checkpoints.QUORUM_STATE_FILE: _quorum_state,
    checkpoints.META_PROPERTIES_FILE: _meta_properties,
    checkpoints.PARTITION_METADATA_FILE: _partition_metadata,
    checkpoints.CLEAN_SHUTDOWN_FILE: _clean_shutdown,
}
"""File name -> its reader."""


def dump_small_file(fs: FileSystem, path: str, name: str) -> Iterator[Row]:
    """Yields the content of a file named in `READERS`, or a `damage` row where it cannot be read."""
    try:
        yield from READERS[name](fs, path)
    except checkpoints.DamagedCheckpointError as error:
        where = f"line {error.line}: " if error.line else ""
        yield damage(None, f"{where}{error.reason}")


def _plain(value: object) -> object:
    match value:
        case UUID():
            return checkpoints.uuid_to_text(value)
        case tuple():
            return list(value)
        case _:
            return value


def dump_offset_index(base_offset: int, data: bytes) -> Iterator[Row]:
    """Yields a row for each entry; the zeros behind the last one, which Kafka preallocates, are left out."""
    index = OffsetIndex(base_offset, MemoryEntries(OFFSET_ENTRY_BYTES, data))
    for number in range(_used(data, OFFSET_ENTRY_BYTES)):
        entry = index.entry(number)
        yield {"kind": "index_entry", "offset": entry.offset, "position": entry.position}
    yield from _rest(data, OFFSET_ENTRY_BYTES)


def dump_time_index(base_offset: int, data: bytes) -> Iterator[Row]:
    """Yields a row for each entry, as in `dump_offset_index`."""
    index = TimeIndex(base_offset, MemoryEntries(TIME_ENTRY_BYTES, data))
    for number in range(_used(data, TIME_ENTRY_BYTES)):
        entry = index.entry(number)
        yield {"kind": "time_index_entry", "timestamp": entry.timestamp, "offset": entry.offset}
    yield from _rest(data, TIME_ENTRY_BYTES)


def dump_transaction_index(base_offset: int, data: bytes) -> Iterator[Row]:
    """Yields a row for each aborted transaction."""
    rest = len(data) % TRANSACTION_ENTRY_BYTES
    try:
        for transaction in TransactionIndex(base_offset, data[: len(data) - rest]):
            yield {"kind": "aborted_transaction"} | transaction._asdict()
    except ReplogError as error:
        yield damage(None, str(error))
    yield from _rest(data, TRANSACTION_ENTRY_BYTES)


def dump_transaction_witness(data: bytes) -> Iterator[Row]:
    """Yields a row with the checksum that the transaction index beside it has."""
    try:
        yield {"kind": "transaction_witness", "checksum": f"{parse_witness(data):08x}"}
    except ReplogError as error:
        yield damage(None, str(error))


def dump_snapshot(path: str, data: bytes) -> Iterator[Row]:
    """Yields a row for each producer."""
    try:
        for entry in decode_snapshot(path, data):
            yield {"kind": "producer"} | entry._asdict()
    except ReplogError as error:
        yield damage(None, str(error))


def _used(data: bytes, entry_bytes: int) -> int:
    """Counts the entries up to the last that is not all zeros."""
    return -(-len(data[: len(data) - len(data) % entry_bytes].rstrip(b"\0")) // entry_bytes)


def _rest(data: bytes, entry_bytes: int) -> Iterator[Row]:
    rest = len(data) % entry_bytes
    if rest:
        yield damage(len(data) - rest, f"{rest} bytes are left over: entries have {entry_bytes}")


_FIELDS: Final[dict[str, Fields]] = {
    RESERVED_NAME: _metadata_fields,
    OFFSETS_TOPIC: _group_fields,
    TRANSACTIONS_TOPIC: _transaction_fields,
}
"""Topic -> what is shown of its records; of the others it is key, value and headers."""
_DECODED_SUFFIXES = frozenset({*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX})
_STATE_SUFFIXES = (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)
"""Behind the usual name: waiting for deletion, or made by a compaction.  The content is the usual one."""


def dump_path(path: Path, *, deep: bool) -> Iterator[Row]:
    """Yields the rows of one file, or of every known file of a directory; each file begins with a `file` row.

    Args:
        path: A segment, index, snapshot or checkpoint file, a partition folder, or a log directory.
        deep: Whether there is a row for each record too.

    Raises:
        UsageError: There is nothing that this can decode.
        OSError: A file is not there, or cannot be read.
    """
    files = sorted(child for child in path.iterdir() if _is_known(child)) if path.is_dir() else [path]
    if not files:
        raise UsageError("PATH", str(path), f"{path} holds no segment, index, snapshot or checkpoint")
    for file in files:
        if not _is_known(file):
            known = "a segment, index, snapshot or checkpoint by its name"
            if not file.exists():
                raise FileNotFoundError(2, "there is no such file or directory", str(file))
            raise UsageError("PATH", str(file), f"{file} is not {known}")
        yield {"kind": "file", "path": str(file), "size_bytes": file.stat().st_size}
        yield from _dump_file(file, deep=deep)


def _is_known(file: Path) -> bool:
    if not file.is_file():
        return False
    if parse_snapshot_name(file.name) is not None:
        return True
    parsed = parse_file_name(_usual_name(file.name))
    return file.name in READERS or (parsed is not None and parsed[1] in _DECODED_SUFFIXES)


def _usual_name(name: str) -> str:
    """Returns a name without what says that the file is not in use (any more, or yet)."""
    for suffix in _STATE_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _dump_file(file: Path, *, deep: bool) -> Iterator[Row]:
    fs = OsFileSystem()
    if file.name in READERS:
        yield from dump_small_file(fs, str(file), file.name)
        return
    if parse_snapshot_name(file.name) is not None:
        yield from _dump_batches_of(fs, file, deep=deep, fields=_metadata_fields)
        return
    base_offset, suffix = parse_file_name(_usual_name(file.name)) or (0, "")
    match suffix:
        case ".log":
            topic = file.resolve().parent.name.rpartition("-")[0]
            yield from _dump_batches_of(fs, file, deep=deep, fields=_FIELDS.get(topic, _plain_fields))
        case ".index":
            yield from dump_offset_index(base_offset, file.read_bytes())
        case ".timeindex":
            yield from dump_time_index(base_offset, file.read_bytes())
        case ".txnindex":
            yield from dump_transaction_index(base_offset, file.read_bytes())
        case ".txnwitness":
            yield from dump_transaction_witness(file.read_bytes())
        case _:
            yield from dump_snapshot(str(file), file.read_bytes())


def _dump_batches_of(fs: OsFileSystem, file: Path, *, deep: bool, fields: Fields) -> Iterator[Row]:
    batches = fs.open(str(file), OpenMode.READ)
    try:
        yield from dump_batches(batches, deep=deep, fields=fields)
    finally:
        batches.close()
