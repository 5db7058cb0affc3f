"""What an operator is told of consumer groups; and how it is made of what brokers say.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.types import OffsetAndTimestamp, TopicPartition
from replog.coordinator.assignors import Assignment
from replog.coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from replog.coordinator.describing.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    GroupType,
)
from replog.coordinator.offsets.requests import CommittedOffset


class MemberDescription(Struct, frozen=True):
    """A member of a group.

    Attributes:
        member_id: The id that the coordinator knows it by.
        instance_id: The name of a static member; None for others.
        client_id: The name that the client gives itself.
        host: Where it connects from.
        epoch: How far it has come on the way to its target; None in a group of the classic protocol, which has no such.
        assignment: The partitions that it may read, sorted.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: tuple[TopicPartition, ...]


class GroupDescription(Struct, frozen=True):
    """A group.

    Attributes:
        group_id: The name of the group.
        group_type: The protocol that its members speak.
        protocol_type: The kind of members, such as "consumer"; "" where nobody has joined it yet.
        state: The state as Kafka names it, such as "Stable".
        coordinator_id: The id of the broker that coordinates it.
        epoch: The number of changes of the group; None in one of the classic protocol, whose generation nobody tells.
        target_epoch: The epoch in which it was decided who is to have what; None as above.
        assignor: Who decides, or the protocol that the members chose; "" while there is none.
        members: The members, by id.
    """

    group_id: str
    group_type: GroupType
    protocol_type: str
    state: str
    coordinator_id: int
    epoch: int | None
    target_epoch: int | None
    assignor: str
    members: tuple[MemberDescription, ...]


class PartitionLag(Struct, frozen=True):
    """How far a group has come in a partition.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        committed: The offset of the record to be read next; None where the group has committed none of this topic.
        log_end: The high watermark; None where nobody leads the partition just now, or there is no such partition (any more).
        lag: The number of offsets between the two; None where one of them is not known.
        owner: The member that reads the partition; None while nobody does.
        lag_ms: The age of the first record that the group has not committed past, in milliseconds, by the timestamp of the
            record and the clock of this machine; 0 where there is none, None where it is not known.
        committed_ms: The time of the commit, in milliseconds since 1970 by the coordinator's clock; None where there is none.
    """

    topic: str
    partition: int
    committed: int | None
    log_end: int | None
    lag: int | None
    owner: MemberDescription | None
    lag_ms: int | None = None
    committed_ms: int | None = None


def classic_group(found: DescribedGroup, coordinator_id: int) -> GroupDescription:
    """Describes a group of the classic protocol."""
    is_consumer = found.protocol_type == CONSUMER_PROTOCOL_TYPE
    members = tuple(_classic_member(each, is_consumer=is_consumer) for each in found.members)
    return GroupDescription(
        found.group_id,
        GroupType.CLASSIC,
        found.protocol_type,
        found.state,
        coordinator_id,
        None,
        None,
        found.protocol,
        _by_id(members),
    )


def consumer_group(found: DescribedConsumerGroup, coordinator_id: int, names: Mapping[UUID, str]) -> GroupDescription:
    """Describes a group of KIP-848.

    Args:
        found: The group as its coordinator tells it.
        coordinator_id: The broker that did.
        names: The names of topics by their ids; a topic that is not among them has been deleted, and is left out.
    """
    return GroupDescription(
        found.group_id,
        GroupType.CONSUMER,
        CONSUMER_PROTOCOL_TYPE,
        found.state,
        coordinator_id,
        found.epoch,
        found.target_epoch,
        found.assignor,
        _by_id(_consumer_member(each, names) for each in found.members),
    )


def partition_lags(
    committed: Mapping[TopicPartition, CommittedOffset],
    log_ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, MemberDescription],
) -> tuple[PartitionLag, ...]:
    """Compares what a group has committed with what there is, by topic and partition.

    Args:
        committed: The committed offsets.
        log_ends: The high watermarks that are known.
        owners: The members that read partitions.
    """
    return tuple(
        _lag_of(each, committed.get(each), log_ends.get(each), owners.get(each))
        for each in sorted({*committed, *owners})
    )


def uncommitted(lags: Iterable[PartitionLag]) -> dict[TopicPartition, int]:
    """Returns the committed offsets of the partitions in which something lies behind them: there a lag has an age."""
    return {
        TopicPartition(each.topic, each.partition): each.committed
        for each in lags
        if each.lag and each.committed is not None
    }


def with_ages(
    lags: Iterable[PartitionLag], firsts: Mapping[TopicPartition, OffsetAndTimestamp], now_ms: int
) -> tuple[PartitionLag, ...]:
    """Returns lags with the ages of the records that they begin with.

    Args:
        lags: The lags.
        firsts: The first record at or after each committed offset of `uncommitted`, as far as its leader told it.
        now_ms: The time in milliseconds since 1970.
    """
    return tuple(
        replace(each, lag_ms=_age(each.lag, firsts.get(TopicPartition(each.topic, each.partition)), now_ms))
        for each in lags
    )


def _age(lag: int | None, first: OffsetAndTimestamp | None, now_ms: int) -> int | None:
    if lag == 0:
        return 0
    if lag is None or first is None:
        return None
    if first.offset < 0:  # compaction, or an end of a transaction, has left offsets without records
        return 0
    return None if first.timestamp < 0 else max(0, now_ms - first.timestamp)


def owners_of(members: Iterable[MemberDescription]) -> dict[TopicPartition, MemberDescription]:
    """Returns who reads each partition that somebody reads."""
    return {partition: member for member in members for partition in member.assignment}


def _lag_of(
    partition: TopicPartition, committed: CommittedOffset | None, log_end: int | None, owner: MemberDescription | None
) -> PartitionLag:
    offset = None if committed is None else committed.offset
    lag = None if offset is None or log_end is None else max(0, log_end - offset)
    committed_ms = None if committed is None else committed.commit_timestamp or None
    return PartitionLag(partition.topic, partition.partition, offset, log_end, lag, owner, committed_ms=committed_ms)


def _by_id(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda each: each.member_id))


def _classic_member(found: DescribedMember, *, is_consumer: bool) -> MemberDescription:
    partitions = assigned_partitions(found.assignment) if is_consumer else ()
    assignment = tuple(sorted(TopicPartition(*each) for each in partitions))
    return MemberDescription(found.member_id, found.instance_id, found.client_id, found.client_host, None, assignment)


def _consumer_member(found: DescribedConsumer, names: Mapping[UUID, str]) -> MemberDescription:
    return MemberDescription(
        found.member_id,
        found.instance_id,
        found.client_id,
        found.client_host,
        found.member_epoch,
        _named(found.assignment, names),
    )


def _named(assignment: Assignment, names: Mapping[UUID, str]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(names[topic_id], partition)
            for topic_id, partitions in assignment.items()
            if topic_id in names
            for partition in partitions
        )
    )
