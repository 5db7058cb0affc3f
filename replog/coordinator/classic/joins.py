"""Joins: which client may join, as which member, and whether that changes the group."""

from __future__ import annotations

import random
from uuid import UUID

from replog.coordinator.classic.checks import check_join, distinct
from replog.coordinator.classic.group import ClassicGroup, ClassicMember, GroupState, size_of
from replog.coordinator.classic.groups import ClassicGroups
from replog.coordinator.classic.rebalances import Rebalances
from replog.coordinator.classic.requests import NO_MEMBER_ID, JoinGroup, Protocol
from replog.coordinator.classic.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    assigned_partitions,
    read_subscription,
    subscribed_topics,
)
from replog.coordinator.classic.turn import ClassicSessionTimer, Turn
from replog.coordinator.config import ClassicConfig
from replog.coordinator.runtime.machine import Timers
from replog.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


class Joins:
    """Decides on joins."""

    def __init__(
        self, groups: ClassicGroups, rebalances: Rebalances, config: ClassicConfig, timers: Timers, rng: random.Random
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._config = config
        self._timers = timers
        self._rng = rng

    def join(self, request_id: int, request: JoinGroup, turn: Turn) -> None:
        """Lets a member take part in the next generation, or tells it of this one.

        Raises:
            ReplogError: It may not, or has to come again with the id that it is told.
        """
        check_join(request, self._config)
        group = self._groups.find(request.group_id)
        if group is None and request.member_id != NO_MEMBER_ID:
            raise UnknownMemberIdError(f"there is no group {request.group_id!r}: join it anew")
        if group is None:
            group = ClassicGroup(request.group_id)
        self._rebalances.recover(group, turn)
        protocols = distinct(request.protocols)
        self._check_room(group, request, protocols, turn)
        if not group.supports(request.protocol_type, protocols):
            raise InconsistentGroupProtocolError(
                f"the member is a {request.protocol_type!r} with {[each.name for each in protocols]}; no protocol of it is "
                f"supported by all members of group {request.group_id!r}, each a {group.protocol_type!r}"
            )
        if request.member_id == NO_MEMBER_ID:
            self._join_first(request_id, request, group, protocols, turn)
        elif request.member_id in group.pending:
            if request.instance_id is not None:
                raise UnknownMemberIdError(
                    f"member {request.member_id!r} was told its id as one without an instance id"
                )
            self._add(request_id, request, group, request.member_id, protocols, turn)
        else:
            self._join_again(request_id, request, group, protocols, turn)

    def _check_room(self, group: ClassicGroup, request: JoinGroup, protocols: tuple[Protocol, ...], turn: Turn) -> None:
        """Checks that a group can take a member; one that comes too late to a group that is full is put out.

        Raises:
            GroupMaxSizeReachedError: There is no room.
        """
        member = group.members.get(request.member_id)
        size_bytes = group.size_bytes + size_of(protocols) - (size_of(member.protocols) if member is not None else 0)
        if size_bytes > self._config.max_group_bytes:
            raise GroupMaxSizeReachedError(
                f"the members of group {request.group_id!r} would tell {size_bytes} bytes, and may tell "
                f"{self._config.max_group_bytes}"
            )
        self._check_record(group, request, protocols)
        if group.state is GroupState.PREPARING_REBALANCE:
            has_room = member is not None and member.join_request is not None
            has_room = has_room or group.waiting_joins < self._config.max_size
        else:
            has_room = member is not None or len(group.members) < self._config.max_size
        if has_room or request.instance_id in group.instances:
            return
        error = GroupMaxSizeReachedError(
            f"group {request.group_id!r} has as many members as it may have, {self._config.max_size}"
        )
        if member is not None:
            self._rebalances.put_out(group, [member.member_id], turn)
            self._rebalances.begin_if_all_joined(group, turn)
        raise error

    def _check_record(self, group: ClassicGroup, request: JoinGroup, protocols: tuple[Protocol, ...]) -> None:
        """Checks that what a member tells fits into the record of its group.

        Raises:
            GroupMaxSizeReachedError: It does not.
        """
        known = group.members.get(request.member_id) or group.members.get(
            group.instances.get(request.instance_id or "", "")
        )
        names = (request.member_id or _new_id(request, UUID(int=0)), request.instance_id)
        told = ClassicMember(*names, request.client_id, request.client_host, 0, 0, protocols).record_bytes()
        told_bytes = group.record_bytes + told - (0 if known is None else known.record_bytes())
        room = self._config.max_record_bytes if group.record_room is None else group.record_room
        if told_bytes > room and (known is None or told > known.record_bytes()):
            raise GroupMaxSizeReachedError(
                f"the record of group {request.group_id!r} would have {told_bytes} bytes with this member, and has room for "
                f"{room}: let members tell less, or divide them into several groups"
            )

    # ---- a member without an id -------------------------------------------------------------------------------------

    def _join_first(
        self, request_id: int, request: JoinGroup, group: ClassicGroup, protocols: tuple[Protocol, ...], turn: Turn
    ) -> None:
        member_id = _new_id(request, UUID(int=self._rng.getrandbits(128), version=4))
        holder = group.members.get(group.instances.get(request.instance_id or "", ""))
        if holder is not None:
            self._replace(request_id, request, group, holder, member_id, protocols, turn)
        elif request.instance_id is None and request.is_id_required:
            self._tell_id(request, group, member_id, turn)
        else:
            self._add(request_id, request, group, member_id, protocols, turn)

    def _tell_id(self, request: JoinGroup, group: ClassicGroup, member_id: str, turn: Turn) -> None:
        """Lets a member come again with an id, for a session: so one whose answers are lost is not added again and again.

        Raises:
            MemberIdRequiredError: Always; it tells the id.
            CoordinatorLoadInProgressError: Too many have been told one, and have not come.
        """
        if self._groups.pending_members >= self._config.max_pending_members:
            raise CoordinatorLoadInProgressError(
                f"{self._groups.pending_members} members have an id and have not joined with it: ask again a little later"
            )
        self._groups.keep(group)
        self._groups.add_pending(group, member_id)
        self._timers.set(
            ClassicSessionTimer(group.group_id, member_id), turn.moment.now_ms + request.session_timeout_ms
        )
        raise MemberIdRequiredError("the member has to join with the id that it is told here", member_id)

    def _add(
        self,
        request_id: int,
        request: JoinGroup,
        group: ClassicGroup,
        member_id: str,
        protocols: tuple[Protocol, ...],
        turn: Turn,
    ) -> None:
        self._groups.drop_pending(group, member_id)
        if not group.members:
            group.protocol_type = request.protocol_type
        member = ClassicMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            protocols,
            is_new=True,
        )
        self._groups.keep(group)
        group.add(member)
        group.await_join(member, request_id)
        group.has_new_member = group.state is GroupState.PREPARING_REBALANCE and group.is_initial
        self._rebalances.await_heartbeat(group, member, turn.moment)
        self._rebalances.go_on(group, turn)

    # ---- a static member that comes back ----------------------------------------------------------------------------

    def _replace(
        self,
        request_id: int,
        request: JoinGroup,
        group: ClassicGroup,
        member: ClassicMember,
        member_id: str,
        protocols: tuple[Protocol, ...],
        turn: Turn,
    ) -> None:
        """Gives the place of a static member to the one that has come back, or that uses the same instance id.

        In a stable group it goes on with what it had, unless it now supports or reads something else, or had to join again.
        """
        error = FencedInstanceIdError(
            f"instance {request.instance_id!r} is member {member_id!r} now: it has joined again"
        )
        turn.fail(group.take_join(member), error)
        turn.fail(member.sync_request, error)
        member.sync_request = None
        self._timers.cancel(ClassicSessionTimer(group.group_id, member.member_id))
        before = member.metadata(group.protocol or "")
        told_leader = group.leader_id
        group.rename(member, member_id)
        self._update(group, member, request, protocols)
        self._rebalances.await_heartbeat(group, member, turn.moment)
        if group.state is GroupState.STABLE and _is_as_before(group, member, before):
            self._rebalances.write(group, turn)
            is_leader = group.leader_id == member_id
            if request.can_skip_assignment:
                turn.reply(request_id, group.joined(member_id, skip_assignment=is_leader))
            else:  # it may not take itself for the leader: it would assign, and nobody would ask for that
                turn.reply(request_id, group.joined(member_id, told_leader))
            return
        group.await_join(member, request_id)
        self._rebalances.go_on(group, turn)

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroup, protocols: tuple[Protocol, ...]
    ) -> None:
        group.update(member, protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    # ---- a member that has an id ------------------------------------------------------------------------------------

    def _join_again(
        self, request_id: int, request: JoinGroup, group: ClassicGroup, protocols: tuple[Protocol, ...], turn: Turn
    ) -> None:
        """Lets a member join again; one that changes nothing is told of the generation, as its answer may have been lost.

        Raises:
            ReplogError: It is no member.
        """
        member = group.member_or_raise(request.member_id, request.instance_id)
        is_lost_answer = group.state is GroupState.COMPLETING_REBALANCE
        is_follower = group.state is GroupState.STABLE and group.leader_id != member.member_id
        if member.protocols == protocols and (is_lost_answer or is_follower):
            turn.reply(request_id, group.joined(member.member_id))
            return
        self._update(group, member, request, protocols)
        earlier = group.await_join(member, request_id)
        turn.fail(earlier, RebalanceInProgressError(f"member {member.member_id!r} has joined by another request"))
        self._rebalances.go_on(group, turn)


def _new_id(request: JoinGroup, random_part: UUID) -> str:
    """Returns the id of a member that has none yet."""
    return f"{request.client_id if request.instance_id is None else request.instance_id}-{random_part}"


def _is_as_before(group: ClassicGroup, member: ClassicMember, before: bytes) -> bool:
    """Whether the assignment goes on to fit: the group would agree on the same protocol, and a consumer reads the same topics.

    What a consumer has owned is in the bytes, too, and is no change.  But one that had to give back some of that was to join again,
    for others to get it; whoever comes in its place does not know of it.
    """
    protocol = group.chosen_protocol()
    if protocol is None or protocol != group.protocol:
        return False
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return True
    told = read_subscription(before)
    if told is not None and not set(told.owned) <= set(assigned_partitions(member.assignment)):
        return False
    return subscribed_topics(before) == subscribed_topics(member.metadata(protocol))
