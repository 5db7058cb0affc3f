"""The end of a sealed segment that its index files name, without opening the segment.

An index entry is written after its batch, so a `.log` that ends before the batches in its indexes has lost bytes.
"""

from __future__ import annotations

from typing import Final

from replog.log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_path
from replog.log.segments.offset_index import OFFSET_ENTRY_BYTES
from replog.log.segments.time_index import TIME_ENTRY_BYTES
from replog_checkpoints import FileSystem, OpenMode

_WITNESSES: Final = ((INDEX_SUFFIX, OFFSET_ENTRY_BYTES, 0), (TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES, 8))
"""Suffix, entry bytes, where in an entry the relative offset (4 bytes) stands."""


def promised_end_offset(
    fs: FileSystem, directory: str, base_offset: int, next_base_offset: int, *, name_suffix: str = ""
) -> int:
    """Returns the exclusive end of the last batch that a sealed segment's indexes name; its base if they name none.

    Args:
        fs: The disk.
        directory: The partition folder.
        base_offset: The first offset that the segment may hold.
        next_base_offset: The base offset of the segment behind it; what is not below it was never true.
        name_suffix: The suffix behind the usual file names, such as ".swap".
    """
    promised = base_offset
    for suffix, width, at in _WITNESSES:
        try:
            file = fs.open(file_path(directory, base_offset, suffix) + name_suffix, OpenMode.READ)
        except (FileNotFoundError, IsADirectoryError):
            continue
        try:
            size_bytes = file.size()
            if size_bytes < width or size_bytes % width:
                continue
            entry = file.pread(width, size_bytes - width)
        finally:
            file.close()
        relative_offset = int.from_bytes(entry[at : at + 4], "big", signed=True)
        if any(entry) and 0 <= relative_offset < next_base_offset - base_offset:
            promised = max(promised, base_offset + relative_offset + 1)
    return promised
