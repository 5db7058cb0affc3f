"""Batches as a whole: records in, bytes out, and back. What producers and consumers call; brokers do not.

The work is done by the codec that `_select` chose; here are the names, the defaults and the promises.
Every decoder checks the CRC before it trusts anything in a batch, and holds to the same bounds: no length inside a
batch is believed before it is compared with the bytes that are there, and decompression has a ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from replog.errors import InvalidRecordError
from replog.records._select import codec as _codec
from replog.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from replog.records.model import (
    CHARACTER_BYTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PLACED_FIELDS_COUNT,
    RECORD_HEADER_OVERHEAD_BYTES_MAX,
    Buffer,
    Codec,
    Columns,
    Header,
    Record,
    RecordsSurvey,
    TimestampType,
    Wanted,
)

RecordInput: TypeAlias = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""(timestamp in ms or -1, key, value, headers)"""

T = TypeVar("T", bound=tuple[Any, ...])

OFFSET_END = 2**63 - 1
PLACE_FIELDS_COUNT = 3
BATCH_BYTES_MAX = 2**31 - 1
Appender = _codec.Appender
BatchBuilder = _codec.BatchBuilder
ByteMeter = _codec.ByteMeter
OpenBatches = _codec.OpenBatches
RecordPlace = _codec.RecordPlace
RowSource = _codec.RowSource
StickyPartition = _codec.StickyPartition
extend_rows = _codec.extend_rows
group_rows = _codec.group_rows
murmur2 = _codec.murmur2
IMPLEMENTATION: str = _codec.IMPLEMENTATION
"""Which codec is loaded: "cython" or "python"."""


