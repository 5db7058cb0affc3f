"""What a shard knows of transactions: which records are part of one, and how one ends.

The records of a transaction are a batch of their own, of the producer that wants them.  They count when its marker says that it
is committed, and are forgotten when the marker says that it is aborted; the marker is a control batch, and no record.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from replog.coordinator.records import EncodedRecord


class TransactionWriter(Struct, frozen=True):
    """A producer with an open transaction, and which of its incarnations."""

    producer_id: int
    producer_epoch: int


class EndMarker(Struct, frozen=True):
    """The end of a producer's transaction.

    Attributes:
        coordinator_epoch: The leader epoch of the coordinator's partition: no marker of an earlier one is taken behind it.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class TransactionalRecord(NamedTuple):
    """A record of a transaction in the log, whatever has become of that."""

    offset: int
    record: EncodedRecord
    writer: TransactionWriter


class LoggedMarker(NamedTuple):
    """A marker in the log."""

    offset: int
    marker: EndMarker


LogEntry: TypeAlias = tuple[int, EncodedRecord] | TransactionalRecord | LoggedMarker
"""What a shard reads from its log, each with its offset first; the plain ones are a million."""


@runtime_checkable
class TransactionalMachine(Protocol):
    """A state machine (`StateMachine`) whose records may be part of transactions."""

    def replay_pending(self, record: EncodedRecord, offset: int, writer: TransactionWriter) -> None:
        """Takes in a record of a producer's transaction, which stands, or is to stand, at an offset of the log."""
        ...

    def replay_marker(self, marker: EndMarker) -> None:
        """Takes in the end of a producer's transaction; there may be none that is open here."""
        ...
