"""Members of a group of KIP-848 go by the request of the classic protocol: those that speak it, and whom people remove."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from replog.coordinator.classic.requests import NO_MEMBER_ID, LeaveGroup, LeaveGroupResponse, LeavingMember, LeftMember
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.records import CoordinatorRecord
from replog.errors import FencedInstanceIdError, ReplogError, UnknownMemberIdError


def remove_consumers(
    group: ConsumerGroup, request: LeaveGroup, remove: Callable[[Iterable[str]], tuple[CoordinatorRecord, ...]]
) -> tuple[tuple[CoordinatorRecord, ...], LeaveGroupResponse]:
    """Removes members of either protocol, static ones by their instance ids alone.

    Args:
        group: The group.
        request: The members that go.
        remove: The function that returns the records that remove members.

    Returns:
        The records, and the answer.
    """
    going: dict[str, None] = {}
    left = tuple(_left(group, each, going) for each in request.members)
    return remove(going), LeaveGroupResponse(left)


def _left(group: ConsumerGroup, who: LeavingMember, going: dict[str, None]) -> LeftMember:
    """Returns what becomes of one that is removed; adds its id to those that go, if it does."""
    error: ReplogError | None = None
    holder = who.member_id if who.instance_id is None else group.instances.get(who.instance_id)
    if holder is None or holder not in group.members or holder in going:
        error = UnknownMemberIdError(f"the group has no member {who.member_id!r} of instance {who.instance_id!r}")
    elif who.member_id not in {holder, NO_MEMBER_ID}:
        error = FencedInstanceIdError(f"instance {who.instance_id!r} is member {holder!r} now")
    else:
        going[holder] = None
    return LeftMember(who.member_id, who.instance_id, error)
