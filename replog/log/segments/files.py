"""The files of one segment: their names, the descriptor of the `.log` file, reading and replacing index files."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from replog.log.file_closer import FileCloser
from replog.log.file_names import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, file_path
from replog.log.segments.index_cache import INDEX_CACHE
from replog_checkpoints import File, FileSystem, OpenMode

TEMPORARY_SUFFIX: Final = ".tmp"

_PIECE_BYTES: Final = 1 << 20
"""Copied at once."""


class SegmentFiles:
    """The files of a segment on disk.

    Args:
        fs: The disk.
        directory: The partition folder.
        base_offset: The base offset: no batch in it has a lower offset.
        size_bytes: Size of its `.log` file, which exists.
        suffix: The end of its files' names beside the usual: "" in use, `.cleaned`, `.swap`, `.deleted`.
    """

    __slots__ = ("_directory", "_file", "_fs", "_suffix", "base_offset", "size_bytes")

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, size_bytes: int, suffix: str) -> None:
        self._fs = fs
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self.base_offset = base_offset
        self.size_bytes = size_bytes

    @property
    def path(self) -> str:
        """Path of the `.log` file."""
        return self._path(LOG_SUFFIX)

    @property
    def file(self) -> File:
        """The `.log` file, opened when first needed."""
        if self._file is None:
            self._file = self._fs.open(self.path, OpenMode.WRITE)
        return self._file

    @contextmanager
    def opened_briefly(self) -> Generator[None]:
        """Closes the `.log` file at the end if it was not open before: walks over all segments must not keep each open."""
        was_open = self._file is not None
        try:
            yield
        finally:
            if not was_open and self._file is not None:
                self._file.close()
                self._file = None

    @property
    def open_log_file(self) -> File | None:
        """The `.log` file if it is open; with unflushed writes it always is."""
        return self._file

    @property
    def file_names(self) -> list[str]:
        """Paths of all files that it may have."""
        return [self._path(kind) for kind in SEGMENT_SUFFIXES]

    def own(self) -> None:
        """Makes the `.log` file this log's alone: one with a second name, of a fork, is copied before it is changed.

        A crash leaves the file as it was, and perhaps a `.tmp` file beside it, which the next start sweeps.

        Raises:
            OSError: The disk failed or is full; nothing was changed.
        """
        if self._fs.links_count(self.path) < 2:
            return
        copy_file(self._fs, self.path, self.path + TEMPORARY_SUFFIX)
        self._fs.rename(self.path + TEMPORARY_SUFFIX, self.path)
        self._fs.sync_dir(self._directory)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def modified_ms(self) -> int:
        """Returns the wall time of the last write to the `.log` file."""
        return self._fs.modified_ms(self.path)

    def release(self, closer: FileCloser) -> None:
        """Closes its descriptor; it is opened again when needed."""
        if self._file is not None:
            unwanted = {*closer.unwanted, self._file}
            closer.unwanted, self._file = unwanted, None  # in one step: an interrupt comes before it or after
            closer.close_unwanted()

    def drop_maps(self) -> None:
        """Forgets the maps of its indexes; a search in one goes on."""
        for kind in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            INDEX_CACHE.drop(self, kind)

    def remove(self, closer: FileCloser) -> None:
        """Deletes its files, the log first: an index without a log is swept at the next start."""
        self.release(closer)
        self.drop_maps()
        for path in self.file_names:
            try:
                self._fs.remove(path)
            except FileNotFoundError:
                continue

    def change_suffix(self, suffix: str) -> None:
        """Renames its files, the log first; readers that have them open read on.  Durable once the directory is fsynced.

        A file that is under the new name already is replaced: a crash, or an interrupt, between two of these renames is
        completed by doing it again.
        """
        if suffix == self._suffix:
            return
        for kind in SEGMENT_SUFFIXES:
            try:
                self._fs.rename(self._path(kind), f"{file_path(self._directory, self.base_offset, kind)}{suffix}")
            except FileNotFoundError:
                continue
        self._suffix = suffix

    def _path(self, kind: str) -> str:
        return file_path(self._directory, self.base_offset, kind) + self._suffix

    def _read_index(self, kind: str) -> bytes:
        file = self._fs.open(self._path(kind), OpenMode.READ)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def _map_file(self, kind: str) -> memoryview:
        file = self._fs.open(self._path(kind), OpenMode.READ)
        try:
            return file.map_read()
        finally:
            file.close()

    def _write_indexes(self, contents: Sequence[tuple[str, bytes]]) -> list[File]:
        """Writes several index files, (suffix, content) each; where one cannot be written, none is left open."""
        written: list[File] = []
        try:
            for kind, data in contents:
                written.append(self._write_index(kind, data))
        except OSError:
            for file in written:
                file.close()
            raise
        return written

    def _write_index(self, kind: str, data: bytes) -> File:
        """Writes an index file; one that is there is replaced by a rename, because it may be mapped.

        Returns:
            The file, open, to be synced and closed by the caller.
        """
        path = self._path(kind)
        try:
            file, is_new = self._fs.open(path, OpenMode.CREATE), True
        except FileExistsError:
            file, is_new = self._fs.open(path + TEMPORARY_SUFFIX, OpenMode.REPLACE), False
        try:
            if data:
                file.pwrite([data], 0)
            if not is_new:
                self._fs.rename(path + TEMPORARY_SUFFIX, path)
        except OSError:
            file.close()
            raise
        return file


def copy_file(fs: FileSystem, source: str, target: str) -> None:
    """Copies a file durably, piece by piece; one at `target` is replaced.

    Raises:
        OSError: The disk failed or is full.
    """
    read = fs.open(source, OpenMode.READ)
    try:
        written = fs.open(target, OpenMode.REPLACE)
        try:
            position = 0
            while piece := read.pread(_PIECE_BYTES, position):
                position += written.pwrite([piece], position)
            written.sync()
        finally:
            written.close()
    finally:
        read.close()
