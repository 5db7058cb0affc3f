"""Record batches straight from segment files, for a reader on the broker's machine.

What a broker told about its files may be wrong by the time they are opened or read: retention removes them, compaction
puts others in their place, a move takes them elsewhere, and after an unclean election they are cut and written anew.  An
open file keeps its bytes whatever becomes of its name, so all files of an answer are opened at once, and compared with
what the broker saw.  After that only a cut can change them: every batch must follow the one before it, with its checksum,
and with no leader epoch above the one that the broker told.  Where a query leaves checksums out, those of a file that is still
written are compared all the same, and nobody may have written to another one by the time its bytes are read.  Where the
broker says that its log has no gaps, a gap is damage: the broker finds it, too, when the records are fetched, and says
what can be done.

Nothing here raises to the user.  What does not fit is an `UnfitError`, and the rest of the range is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from replog.client.ranges.offset_range import Encoded
from replog.errors import CorruptRecordError
from replog.records import HEADER_BYTES, consecutive_end, parse_header, scan_checked
from replog.rpc.node_messages import STILL_WRITTEN, SegmentSpan
from replog_checkpoints import read_ahead, read_into

FRAME_BYTES = 4 << 20
"""Record batches that are read at a time, unless one batch is larger."""

BATCH_BYTES_MAX = 64 << 20
"""No batch is larger: it would not fit into a message either."""

ROOM_BYTES_MIN = 1 << 20
"""With less room than this left, what has been read goes on before more is read."""

_OFFSET_MAX = 2**63 - 2
_NO_EPOCH = -1


class UnfitError(Exception):
    """The files are not what the broker told of them, or cannot be read; what they hold has to be fetched."""


class OpenSpan(NamedTuple):
    """A span whose file is open, and was what the broker told of it."""

    span: SegmentSpan
    descriptor: int


def open_spans(spans: Iterable[SegmentSpan], files: ExitStack) -> list[OpenSpan]:
    """Opens the files of all spans; `files` closes them.

    Raises:
        UnfitError: A file is gone, is another one by now, or must not be read by this user.
    """
    return [OpenSpan(span, _open(span, files)) for span in spans]


def _open(span: SegmentSpan, files: ExitStack) -> int:
    try:
        descriptor = os.open(span.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        files.callback(os.close, descriptor)
        status = os.fstat(descriptor)
    except OSError as error:
        raise UnfitError(str(error)) from error
    if (status.st_dev, status.st_ino) != (span.device, span.inode):
        raise UnfitError(f"{span.path} is another file than the broker's")
    if span.modified_ns not in {STILL_WRITTEN, status.st_mtime_ns}:
        raise UnfitError(f"{span.path} was written to since")
    return descriptor


def _require_unwritten(span: SegmentSpan, descriptor: int) -> None:
    try:
        modified_ns = os.fstat(descriptor).st_mtime_ns
    except OSError as error:
        raise UnfitError(str(error)) from error
    if span.modified_ns not in {STILL_WRITTEN, modified_ns}:
        raise UnfitError(f"{span.path} was written to while it was read")


class SpanReader:
    """Reads open spans into one buffer that is used again and again.

    Args:
        start_offset: The first offset that is wanted; it may lie within the first batch.
        leader_epoch_max: The leader epoch above which no batch can be.
        is_checked: Whether checksums are looked at; those of a file that is still written always are.
        is_complete: Whether every offset must be there: no checksum covers the base offset of a batch.
    """

    def __init__(
        self, start_offset: int, *, leader_epoch_max: int, is_checked: bool, is_complete: bool = False
    ) -> None:
        self.next_offset = start_offset
        self._leader_epoch_max = leader_epoch_max
        self._is_checked = is_checked
        self._is_complete = is_complete
        self._leader_epoch = _NO_EPOCH
        self._buffer = memoryview(bytearray(FRAME_BYTES))
        self._filled = 0
        self._first_offset = start_offset

    def read(self, spans: Sequence[OpenSpan]) -> Iterator[Encoded]:
        """Yields whole batches in order, checked; each is overwritten when the next one is asked for.

        Raises:
            UnfitError: The bytes are not the broker's batches; what was yielded before was.
        """
        for number, (span, descriptor) in enumerate(spans):
            position = span.position
            while position < span.end_position:
                length = min(len(self._buffer) - self._filled, span.end_position - position)
                view = self._buffer[self._filled : self._filled + length]
                _read_all(descriptor, view, position)
                _require_unwritten(span, descriptor)
                _expect(descriptor, position + length, span.end_position)
                is_first = number == 0 and position == span.position
                base_offset = span.base_offset if is_first else max(self.next_offset, span.base_offset)
                is_checked = self._is_checked or span.modified_ns == STILL_WRITTEN
                taken = self._take(view, base_offset, is_exact=is_first and position > 0, is_checked=is_checked)
                position += taken
                if not taken and not self._filled:
                    self._make_room(view, span.end_position - position)
                if not taken or len(self._buffer) - self._filled < ROOM_BYTES_MIN:
                    yield from self._handed_on()
        yield from self._handed_on()

    def _take(self, view: memoryview, base_offset: int, *, is_exact: bool, is_checked: bool) -> int:
        """Counts in the whole batches at the start of `view`, and returns how many bytes they take.

        Args:
            view: What was read.
            base_offset: The offset below which no batch in it begins.
            is_exact: Whether one begins at just that offset, which may lie below the first wanted one.
            is_checked: Whether checksums are looked at.
        """
        batches, length, damage = scan_checked(
            view,
            next_offset=base_offset,
            leader_epoch=self._leader_epoch,
            offset_max=_OFFSET_MAX,
            leader_epoch_max=self._leader_epoch_max,
            is_checked=is_checked,
        )
        if damage is not None:
            raise UnfitError(damage)
        if not batches:
            self._check_epoch(view)
            return 0
        first, last = batches[0], batches[-1]
        if first[3] < self.next_offset or (is_exact and first[2] != base_offset):
            raise UnfitError(f"a batch at offset {first[2]} where offset {self.next_offset} was told to be")
        if self._is_complete and consecutive_end(view[:length], next_offset=self.next_offset, is_complete=True) < 0:
            raise UnfitError(f"offsets from {self.next_offset} on are missing")
        self._filled += length
        self.next_offset = max(self.next_offset, last[3] + 1)
        self._leader_epoch = max(self._leader_epoch, last[4])
        return length

    def _check_epoch(self, view: memoryview) -> None:
        """Raises if a batch of a later leader is what ended the walk, not the end of what was read."""
        if len(view) < HEADER_BYTES:
            return
        try:
            header = parse_header(view)
        except CorruptRecordError as error:
            raise UnfitError(error.reason) from error
        if header.partition_leader_epoch > self._leader_epoch_max:
            raise UnfitError(
                f"the batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch}, "
                f"the highest one is {self._leader_epoch_max}"
            )

    def _make_room(self, view: memoryview, rest_bytes: int) -> None:
        """Makes the buffer as large as the batch that begins in `view`, of which `rest_bytes` are in the file."""
        size_bytes = parse_header(view).size_bytes if len(view) >= HEADER_BYTES else rest_bytes + 1
        if size_bytes > min(rest_bytes, BATCH_BYTES_MAX) or size_bytes <= len(view):
            raise UnfitError(f"a batch of {size_bytes} bytes where {rest_bytes} are left")
        self._buffer = memoryview(bytearray(size_bytes))

    def _handed_on(self) -> Iterator[Encoded]:
        if self._filled:
            yield Encoded(self._first_offset, self._buffer[: self._filled], is_checked=True)
        self._filled = 0
        self._first_offset = self.next_offset


def _read_all(descriptor: int, view: memoryview, position: int) -> None:
    done = 0
    while done < len(view):
        try:
            count = read_into(descriptor, view[done:], position + done)
        except OSError as error:
            raise UnfitError(str(error)) from error
        if not count:
            raise UnfitError(f"the file ends at byte {position + done}")
        done += count


def _expect(descriptor: int, position: int, end_position: int) -> None:
    """Lets the system read on from the disk while what is there is decoded."""
    length = min(FRAME_BYTES, end_position - position)
    if length > 0:
        with suppress(OSError):  # advice
            read_ahead(descriptor, position, length)
