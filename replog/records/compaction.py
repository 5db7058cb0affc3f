"""What compaction does with record bytes: which key was written last, and batches without what is superseded.

Pure: bytes in, bytes out.  `replog.log.compaction` reads and writes the files around it.  The loops over records are
compiled (`_compaction`), with a pure-Python twin (`_compaction_py`) that says the same in readable words.

The rules (docs/KAFKA.md 1.1; KIP-534 for the delete horizon), for a record below the end of the pass::

    a newer record of its key exists        dropped
    it has no key                           dropped: nothing could ever supersede it
    tombstone, newest of its key            kept until the delete horizon of its batch has passed
    it belongs to an aborted transaction    dropped
    anything else                           kept, with its offset, timestamp and headers

A batch that keeps everything keeps every byte.  One that keeps something is written anew with the same offsets, producer
fields and codec.  One that keeps nothing disappears, unless its header is still needed: it was the last batch of a
producer (sequence and epoch must survive), or the caller asks for it.
"""

from __future__ import annotations

from replog.records._select import compactor as _compaction
from replog.records.compaction_rules import SLOT_BYTES, FillProgress, RewriteRules, Rewritten, TransactionFilter
from replog.records.model import Buffer

__all__ = [
    "IMPLEMENTATION",
    "SLOT_BYTES",
    "FillProgress",
    "OffsetMap",
    "RewriteRules",
    "Rewritten",
    "TransactionFilter",
    "fill_offset_map",
    "rewrite_batches",
]

IMPLEMENTATION: str = _compaction.IMPLEMENTATION
"""Which of the two is loaded: "cython" or "python"."""

OffsetMap = _compaction.OffsetMap


def fill_offset_map(
    offset_map: OffsetMap,
    buffer: Buffer,
    *,
    start_offset: int,
    transactions: TransactionFilter,
    max_decompressed_bytes: int,
) -> FillProgress:
    """Notes the latest offset of every key in the whole batches of `buffer`, until the map is full.

    Args:
        offset_map: The map that is filled.
        buffer: The batches; a torn last one is left alone.
        start_offset: The offset below which no record is looked at.
        transactions: The filter that leaves aborted data out, which must not supersede anything.
        max_decompressed_bytes: The most that a batch may decompress to; one with more is refused.

    Raises:
        CorruptRecordError: A batch is damaged; its position is that in `buffer`, its path is empty.
        UnsupportedCompressionError: A library is not installed.
    """
    return _compaction.fill_offset_map(offset_map, buffer, start_offset, transactions, max_decompressed_bytes)


def rewrite_batches(
    buffer: Buffer,
    offset_map: OffsetMap,
    rules: RewriteRules,
    *,
    transactions: TransactionFilter,
    keeps_last: bool,
    max_decompressed_bytes: int,
) -> Rewritten:
    """Returns the whole batches of `buffer` without the records that the rules drop.

    Args:
        buffer: The batches; a torn last one is left alone.
        offset_map: The map of the pass.
        rules: The rules of the pass.
        transactions: The filter of the pass, a new one for each; see `TransactionFilter`.
        keeps_last: Whether at least the header of the batch that ends the buffer is kept.
        max_decompressed_bytes: The most that a batch may decompress to; one with more is refused.

    Raises:
        CorruptRecordError: A batch is damaged; its position is that in `buffer`, its path is empty.
        UnsupportedCompressionError: A library is not installed.
    """
    return _compaction.rewrite_batches(buffer, offset_map, rules, transactions, keeps_last, max_decompressed_bytes)
