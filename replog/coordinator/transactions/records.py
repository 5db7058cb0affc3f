"""The records of Kafka's topic of transactions, `__transaction_state`: one for each transactional id.

Their version is 0 under `transaction.version` 0, and 1 above; version 0 has no tagged fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import pack
from typing import Annotated, Final

from msgspec.structs import replace

from replog.coordinator.records import CoordinatorRecord, EncodedRecord, RecordCodec
from replog.coordinator.transactions.messages import TransactionLogKey, TransactionLogValue
from replog.wire.primitives import SHORT_TEXT_BYTES, Writer
from replog.wire.record_parts import FieldPlace, Int16, RecordPart

LAST_EPOCH_TAG: Final = 10_000
"""The number of our own tagged field: far from Kafka's, whose readers pass over it."""


class WrittenTransaction(TransactionLogValue):
    """What the log says of a transactional id: Kafka's fields, and one that Kafka keeps in memory alone.

    Attributes:
        last_producer_epoch: The epoch that the producer had before this one: if it asks again with that, it has not heard the
            answer (KIP-360); -1: whoever had the epoch before is fenced.
    """

    last_producer_epoch: Annotated[Int16, FieldPlace(first=1, tag=LAST_EPOCH_TAG)] = -1


PLAIN_VERSION: Final = 0
TAGGED_VERSION: Final = 1

PARTITIONS_AT: Final = 17
"""Where the partitions of a transaction begin in the bytes of a record."""
TOPICS_TOGETHER: Final = 20
"""So many topics and more are written as bytes at once; of fewer nobody feels it."""

_TYPES: Final = ((TransactionLogKey, WrittenTransaction),)
_BY_FIELDS: Final = RecordCodec(_TYPES)


def _with_many_topics(key: RecordPart, value: RecordPart, version: int) -> EncodedRecord | None:
    """Returns the bytes of a transaction with partitions of many topics; None for any other record.

    Such a record is written whole for each batch of partitions that comes.
    """
    is_tagged = isinstance(value, WrittenTransaction) and version == TAGGED_VERSION
    topics = value.transaction_partitions if is_tagged and isinstance(value, WrittenTransaction) else None
    if topics is None or len(topics) < TOPICS_TOGETHER:
        return None
    without = replace(value, transaction_partitions=None)
    encoded_key, encoded = _BY_FIELDS.encode(CoordinatorRecord(key, without, version))
    if encoded is None:
        return None
    return encoded_key, encoded[:PARTITIONS_AT] + _topics_bytes(topics) + encoded[PARTITIONS_AT + 1 :]


def _topics_bytes(topics: Sequence[TransactionLogValue.PartitionsSchema]) -> bytes:
    count = Writer()
    count.uvarint(len(topics) + 1)
    return b"".join((count.joined(), *map(_topic_bytes, topics)))


def _topic_bytes(topic: TransactionLogValue.PartitionsSchema) -> bytes:
    name, ids = topic.topic.encode(), topic.partition_ids
    if len(name) < SHORT_TEXT_BYTES and len(ids) < SHORT_TEXT_BYTES:
        return pack(f">B{len(name)}sB{len(ids)}ix", len(name) + 1, name, len(ids) + 1, *ids)
    writer = Writer()
    writer.text(topic.topic, flexible=True)
    writer.count(ids, flexible=True)
    writer.numbers(ids, "i")
    writer.uvarint(0)  # tagged fields
    return writer.joined()


TRANSACTION_RECORDS: Final = RecordCodec(_TYPES, {TransactionLogKey.RECORD_TYPE: _with_many_topics})

EPOCH_BUMPS_VERSION: Final = 2
"""The `transaction.version` from which on the producer gets another epoch at the end of each transaction."""


def transaction_record(transactional_id: str, value: WrittenTransaction, transaction_version: int) -> CoordinatorRecord:
    """Returns the record of a transactional id; of a producer with bumped epochs, one that can hold all of it."""
    newest = max(transaction_version, value.client_transaction_version)
    version = PLAIN_VERSION if newest < TAGGED_VERSION else TAGGED_VERSION
    return CoordinatorRecord(TransactionLogKey(transactional_id), value, version)


def removal_record(transactional_id: str) -> CoordinatorRecord:
    """Returns the record that forgets a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id), None)


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

    @property
    def is_decided(self) -> bool:
        """Whether a transaction is being ended: its end is known, and some partitions may have no marker."""
        return self is TransactionStatus.PREPARE_COMMIT or self is TransactionStatus.PREPARE_ABORT

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction that is open or being ended."""
        return self in {TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT}
