"""The records that a group of KIP-848 is made of."""

from __future__ import annotations

from collections.abc import Iterable

from replog.coordinator.assignors import Assignment, number
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from replog.coordinator.records import CoordinatorRecord

_TargetPartitions = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Returns the record of a new epoch of a group."""
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def member_record(group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue) -> CoordinatorRecord:
    """Returns the record of what a member has told of itself."""
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), value)


def pattern_record(group_id: str, pattern: str, topics: Iterable[str], version: int, wall_ms: int) -> CoordinatorRecord:
    """Returns the record of what a pattern matches.

    Args:
        group_id: The group.
        pattern: The pattern.
        topics: The topics that match.
        version: The version of the topics that were looked at.
        wall_ms: The milliseconds since 1970 at which that was.
    """
    value = ConsumerGroupRegularExpressionValue(sorted(topics), version, wall_ms)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), value)


def pattern_removal(group_id: str, pattern: str) -> CoordinatorRecord:
    """Returns the record that forgets what a pattern matches."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), None)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Returns the record of what a member is to have."""
    topics = [_TargetPartitions(topic_id, sorted(target[topic_id])) for topic_id in sorted(target, key=number)]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return CoordinatorRecord(key, ConsumerGroupTargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """Returns the record of the epoch in which targets were decided; the last one of them."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id)
    return CoordinatorRecord(key, ConsumerGroupTargetAssignmentMetadataValue(epoch))


def member_removal(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """Returns the records that forget a member and all that it had."""
    return (
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    )


def group_removal(group_id: str) -> tuple[CoordinatorRecord, ...]:
    """Returns the records that forget a group without members."""
    keys = (ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupMetadataKey(group_id))
    return tuple(CoordinatorRecord(key, None) for key in keys)
