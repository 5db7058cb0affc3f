"""Transactions as compaction meets them: which were aborted, and which markers still decide something.

A log has data batches of a transaction, then its marker; the `.txnindex` says which were aborted (docs/KAFKA.md 1.8)::

    data of an aborted transaction       dropped
    its marker                           kept while data of it was met in this pass; readers need it to skip that data
    data of a committed one              like other data
    its marker                           kept while data of it was met in this pass
    a marker that decides nothing        kept until its delete horizon: a slow reader may be between data and marker

One instance walks over one log once, from its first segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import ControlRecordType, control_record_type, decode_batch, parse_header


class _OpenAbort(Struct):
    aborted: AbortedTransaction
    has_data: bool = False


class CleanedTransactions:
    """Follows the transactions of one log, batch by batch.

    Args:
        aborted: The aborted transactions that touch the part that will be walked over, in any order.
    """

    __slots__ = ("_aborts", "_committing", "_kept", "_waiting")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)  # the next one last
        self._aborts: dict[int, _OpenAbort] = {}
        self._committing: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def drops_data(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional data batch was aborted."""
        self._open_up_to(last_offset)
        found = self._aborts.get(producer_id)
        if found is not None and last_offset < found.aborted.last_offset:
            found.has_data = True
            return True
        self._committing.add(producer_id)
        return False

    def drops_marker(self, batch: bytes) -> bool:
        """Whether a control batch decides nothing any more.  Control records of other kinds always stay."""
        header = parse_header(batch)
        self._open_up_to(header.last_offset)
        records = decode_batch(batch)
        if not records:
            return True  # emptied by an earlier pass
        match control_record_type(records[0]):
            case ControlRecordType.ABORT:
                found = self._aborts.pop(header.producer_id, None)
                if found is None or not found.has_data:
                    return True
                self._kept.append(found.aborted)
                return False
            case ControlRecordType.COMMIT:
                is_needed = header.producer_id in self._committing
                self._committing.discard(header.producer_id)
                return not is_needed
            case _:
                return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Returns the aborted transactions whose marker was met since the last call and stays, for the new index."""
        kept, self._kept = self._kept, []
        return kept

    def _open_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            aborted = self._waiting.pop()
            self._aborts[aborted.producer_id] = _OpenAbort(aborted)
