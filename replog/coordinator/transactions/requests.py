"""What a coordinator of transactions is asked, and its answers.

Each request is of one transactional id, but for those of whoever writes markers, and for lists.  Whether a topic exists that a
request names is known to the caller.  `spare_producer_id` is an id that no producer has: it is used where a new one is needed, and
lost where not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from replog.coordinator.transactions.records import TransactionStatus
from replog.errors import ReplogError
from replog.waiting.asks import Asks

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1


class TransactionPartition(NamedTuple):
    """A partition by the name of its topic, as records of transactions have it."""

    topic: str
    partition: int


class Incarnation(Struct, frozen=True):
    """A producer, and which of its incarnations."""

    producer_id: int
    producer_epoch: int


class InitProducer(Asks["InitProducerResponse"], frozen=True):
    """Take over a transactional id: whoever had it is fenced, and what it left open is aborted.

    Attributes:
        timeout_ms: How long a transaction may be open.
        known: What the producer has been told before (KIP-360); None: nothing.
        spare_producer_id: An id that no producer has; used where a new one is needed.
    """

    transactional_id: str
    timeout_ms: int
    known: Incarnation | None
    spare_producer_id: int


class InitProducerResponse(Struct, frozen=True):
    """What the producer is to write with."""

    producer: Incarnation


class AddPartitions(Asks["AddPartitionsResponse"], frozen=True):
    """Make partitions part of the open transaction, and begin one where none is open.

    Attributes:
        only_verifies: Whether nothing changes: the answer says which partitions are part of it (KIP-890 part 1).
        bumps_epochs: Whether the producer gets another epoch at the end of each transaction (`transaction.version` 2).
        wait_ms: How long the answer may wait for the end of the last transaction, instead of saying at once that it is being
            ended; 0: not at all.
    """

    transactional_id: str
    producer: Incarnation
    partitions: tuple[TransactionPartition, ...]
    only_verifies: bool = False
    bumps_epochs: bool = False
    wait_ms: int = 0


class AddPartitionsResponse(Struct, frozen=True):
    """What has become of each partition, in the order of the request; None: it is part of the transaction."""

    errors: tuple[ReplogError | None, ...]


class EndTransaction(Asks["EndTransactionResponse"], frozen=True):
    """Decide the open transaction.

    Attributes:
        bumps_epochs: Whether the producer gets another epoch at the end (`transaction.version` 2).
    """

    transactional_id: str
    producer: Incarnation
    is_commit: bool
    bumps_epochs: bool
    spare_producer_id: int


class EndTransactionResponse(Struct, frozen=True):
    """It is decided.  What the producer is to write with from now on."""

    producer: Incarnation


class PrepareTransaction(Asks["PrepareTransactionResponse"], frozen=True):
    """Let the open transaction be ended by its producer, by its successor or by an operator alone: no time-out ends it any more.

    Everything that belongs to it has been written: whoever decides about it, together with other transactions, may take long.
    """

    transactional_id: str
    producer: Incarnation


class PrepareTransactionResponse(Struct, frozen=True):
    """It is prepared."""


class ForgetTransactionalId(Asks["ForgetTransactionalIdResponse"], frozen=True):
    """Forget a transactional id that has no transaction, and that nobody will use again, before it expires."""

    transactional_id: str


class ForgetTransactionalIdResponse(Struct, frozen=True):
    """There is none, now or since before."""


class DescribeTransaction(Asks["TransactionDescription"], frozen=True):
    """Say where a transactional id is."""

    transactional_id: str


class TransactionDescription(Struct, frozen=True):
    """Where a transactional id is.

    Attributes:
        start_ms: The wall time at which the transaction began, or the last one if none is open; -1: there was none.
        partitions: The partitions of the transaction that is open, or those that have no marker of its end yet.
    """

    transactional_id: str
    status: TransactionStatus
    producer: Incarnation
    timeout_ms: int
    start_ms: int
    partitions: tuple[TransactionPartition, ...]


class ListTransactions(Asks["ListTransactionsResponse"], frozen=True):
    """List the transactional ids of a shard.

    Attributes:
        statuses: Only those that are here; empty: all.
        producer_ids: Only those of these producers; empty: all.
        begun_longer_ago_than_ms: Only those whose last transaction, open or not, has begun longer ago than this, and those that
            have not had any; negative: all.
        pattern: Only those whose transactional id matches this regular expression as a whole; "": all.
    """

    statuses: frozenset[TransactionStatus] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    begun_longer_ago_than_ms: int = -1
    pattern: str = ""


class ListedTransaction(Struct, frozen=True):
    """One transactional id of a list."""

    transactional_id: str
    producer_id: int
    status: TransactionStatus


class ListTransactionsResponse(Struct, frozen=True):
    """The transactional ids that were asked for."""

    transactions: tuple[ListedTransaction, ...]


# ---- markers ---------------------------------------------------------------------------------------------------------


class TransactionEnd(Struct, frozen=True):
    """A transaction that is decided, and the partitions that have no marker of it yet.

    Attributes:
        producer: The producer as its markers name it.
        coordinator_epoch: The leader epoch of the coordinator's partition: a leader takes no marker of an earlier one.
        bumps_epochs: Whether markers have a higher epoch than the records before them (`transaction.version` 2).
        number: The number that tells it apart from every other end that this coordinator hands over: two transactions of a
            producer may have the same epoch, and what is late of one must not count for the other.
    """

    transactional_id: str
    producer: Incarnation
    coordinator_epoch: int
    is_commit: bool
    bumps_epochs: bool
    partitions: tuple[TransactionPartition, ...]
    number: int = 0


class WaitForEnds(Asks["WaitForEndsResponse"], frozen=True):
    """Answer when transactions are decided whose markers nobody has taken over yet; nobody else gets these then."""


class WaitForEndsResponse(Struct, frozen=True):
    """Transactions whose markers are to be written; a bounded number of them."""

    ends: tuple[TransactionEnd, ...]


class MarkedEnd(Struct, frozen=True):
    """Partitions have the marker of a transaction, or are gone.

    Attributes:
        end: The transaction as `WaitForEndsResponse` had it.
        partitions: Those of its partitions that are done.
    """

    end: TransactionEnd
    partitions: tuple[TransactionPartition, ...]


class MarkersWritten(Asks["MarkersWrittenResponse"], frozen=True):
    """Partitions of some transactions are done; a transaction may be named more than once."""

    ends: tuple[MarkedEnd, ...]


class MarkersWrittenResponse(Struct, frozen=True):
    """It is noted."""
