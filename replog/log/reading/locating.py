"""Where the batches of a range stand, for a process that reads the files by itself."""

from __future__ import annotations

from msgspec import Struct

from replog.errors import CorruptRecordError
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.segments.scan import scan_headers
from replog.log.segments.segment import OFFSET_MAX
from replog.log.segments.segment_list import SegmentList
from replog.log.state import LogState
from replog.records import parse_header
from replog_checkpoints import FileSystem, OpenMode


def located(state: LogState, data: bytes, error: CorruptRecordError) -> CorruptRecordError:
    """Returns the same error with the segment file and the position in it; one that names a file already as it is.

    Args:
        state: The state of the log that was read.
        data: The batches that were read from it.
        error: The error that was found in them; its position counts in `data`.
    """
    if error.path:
        return error
    try:
        base_offset = parse_header(data, error.position).base_offset
        segment = state.segments[state.segments.number_for(base_offset)]
        path = file_path(state.directory, segment.base_offset, LOG_SUFFIX)
        position = _position(state.fs, path, base_offset)
    except (CorruptRecordError, IndexError, OSError):
        return CorruptRecordError(state.directory, error.position, f"in {len(data)} bytes read from it: {error.reason}")
    reason = f"{error.reason} (offset {base_offset}). Nothing was changed: restore the file from a copy"
    return CorruptRecordError(path, position, reason)


def _position(fs: FileSystem, path: str, base_offset: int) -> int:
    """Finds the byte at which the batch with this base offset begins, header by header: only damage comes here.

    Raises:
        CorruptRecordError: The file holds no such batch.
    """
    file = fs.open(path, OpenMode.READ)
    try:
        for position, header in scan_headers(file, 0, file.size()):
            if header.base_offset >= base_offset:
                return position
    except CorruptRecordError as error:  # a batch that the file is too short for, for example: here it is
        return error.position
    finally:
        file.close()
    raise CorruptRecordError(path, 0, f"offset {base_offset} is gone")


class FileSpan(Struct, frozen=True):
    """Whole batches in the file of one segment.

    Attributes:
        path: The path of the file, of the moment: compaction, retention and a move rename or remove it.
        position: The byte at which they begin.
        end_position: The byte behind them, exclusive.
        base_offset: The base offset of the first batch, which may lie below the offset asked for; of the segment where
            `position` is 0.
        end_offset: The exclusive end of the part of the range that can be in this segment.
        is_sealed: Whether nothing is written to the file any more.
    """

    path: str
    position: int
    end_position: int
    base_offset: int
    end_offset: int
    is_sealed: bool


def locate_batches(
    segments: SegmentList, start_offset: int, end_offset: int, *, flushed_offset: int, spans_max: int
) -> list[FileSpan]:
    """Returns where the batches with offsets in [start, end) stand, in order.

    At most two segments are looked into: the first and the last.

    Args:
        segments: The segments of the log.
        start_offset: The first offset that is wanted.
        end_offset: The exclusive end of the range; at most the log end.
        flushed_offset: The flushed offset: segments that reach above it have unflushed writes and stay open.
        spans_max: The most spans to return; the rest is asked for again.

    Raises:
        CorruptRecordError: Bytes on the way are no batch.
        OSError: The disk does not give the bytes.
    """
    spans: list[FileSpan] = []
    for number in range(segments.number_for(start_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset or len(spans) == spans_max:
            break
        position, base_offset, end_position = 0, segment.base_offset, segment.size_bytes
        if start_offset > segment.base_offset:
            found = segments.touch(number, flushed_offset).find(start_offset)
            if found is None:  # a gap that compaction left
                continue
            position, base_offset = found.position, found.base_offset
        segment_end = segments.end_offset(number, OFFSET_MAX)
        if segment_end > end_offset:
            end_position = segments.touch(number, flushed_offset).reader().position_after(end_offset)
        if position < end_position:
            end = min(segment_end, end_offset)
            is_sealed = not segment.is_active
            spans.append(FileSpan(segment.path, position, end_position, base_offset, end, is_sealed))
    return spans
