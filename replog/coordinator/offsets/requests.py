"""What a coordinator is asked about committed offsets, and its answers.

Whether a topic exists is known to the caller; here every name is taken as it is.  An error beside a partition is of that
partition alone; what concerns the whole request is raised.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from replog.errors import ReplogError
from replog.waiting.asks import Asks

NO_TOPIC_ID: Final = UUID(int=0)
NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1


class OffsetToCommit(Struct, frozen=True):
    """An offset of one partition.

    Attributes:
        offset: The offset of the record to be read next.
        leader_epoch: The leader epoch of the last record that was read; -1 where it is not known.
        metadata: Any text that the client keeps beside it.
    """

    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class TopicToCommit(Struct, frozen=True):
    """Offsets of one topic; the id is zero where the client does not know it."""

    topic: str
    topic_id: UUID
    partitions: tuple[OffsetToCommit, ...]


class CommitOffsets(Asks["CommitOffsetsResponse"], frozen=True):
    """Keep these offsets.

    Attributes:
        member_id: The member that commits; "" for one that uses the group only to keep offsets.
        instance_id: The instance id of a static member.
        member_epoch: The member's epoch, or its generation; negative for one that uses the group only to keep offsets.
        retention_ms: How long to keep them, which only old clients say; -1 for as long as the coordinator does.
    """

    group_id: str
    topics: tuple[TopicToCommit, ...]
    member_id: str = ""
    instance_id: str | None = None
    member_epoch: int = -1
    retention_ms: int = -1


class PartitionOutcome(Struct, frozen=True):
    """What has become of one partition of a request."""

    partition: int
    error: ReplogError | None = None


class TopicOutcome(Struct, frozen=True):
    """What has become of the partitions of one topic, in the order of the request."""

    topic: str
    topic_id: UUID
    partitions: tuple[PartitionOutcome, ...]


class CommitOffsetsResponse(Struct, frozen=True):
    """What has been kept."""

    topics: tuple[TopicOutcome, ...]


class TopicToFetch(Struct, frozen=True):
    """Partitions of one topic; the id is zero where the client does not know it."""

    topic: str
    topic_id: UUID
    partitions: tuple[int, ...]


class FetchOffsets(Asks["FetchOffsetsResponse"], frozen=True):
    """Tell the offsets of a group.

    Attributes:
        topics: The partitions that are asked for; None for all that the group has offsets of.
        member_id: The member that asks; None where it does not say.
        member_epoch: Its epoch; negative where it does not say.
        wants_stable: Whether the offset of a partition is not told while a transaction that is open has one of it (KIP-447).
    """

    group_id: str
    topics: tuple[TopicToFetch, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1
    wants_stable: bool = False


class CommittedOffset(Struct, frozen=True):
    """The offset of one partition; -1 where there is none.

    Attributes:
        commit_timestamp: The time at which it was committed, in ms since 1970; 0 where that is not known.
        is_unstable: Whether it is not told, since a transaction that is open has one of it.
    """

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = 0
    is_unstable: bool = False


class TopicOffsets(Struct, frozen=True):
    """The offsets of one topic."""

    topic: str
    topic_id: UUID
    partitions: tuple[CommittedOffset, ...]


class FetchOffsetsResponse(Struct, frozen=True):
    """The offsets, of everything that was asked for."""

    topics: tuple[TopicOffsets, ...]


class TopicToForget(Struct, frozen=True):
    """Partitions of one topic whose offsets are not needed any more."""

    topic: str
    partitions: tuple[int, ...]


class DeleteOffsets(Asks["DeleteOffsetsResponse"], frozen=True):
    """Forget the offsets of these partitions, of topics that the group does not read."""

    group_id: str
    topics: tuple[TopicToForget, ...]


class DeleteOffsetsResponse(Struct, frozen=True):
    """What has been forgotten."""

    topics: tuple[TopicOutcome, ...]


class ForgetTopics(Struct, frozen=True):
    """These topics have been deleted: forget the offsets of all groups in them, little by little."""

    topics: frozenset[str]


class ForgetTopicsResponse(Struct, frozen=True):
    """It has begun."""
