"""One member of a group of KIP-848, as the log says it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct, field

from replog.coordinator.assignors import Assignment, assignment_in, number
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from replog.coordinator.records import CoordinatorRecord

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""The epoch of a static member that has left for a while: the partitions that it may read wait for it."""


class MemberState(IntEnum):
    """Where a member is on its way to its target; the numbers are in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """Returns the state of a record; one that a newer release may have written is unknown."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


def _nothing() -> Assignment:
    return {}


class MemberAssignment(Struct, frozen=True):
    """What a member may read, and what it has to give back.

    Attributes:
        epoch: The epoch that the member has to name in its next heartbeat.
        previous_epoch: The one before, which it names if the last answer was lost.
        state: Where it is on its way.
        assigned: The partitions that it may read.
        revoked: The partitions that it may read no more, and has not said that it does not.
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=_nothing)
    revoked: Assignment = field(default_factory=_nothing)

    @classmethod
    def from_value(cls, value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberAssignment:
        """Returns what a record says."""
        return cls(
            value.member_epoch,
            value.previous_member_epoch,
            MemberState.of(value.state),
            assignment_in(value.assigned_partitions),
            assignment_in(value.partitions_pending_revocation),
        )

    def record(self, group_id: str, member_id: str) -> CoordinatorRecord:
        """Returns the record that says it."""
        value = ConsumerGroupCurrentMemberAssignmentValue(
            self.epoch, self.previous_epoch, int(self.state), _to_topics(self.assigned), _to_topics(self.revoked)
        )
        return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), value)


_Topics = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


def _to_topics(assignment: Assignment) -> list[_Topics]:
    return [_Topics(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment, key=number)]
