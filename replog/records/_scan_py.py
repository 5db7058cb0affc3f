"""Walks over whole batches and checks every byte, in pure Python: the twin of `_scan`, and the meaning of both.

Why two ways to take the result: a follower's append needs each batch, recovery of a segment needs only what its indexes,
epochs and producers are made of, and must not make a Python object for each of a million batches.

A batch is good when, behind the one before it,

- its magic is 2 and its length at least a header;
- its base offset is at or above the expected one, its last offset not above `offset_max`, and it does not hold more
  records than offsets;
- its leader epoch is not below one before it (-1, from before there were epochs, is always good; less never is);
- its checksum is right.

The offset, the length and the epoch are outside the checksum: an old batch that a crash left behind a new tail has a
valid one, which is why the order is looked at.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from replog.records._crc32c import crc32c
from replog.records.header import OFFSET_MAX
from replog.records.model import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_LEADER_EPOCH, Buffer

IMPLEMENTATION = "python"

ScannedBatch: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]
"""(position, size in bytes, base offset, last offset, leader epoch, max timestamp, producer id, producer epoch, base
sequence, attributes); the producer fields are -1 where there is none."""

_MAGIC: Final = 2
_CRC_START: Final = 21
_NO_TIMESTAMP: Final = -1
_HEADER: Final = struct.Struct(">qiibIhi8xqqhii")
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


def describe_damage(
    buffer: Buffer, position: int, next_offset: int, leader_epoch: int, offset_max: int, *, is_checked: bool = True
) -> str | None:
    """Returns why the whole batch at `position` is not good; None: it is."""
    base_offset, length, epoch, magic, crc, _, delta, _, _, _, _, count = _HEADER.unpack_from(buffer, position)
    if magic != _MAGIC:
        return f"magic {magic} is not {_MAGIC}"
    if delta < 0 or not next_offset <= base_offset <= offset_max - delta:
        return f"offsets {base_offset} to {base_offset + delta} cannot follow offset {next_offset - 1}"
    if not 0 <= count <= delta + 1:
        return f"{count} records cannot stand in {delta + 1} offsets"
    wrong_epoch = describe_epoch(epoch, leader_epoch)
    if wrong_epoch is not None or not is_checked:
        return wrong_epoch
    with memoryview(buffer) as view:
        actual = crc32c(view[position + _CRC_START : position + length + LOG_OVERHEAD_BYTES])
    if actual != crc:
        return f"checksum {actual:#010x}, the header says {crc:#010x}"
    return None


def describe_epoch(epoch: int, epoch_before: int) -> str | None:
    """Returns why a batch cannot have a leader epoch; None: it can.  The one rule of appends, starts and verification.

    Args:
        epoch: The epoch in its header.
        epoch_before: The highest epoch of the batches before it; -1: unknown.
    """
    if epoch < NO_LEADER_EPOCH:
        return f"leader epoch {epoch} cannot be, the lowest one is {NO_LEADER_EPOCH}"
    if NO_LEADER_EPOCH < epoch < epoch_before:
        return f"leader epoch {epoch} cannot follow epoch {epoch_before}"
    return None


def describe_length(length: int) -> str:
    """Returns why a length field cannot be one."""
    return f"batch length {length} is below the minimum of {HEADER_BYTES - LOG_OVERHEAD_BYTES}"


def scan_checked(
    buffer: Buffer,
    *,
    next_offset: int,
    leader_epoch: int,
    offset_max: int,
    leader_epoch_max: int,
    is_checked: bool = True,
) -> tuple[list[ScannedBatch], int, str | None]:
    """Returns the good batches at the start of a buffer, each as a tuple.

    A torn last batch ends the walk quietly, and so does a batch of a leader epoch above `leader_epoch_max`.

    Args:
        buffer: The batches, not changed.
        next_offset: The offset below which the first batch must not begin.
        leader_epoch: The epoch of the batch before the first, -1 unknown.
        offset_max: The offset above which no last offset may be; at most 2^63 - 2.
        leader_epoch_max: The epoch of the leader they come from.
        is_checked: Whether checksums are looked at; offsets and epochs always are.

    Returns:
        The batches, the position after the last one, and what is wrong with the batch there; None: nothing.
    """
    batches: list[ScannedBatch] = []
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        fields = _HEADER.unpack_from(buffer, position)
        base_offset, length, epoch, magic, _, attributes, delta, max_timestamp, producer_id, producer_epoch = fields[
            :10
        ]
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            return batches, position, describe_length(length)
        size_bytes = length + LOG_OVERHEAD_BYTES
        if end - position < size_bytes or (magic == _MAGIC and epoch > leader_epoch_max):
            break
        damage = describe_damage(buffer, position, next_offset, leader_epoch, offset_max, is_checked=is_checked)
        if damage is not None:
            return batches, position, damage
        last_offset = base_offset + delta
        batches.append(
            (
                position,
                size_bytes,
                base_offset,
                last_offset,
                epoch,
                max_timestamp,
                producer_id,
                producer_epoch,
                fields[10],
                attributes,
            )
        )
        leader_epoch, next_offset = max(leader_epoch, epoch), last_offset + 1
        position += size_bytes
    return batches, position, None


def consecutive_end(buffer: Buffer, *, next_offset: int, is_complete: bool) -> int:
    """Returns the exclusive end of the whole batches at the start of a buffer, where they follow one another.

    Looks at headers only, and says where, but not why, they cannot be trusted: `header.scan` does.  A torn last batch ends
    the walk quietly.

    Args:
        buffer: The batches, not changed.
        next_offset: The offset that they were read for; the first batch may begin below it and must end above.
        is_complete: Whether each batch must begin where the one before it ended, and the first one not above `next_offset`.

    Returns:
        The end; -1 where a header cannot be one, where batches are out of order or miss offsets, or where none is whole.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        base_offset, length, _, magic, _, _, delta, _, _, _, _, count = _HEADER.unpack_from(buffer, position)
        size_bytes = length + LOG_OVERHEAD_BYTES
        if magic != _MAGIC or size_bytes < HEADER_BYTES:
            return -1
        if end - position < size_bytes:
            break
        if base_offset < 0 or not 0 <= delta <= OFFSET_MAX - base_offset or not 0 <= count <= delta + 1:
            return -1
        if (position and base_offset < next_offset) or (is_complete and base_offset > next_offset):
            return -1
        if base_offset + delta < next_offset:
            return -1
        next_offset = base_offset + delta + 1
        position += size_bytes
    return next_offset if position else -1


