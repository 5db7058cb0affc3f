"""What a reader of committed records skips (KAFKA.md 1.8), and a check that the transaction indexes name all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from replog.errors import CorruptIndexError
from replog.log.segments.transaction_index import AbortedTransaction
from replog.records import BatchHeader, Buffer, ControlRecordType, control_record_type, decode_batch

_NEXT_STEP: Final = "see `replog log verify`, mend it with `replog log repair`"


class CommittedOnly:
    """Follows the transactions of a log, batch by batch in its order.

    Args:
        aborted: The aborted transactions that touch the batches to come; nothing else is skipped.

    Invariants:
        - when the marker of an aborted transaction comes by, none of its batches was let through;
        - when batches were skipped, the next marker of their producer is the one that the index has of them.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, deque[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda one: one.first_offset):
            self._aborted.setdefault(transaction.producer_id, deque()).append(transaction)
        self._let_through: set[int] = set()  # producers, since their last marker
        self._skipped: dict[int, AbortedTransaction] = {}  # by producer, likewise

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a data batch were aborted."""
        if not header.is_transactional:
            return False
        waiting = self._aborted.get(header.producer_id)
        while waiting and waiting[0].last_offset < header.base_offset:
            waiting.popleft()
        if waiting and waiting[0].first_offset <= header.base_offset:
            self._skipped[header.producer_id] = waiting[0]
            return True
        self._let_through.add(header.producer_id)
        return False

    def note_control(self, header: BatchHeader, batch: Buffer) -> None:
        """Takes note of a control batch that comes by.

        Raises:
            CorruptIndexError: It aborts a transaction whose batches were let through, or ends one whose batches were skipped otherwise
                than the index says: an index is missing or wrong.
            ReplogError: The bytes of the batch are damaged.
        """
        skipped = self._skipped.pop(header.producer_id, None)
        if skipped is not None and skipped.last_offset != header.base_offset:
            raise CorruptIndexError(
                f"a transaction index has a transaction of producer {header.producer_id} that was aborted at offset "
                f"{skipped.last_offset}, and it has ended at offset {header.base_offset}: {_NEXT_STEP}"
            )
        if header.producer_id not in self._let_through:
            return
        records = decode_batch(batch)
        kind = control_record_type(records[0]) if records else None
        if kind is ControlRecordType.ABORT:
            raise CorruptIndexError(
                f"no transaction index names the transaction that producer {header.producer_id} aborted at offset "
                f"{header.base_offset}: {_NEXT_STEP}"
            )
        self._let_through.discard(header.producer_id)


class Everything:
    """The other choice: every data batch counts, whatever became of its transaction."""

    def is_aborted(self, header: BatchHeader) -> bool:  # noqa: ARG002 -- as in `CommittedOnly`
        """Whether the batch is skipped: none is."""
        return False

    def note_control(self, header: BatchHeader, batch: Buffer) -> None:
        """Leaves the batch alone: no transaction is followed."""
