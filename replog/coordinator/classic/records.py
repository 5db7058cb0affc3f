"""The record of a group of the classic protocol: a generation that is stable, or one without members."""

from __future__ import annotations

from replog.coordinator.classic.group import ClassicGroup, ClassicMember, GroupState
from replog.coordinator.classic.requests import Protocol
from replog.coordinator.group_records import GROUP_METADATA_VERSION
from replog.coordinator.messages import GroupMetadataKey, GroupMetadataValue
from replog.coordinator.records import CoordinatorRecord


def group_value(group: ClassicGroup) -> GroupMetadataValue:
    """Returns what is to be kept of a group as it is."""
    protocol = group.protocol or ""
    members = [
        GroupMetadataValue.MemberMetadata(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.rebalance_timeout_ms,
            each.session_timeout_ms,
            each.metadata(protocol),
            each.assignment,
        )
        for each in group.members.values()
    ]
    return GroupMetadataValue(
        group.protocol_type, group.generation, group.protocol, group.leader_id, group.timestamp_ms, members
    )


def is_to_be_rebalanced(value: GroupMetadataValue) -> bool:
    """Whether the members of a group have to join again: it was one of KIP-848 until now, and nobody leads it."""
    return bool(value.members) and value.leader is None


def group_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    """Returns the record that keeps a group, in the version that Kafka writes."""
    return CoordinatorRecord(GroupMetadataKey(group_id), value, GROUP_METADATA_VERSION)


def group_removal(group_id: str) -> CoordinatorRecord:
    """Returns the record that forgets a group."""
    return CoordinatorRecord(GroupMetadataKey(group_id), None)


def group_from_value(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Returns a group as its record says it; of each member's protocols, that of the generation is all there is."""
    group = ClassicGroup(group_id)
    for each in value.members:
        group.add(
            ClassicMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout,
                each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
                (Protocol(value.protocol or "", each.subscription),),
                each.assignment,
            )
        )
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.timestamp_ms = value.current_state_timestamp
    group.generation = value.generation
    group.protocol_type = value.protocol_type
    group.protocol = value.protocol
    if value.leader in group.members:
        group.leader_id = value.leader
    group.record = value
    group.learn_topics()
    return group
