"""What stands behind the last good batch of a log: half a batch, which is nobody's record yet, or damage."""

from __future__ import annotations

import re

from replog.errors import CorruptRecordError
from replog.log import Log
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.segments.scan import FRAME_BYTES, parse_frame, scan_batches
from replog.records import HEADER_BYTES, check_crc, parse_header
from replog_checkpoints import File, FileSystem, OpenMode

_MAGIC_POSITION = 16
_MAGIC = 2
_SEARCH_BYTES_MAX = 64 << 20


def damage_behind(fs: FileSystem, log: Log) -> CorruptRecordError | None:
    """Says why the bytes that recovery left out at the end are no records; None: they are the first half of a batch.

    Args:
        fs: The disk.
        log: The log, opened read-only, with `recovery.bytes_cut`.
    """
    path = file_path(log.directory, log.segment_base_offsets[-1], LOG_SUFFIX)
    file = fs.open(path, OpenMode.READ)
    try:
        position, reason = _first_bad(file, log.log_end_offset)
        if log.recovery.segments_removed == 0 and _is_half_batch(file, position, log.log_end_offset):
            return None
    finally:
        file.close()
    return CorruptRecordError(
        path,
        position,
        f"{reason} (offset {log.log_end_offset}), {log.recovery.bytes_cut} bytes follow. Nothing was exported: restore the "
        f"file, or export what is before it with --to-offset {log.log_end_offset}",
    )


def _first_bad(file: File, end_offset: int) -> tuple[int, str]:
    """Finds the first byte behind the good batches; returns it and what is wrong there."""
    position = next_offset = 0
    try:
        for placed in scan_batches(file, 0, file.size()):
            position = placed.position
            if next_offset >= end_offset or placed.header.base_offset < next_offset:
                break
            position += placed.header.size_bytes
            next_offset = placed.header.next_offset
    except CorruptRecordError as error:
        return error.position, error.reason
    return position, "the batches there do not continue the log"


def _is_half_batch(file: File, position: int, end_offset: int) -> bool:
    """Whether the file ends inside a batch that would continue the log."""
    rest_bytes = file.size() - position
    head = file.pread(HEADER_BYTES, position)
    if rest_bytes < HEADER_BYTES:
        return len(head) < FRAME_BYTES or _continues(head, end_offset)
    if not _continues(head, end_offset) or parse_frame(head, 0).size_bytes <= rest_bytes:
        return False
    return not _holds_batch(file.pread(min(rest_bytes, _SEARCH_BYTES_MAX), position), end_offset)


def _holds_batch(rest: bytes, end_offset: int) -> bool:
    """Whether a good batch of later offsets is somewhere in there: then it was the length that changed."""
    high_half = end_offset.to_bytes(8, "big")[:4]
    for match in re.finditer(b"(?=" + re.escape(high_half) + rb".{12}\x02)", rest, re.DOTALL):
        try:
            header = parse_header(rest, match.start())
            check_crc(rest, header)
        except CorruptRecordError:
            continue
        if header.base_offset > end_offset:
            return True
    return False


def _continues(head: bytes, end_offset: int) -> bool:
    return head[_MAGIC_POSITION] == _MAGIC and parse_frame(head, 0).base_offset == end_offset
