"""The records of Kafka's topic of transactions, `__transaction_state`: one for each transactional id."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from replog.coordinator.records import RecordCodec
from replog.coordinator.transactions.messages import RECORD_TYPES

TRANSACTION_RECORDS: Final = RecordCodec(RECORD_TYPES)


class TransactionStatus(IntEnum):
    """Where a transaction is; the numbers are Kafka's (`TransactionState`, KIP-98)."""

    EMPTY = 0
    """None has begun."""
    ONGOING = 1
    """It has partitions, and nobody has ended it."""
    PREPARE_COMMIT = 2
    """It is decided; some partitions have no marker yet."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All of its partitions have their marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The transactional id has expired."""
    PREPARE_EPOCH_FENCE = 7
    """A newer producer has come; the transaction of the one before is aborted."""
