"""Records to bytes and back, in pure Python: the twin of the compiled `_codec` (docs/KAFKA.md 1.2).

It runs where no compiler was at hand, it is what the compiled codec is tested against, and it is the readable statement
of the format. Both give equal bytes, equal records and equal error classes.

**Shape** of one record; every number is a zig-zag varint, `length` counts what follows it::

    length | attributes byte 0 | timestamp delta | offset delta | key length | key | value length | value
           | header count | { key length | key (UTF-8) | value length | value }*

A length of -1 means null. Example, delta 0, key "k", value "v", no headers: `10 00 00 00 02 6b 02 76 00`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from replog.errors import InvalidRecordError
from replog.records._append_py import Appender, ByteMeter, OpenBatches, RecordPlace, StickyPartition
from replog.records._columns_py import ColumnSet
from replog.records._crc32c import crc32c
from replog.records._parsing_py import read_headers, read_record, read_start, walk, wrapped
from replog.records._rows_py import RowSource, extend_rows, group_rows
from replog.records.compression import compress_batch, decompress, decompressed_bytes_limit, require_codec
from replog.records.header import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    HEADER,
    MAGIC,
    BatchHeader,
    check_crc,
    check_header,
    parse_header,
    scan,
)
from replog.records.key_hash import murmur2
from replog.records.model import (
    DECOMPRESSED_CALL_BYTES_MAX,
    HEADER_BYTES,
    KEYLESS_TOLD_MAX,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    PLACED_FIELDS_COUNT,
    RECORD_BYTES_MIN,
    Buffer,
    Codec,
    Columns,
    Header,
    Record,
    RecordsSurvey,
    TimestampType,
    Wanted,
)

__all__ = [
    "IMPLEMENTATION",
    "Appender",
    "BatchBuilder",
    "ByteMeter",
    "OpenBatches",
    "RecordPlace",
    "RowSource",
    "StickyPartition",
    "check_records",
    "decode_batch",
    "decode_columns",
    "decode_fields",
    "decode_placed",
    "decode_records",
    "extend_rows",
    "group_rows",
    "murmur2",
    "survey_records",
]

IMPLEMENTATION = "python"

T = TypeVar("T", bound=tuple[Any, ...])

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_SMALL = tuple(bytes((n,)) for n in range(128))
_NULL = b"\x01"
_FIELDS = Wanted.KEYS | Wanted.VALUES | Wanted.HEADERS


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    if zigzag < 0x80:
        return _SMALL[zigzag]
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    if data is None:
        return _NULL
    if not isinstance(data, bytes):
        raise TypeError(f"keys and values are bytes or None, not {type(data).__name__}")
    return _varint(len(data)) + data


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [_varint(len(headers))]
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"header names are str, not {type(name).__name__}")
        try:
            encoded = name.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(f"header name {name!r} is not valid Unicode: {error.reason}") from None
        parts += (_varint(len(encoded)), encoded, _nullable(value))
    return b"".join(parts)


class BatchBuilder:
    """One batch being filled, encoded record by record as it comes: the accumulator of a producer.

    It may be used again after `build`, which hands the bytes over and leaves it empty.

    Args:
        max_bytes: The size that the uncompressed batch never passes, header included; at most 2^31 - 1.
        attributes: The attributes field; see `replog.records.attribute_bits`.
        base_timestamp: The base timestamp in ms; by default the first record's own. Compaction puts the delete
            horizon here.
        meter: What counts the bytes of the records that it takes; None: nothing does.

    Raises:
        UnsupportedCompressionError: The codec in the attributes cannot be used here.

    Invariants:
        - `size_bytes <= max_bytes` once a record is in;
        - an `append` that fails or does not fit changes nothing.
    """

    __slots__ = (
        "_attributes",
        "_base_timestamp",
        "_body",
        "_count",
        "_given_base",
        "_max_bytes",
        "_max_timestamp",
        "_meter",
    )

    def __init__(
        self,
        *,
        max_bytes: int,
        attributes: int = 0,
        base_timestamp: int | None = None,
        meter: ByteMeter | None = None,
    ) -> None:
        require_codec(attributes & CODEC_MASK)
        self._meter = meter
        self._max_bytes = min(max_bytes, INT32_MAX)
        self._attributes = attributes
        self._given_base = base_timestamp
        self._reset()

    def _reset(self) -> None:
        self._base_timestamp = self._given_base
        self._max_timestamp = NO_TIMESTAMP
        self._count = 0
        self._body = bytearray(HEADER_BYTES)

    @property
    def size_bytes(self) -> int:
        """Size of the batch so far, header included, before compression."""
        return len(self._body)

    @property
    def records_count(self) -> int:
        """Records appended so far."""
        return self._count

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> int | None:
        """Encodes one record.

        Args:
            timestamp: The time in ms since 1970, or -1 for none.
            key, value: Bytes or None; copied.
            headers: Pairs of a name and bytes or None.

        Returns:
            Its offset relative to the batch, or None when it does not fit and the batch stays as it was.

        Raises:
            InvalidRecordError: The timestamp is below -1, or a header name is not valid Unicode.
        """
        if not NO_TIMESTAMP <= timestamp <= INT64_MAX:
            raise InvalidRecordError(f"timestamp {timestamp} ms is neither a time since 1970 nor -1 for none")
        base = timestamp if self._base_timestamp is None else self._base_timestamp
        fields = (
            b"\0",
            _varint(wrapped(timestamp - base)),
            _varint(self._count),
            _nullable(key),
            _nullable(value),
            _encode_headers(headers) if headers else b"\0",
        )
        record = b"".join(fields)
        length = _varint(len(record))
        if len(self._body) + len(length) + len(record) > self._max_bytes:
            return None
        self._body += length
        self._body += record
        if self._meter is not None:
            self._meter.held_bytes += len(length) + len(record)
        self._base_timestamp = base
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._count += 1
        return self._count - 1

    def extend(self, records: Iterable[tuple[int, bytes | None, bytes | None, Sequence[Header]]]) -> int:
        """Encodes records (timestamp, key, value, headers) until one does not fit; returns how many went in."""
        appended = 0
        for timestamp, key, value, headers in records:
            if self.append(timestamp, key, value, headers) is None:
                break
            appended += 1
        return appended

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
    ) -> bytes:
        """Seals the batch (header, checksum, compression where asked for) and empties the builder.

        Raises:
            InvalidRecordError: There is no record in it.
        """
        if self._count == 0:
            raise InvalidRecordError("a batch has at least one record")
        body = self._body
        HEADER.pack_into(
            body,
            0,
            base_offset,
            len(body) - LOG_OVERHEAD_BYTES,
            partition_leader_epoch,
            MAGIC,
            0,
            self._attributes & ~CODEC_MASK,
            self._count - 1,
            self._base_timestamp,
            self._max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self._count,
        )
        crc = crc32c(memoryview(body)[ATTRIBUTES_POSITION:])
        body[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
        self._reset()
        return compress_batch(bytes(body), Codec(self._attributes & CODEC_MASK))


def decode_batch(buffer: Buffer, position: int, max_decompressed_bytes: int) -> list[Record]:
    """Returns all records of the batch at `position`, control records too."""
    header = _checked_header(buffer, position, is_checked=True)
    return _records(header, _body(header, buffer, max_decompressed_bytes), 0, INT64_MAX)


def decode_placed(
    buffer: Buffer,
    position: int,
    start_offset: int,
    kind: type[T],
    place: tuple[str, int, TimestampType],
    max_decompressed_bytes: int,
) -> list[T]:
    """Returns the records of the batch at `position` from an offset on, last first, with their place."""
    topic, partition, timestamp_type = place
    make: Callable[..., T] = kind
    return [
        make(topic, partition, offset, timestamp, timestamp_type, key, value, headers)
        for offset, timestamp, key, value, headers in reversed(decode_batch(buffer, position, max_decompressed_bytes))
        if offset >= start_offset
    ]


def decode_fields(
    records: list[Any], key_of: Callable[[bytes], Any] | None, value_of: Callable[[bytes], Any] | None
) -> None:
    """Replaces keys and values of records as `decode_placed` has made them."""
    for index, record in enumerate(records):
        make: Callable[..., Any] = type(record)
        if not issubclass(type(record), tuple) or len(record) != PLACED_FIELDS_COUNT:
            raise TypeError(f"{type(record).__name__} is no record as decode_placed makes them")
        *place, key, value, headers = record
        key = key if key is None or key_of is None else key_of(key)
        value = value if value is None or value_of is None else value_of(value)
        records[index] = make(*place, key, value, headers)


def _checked_header(buffer: Buffer, position: int, *, is_checked: bool) -> BatchHeader:
    """Returns the header of a batch that is all there; `is_checked`: after a look at its checksum."""
    header = parse_header(buffer, position)
    check_header(header)
    if is_checked or header.end_position > len(buffer):
        check_crc(buffer, header)
    return header


def decode_records(buffer: Buffer, start_offset: int, end_offset: int, max_decompressed_bytes: int) -> list[Record]:
    """Returns data records of all whole batches within [start_offset, end_offset)."""
    out: list[Record] = []
    budget = _Budget(max_decompressed_bytes)
    for header in _data_batches(buffer, start_offset, end_offset):
        body = _body(header, buffer, budget.left)
        budget.spend(header, len(body))
        out += _records(header, body, start_offset, end_offset)
    return out


def check_records(buffer: Buffer, position: int, max_decompressed_bytes: int, is_checked: bool = True) -> int:
    """Walks the records of one batch without keeping them; returns their count."""
    header = _checked_header(buffer, position, is_checked=is_checked)
    return sum(1 for _ in walk(header, _body(header, buffer, max_decompressed_bytes)))


def decode_columns(
    buffer: Buffer,
    start_offset: int,
    end_offset: int,
    wanted: int,
    max_decompressed_bytes: int,
    is_checked: bool = True,
) -> Columns:
    """Returns the records of `decode_records` as Arrow buffers; `wanted` are bits of `Wanted`."""
    columns = ColumnSet(wanted)
    has_fields, has_headers = bool(wanted & _FIELDS), bool(wanted & Wanted.HEADERS)
    budget = _Budget(max_decompressed_bytes)
    for header in _data_batches(buffer, start_offset, end_offset, is_checked=is_checked):
        if _header_says_all(header, wanted, start_offset, end_offset):
            budget.spend(header, _announced_bytes(header, budget.left))
            for offset in _announced_offsets(header, start_offset, end_offset):
                columns.append(offset, header.max_timestamp, header.timestamp_type)
            continue
        body = _body(header, buffer, budget.left)
        budget.spend(header, len(body))
        for parsed in walk(header, body, read_record if has_fields else read_start):
            if not start_offset <= parsed.offset < end_offset:
                continue
            columns.append(parsed.offset, parsed.timestamp, header.timestamp_type)
            if has_fields:
                headers = read_headers(body, parsed.headers_position) if has_headers else ()
                columns.append_fields(parsed.key, parsed.value, headers)
    return columns.finish()


def _header_says_all(header: BatchHeader, wanted: int, start_offset: int, end_offset: int) -> bool:
    """Whether the columns follow from the header: no fields, no times of their own, and no gaps that would matter.

    As many records as offsets means that each offset has its record: deltas rise from record to record.
    """
    if wanted & _FIELDS or (wanted & Wanted.TIMESTAMPS and header.timestamp_type is not TimestampType.LOG_APPEND_TIME):
        return False
    if header.records_count == header.last_offset_delta + 1:
        return True
    return not wanted & Wanted.OFFSETS and header.base_offset >= start_offset and header.last_offset < end_offset


def _announced_bytes(header: BatchHeader, max_bytes: int) -> int:
    """Returns the least that the announced records take, decompressed; raises where the batch could not hold them."""
    size = header.size_bytes - HEADER_BYTES
    if size and header.codec is not Codec.NONE:
        size = decompressed_bytes_limit(size, max_bytes)
    needed = header.records_count * RECORD_BYTES_MIN
    if needed > size:
        raise InvalidRecordError(f"{header.records_count} records cannot stand in {size} bytes")
    return needed


def _announced_offsets(header: BatchHeader, start_offset: int, end_offset: int) -> range:
    """Returns offsets of a batch without gaps; of one with gaps only their number counts."""
    if header.records_count != header.last_offset_delta + 1:
        return range(header.base_offset, header.base_offset + header.records_count)
    return range(max(header.base_offset, start_offset), min(header.next_offset, end_offset))


def survey_records(
    buffer: Buffer, position: int, max_decompressed_bytes: int, is_checked: bool = True
) -> RecordsSurvey:
    """Returns what a leader may have to know of the records of one batch."""
    header = _checked_header(buffer, position, is_checked=is_checked)
    records = list(walk(header, _body(header, buffer, max_decompressed_bytes)))
    timestamps = [record.timestamp for record in records if record.timestamp != NO_TIMESTAMP]
    keyless = tuple(place for place, record in enumerate(records) if record.key is None)
    return RecordsSurvey(
        len(records),
        min(timestamps, default=NO_TIMESTAMP),
        max(timestamps, default=NO_TIMESTAMP),
        len(keyless),
        keyless[:KEYLESS_TOLD_MAX],
    )


def find_record(
    buffer: Buffer, position: int, timestamp_ms: int, start_offset: int, max_decompressed_bytes: int
) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the first record from `start_offset` on that is at least this new, or None."""
    header = parse_header(buffer, position)
    check_header(header)
    check_crc(buffer, header)
    for parsed in walk(header, _body(header, buffer, max_decompressed_bytes)):
        if parsed.offset >= start_offset and parsed.timestamp >= timestamp_ms:
            return parsed.offset, parsed.timestamp
    return None