def encode_batch(
    records: Sequence[RecordInput],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    codec: Codec = Codec.NONE,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Encodes records with consecutive offsets into one batch, byte for byte what Kafka writes.

    Args:
        records: The records, at least one.
        base_offset: The offset of the first; 0 from a client, the leader restamps it.
        partition_leader_epoch: The epoch of the leader; -1 from a client, for the same reason.
        producer_id, producer_epoch, base_sequence: The producer and its sequence; -1 without idempotence.
        is_transactional: Whether the batch is part of a transaction.
        is_control: Whether these are control records; see `replog.records.control`.
        timestamp_type: The kind of timestamps; with LOG_APPEND_TIME readers see the largest one on every record.
        codec: The compression of the records section.
        delete_horizon_ms: A time set by compaction; the record times are then stored relative to it.

    Raises:
        InvalidRecordError: There are no records, a timestamp is below -1, a header name is not valid Unicode, or the
            batch would pass 2 GiB.
        UnsupportedCompressionError: The codec's library is not installed.
    """
    attributes = attribute_bits(
        is_transactional=is_transactional,
        is_control=is_control,
        timestamp_type=timestamp_type,
        codec=codec,
        has_delete_horizon=delete_horizon_ms is not None,
    )
    builder = BatchBuilder(max_bytes=BATCH_BYTES_MAX, attributes=attributes, base_timestamp=delete_horizon_ms)
    if builder.extend(records) < len(records):
        raise InvalidRecordError(f"the records do not fit into one batch of {BATCH_BYTES_MAX} bytes")
    return builder.build(producer_id, producer_epoch, base_sequence, base_offset, partition_leader_epoch)


def attribute_bits(
    *,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    codec: Codec = Codec.NONE,
    has_delete_horizon: bool = False,
) -> int:
    """Returns the attributes field of a batch header (docs/KAFKA.md 1.1)."""
    return (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if has_delete_horizon else 0)
    )


def decode_batch(
    buffer: Buffer, position: int = 0, *, max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Decodes the one batch at `position`; control batches too.

    Raises:
        CorruptRecordError: Header or checksum are wrong, or the batch is cut short.
        InvalidRecordError: The checksum holds and the records still break the format.
        UnsupportedCompressionError: The codec is unknown, or its library is not installed.
    """
    return _codec.decode_batch(buffer, position, max_decompressed_bytes)


def decode_placed(
    buffer: Buffer,
    position: int,
    start_offset: int,
    kind: type[T],
    place: tuple[str, int, TimestampType],
    *,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> list[T]:
    """Decodes the one batch at `position` to what a consumer hands out, so that each record is made once.

    Args:
        buffer: Whole batches.
        position: Where the batch begins in them.
        start_offset: The first offset wanted.
        kind: A NamedTuple of (topic, partition, offset, timestamp, timestamp type, key, value, headers).
        place: The topic, the partition and the timestamp type of all of them.
        max_decompressed_bytes: The limit of what the batch is decompressed to.

    Returns:
        Its records from `start_offset` on, the last first.

    Raises as `decode_batch` does; also TypeError when `kind` has other fields, or `place` is not of three.
    """
    if not _holds_placed_records(kind) or len(place) != PLACE_FIELDS_COUNT:
        raise TypeError(
            f"{kind.__name__} is no NamedTuple of {PLACED_FIELDS_COUNT} fields, or {place} has not {PLACE_FIELDS_COUNT}"
        )
    return _codec.decode_placed(buffer, position, start_offset, kind, place, max_decompressed_bytes)


def decode_fields(
    records: list[Any], key_of: Callable[[bytes], Any] | None, value_of: Callable[[bytes], Any] | None
) -> None:
    """Puts what is made of keys and values in their places, in records that `decode_placed` has just made; None stays.

    Why in their places: a second record for each would cost more than a small value does to decode.

    Args:
        records: The records, which nobody else may have yet.
        key_of, value_of: The functions that make something of bytes; None: they stay bytes.

    Raises what these functions raise, and TypeError for what is no such record.  Some records are changed then and others are not:
    decode them anew.
    """
    _codec.decode_fields(records, key_of, value_of)


def _holds_placed_records(kind: type) -> bool:
    """Whether a class is a NamedTuple of as many fields as the compiled codec fills without a look."""
    return issubclass(kind, tuple) and len(getattr(kind, "_fields", ())) == PLACED_FIELDS_COUNT


def decode_records(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Decodes the data records of all whole batches with offsets in [start_offset, end_offset).

    A fetch answers with whole batches from the one that contains the fetch offset, and may end in a torn one: both
    edges are cut here. Control batches are skipped. None as `end_offset` means no upper bound; one below
    `start_offset` means no records.

    Raises as `decode_batch` does.
    """
    start, end = _range(start_offset, end_offset)
    return _codec.decode_records(buffer, start, end, max_decompressed_bytes)


def decode_columns(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    with_offsets: bool = True,
    with_timestamps: bool = True,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = False,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
    is_checked: bool = True,
) -> Columns:
    """Returns the records of `decode_records` as Arrow buffers, without an object per record.

    What is not asked for is neither decoded nor checked.  Without keys, values and headers records are skipped over;
    where offsets (and, with LogAppendTime, timestamps) follow from the batch header, the records are not even
    decompressed.  Gaps that compaction left are never filled: such batches are read.

    Args:
        buffer: The whole batches; a torn last one is left out.
        start_offset, end_offset: The range of offsets, as for `decode_records`.
        with_timestamps: Whether timestamps are wanted, with their types.
        with_headers: Whether headers are wanted; see `HeaderColumns`.
        max_decompressed_bytes: The most of one batch; all of a call together may have DECOMPRESSED_CALL_BYTES_MAX.
        is_checked: Whether checksums are looked at; False: somebody has, or nobody wants to.

    Raises as `decode_batch` does; also InvalidRecordError when a column would pass 2 GiB.
    """
    start, end = _range(start_offset, end_offset)
    wanted = (
        (Wanted.OFFSETS if with_offsets else 0)
        | (Wanted.TIMESTAMPS if with_timestamps else 0)
        | (Wanted.KEYS if with_keys else 0)
        | (Wanted.VALUES if with_values else 0)
        | (Wanted.HEADERS if with_headers else 0)
    )
    return _codec.decode_columns(buffer, start, end, int(wanted), max_decompressed_bytes, is_checked)


def _range(start_offset: int, end_offset: int | None) -> tuple[int, int]:
    """Returns the same offsets as a range of offsets that can be, which begins at or below its end."""
    start = min(max(0, start_offset), OFFSET_END)
    return start, OFFSET_END if end_offset is None else min(max(start, end_offset), OFFSET_END)


def find_record(
    buffer: Buffer,
    position: int = 0,
    *,
    timestamp_ms: int,
    start_offset: int,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the first record of one batch that qualifies, without making objects; None: none does.

    Other threads run meanwhile.  Records are checked as by `check_records`, up to the one that is found.

    Args:
        buffer: The bytes with the batch; read only.
        position: The byte at which it begins.
        timestamp_ms: The least timestamp, ms since 1970.
        start_offset: The first offset that counts.
        max_decompressed_bytes: A batch that decompresses to more is refused, bytes.

    Raises:
        CorruptRecordError, InvalidRecordError, UnsupportedCompressionError: See `decode_batch`.
    """
    return _codec.find_record(buffer, position, timestamp_ms, start_offset, max_decompressed_bytes)


def survey_records(
    buffer: Buffer,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
    is_checked: bool = True,
) -> RecordsSurvey:
    """Returns what a leader may have to know of the records of the batch at `position`, without making objects.

    The records are checked as by `check_records`, which has the same arguments.  Raises as `decode_batch` does.
    """
    return _codec.survey_records(buffer, position, max_decompressed_bytes, is_checked)


def check_records(
    buffer: Buffer,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
    is_checked: bool = True,
) -> int:
    """Checks one batch down to its last record without making objects; returns the number of records.

    Their number, their offsets, and the lengths of records, fields and headers have to agree with one another, with the
    header, and with the size of the batch.  Keys and values are skipped over.

    Args:
        buffer: The bytes with the batch.
        position: The position where it starts.
        max_decompressed_bytes: The most that it may decompress to.
        is_checked: Whether the checksum is looked at; False: the caller has.

    Raises as `decode_batch` does.
    """
    return _codec.check_records(buffer, position, max_decompressed_bytes, is_checked)


def batch_bytes_bound(key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """Returns an upper bound of the size of a batch that holds just this record, uncompressed.

    A producer compares it with `max.request.size`, and sizes a builder for a record larger than `batch.size`.
    """
    size = HEADER_BYTES + 36 + len(key or b"") + len(value or b"")
    for name, data in headers:
        size += RECORD_HEADER_OVERHEAD_BYTES_MAX + CHARACTER_BYTES_MAX * len(name) + len(data or b"")
    return size
