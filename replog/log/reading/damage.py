"""Where damage is: readers decode bytes in memory, people need a file and a position in it."""

from __future__ import annotations

from replog.errors import CorruptRecordError
from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.segments.scan import scan_headers
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
