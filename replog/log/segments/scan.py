"""Walks over the batches of a segment file, in bounded memory.

Why two walks: recovery needs every byte (checksums), everything else only headers, and a header walk may hop over
batches without reading them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from replog.errors import CorruptRecordError
from replog.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, check_crc, parse_header
from replog_checkpoints import File

RECOVERY_CHUNK_BYTES: Final = 1024 * 1024
HEADER_CHUNK_BYTES: Final = 64 * 1024
SEARCH_CHUNK_BYTES: Final = 8 * 1024
FRAME_BYTES: Final = 27
_FRAME: Final = struct.Struct(
    ">qi11xi"
)  # base offset, length, [leader epoch, magic, crc, attributes], last offset delta
_TIMED_FRAME: Final = struct.Struct(">qi11xi8xq")  # the same, and [base timestamp], max timestamp
_OFFSET_MAX: Final = 2**63 - 1


class Frame(NamedTuple):
    """The three fields that say where a batch ends, in bytes and in offsets."""

    base_offset: int
    size_bytes: int
    last_offset: int


class PlacedHeader(NamedTuple):
    """A header and the byte position of its batch in the file."""

    position: int
    header: BatchHeader


class PlacedBatch(NamedTuple):
    """A whole batch: `header.position` is its place in `buffer`, `position` its place in the file."""

    position: int
    header: BatchHeader
    buffer: bytes


def parse_frame(buffer: bytes, position: int) -> Frame:
    """Reads the frame of the batch at `position`; 27 bytes must be there.  Nothing is checked."""
    base_offset, length, last_offset_delta = _FRAME.unpack_from(buffer, position)
    return Frame(base_offset, length + LOG_OVERHEAD_BYTES, base_offset + last_offset_delta)


def read_header(file: File, position: int) -> BatchHeader:
    """Reads the header of the batch at byte `position` (which the header itself does not know).

    Raises:
        CorruptRecordError: There is no batch header at this place.
    """
    return _parse_at(file, file.pread(HEADER_BYTES, position), 0, position)


def read_batch(file: File, position: int, size_bytes: int) -> bytes:
    """Reads one whole batch.

    Raises:
        CorruptRecordError: The file ends before the batch does.
    """
    data = file.pread(size_bytes, position)
    if len(data) < size_bytes:
        raise CorruptRecordError(file.path, position, f"the file ends {size_bytes - len(data)} bytes before the batch")
    return data


def scan_headers(file: File, start: int, end: int) -> Iterator[PlacedHeader]:
    """Yields the headers of the batches in bytes [start, end); checksums are not looked at.

    Raises:
        CorruptRecordError: A header cannot be one, or a batch goes beyond `end`.
    """
    buffer, buffer_start, position = b"", start, start
    while position < end:
        within = position - buffer_start
        if within + HEADER_BYTES > len(buffer):
            buffer, buffer_start, within = file.pread(min(HEADER_CHUNK_BYTES, end - position), position), position, 0
        header = _parse_at(file, buffer, within, position)
        _check_end(file, position, header, end)
        yield PlacedHeader(position, header)
        position += header.size_bytes


def scan_timestamps(file: File, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields (position, last offset, max timestamp) of the batches in bytes [start, end), for searches that end soon.

    Raises:
        CorruptRecordError: Something cannot be a batch.
    """
    buffer, buffer_start, position = b"", start, start
    while position < end:
        within = position - buffer_start
        if within + HEADER_BYTES > len(buffer):
            buffer, buffer_start, within = file.pread(min(SEARCH_CHUNK_BYTES, end - position), position), position, 0
        if within + HEADER_BYTES > len(buffer):
            raise CorruptRecordError(file.path, position, "the file ends inside a batch header")
        base_offset, length, last_offset_delta, max_timestamp = _TIMED_FRAME.unpack_from(buffer, within)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or last_offset_delta < 0:
            raise CorruptRecordError(file.path, position, f"no batch: length {length}, offset {base_offset}")
        yield position, base_offset + last_offset_delta, max_timestamp
        position += length + LOG_OVERHEAD_BYTES


def scan_batches(file: File, start: int, end: int) -> Iterator[PlacedBatch]:
    """Yields whole batches in bytes [start, end), checksums verified.

    Raises:
        CorruptRecordError: A header cannot be one, a batch goes beyond `end`, or a checksum is wrong.
    """
    buffer, buffer_start, position = b"", start, start
    while position < end:
        within = position - buffer_start
        if within + HEADER_BYTES > len(buffer):
            buffer, buffer_start, within = file.pread(min(RECOVERY_CHUNK_BYTES, end - position), position), position, 0
        header = _parse_at(file, buffer, within, position)
        _check_end(file, position, header, end)
        if within + header.size_bytes > len(buffer):
            size_bytes = min(max(RECOVERY_CHUNK_BYTES, header.size_bytes), end - position)
            buffer, buffer_start = read_batch(file, position, size_bytes), position
            header = _parse_at(file, buffer, 0, position)
        try:
            check_crc(buffer, header)
        except CorruptRecordError as error:
            raise CorruptRecordError(file.path, position, error.reason) from error
        yield PlacedBatch(position, header, buffer)
        position += header.size_bytes


def _parse_at(file: File, buffer: bytes, within: int, position: int) -> BatchHeader:
    try:
        header = parse_header(buffer, within)
    except CorruptRecordError as error:
        raise CorruptRecordError(file.path, position, error.reason) from error
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset > _OFFSET_MAX:
        raise CorruptRecordError(file.path, position, f"offsets {header.base_offset} to {header.last_offset} cannot be")
    return header


def _check_end(file: File, position: int, header: BatchHeader, end: int) -> None:
    if position + header.size_bytes > end:
        raise CorruptRecordError(
            file.path, position, f"a batch of {header.size_bytes} bytes, {end - position} are left in the file"
        )
