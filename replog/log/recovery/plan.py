"""What opening a log after a crash will have to read: sizes only, nothing is opened."""

from __future__ import annotations

from replog.log.file_names import LOG_SUFFIX, file_path, parse_file_name
from replog.log.recovery.progress import ScanSize
from replog_checkpoints import FileSystem


def scan_size(fs: FileSystem, directory: str, recovery_point: int) -> ScanSize:
    """Counts segments, and bytes, from the one that holds the recovery point on; zeros where that cannot be told."""
    try:
        found = (parse_file_name(name) for name in fs.list_dir(directory))
        bases = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == LOG_SUFFIX)
        first = max(0, sum(base <= recovery_point for base in bases) - 1)
        sizes = [fs.size(file_path(directory, base, LOG_SUFFIX)) for base in bases[first:]]
    except OSError:
        return ScanSize(0, 0)  # opening it will say what is wrong
    return ScanSize(len(sizes), sum(sizes))
