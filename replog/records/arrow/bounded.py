"""Record batches as Arrow batches of bounded size, however much was compressed into them.

Per-batch costs count below about 1 MB, and above 32 MB those that take them (the JVM, say) slow down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from replog.errors import InvalidRecordError
from replog.records.header import scan
from replog.records.model import DECOMPRESSED_BYTES_MAX, Buffer, Codec, Columns

if TYPE_CHECKING:
    import pyarrow as pa

DECODE_BYTES = 4 << 20
"""Encoded records that are decoded at a time, as if uncompressed."""

BATCH_BYTES_MAX = 8 << 20
"""Bound of one Arrow batch, unless a single record is larger."""

COMPRESSION_RATIO_GUESS = 8
"""How much a compressed batch is taken to grow, as long as it has not been seen to grow more."""

COMPRESSION_RATIO_MAX = 4096
"""The most that it is taken to grow: each batch is decoded by itself then."""

DECOMPRESSED_TOGETHER_BYTES_MAX = 32 << 20
"""What several compressed batches may become in one decode.  Where they would become more, fewer are decoded at a time; a single
batch has the bound of all readers."""


class Decode(Protocol):
    """`decode_columns` with the columns chosen."""

    def __call__(
        self, buffer: Buffer, *, start_offset: int, end_offset: int, max_decompressed_bytes: int, is_checked: bool
    ) -> Columns: ...


class BoundedBatches:
    """Turns record batches, handed over in order, into Arrow batches.

    Args:
        decode: Decodes what is wanted.
        make: Makes one Arrow batch of decoded columns.
    """

    def __init__(self, decode: Decode, make: Callable[[Columns], pa.RecordBatch]) -> None:
        self._decode = decode
        self._make = make
        self._growth: float = COMPRESSION_RATIO_GUESS

    def convert(
        self, data: Buffer, *, start_offset: int, end_offset: int, is_checked: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records in [start_offset, end_offset), in order; batches of at most BATCH_BYTES_MAX.

        Args:
            data: Whole record batches; control batches are skipped.  Nothing refers to its bytes afterwards.
            start_offset: The first offset that is wanted, also inside a batch.
            end_offset: The end of what is wanted, exclusive, also inside a batch.
            is_checked: Whether checksums are looked at.

        Raises:
            CorruptRecordError, InvalidRecordError: The bytes are damaged, or cannot be made into such a batch.
            UnsupportedCompressionError: The codec's library is not installed.
        """

        def decode(part: Buffer, max_bytes: int) -> Columns:
            return self._decode(
                part,
                start_offset=start_offset,
                end_offset=end_offset,
                max_decompressed_bytes=max_bytes,
                is_checked=is_checked,
            )

        for part, compressed_count in split_batches(data, lambda: self._growth):
            for batch in self._batches(part, compressed_count, decode):
                yield from split_rows(batch)

    def _batches(
        self, data: Buffer, compressed_count: int, decode: Callable[[Buffer, int], Columns]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of `data`: of all at once, or of fewer record batches where those grow too large together.

        What compressed batches grow to is known only afterwards, so each of several has its share of a bound.
        """
        share = DECOMPRESSED_BYTES_MAX
        if compressed_count > 1:
            share = min(share, DECOMPRESSED_TOGETHER_BYTES_MAX // compressed_count)
        try:
            columns = decode(data, share)
        except InvalidRecordError:
            middle = middle_of(data)
            if not middle:
                raise
        else:
            if columns.count:
                batch = self._make(columns)
                if compressed_count:
                    self._grew(batch.nbytes / len(data))
                yield batch
            return
        self._grew(2 * self._growth)
        view = memoryview(data)
        for half in (view[:middle], view[middle:]):
            yield from self._batches(half, _compressed_count(half), decode)

    def _grew(self, ratio: float) -> None:
        """Takes what follows to grow as much: more at once, less little by little, for the next batch may be as before."""
        seen = max(ratio, self._growth * 7 / 8, COMPRESSION_RATIO_GUESS)
        self._growth = min(seen, COMPRESSION_RATIO_MAX)


def split_batches(
    data: Buffer, growth: Callable[[], float] = lambda: COMPRESSION_RATIO_GUESS
) -> Iterator[tuple[Buffer, int]]:
    """Cuts `data` between record batches so that each piece decodes to about DECODE_BYTES.

    Args:
        data: Whole record batches.
        growth: The function that says how much a compressed batch is taken to grow; asked batch by batch.

    Returns:
        The pieces, each with how many of its batches are compressed.
    """
    view = memoryview(data)
    start, weight, compressed_count = 0, 0.0, 0
    for header in scan(data):
        is_compressed = header.codec is not Codec.NONE
        grown = header.size_bytes * (growth() if is_compressed else 1)
        if weight and weight + grown > DECODE_BYTES:
            yield view[start : header.position], compressed_count
            start, weight, compressed_count = header.position, 0.0, 0
            grown = header.size_bytes * (growth() if is_compressed else 1)
        weight += grown
        compressed_count += is_compressed
    if start < len(view):
        yield view[start:], compressed_count


def _compressed_count(data: Buffer) -> int:
    return sum(header.codec is not Codec.NONE for header in scan(data))


def middle_of(data: Buffer) -> int:
    """Returns where the second half of the record batches in `data` begins; 0: there is only one."""
    starts = [header.position for header in scan(data)]
    return starts[len(starts) // 2]


def split_rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields slices of at most BATCH_BYTES_MAX each, or of one row.  Nothing is copied."""
    if batch.nbytes <= BATCH_BYTES_MAX or batch.num_rows == 1:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from split_rows(batch.slice(0, half))
        yield from split_rows(batch.slice(half))
