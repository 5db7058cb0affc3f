"""What a coordinator of groups is asked about transactions: to keep offsets in one, and to end one.

A transaction that has been ended must not be written to: nobody would end it again, and the partition would be unstable for
ever.  So who wants to keep offsets in one has a permit of the coordinator first (`GetCommitPermit`), has the coordinator of the
transaction say that it is open, and then commits with the permit: a marker that comes in between takes the permit back.
"""

from __future__ import annotations

from msgspec import Struct

from replog.coordinator.offsets.requests import CommitOffsetsResponse, TopicToCommit
from replog.coordinator.runtime.transactions import TransactionWriter
from replog.waiting.asks import Asks


class GetCommitPermit(Asks["CommitPermit"], frozen=True):
    """Say with which permit a producer may commit offsets of a group, once its transaction is known to be open."""

    group_id: str
    writer: TransactionWriter


class CommitPermit(Struct, frozen=True):
    """A permit.

    Attributes:
        number: The permit.
        is_open: Whether the producer has written to this coordinator in its transaction, which therefore is known to be open.
    """

    number: int
    is_open: bool


class CommitTransactionalOffsets(Asks[CommitOffsetsResponse], frozen=True):
    """Keep these offsets if the producer's transaction is committed.

    Attributes:
        writer: The producer.
        permit: The permit, of before its transaction was known to be open.
        member_id: The member of the group that has read up to there; "" where the client does not say.
        instance_id: The instance id of a static member.
        generation: Its generation, or member epoch; negative where the client does not say.
    """

    group_id: str
    topics: tuple[TopicToCommit, ...]
    writer: TransactionWriter
    permit: int
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class CompleteTransaction(Asks["CompleteTransactionResponse"], frozen=True):
    """Write the marker of a producer's transaction: the offsets that it has kept here count from then on, or are forgotten.

    Attributes:
        coordinator_epoch: The leader epoch of the coordinator's partition.
        bumps_epochs: Whether its epoch has to be higher than that of the transaction (`transaction.version` 2).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    bumps_epochs: bool = False


class CompleteTransactionResponse(Struct, frozen=True):
    """The marker has committed."""