class SegmentScan:
    """Walks through the bytes of one segment, buffer by buffer, and collects what is derived from them.

    Args:
        base_offset: The base offset of the segment.
        next_offset: The offset below which its first batch must not begin.
        leader_epoch: The epoch of the batch before it, -1 unknown.
        offset_max: The offset above which no last offset may be; at most 2^63 - 2.
        index_interval_bytes: The distance between index entries (docs/KAFKA.md 1.6).
        index_count_max: The number of entries that the offset index has room for.
        time_count_max: The number of entries that the time index has room for.

    Attributes:
        size_bytes: The size of the good batches so far.
        next_offset: The offset after the last good batch.
        leader_epoch: The latest epoch so far.
        max_timestamp: The largest timestamp so far, -1 none.
        max_timestamp_offset: The last offset of the batch that brought it.
        first_timestamp: The largest timestamp of the first batch.
        bytes_since_index: The bytes since the last index entry.
        offset_entries: The offset index, as in its file.
        time_entries: The time index, as in its file.
        epoch_starts: Pairs (epoch, base offset) of the first batch of each epoch above the one before the segment.
        producer_batches: Batches with a producer id; positions are those in the file.
        missing_bytes: The size of the batch at the end of the last buffer, 0 when not even its header was there.
        damage: The fault of the batch behind the last good one; None: nothing is wrong so far.
    """

    def __init__(
        self,
        base_offset: int,
        next_offset: int,
        leader_epoch: int,
        offset_max: int,
        index_interval_bytes: int,
        index_count_max: int,
        time_count_max: int,
    ) -> None:
        self.size_bytes = 0
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.max_timestamp = _NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = _NO_TIMESTAMP
        self.bytes_since_index = 0
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.epoch_starts: list[tuple[int, int]] = []
        self.producer_batches: list[ScannedBatch] = []
        self.missing_bytes = 0
        self.damage: str | None = None
        self._base_offset = base_offset
        self._offset_max = offset_max
        self._index_interval_bytes = index_interval_bytes
        self._index_room = index_count_max
        self._time_room = time_count_max
        self._last_time_entry = _NO_TIMESTAMP

    def feed(self, buffer: Buffer, length: int) -> int:
        """Takes the batches at the start of the first `length` bytes of a buffer, which follow the good ones so far.

        Returns:
            The size of the whole, good batches.  The rest is the start of a batch of `missing_bytes`, or `damage`.
        """
        position = 0
        self.missing_bytes = 0
        while length - position >= HEADER_BYTES:
            fields = _HEADER.unpack_from(buffer, position)
            base_offset, batch_length, epoch, _, _, attributes, delta, max_timestamp, producer_id = fields[:9]
            if batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                self.damage = describe_length(batch_length)
                break
            size_bytes = batch_length + LOG_OVERHEAD_BYTES
            if length - position < size_bytes:
                self.missing_bytes = size_bytes
                break
            self.damage = describe_damage(buffer, position, self.next_offset, self.leader_epoch, self._offset_max)
            if self.damage is not None:
                break
            last_offset = base_offset + delta
            if epoch > self.leader_epoch:
                self.epoch_starts.append((epoch, base_offset))
                self.leader_epoch = epoch
            if producer_id >= 0:
                place = (self.size_bytes, size_bytes, base_offset, last_offset, epoch, max_timestamp)
                self.producer_batches.append((*place, producer_id, fields[9], fields[10], attributes))
            self._note(size_bytes, last_offset, max_timestamp)
            self.next_offset = last_offset + 1
            position += size_bytes
        return position

    def _note(self, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self.size_bytes == 0:
            self.first_timestamp = max_timestamp
        elif self.bytes_since_index > self._index_interval_bytes:
            self._add_index_entries(last_offset)
        self.bytes_since_index += size_bytes
        self.size_bytes += size_bytes

    def _add_index_entries(self, last_offset: int) -> None:
        if self._index_room > 0:
            self.offset_entries += _OFFSET_ENTRY.pack(last_offset - self._base_offset, self.size_bytes)
            self._index_room -= 1
        if self._time_room > 0 and self.max_timestamp > self._last_time_entry:
            self.time_entries += _TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self._base_offset)
            self._last_time_entry = self.max_timestamp
            self._time_room -= 1
        self.bytes_since_index = 0
