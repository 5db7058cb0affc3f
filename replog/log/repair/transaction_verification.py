"""Verification of the transaction indexes against the log, in the same pass as everything else (docs/KAFKA.md 1.8).

The right index of a segment follows from the batches alone: the data of a transaction, its abort marker, and the transactions
that were still open then.  Compaction and retention remove batches, or empty them, and keep what the index said before: where
offsets are missing in the log an entry may begin earlier, and may stand for a transaction of which nothing is left.

An entry that begins too late, or is missing, shows aborted records to readers of committed ones; one that is too much may
hide records; a last stable offset that is too high makes readers miss later entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replog.errors import CorruptIndexError
from replog.log.file_names import TRANSACTION_INDEX_SUFFIX, file_path
from replog.log.producers.files import apply_batch, producers_before
from replog.log.producers.state import ProducerStateManager
from replog.log.segments.segment import LogSegment
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from replog.records import BatchHeader, Buffer
from replog_checkpoints import FileSystem, OpenMode

_NOW_MS = 0  # when producers were last seen, which nothing here asks


class TransactionProblem(NamedTuple):
    """A transaction index that does not fit the log."""

    path: str
    reason: str


class TransactionVerifier:
    """Verifies the `.txnindex` of each segment of one log; fed with all its segments and batches in order.

    Args:
        fs: The disk.
        directory: The partition folder.
        is_closed: Whether the log was closed in order: then the last segment's index must be complete too; otherwise it
            may be missing, or lack its end.
    """

    def __init__(self, fs: FileSystem, directory: str, *, is_closed: bool) -> None:
        self._fs = fs
        self._directory = directory
        self._is_closed = is_closed
        self._is_stopped = False
        self._producers: ProducerStateManager | None = None
        self._base_offset = 0
        self._next_offset = 0
        self._gap_end = 0  # exclusive end of the last offsets of which no record is left
        self._found: list[AbortedTransaction] = []

    def begin_segment(self, base_offset: int) -> None:
        """Begins the next segment; the first one with the producers that its snapshot knows.

        Raises:
            OSError: The disk failed.
        """
        if self._producers is None:
            segment = LogSegment(self._fs, self._directory, base_offset, 0, _NOW_MS)
            self._producers, _ = producers_before(self._fs, self._directory, [segment], 0, _NOW_MS)
            self._next_offset = self._gap_end = base_offset
        self._base_offset = base_offset
        self._found.clear()

    def note_batch(self, header: BatchHeader, buffer: Buffer) -> None:
        """Takes in the next batch; `header.position` is its place in `buffer`.

        Raises:
            ReplogError: A record that is marked as a control record cannot be one.
        """
        if header.base_offset > self._next_offset:
            self._gap_end = header.base_offset
        self._next_offset = header.next_offset
        if not header.records_count:
            self._gap_end = header.next_offset
            return
        if self._producers is None or not (header.is_transactional or header.is_control) or not header.has_producer_id:
            return
        batch = memoryview(buffer)[header.position : header.end_position] if header.is_control else b""
        aborted = apply_batch(self._producers, header, batch, header.base_offset, _NOW_MS)
        if aborted is not None:
            self._found.append(aborted)

    def stop(self) -> None:
        """Notes that the scan met damage: from here on it is not known which transactions are open."""
        self._is_stopped = True

    def finish_segment(self, *, is_last: bool) -> Iterator[TransactionProblem]:
        """Yields the findings in the index of the segment whose last batch was noted."""
        if self._is_stopped:
            return
        path = file_path(self._directory, self._base_offset, TRANSACTION_INDEX_SUFFIX)
        try:
            entries = list(TransactionIndex(self._base_offset, self._read(path)))
        except CorruptIndexError as error:
            yield TransactionProblem(path, str(error))
            return
        may_lack_end = is_last and not self._is_closed
        yield from (
            TransactionProblem(path, reason) for reason in self._differences(entries, may_lack_end=may_lack_end)
        )

    def _differences(self, entries: list[AbortedTransaction], *, may_lack_end: bool) -> Iterator[str]:
        by_marker = {entry.last_offset: entry for entry in entries}
        known_end = entries[-1].last_offset if entries else -1
        for found in self._found:
            entry = by_marker.pop(found.last_offset, None)
            if entry is not None:
                yield from self._difference(entry, found)
            elif not (may_lack_end and found.last_offset > known_end):
                yield (
                    f"the transaction of producer {found.producer_id} from offset {found.first_offset} on, aborted at "
                    f"offset {found.last_offset}, is missing"
                )
        for entry in by_marker.values():
            if entry.first_offset >= self._gap_end or entry.last_offset >= self._next_offset:
                yield f"no transaction of producer {entry.producer_id} was aborted at offset {entry.last_offset}"

    def _difference(self, entry: AbortedTransaction, found: AbortedTransaction) -> Iterator[str]:
        where = f"the transaction aborted at offset {found.last_offset}"
        if entry.producer_id != found.producer_id:
            yield f"{where} is producer {found.producer_id}'s, not {entry.producer_id}'s"
        if not self._fits(entry.first_offset, found.first_offset):
            yield f"{where} begins at offset {found.first_offset}, not {entry.first_offset}"
        if not self._fits(entry.last_stable_offset, found.last_stable_offset):
            yield f"{where} leaves the last stable offset {found.last_stable_offset}, not {entry.last_stable_offset}"

    def _fits(self, said: int, found: int) -> bool:
        """Whether an offset is the one found, or may have been it before compaction."""
        return said == found or said < min(found, self._gap_end)

    def _read(self, path: str) -> bytes:
        try:
            file = self._fs.open(path, OpenMode.READ)
        except FileNotFoundError:
            return b""
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()
