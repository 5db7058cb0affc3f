"""Which file is decoded how: by its name, as the log itself finds its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from replog.cli.dump.batches import dump_batches
from replog.cli.dump.checkpoints import READERS, dump_small_file
from replog.cli.dump.indexes import dump_offset_index, dump_snapshot, dump_time_index, dump_transaction_index
from replog.cli.dump.rows import Row
from replog.cli.errors import UsageError
from replog.log.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    parse_file_name,
)
from replog.log.snapshots.files import parse_snapshot_name
from replog_checkpoints import OpenMode, OsFileSystem

METADATA_DIRECTORY = "__cluster_metadata-0"
_DECODED_SUFFIXES = frozenset({*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX})
_STATE_SUFFIXES = (DELETED_SUFFIX, SWAP_SUFFIX, CLEANED_SUFFIX)
"""Behind the usual name: waiting for deletion, or made by a compaction.  The content is the usual one."""


def dump_path(path: Path, *, deep: bool) -> Iterator[Row]:
    """Yields the rows of one file, or of every known file of a directory; each file begins with a `file` row.

    Args:
        path: A segment, index, snapshot or checkpoint file, a partition folder, or a log directory.
        deep: Whether there is a row for each record too.

    Raises:
        UsageError: There is nothing that this can decode.
        OSError: A file is not there, or cannot be read.
    """
    files = sorted(child for child in path.iterdir() if _is_known(child)) if path.is_dir() else [path]
    if not files:
        raise UsageError("PATH", str(path), f"{path} holds no segment, index, snapshot or checkpoint")
    for file in files:
        if not _is_known(file):
            known = "a segment, index, snapshot or checkpoint by its name"
            if not file.exists():
                raise FileNotFoundError(2, "there is no such file or directory", str(file))
            raise UsageError("PATH", str(file), f"{file} is not {known}")
        yield {"kind": "file", "path": str(file), "size_bytes": file.stat().st_size}
        yield from _dump_file(file, deep=deep)


def _is_known(file: Path) -> bool:
    if not file.is_file():
        return False
    if parse_snapshot_name(file.name) is not None:
        return True
    parsed = parse_file_name(_usual_name(file.name))
    return file.name in READERS or (parsed is not None and parsed[1] in _DECODED_SUFFIXES)


def _usual_name(name: str) -> str:
    """Returns a name without what says that the file is not in use (any more, or yet)."""
    for suffix in _STATE_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _dump_file(file: Path, *, deep: bool) -> Iterator[Row]:
    fs = OsFileSystem()
    if file.name in READERS:
        yield from dump_small_file(fs, str(file), file.name)
        return
    if parse_snapshot_name(file.name) is not None:
        yield from _dump_batches_of(fs, file, deep=deep, is_metadata=True)
        return
    base_offset, suffix = parse_file_name(_usual_name(file.name)) or (0, "")
    match suffix:
        case ".log":
            is_metadata = file.resolve().parent.name == METADATA_DIRECTORY
            yield from _dump_batches_of(fs, file, deep=deep, is_metadata=is_metadata)
        case ".index":
            yield from dump_offset_index(base_offset, file.read_bytes())
        case ".timeindex":
            yield from dump_time_index(base_offset, file.read_bytes())
        case ".txnindex":
            yield from dump_transaction_index(base_offset, file.read_bytes())
        case _:
            yield from dump_snapshot(str(file), file.read_bytes())


def _dump_batches_of(fs: OsFileSystem, file: Path, *, deep: bool, is_metadata: bool) -> Iterator[Row]:
    batches = fs.open(str(file), OpenMode.READ)
    try:
        yield from dump_batches(batches, deep=deep, is_metadata=is_metadata)
    finally:
        batches.close()
