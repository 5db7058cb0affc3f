"""Batches that are written together, and the undoing when they cannot be written.

Why: one `pwritev` costs about as much as all other work for a batch, and many small batches wait while one is
appended.  A group is not seen before its bytes are written, except by later batches of the same group: a producer's next
batch must find the one before it, and a repeated one its original.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from replog.errors import ReplogError
from replog.log.producers.files import apply_batch
from replog.log.producers.state import ProducerEntry, ProducerStateManager
from replog.log.segments.segment import LogSegment
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import BatchHeader, Buffer, restamped_prefix

GROUP_BATCHES_MAX: Final = 512  # two buffers each: as many as one system call takes
_STAMPED_BYTES: Final = 16  # base offset, length, leader epoch: the fields that the leader writes anew


class AppendInfo(NamedTuple):
    """The outcome of an append.

    Attributes:
        base_offset: Offset of the first record.
        last_offset: Offset of the last record, inclusive.
        max_timestamp: Largest record timestamp, ms; -1: no record has one.
        duplicate: Whether nothing was written; the offsets are then those of the batch that this one repeats.
        log_start_offset: Start of the log at the append.
        size_bytes: Bytes written to the log; 0 for a duplicate.
    """

    base_offset: int
    last_offset: int
    max_timestamp: int
    duplicate: bool
    log_start_offset: int
    size_bytes: int


AppendOutcome: TypeAlias = AppendInfo | ReplogError
"""The outcome of one batch of several: its place, or the error that refused it."""


class _Staged(Struct, frozen=True):
    """A batch that has its offsets."""

    header: BatchHeader
    batch: Buffer
    base_offset: int


class AppendGroup:
    """Batches with offsets, checked, not written yet.

    Attributes:
        first_number: Number, in the caller's batches, of the first one whose outcome depends on this group.
        next_offset: Offset that the next batch gets.
        size_bytes: Bytes of all batches.
        buffers: The bytes to write, in order.
    """

    __slots__ = (
        "_aborted",
        "_batches",
        "_noted",
        "_now_ms",
        "_producers",
        "_saved",
        "buffers",
        "first_number",
        "next_offset",
        "size_bytes",
    )

    def __init__(self, producers: ProducerStateManager, next_offset: int, now_ms: int) -> None:
        self._producers = producers
        self._now_ms = now_ms
        self._batches: list[_Staged] = []
        self._noted = 0  # how many of them their producers know of
        self._saved: dict[int, ProducerEntry | None] = {}
        self._aborted: list[AbortedTransaction] = []  # by markers among them
        self.buffers: list[Buffer] = []
        self.size_bytes = 0
        self.next_offset = next_offset
        self.first_number = 0

    @property
    def is_full(self) -> bool:
        """Whether it fills one system call."""
        return len(self._batches) >= GROUP_BATCHES_MAX

    def add(self, header: BatchHeader, batch: Buffer, leader_epoch: int) -> None:
        """Gives a batch the next offsets.  Its producer hears of it before the next batch, or when it is written."""
        base_offset = self.next_offset
        self._batches.append(_Staged(header, batch, base_offset))
        self.buffers += (restamped_prefix(batch, 0, base_offset, leader_epoch), memoryview(batch)[_STAMPED_BYTES:])
        self.size_bytes += header.size_bytes
        self.next_offset = base_offset + header.last_offset_delta + 1

    def note_staged(self) -> None:
        """Tells the producers of the batches so far, because the checks of the batch that follows must see them."""
        for staged in self._batches[self._noted :]:
            producer_id = staged.header.producer_id
            if producer_id >= 0 and producer_id not in self._saved:
                self._saved[producer_id] = self._producers.saved(producer_id)
            self._note(staged)

    def note_written(self, segment: LogSegment, next_number: int) -> None:
        """Tells the segment's indexes and the producers that the bytes are written, and begins an empty group."""
        first_new = self._noted
        for number, staged in enumerate(self._batches):
            header = staged.header
            segment.note_batch(header.size_bytes, staged.base_offset + header.last_offset_delta, header.max_timestamp)
            if number >= first_new and header.producer_id >= 0:
                self._note(staged)
        for transaction in self._aborted:
            segment.note_aborted(transaction)
        self._batches, self.buffers, self._saved, self._aborted = [], [], {}, []
        self._noted = self.size_bytes = 0
        self.first_number = next_number

    def undo(self) -> None:
        """Restores the former state of the producers, because the bytes were not written."""
        if self._saved:
            self._producers.restore(self._saved, self._batches[0].base_offset)

    def _note(self, staged: _Staged) -> None:
        self._noted += 1
        if staged.header.producer_id >= 0:
            aborted = apply_batch(self._producers, staged.header, staged.batch, staged.base_offset, self._now_ms)
            if aborted is not None:
                self._aborted.append(aborted)
