"""Recovery of one segment: every byte read and checked once; indexes, epochs and producers come from the same pass.

Why one pass: after a crash the disk or the checksum should be what takes the time.  Batches without a producer id cost no
Python object at all; of those with one, only the last few of each producer and the transactional ones are looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from replog.log.producers.files import apply_scanned
from replog.log.producers.state import ProducerStateManager
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import HEADER_BYTES, SegmentScan, scan_checked
from replog_checkpoints import File

SCAN_BUFFER_BYTES: Final = 1024 * 1024
_OFFSET_MAX: Final = 2**63 - 2
_EPOCH_MAX: Final = 2**31 - 1


class ScanProgress(NamedTuple):
    """How far the recovery of one log has come.

    Attributes:
        bytes_scanned: Good bytes so far, of all its segments.
        bytes_total: Bytes to be scanned, as far as is known by now.
    """

    bytes_scanned: int
    bytes_total: int


class ScanOutcome(Struct, frozen=True):
    """The findings of a scan.

    Attributes:
        scan: The findings in the good batches.
        aborted: Transactions that they abort.
        damage: Why the scan ended before the end of the file; None: it did not.
        is_overflow: Whether good batches follow from there on, but too far from the base offset for this segment.  One
            alone does not count: a flipped bit in an offset, which no checksum covers, looks the same.
    """

    scan: SegmentScan
    aborted: list[AbortedTransaction]
    damage: str | None
    is_overflow: bool


class SegmentScanner:
    """Scans segments one after the other with one buffer.

    Args:
        now_ms: Wall time at which the producers count as seen.
    """

    __slots__ = ("_buffer", "_now_ms")

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._buffer = bytearray()

    def scan(
        self,
        file: File,
        size_bytes: int,
        scan: SegmentScan,
        producers: ProducerStateManager,
        on_bytes: Callable[[int], None],
    ) -> ScanOutcome:
        """Scans a file from byte 0.

        Args:
            file: The `.log` of the segment.
            size_bytes: How much of it is looked at.
            scan: A scan that was fed nothing yet.
            producers: The producers as they are before the segment; brought to the end of its good batches.
            on_bytes: The function that is told how many more bytes were read and found good; not kept, or the buffer and the loader
                that counts would be a cycle.

        Raises:
            OSError: The disk failed.
        """
        aborted: list[AbortedTransaction] = []
        damage: str | None = None
        self._reserve(min(SCAN_BUFFER_BYTES, size_bytes))
        while damage is None and scan.size_bytes < size_bytes:
            start = scan.size_bytes
            rest_bytes = size_bytes - start
            with memoryview(self._buffer) as whole, whole[:rest_bytes] as view:
                length = file.pread_into(view, start)
                consumed = scan.feed(view, length)
                aborted += apply_scanned(producers, scan.producer_batches, view, start, self._now_ms)
            scan.producer_batches.clear()
            on_bytes(consumed)
            damage = scan.damage
            if damage is None and consumed == 0:
                damage = self._make_room(scan.missing_bytes, rest_bytes)
        is_overflow = scan.damage is not None and self._is_overflow(file, size_bytes, scan)
        return ScanOutcome(scan, aborted, damage, is_overflow)

    def _make_room(self, batch_bytes: int, rest_bytes: int) -> str | None:
        """Enlarges the buffer for a larger batch; returns the trouble if there cannot be one."""
        if batch_bytes == 0:
            return f"the file ends inside a batch header, {HEADER_BYTES} bytes are needed"
        if batch_bytes > rest_bytes:
            return f"a batch of {batch_bytes} bytes, {rest_bytes} are left in the file"
        if batch_bytes <= len(self._buffer):
            return f"a batch of {batch_bytes} bytes, the file became shorter while it was read"
        self._reserve(batch_bytes)
        return None

    def _reserve(self, size_bytes: int) -> None:
        if len(self._buffer) < size_bytes:
            self._buffer = bytearray(size_bytes)

    def _is_overflow(self, file: File, size_bytes: int, scan: SegmentScan) -> bool:
        with memoryview(self._buffer) as whole, whole[: size_bytes - scan.size_bytes] as view:
            file.pread_into(view, scan.size_bytes)
            batches, _, _ = scan_checked(
                view,
                next_offset=scan.next_offset,
                leader_epoch=scan.leader_epoch,
                offset_max=_OFFSET_MAX,
                leader_epoch_max=_EPOCH_MAX,
            )
            return len(batches) > 1
