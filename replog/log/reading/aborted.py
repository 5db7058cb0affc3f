"""Which transactions of a log were aborted: readers of committed records skip their batches."""

from __future__ import annotations

from replog.errors import CorruptIndexError, StorageError
from replog.log.disk_space import disk_full_errors
from replog.log.producers.files import aborted_in_segment
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from replog.log.state import LogState


def aborted_transactions(state: LogState, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions with records in [start, end), by offset of their marker (docs/KAFKA.md 1.8).

    Raises:
        CorruptRecordError: A transaction index is wrong, and the log it is made from too.
        TooManyOpenFilesError: A transaction index cannot be opened now.
        StorageError: A transaction index cannot be read.
    """
    found: list[AbortedTransaction] = []
    for number in range(state.segments.number_for(start_offset), len(state.segments)):
        try:
            with disk_full_errors("a transaction index cannot be read", state.directory):
                index = aborted_in(state, number)
        except OSError as error:
            raise StorageError(f"{state.topic_partition}: a transaction index cannot be read: {error}") from error
        if index is not None and index.collect(start_offset, end_offset, found):
            break
    return found


def may_have_aborted_from(state: LogState, start_offset: int) -> bool:
    """Whether a transaction may have been aborted whose marker lies at or above an offset; looks at no file."""
    segments = state.segments
    return any(segments[number].may_have_aborted for number in range(segments.number_for(start_offset), len(segments)))


def aborted_in(state: LogState, number: int) -> TransactionIndex | None:
    """Returns the aborted transactions that ended in a segment, from its index or from the log; None: there are none.

    Raises:
        CorruptRecordError: The index is wrong, and the log it is made from too.
        OSError: The disk failed.
    """
    try:
        return state.segments[number].transactions
    except CorruptIndexError:
        return aborted_in_segment(state.fs, state.directory, list(state.segments), number, state.wall_ms)
