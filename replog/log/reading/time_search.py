"""Times of records: the first record that is new enough, and when the record at an offset was written."""

from __future__ import annotations

from replog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionError
from replog.log.segments.scan import read_batch, read_header, scan_headers, scan_timestamps
from replog.log.segments.segment import LogSegment
from replog.log.segments.segment_list import SegmentList
from replog.records import TRUSTED_DECOMPRESSED_BYTES_MAX, BatchHeader, TimestampType, decode_batch, decode_records


def first_record_from(
    segments: SegmentList, timestamp_ms: int, *, start_offset: int, end_offset: int, flushed_offset: int
) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the first record in [start_offset, end_offset) of at least this timestamp.

    Args:
        segments: The segments of the log.
        timestamp_ms: The timestamp.
        start_offset: The first offset that counts.
        end_offset: Exclusive end.
        flushed_offset: End of what is flushed; see `SegmentList.touch`.
    """
    number = segments.first_reaching(timestamp_ms, segments.number_for(start_offset))
    while number < len(segments):
        segment = segments.touch(number, flushed_offset)
        if segment.base_offset >= end_offset:
            return None
        found = _search_segment(segment, timestamp_ms, start_offset)
        if found is not None:
            return found if found[0] < end_offset else None
        number = segments.first_reaching(timestamp_ms, number + 1)
    return None


def _search_segment(segment: LogSegment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    entry = segment.floor_time_entry(timestamp_ms)
    position = segment.reader().seek(max(entry.offset, start_offset))[0]
    is_entry_met = entry.timestamp < 0 or entry.offset < start_offset
    for at, last_offset, max_timestamp in scan_timestamps(segment.file, position, segment.size_bytes):
        if not is_entry_met:
            if last_offset < entry.offset:
                continue
            if (last_offset, max_timestamp) != (entry.offset, entry.timestamp):
                break
            is_entry_met = True
        if max_timestamp >= timestamp_ms and last_offset >= start_offset:
            found = _search_batch(segment, at, read_header(segment.file, at), timestamp_ms, start_offset)
            if found is not None:
                return found
    if is_entry_met:
        return None
    return _search_without_index(segment, timestamp_ms, start_offset)


def _search_without_index(segment: LogSegment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Searches all headers of the segment, because the time index names a batch that is not in the log."""
    for at, header in scan_headers(segment.file, 0, segment.size_bytes):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            found = _search_batch(segment, at, header, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _search_batch(
    segment: LogSegment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:  # all records have the same one
        return max(header.base_offset, start_offset), header.max_timestamp
    data = read_batch(segment.file, position, header.size_bytes)
    try:
        records = decode_batch(data, max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX)
    except CorruptRecordError as error:
        raise CorruptRecordError(segment.path, position, error.reason) from error
    except InvalidRecordError:  # a client has written nonsense: its checksum is good, so the disk is, too
        first = max(header.base_offset, start_offset)
        return (first, header.max_timestamp) if header.max_timestamp >= timestamp_ms else None
    for record in records:
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return record.offset, record.timestamp
    return None


def first_record_at(
    segments: SegmentList, start_offset: int, *, end_offset: int, flushed_offset: int
) -> tuple[int, int] | None:
    """Returns (offset, timestamp) of the first record of data in [start_offset, end_offset); None: there is none.

    The header of its batch says it, where it is the batch's first record or all have one time; else that one record is
    decoded.  Where it cannot be, the header's time is as near as one comes: it is not for whoever asks the time to find
    that a client has written nonsense.

    Args:
        segments: The segments of the log.
        start_offset: The first offset that counts.
        end_offset: Exclusive end.
        flushed_offset: End of what is flushed; see `SegmentList.touch`.
    """
    for number in range(segments.number_for(start_offset), len(segments)):
        segment = segments.touch(number, flushed_offset)
        if segment.base_offset >= end_offset:
            return None
        for position, header in scan_headers(segment.file, segment.reader().seek(start_offset)[0], segment.size_bytes):
            if header.last_offset < start_offset or header.is_control or not header.records_count:
                continue
            found = _first_of_batch(segment, position, header, start_offset)
            if found is not None:
                return found if found[0] < end_offset else None
    return None


def _first_of_batch(
    segment: LogSegment, position: int, header: BatchHeader, start_offset: int
) -> tuple[int, int] | None:
    wanted = max(header.base_offset, start_offset)
    is_whole = header.records_count == header.last_offset_delta + 1
    if is_whole and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return wanted, header.max_timestamp
    if is_whole and wanted == header.base_offset and not header.has_delete_horizon:
        return wanted, header.base_timestamp
    data = read_batch(segment.file, position, header.size_bytes)
    try:
        records = decode_records(
            data,
            start_offset=wanted,
            end_offset=wanted + 1 if is_whole else None,
            max_decompressed_bytes=TRUSTED_DECOMPRESSED_BYTES_MAX,
        )
    except CorruptRecordError as error:
        raise CorruptRecordError(segment.path, position, error.reason) from error
    except (InvalidRecordError, UnsupportedCompressionError):
        return wanted, header.max_timestamp
    return (records[0].offset, records[0].timestamp) if records else None
