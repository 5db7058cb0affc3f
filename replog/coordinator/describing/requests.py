"""What people ask about groups, and the answers.

A group that is nothing but committed offsets is one of the classic protocol, empty and without a type of members.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field

from replog.coordinator.assignors import Assignment
from replog.waiting.asks import Asks


class GroupType(StrEnum):
    """Whose protocol the members of a group speak."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class ListGroups(Asks["ListGroupsResponse"], frozen=True):
    """Tell the groups of a shard.

    Attributes:
        states: The states of the groups that are asked for, in any case, with spaces around or not; empty for all.
        types: The types of the groups that are asked for, in any case; empty for all.
    """

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ListedGroup(Struct, frozen=True):
    """A group in a list.

    Attributes:
        protocol_type: The kind of members, such as "consumer"; "" where nobody has joined it yet.
        state: The state as Kafka names it, such as "Stable".
    """

    group_id: str
    protocol_type: str
    state: str
    group_type: GroupType


class ListGroupsResponse(Struct, frozen=True):
    """The groups, in any order."""

    groups: tuple[ListedGroup, ...]


class ReadOffsets(Struct, frozen=True):
    """Tell committed offsets of any groups of a shard, so many at most.  Asked by the broker itself."""

    count_max: int


class GroupOffset(NamedTuple):
    """What a group has committed of a partition."""

    group_id: str
    topic: str
    partition: int
    offset: int


class ReadOffsetsResponse(Struct, frozen=True):
    """Some offsets, and how many there are besides."""

    offsets: tuple[GroupOffset, ...]
    left_out_count: int


class DescribeGroup(Asks["DescribedGroup"], frozen=True):
    """Tell a group of the classic protocol (Kafka's DescribeGroups, for one group)."""

    group_id: str


class DescribedMember(Struct, frozen=True):
    """A member of a group of the classic protocol.

    Attributes:
        metadata: What it wants, in the protocol of the generation; empty unless the group is stable.
        assignment: What it has got.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(Struct, frozen=True):
    """A group of the classic protocol.

    Attributes:
        protocol: The protocol of the generation; "" unless the group is stable.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class DescribeConsumerGroup(Asks["DescribedConsumerGroup"], frozen=True):
    """Tell a group of KIP-848 (Kafka's ConsumerGroupDescribe, for one group)."""

    group_id: str


class DescribedConsumer(Struct, frozen=True):
    """A member of a group of KIP-848.

    Attributes:
        assignment: The partitions that it may read, by topic id.
        target: The partitions that it is to have.
        group_type: The protocol that it speaks.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str
    assignment: Assignment = field(default_factory=dict[UUID, frozenset[int]])
    target: Assignment = field(default_factory=dict[UUID, frozenset[int]])
    group_type: GroupType = GroupType.CONSUMER


class DescribedConsumerGroup(Struct, frozen=True):
    """A group of KIP-848.

    Attributes:
        epoch: The number of changes of members, subscriptions and topics.
        target_epoch: The epoch in which it was decided who is to have what.
        assignor: The name of the assignor that decides.
    """

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
