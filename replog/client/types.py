"""What users of the clients hold in their hands; plain tuples, cheap to make by the million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from replog.records import Buffer, Header, TimestampType

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # that of Python has no default before 3.13

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")


class TopicPartition(NamedTuple):
    """One partition, by topic name.  A plain `("flights", 3)` is accepted wherever one is expected."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndTimestamp(NamedTuple):
    """Answer of `list_offsets`: `offset` -1 when no record is that late; `timestamp` -1 when none was asked for."""

    offset: int
    timestamp: int


class EpochEndOffset(NamedTuple):
    """Answer of `epoch_ends`: the largest leader epoch not above the one asked for, and where it ends (exclusive)."""

    epoch: int
    end_offset: int


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands.

    Attributes:
        offset: -1 with acks=0, where the broker never says.
        timestamp: Milliseconds since 1970; the broker's append time where the topic is configured so, else the producer's.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class DeliveredRange(NamedTuple):
    """Records of one `send_many` that stand side by side: offsets [base_offset, base_offset + records_count)."""

    topic: str
    partition: int
    base_offset: int
    records_count: int


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record as a consumer hands it out.  Field meanings as in `replog.records.Record`; key and value as its codecs have them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: K | None
    value: V | None
    headers: tuple[Header, ...]


class GroupMetadata(NamedTuple):
    """Who commits offsets of a group: a member of it, or, with nothing but the group's id, nobody in particular.

    Attributes:
        generation: The member epoch, or the generation in a group of the classic protocol; -1: of no member.
    """

    group_id: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class MemberOffset(NamedTuple):
    """The offset of the record to be read next, and the leader epoch of the one before it; -1: not known."""

    offset: int
    leader_epoch: int = -1


class MemberOffsets(NamedTuple):
    """What a member may commit now, and for whom."""

    group: GroupMetadata
    offsets: dict[TopicPartition, MemberOffset]


class FetchedBatches(NamedTuple):
    """Whole record batches as they came from the broker, for readers that decode by themselves.

    Attributes:
        start_offset: The first offset wanted; `data` may begin with earlier records of the same batch, so give this
            to `decode_records` or `decode_columns`.
        next_offset: Where the following piece starts (exclusive end of this one).
        high_watermark: The end of what could be read of the partition when this was fetched: the high watermark, or where a
            transaction that is open begins.
        data: The bytes, which the receiver owns; nothing writes to it.
    """

    topic: str
    partition: int
    start_offset: int
    next_offset: int
    high_watermark: int
    data: Buffer
