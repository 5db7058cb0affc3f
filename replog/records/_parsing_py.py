"""Reads records out of the body of a batch, one after the other, in pure Python: the parsing half of `_codec_py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from replog.errors import InvalidRecordError
from replog.records.header import BatchHeader
from replog.records.model import RECORD_BYTES_MIN, Header, TimestampType

_INT64_WRAP = 2**64
_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10


class ParsedRecord(NamedTuple):
    """One record, and where in the body its headers are."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers_position: int


ReadRecord: TypeAlias = Callable[[BatchHeader, bytes, int, int | None], tuple[ParsedRecord, int]]


def wrapped(number: int) -> int:
    """Wraps a number modulo 2^64, as Java counts: a delta may wrap, and wraps back when it is read."""
    return (number + _INT64_WRAP // 2) % _INT64_WRAP - _INT64_WRAP // 2


def walk(header: BatchHeader, body: bytes, read: ReadRecord | None = None) -> Iterator[ParsedRecord]:
    """Parses the records one after the other, and demands that they fill the body exactly."""
    if header.records_count * RECORD_BYTES_MIN > len(body):
        raise InvalidRecordError(f"{header.records_count} records cannot stand in {len(body)} bytes")
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    position, last_delta = 0, -1
    read = read_record if read is None else read
    for _ in range(header.records_count):
        try:
            parsed, position = read(header, body, position, append_time)
        except IndexError:
            raise InvalidRecordError("a record runs past the end of its batch") from None
        delta = parsed.offset - header.base_offset
        if not last_delta < delta <= header.last_offset_delta:
            raise InvalidRecordError(
                f"offset delta {delta} after {last_delta}, the batch ends at {header.last_offset_delta}"
            )
        last_delta = delta
        yield parsed
    if position != len(body):
        raise InvalidRecordError(f"{len(body) - position} bytes are left after {header.records_count} records")


def read_start(header: BatchHeader, body: bytes, position: int, append_time: int | None) -> tuple[ParsedRecord, int]:
    """Reads what stands before the fields of a record, but not the fields; returns it and the end of the record."""
    length, position = _read_varint(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise InvalidRecordError(f"a record of {length} bytes, {len(body) - position} left in its batch")
    timestamp_delta, position = _read_varlong(body, position + 1)
    offset_delta, position = _read_varint(body, position)
    if position > end:
        raise InvalidRecordError("a record is shorter than its two deltas")
    timestamp = wrapped(header.base_timestamp + timestamp_delta) if append_time is None else append_time
    return ParsedRecord(header.base_offset + offset_delta, timestamp, None, None, position), end


def read_record(header: BatchHeader, body: bytes, position: int, append_time: int | None) -> tuple[ParsedRecord, int]:
    """Reads a record, but not its headers, which are only found well-formed; returns it and its end."""
    length, position = _read_varint(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise InvalidRecordError(f"a record of {length} bytes, {len(body) - position} left in its batch")
    timestamp_delta, position = _read_varlong(body, position + 1)  # the attributes byte means nothing so far
    offset_delta, position = _read_varint(body, position)
    key, position = _read_nullable(body, position, end)
    value, position = _read_nullable(body, position, end)
    timestamp = wrapped(header.base_timestamp + timestamp_delta) if append_time is None else append_time
    if _skip_headers(body, position, end) != end:
        raise InvalidRecordError("a record's length does not match its contents")
    return ParsedRecord(header.base_offset + offset_delta, timestamp, key, value, position), end


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    byte = body[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long_form(body, position, _VARINT_BYTES_MAX, 0xFFFF_FFFF)


def _read_varlong(body: bytes, position: int) -> tuple[int, int]:
    return _read_long_form(body, position, _VARLONG_BYTES_MAX, 0xFFFF_FFFF_FFFF_FFFF)


def _read_long_form(body: bytes, position: int, bytes_max: int, mask: int) -> tuple[int, int]:
    zigzag = 0
    for i in range(bytes_max):
        byte = body[position + i]
        zigzag |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            zigzag &= mask
            return (zigzag >> 1) ^ -(zigzag & 1), position + i + 1
    raise InvalidRecordError(f"a number of more than {bytes_max} bytes")


def _read_nullable(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(body, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise InvalidRecordError(f"a field of {length} bytes, {max(0, end - position)} left in its record")
    return body[position : position + length], position + length


def _skip_headers(body: bytes, position: int, end: int) -> int:
    count, position = _read_varint(body, position)
    if not 0 <= count <= end - position:
        raise InvalidRecordError(f"{count} headers in {max(0, end - position)} bytes")
    for _ in range(count):
        name, position = _read_nullable(body, position, end)
        if name is None:
            raise InvalidRecordError("a header without a name")
        _, position = _read_nullable(body, position, end)
    return position


def read_headers(body: bytes, position: int) -> tuple[Header, ...]:
    """Reads headers that `_skip_headers` found well-formed.  A name that is not UTF-8 gets replacement characters."""
    count, position = _read_varint(body, position)
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_nullable(body, position, len(body))
        value, position = _read_nullable(body, position, len(body))
        headers.append(((name or b"").decode(errors="replace"), value))
    return tuple(headers)
