"""What operators ask about transactions, and what they are told (KIP-664); without Kafka's messages, which load with the first question.

States are told as Kafka names them: a broker that is newer than this client may know more of them.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from replog.client.types import TopicPartition
from replog.errors import ErrorCode
from replog.waiting.asks import Asks


class OffersPreparing(Asks[bool], frozen=True):
    """Asks whether a broker can prepare transactions, which Apache Kafka's cannot."""


class ListTransactionalIds(Asks["tuple[TransactionListing, ...]"], frozen=True):
    """Asks a broker for the transactional ids that it coordinates.

    Attributes:
        states: Only those in these states, as Kafka names them; none: all.
        producer_ids: Only those of these producers; none: all.
        open_longer_than_ms: Only those whose transaction has been open for longer; negative: all.
        pattern: Only those whose transactional id matches this regular expression as a whole; "": all.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    open_longer_than_ms: int = -1
    pattern: str = ""


class TransactionListing(Struct, frozen=True):
    """A transactional id in a list.

    Attributes:
        state: The state of its transaction as Kafka names it, such as "Ongoing".
        coordinator_id: The id of the broker that coordinates it; -1: it has not said so.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int = -1


class DescribeTransactionalId(Asks["TransactionDetails"], frozen=True):
    """Asks the coordinator of a transactional id where it is."""

    transactional_id: str


class TransactionDetails(Struct, frozen=True):
    """Where a transactional id is.

    Attributes:
        state: The state of its transaction as Kafka names it.
        timeout_ms: How long a transaction may be open before its coordinator aborts it.
        start_ms: The time at which the transaction began, in milliseconds since 1970 by the coordinator's clock; -1: none is told.
        partitions: The partitions of the transaction that is open, or those that have no marker of its end yet, sorted.
        coordinator_id: The id of the broker that coordinates it; -1: it has not said so.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator_id: int = -1


class AskedProducers(Struct, frozen=True):
    """A partition whose producers are asked for."""

    topic: str
    topic_id: UUID
    partition_id: int


class DescribeProducers(Asks["DescribedProducers"], frozen=True):
    """Asks the leader of partitions for the idempotent producers that have written to them of late."""

    partitions: tuple[AskedProducers, ...]


class ActiveProducer(Struct, frozen=True):
    """A producer that has written to a partition.

    Attributes:
        last_ms: The time of its last batch, in milliseconds since 1970.
        coordinator_epoch: The epoch of the coordinator that ended its last transaction; -1: none has yet.
        first_offset: The offset at which its open transaction begins; -1: none is open.
    """

    producer_id: int
    producer_epoch: int
    last_ms: int
    coordinator_epoch: int
    first_offset: int


class ProducersOfPartition(Struct, frozen=True):
    """The producers of one partition, or why it is not told."""

    topic_id: UUID
    partition_id: int
    error: ErrorCode
    message: str
    producers: tuple[ActiveProducer, ...] = ()


class DescribedProducers(Struct, frozen=True):
    """The producers of partitions."""

    results: tuple[ProducersOfPartition, ...]
