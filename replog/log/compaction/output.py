"""Writes the segments that will take the place of others, under `.cleaned` names.

A group of segments becomes one; more when the result is larger than `segment.bytes` after all (a compressor may give more
than it got, a lower setting may be in force).  Each begins where the one before it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import StorageError
from replog.log.config import LogConfig
from replog.log.file_closer import FileCloser
from replog.log.file_names import CLEANED_SUFFIX
from replog.log.segments.segment import LogSegment
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records.compaction import Rewritten
from replog_checkpoints import File, FileSystem


class CleanedSegments:
    """The segments that one group becomes.

    Args:
        fs: The disk.
        directory: The partition folder.
        base_offset: Base offset of the group's first segment.
        config: Settings of the log.
        now_ms: Wall time.

    Attributes:
        segments: The new segments, finished or being written, in order.
    """

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> None:
        self.segments: list[LogSegment] = []
        self._fs = fs
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._closer = FileCloser()
        self._begin(base_offset)
        self._end_offset = base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return sum(segment.size_bytes for segment in self.segments)

    def append(self, rewritten: Rewritten) -> None:
        """Writes batches behind the ones before; begins another segment if they do not fit."""
        start = position = first = 0
        size_bytes = self.segments[-1].size_bytes
        for number, (batch_bytes, _, _) in enumerate(rewritten.batches):
            if size_bytes and size_bytes + batch_bytes > self._config.segment_bytes:
                self._write(rewritten, start, position, first, number)
                self._begin(self._end_offset)
                start, first, size_bytes = position, number, 0
            position += batch_bytes
            size_bytes += batch_bytes
        self._write(rewritten, start, position, first, len(rewritten.batches))

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Writes the indexes, and makes every file durable; their names are not, until the directory is fsynced.

        Args:
            aborted: The aborted transactions whose marker is in these segments.

        Raises:
            StorageError: An fsync failed.
            OSError: The disk failed or is full.
        """
        for number, segment in enumerate(self.segments):
            is_last = number == len(self.segments) - 1
            end_offset = self._end_offset if is_last else self.segments[number + 1].base_offset
            for transaction in aborted:
                if segment.base_offset <= transaction.last_offset < end_offset:
                    segment.note_aborted(transaction)
            for file in segment.write_indexes():
                _sync(file)
                file.close()
            _sync(segment.file)
            segment.drop_indexes()
            segment.release(self._closer)

    def discard(self) -> None:
        """Closes and removes all files; those that cannot be removed are swept later."""
        for segment in self.segments:
            try:
                segment.remove(self._closer)
            except OSError:
                continue

    def _begin(self, base_offset: int) -> None:
        segment = LogSegment.create(
            self._fs, self._directory, base_offset, self._config, self._now_ms, suffix=CLEANED_SUFFIX
        )
        self.segments.append(segment)

    def _write(self, rewritten: Rewritten, start: int, end: int, first: int, last: int) -> None:
        """Writes bytes [start, end) of `rewritten`, which are its batches [first, last), to the last segment."""
        if first == last:
            return
        segment = self.segments[-1]
        segment.write((memoryview(rewritten.data)[start:end],))
        for batch_bytes, last_offset, max_timestamp in rewritten.batches[first:last]:
            segment.note_batch(batch_bytes, last_offset, max_timestamp)
            self._end_offset = last_offset + 1


def _sync(file: File) -> None:
    try:
        file.sync()
    except OSError as error:
        raise StorageError(f"{file.path} cannot be made durable: {error}. Check the disk") from error
