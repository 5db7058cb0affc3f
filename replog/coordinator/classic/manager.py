"""The requests and timers of groups of the classic protocol."""

from __future__ import annotations

import random
from typing import TypeAlias, assert_never

from replog.coordinator.classic.checks import check_group_id
from replog.coordinator.classic.group import ClassicGroup, GroupState
from replog.coordinator.classic.groups import ClassicGroups
from replog.coordinator.classic.joins import Joins
from replog.coordinator.classic.rebalances import Rebalances, Removal, assigned
from replog.coordinator.classic.requests import (
    NO_MEMBER_ID,
    ClassicHeartbeat,
    ClassicHeartbeatResponse,
    JoinGroup,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroup,
)
from replog.coordinator.classic.turn import (
    ClassicSessionTimer,
    EmptyTimer,
    JoinTimer,
    RecoveryTimer,
    SyncTimer,
    Timer,
    Turn,
)
from replog.coordinator.config import ClassicConfig
from replog.coordinator.rebalance_reasons import RebalanceCounts, RebalanceReason
from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.runtime.messages import Answer
from replog.errors import InconsistentGroupProtocolError, RebalanceInProgressError, ReplogError, UnknownMemberIdError

Request: TypeAlias = JoinGroup | SyncGroup | ClassicHeartbeat | LeaveGroup