def _data_batches(
    buffer: Buffer, start_offset: int, end_offset: int, *, is_checked: bool = True
) -> Iterator[BatchHeader]:
    """Yields headers of data batches that touch the range, each after its checksum: they decide what is skipped."""
    for header in scan(buffer):
        if is_checked:
            check_crc(buffer, header)
        if not header.is_control and header.next_offset > start_offset and header.base_offset < end_offset:
            yield header


class _Budget:
    """What the compressed batches of one call may decompress to: each, and all together."""

    def __init__(self, max_decompressed_bytes: int) -> None:
        self._each = max_decompressed_bytes
        self._all = DECOMPRESSED_CALL_BYTES_MAX

    @property
    def left(self) -> int:
        return min(self._each, self._all)

    def spend(self, header: BatchHeader, size_bytes: int) -> None:
        if header.attributes & CODEC_MASK:
            self._all -= size_bytes


def _body(header: BatchHeader, buffer: Buffer, max_decompressed_bytes: int) -> bytes:
    section = memoryview(buffer)[header.position + HEADER_BYTES : header.end_position]
    return decompress(header.codec, section, max_decompressed_bytes) if section else b""


def _records(header: BatchHeader, body: bytes, start_offset: int, end_offset: int) -> list[Record]:
    return [
        Record(offset, timestamp, key, value, read_headers(body, position) if body[position] else ())
        for offset, timestamp, key, value, position in walk(header, body)
        if start_offset <= offset < end_offset
    ]
