"""Tells people of groups; nothing of it changes one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import Final

from replog.coordinator.all_groups import AllGroups
from replog.coordinator.assignors import Assignor
from replog.coordinator.classic.group import ClassicGroup, GroupState
from replog.coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE
from replog.coordinator.consumers.group import ConsumerGroup, classic_of
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.coordinator.consumers.targets import chosen_assignor
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    GroupOffset,
    GroupType,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    ReadOffsets,
    ReadOffsetsResponse,
)
from replog.coordinator.offsets.state import OffsetState
from replog.coordinator.runtime.background import Work
from replog.coordinator.runtime.machine import Outcome
from replog.coordinator.runtime.messages import Reply
from replog.errors import GroupIdNotFoundError

VISITS_PER_STEP: Final = 500
"""Groups, and members or offsets of groups, that are looked at in one step of a list."""


class Describer:
    """Answers what people ask."""

    def __init__(self, groups: AllGroups, offsets: OffsetState, assignors: Mapping[str, Assignor]) -> None:
        self._groups = groups
        self._offsets = offsets
        self._assignors = assignors

    def list(self, request_id: int, request: ListGroups) -> Work:
        """Lists the groups of the shard in steps: each group as it is when the list comes to it."""
        states = {each.strip().lower() for each in request.states}
        types = {each.lower() for each in request.types}
        found: dict[str, ListedGroup] = {}
        visits = 0
        for group_id in chain(list(self._groups.group_ids()), list(self._offsets.group_ids())):
            if group_id in found:
                continue
            group = self._groups.find(group_id)
            visits += 1 + (len(group.members) if isinstance(group, ConsumerGroup) else 0)
            each = self._listed(group_id, group)
            if each and (not states or each.state.lower() in states) and (not types or each.group_type.value in types):
                found[group_id] = each
            if visits >= VISITS_PER_STEP:
                visits = 0
                yield Outcome()
        yield Outcome(answers=(Reply(request_id, ListGroupsResponse(tuple(found.values()))),))

    def _listed(self, group_id: str, group: ClassicGroup | ConsumerGroup | None) -> ListedGroup | None:
        """Returns a group as it is listed; None where it has gone since the list was begun."""
        if isinstance(group, ConsumerGroup):
            return ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, state_of(group), GroupType.CONSUMER)
        if group is None and not self._offsets.has_group(group_id):
            return None
        if group is None:  # it is nothing but its offsets
            return ListedGroup(group_id, "", GroupState.EMPTY.value, GroupType.CLASSIC)
        return ListedGroup(group_id, group.protocol_type, group.state.value, GroupType.CLASSIC)

    def read_offsets(self, request_id: int, request: ReadOffsets) -> Work:
        """Returns as many committed offsets as are asked for, group by group, and counts the others, in steps."""
        found: list[GroupOffset] = []
        left_out_count = visits = 0
        for group_id in list(self._offsets.group_ids()):
            committed = self._offsets.of_group(group_id)
            told = list(islice(committed.items(), request.count_max - len(found)))
            left_out_count += len(committed) - len(told)
            for start in range(0, max(len(told), 1), VISITS_PER_STEP):
                some = told[start : start + VISITS_PER_STEP]
                found += (GroupOffset(group_id, *partition, value.offset) for partition, value in some)
                visits += 1 + len(some)
                if visits >= VISITS_PER_STEP:
                    visits = 0
                    yield Outcome()
        yield Outcome(answers=(Reply(request_id, ReadOffsetsResponse(tuple(found), left_out_count)),))

    def describe(self, request: DescribeGroup) -> DescribedGroup:
        """Returns a group of the classic protocol.

        Raises:
            GroupIdNotFoundError: There is none of this id.
        """
        group = self._groups.find(request.group_id)
        if isinstance(group, ConsumerGroup) or (group is None and not self._offsets.has_group(request.group_id)):
            raise GroupIdNotFoundError(f"there is no group {request.group_id!r} of the classic protocol")
        if group is None:
            return DescribedGroup(request.group_id, GroupState.EMPTY.value, "", "", ())
        protocol = group.protocol or "" if group.state is GroupState.STABLE else ""
        members = tuple(_member(group, each, protocol) for each in group.members)
        return DescribedGroup(request.group_id, group.state.value, group.protocol_type, protocol, members)

    def describe_consumers(self, request: DescribeConsumerGroup) -> DescribedConsumerGroup:
        """Returns a group of KIP-848.

        Raises:
            GroupIdNotFoundError: There is none of this id.
        """
        group = self._groups.find(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(f"there is no group {request.group_id!r} of the consumer protocol")
        return DescribedConsumerGroup(
            request.group_id,
            state_of(group),
            group.epoch.get(),
            group.target_epoch.get(),
            chosen_assignor(group.members.values(), self._assignors),
            tuple(_consumer(group, each) for each in group.members),
        )


def state_of(group: ConsumerGroup) -> str:
    """Returns the state of a group of KIP-848, as Kafka names it."""
    if not group.members:
        return "Empty"
    if group.epoch.get() > group.target_epoch.get():
        return "Assigning"
    epoch = group.target_epoch.get()
    is_stable = all(each.state is MemberState.STABLE and each.epoch == epoch for each in group.current.values())
    return "Stable" if is_stable else "Reconciling"


def _member(group: ClassicGroup, member_id: str, protocol: str) -> DescribedMember:
    member = group.members[member_id]
    return DescribedMember(
        member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.metadata(protocol) if protocol else b"",
        member.assignment,
    )


def _consumer(group: ConsumerGroup, member_id: str) -> DescribedConsumer:
    told = group.members[member_id]
    current = group.current.get(member_id, MemberAssignment())
    return DescribedConsumer(
        member_id,
        told.instance_id,
        told.rack_id,
        current.epoch,
        told.client_id,
        told.client_host,
        tuple(told.subscribed_topic_names),
        told.subscribed_topic_regex or "",
        current.assigned,
        group.targets.get(member_id, {}),
        GroupType.CONSUMER if classic_of(told) is None else GroupType.CLASSIC,
    )