class ClassicManager:
    """Decides on requests and timers."""

    def __init__(
        self,
        groups: ClassicGroups,
        config: ClassicConfig,
        timers: Timers,
        rng: random.Random,
        removal_of_other: Removal,
        rebalances: RebalanceCounts,
    ) -> None:
        """Makes a manager.

        Args:
            groups: The groups.
            config: The settings.
            timers: The timers of the shard.
            rng: The random generator that ids of members come from.
            removal_of_other: The function that returns the records that remove an empty group of another kind.
            rebalances: The counts of rebalances.
        """
        self._groups = groups
        self._config = config
        self._timers = timers
        self._rebalances = Rebalances(groups, config, timers, removal_of_other, rebalances)
        self._joins = Joins(groups, self._rebalances, config, timers, rng)

    def take_up(self, group_id: str, moment: Moment, *, is_again: bool) -> int:
        """Gives every member of a group a session; one that is larger than it may be now has to come together anew.

        Args:
            group_id: The group.
            moment: The time.
            is_again: Whether only members get one that have none, and wait for nothing.

        Returns:
            The number of members.
        """
        group = self._groups.find(group_id)
        if group is None:
            return 0
        for member in group.members.values():
            has_one = (
                member.is_waiting() or self._timers.get(ClassicSessionTimer(group_id, member.member_id)) is not None
            )
            if not (is_again and has_one):
                self._rebalances.await_heartbeat(group, member, moment)
        self._rebalances.recover(group, Turn(moment, RebalanceReason.CHANGED))
        if len(group.members) > self._config.max_size and group.state is GroupState.STABLE:
            self._rebalances.prepare(group, Turn(moment, RebalanceReason.CHANGED))
        return len(group.members)

    def handle(self, request_id: int, request: Request, moment: Moment) -> Outcome:
        """Takes in a request; what it leads to may answer others, too, even when it is refused itself."""
        turn = Turn(moment, self._reason(request))
        try:
            match request:
                case JoinGroup():
                    self._joins.join(request_id, request, turn)
                case SyncGroup():
                    self._sync(request_id, request, turn)
                case ClassicHeartbeat():
                    self._heartbeat(request_id, request, turn)
                case LeaveGroup():
                    self._leave(request_id, request, turn)
                case _ as unreachable:
                    assert_never(unreachable)
        except ReplogError as error:
            turn.fail(request_id, error)
        return turn.outcome()

    def handle_timer(self, key: Timer, moment: Moment) -> Outcome:
        """Goes on with a group when a timer of it is due."""
        turn = Turn(moment, RebalanceReason.SILENT if isinstance(key, ClassicSessionTimer) else RebalanceReason.SLOW)
        group = self._groups.find(key.group_id)
        if group is not None:
            self._rebalances.recover(group, turn)
            match key:
                case ClassicSessionTimer():
                    self._end_session(group, key.member_id, turn)
                case JoinTimer():
                    self._rebalances.end_join_phase(group, turn)
                case SyncTimer():
                    self._rebalances.end_sync_phase(group, key.generation, turn)
                case EmptyTimer():
                    self._rebalances.write_empty_again(group, turn)
                case RecoveryTimer():
                    pass
                case _ as unreachable:
                    assert_never(unreachable)
        return turn.outcome()

    def dissolve(self, group_id: str, moment: Moment) -> tuple[Answer, ...]:
        """Forgets a group that is one of KIP-848 from now on; its members whose requests wait are asked to join that.

        Should that be taken back, the group is what the log says.  So every member in the log gets a session, as in `start`: one that
        has gone meanwhile has none.

        Returns:
            The answers to these requests.
        """
        turn = Turn(moment, RebalanceReason.CHANGED)
        written = self._groups.written(group_id)
        for each in () if written is None else written.members:
            timer = ClassicSessionTimer(group_id, each.member_id)
            self._timers.set_if_none(timer, moment.now_ms + each.session_timeout)
        for request_id in self._groups.forget(group_id):
            turn.fail(request_id, RebalanceInProgressError(f"group {group_id!r} is rebalanced: join it again"))
        return tuple(turn.answers)

    def _reason(self, request: Request) -> RebalanceReason:
        """Returns why a rebalance is, if the request leads to one."""
        if isinstance(request, LeaveGroup):
            return RebalanceReason.LEFT
        group = self._groups.find(request.group_id)
        is_known = group is not None and request.member_id in group.members
        return RebalanceReason.CHANGED if is_known else RebalanceReason.JOINED

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _sync(self, request_id: int, request: SyncGroup, turn: Turn) -> None:
        """Takes in a sync, which is answered when the leader has assigned; that of the leader does.

        Raises:
            ReplogError: It is refused.
        """
        group = self._group_or_raise(request.group_id, turn)
        member = group.member_or_raise(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {request.group_id!r} is rebalanced again: join it")
        for said, known in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
            if said is not None and known is not None and said != known:
                raise InconsistentGroupProtocolError(
                    f"group {request.group_id!r} has agreed on {known!r}, not on {said!r}"
                )
        self._rebalances.has_synced(group, request.member_id)
        if group.state is GroupState.STABLE:
            turn.reply(request_id, assigned(group, member))
            return
        turn.fail(
            member.sync_request, RebalanceInProgressError(f"member {request.member_id!r} has asked by another request")
        )
        member.sync_request = request_id
        if group.leader_id == request.member_id:
            self._rebalances.assign(group, lambda member_id: request.assignments.get(member_id, b""), turn)

    def _heartbeat(self, request_id: int, request: ClassicHeartbeat, turn: Turn) -> None:
        """Takes in a heartbeat.

        Raises:
            RebalanceInProgressError: The member has to join again.
            ReplogError: It is no member, or of another generation.
        """
        group = self._group_or_raise(request.group_id, turn)
        member = group.member_or_raise(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        self._rebalances.await_heartbeat(group, member, turn.moment)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {request.group_id!r} is rebalanced: join it again")
        turn.reply(request_id, ClassicHeartbeatResponse())

    def _leave(self, request_id: int, request: LeaveGroup, turn: Turn) -> None:
        """Removes members, and lets the others come together without them.

        Raises:
            InvalidGroupIdError: The group id is empty.
        """
        check_group_id(request.group_id)
        group = self._groups.find(request.group_id)
        if group is None:
            error = UnknownMemberIdError(f"there is no group {request.group_id!r}")
            left = tuple(LeftMember(each.member_id, each.instance_id, error) for each in request.members)
            turn.reply(request_id, LeaveGroupResponse(left))
            return
        self._rebalances.recover(group, turn)
        going: dict[str, None] = {}
        left = tuple(_left(group, each, going) for each in request.members)
        turn.reply(request_id, LeaveGroupResponse(left))
        self._put_out(group, list(going), turn)

    def note_commit(self, group_id: str, member_id: str, moment: Moment) -> None:
        """Takes a commit for a sign of life, as Kafka does: a member that commits often need not speak beside it."""
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and group.state is not GroupState.COMPLETING_REBALANCE:
            self._rebalances.await_heartbeat(group, member, moment)

    def _group_or_raise(self, group_id: str, turn: Turn) -> ClassicGroup:
        check_group_id(group_id)
        group = self._groups.find(group_id)
        if group is None:
            raise UnknownMemberIdError(f"there is no group {group_id!r}: join it anew")
        self._rebalances.recover(group, turn)
        return group

    def _end_session(self, group: ClassicGroup, member_id: str, turn: Turn) -> None:
        """Puts out a member that has been silent.  One with a request that waits stays, unless it waits for its first generation."""
        member = group.members.get(member_id)
        is_silent = member_id in group.pending if member is None else member.is_new or not member.is_waiting()
        if is_silent:
            self._put_out(group, [member_id], turn)

    def _put_out(self, group: ClassicGroup, member_ids: list[str], turn: Turn) -> None:
        """Removes members, and lets the others come together without them; one that only had an id is not missed."""
        count = len(group.members)
        for member_id in member_ids:
            self._groups.drop_pending(group, member_id)
        self._rebalances.put_out(group, member_ids, turn)
        if len(group.members) < count or group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.go_on(group, turn)
        self._groups.forget_void(group)


def _left(group: ClassicGroup, who: LeavingMember, going: dict[str, None]) -> LeftMember:
    """Returns what becomes of one that leaves; adds its id to those that go, if it does."""
    member_id = who.member_id
    if member_id == NO_MEMBER_ID and who.instance_id is not None:
        member_id = group.instances.get(who.instance_id, NO_MEMBER_ID)
    try:
        if member_id in going:
            raise UnknownMemberIdError(f"member {member_id!r} is named twice")
        if member_id not in group.pending:
            group.member_or_raise(member_id, who.instance_id)
    except ReplogError as error:
        return LeftMember(who.member_id, who.instance_id, error)
    going[member_id] = None
    return LeftMember(who.member_id, who.instance_id)
