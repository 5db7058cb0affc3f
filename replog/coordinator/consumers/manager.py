"""Heartbeats of KIP-848: members join, are moved towards their targets, leave, or are put out when they are silent.

A group has three epochs, which follow one another: that of the group counts what has changed, that of the targets says for which
of these they were decided (`decisions`), and that of each member says how far it has come (`reconcile`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.coordinator.assignors import Assignment, TopicPartition
from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers.checks import check_heartbeat, check_member_epoch
from replog.coordinator.consumers.decisions import NOTHING_TOLD, Change, Decided, Decisions, TargetsTimer
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups, MemberMetadata, classic_of
from replog.coordinator.consumers.member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    MemberAssignment,
    MemberState,
)
from replog.coordinator.consumers.pattern_keeper import PatternKeeper, PatternTimer, removal_of_patterns
from replog.coordinator.consumers.reconcile import reconcile
from replog.coordinator.consumers.records import (
    epoch_record,
    member_record,
    member_removal,
)
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.coordinator.rebalance_reasons import RebalanceCounts, RebalanceReason
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import Background
from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.topic_view import TopicView
from replog.errors import (
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    UnreleasedInstanceIdError,
)

Downgrade: TypeAlias = Callable[[str, ConsumerGroup, Collection[str], Moment], tuple[CoordinatorRecord, ...]]
"""Returns the records that make a group one of the classic protocol when members go; none where it stays what it is."""


class ConsumerSessionTimer(Struct, frozen=True):
    """A member has been silent for a session."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RebalanceTimer:
    """A member has not given back what it was to give back in this epoch; there is one timer for a member, of the last epoch."""

    group_id: str
    member_id: str
    epoch: int = field(compare=False)


class ConsumerManager:
    """Decides on heartbeats and timers of groups."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: TopicView,
        config: ConsumersConfig,
        timers: Timers,
        background: Background,
        rng: random.Random,
        downgrade: Downgrade,
        rebalances: RebalanceCounts,
    ) -> None:
        """Makes a manager.

        Args:
            groups: The groups.
            topics: The topics of the cluster.
            config: The settings.
            timers: The timers of the shard.
            rng: The random generator that ids of members come from.
            downgrade: The function that says what becomes of a group when its last members of KIP-848 go.
            rebalances: The counts of rebalances, by their reasons.
        """
        self._downgrade = downgrade
        self._groups = groups
        self._config = config
        self._timers = timers
        self._rng = rng
        self._patterns = PatternKeeper(groups, topics, config, timers, background)
        self._decisions = Decisions(groups, topics, config, timers, self._patterns, rebalances)
        self._counts = rebalances

    # ---- sessions ---------------------------------------------------------------------------------------------------

    def take_up(self, group_id: str, moment: Moment, *, is_again: bool) -> int:
        """Gives every member of a group a session: the coordinator before this one may have heard it just now.

        Args:
            group_id: The group.
            moment: The time.
            is_again: Whether only members get one that have none.

        Returns:
            The number of members.
        """
        group = self._groups.find(group_id)
        if group is None:
            return 0
        if not is_again:
            group.emptied_ms = moment.wall_ms
        self.begin_sessions(group_id, group, moment, is_again=is_again)
        if not is_again or self._timers.get(PatternTimer(group_id)) is None:
            self._patterns.begin(group_id, moment)
        return len(group.members)

    def begin_sessions(self, group_id: str, group: ConsumerGroup, moment: Moment, *, is_again: bool = False) -> None:
        """Gives every member of a group a session, or only those that have none (`is_again`)."""
        for member_id, told in group.members.items():
            if is_again and self._timers.get(ConsumerSessionTimer(group_id, member_id)) is not None:
                continue
            self.await_member(group_id, member_id, told, group.current.get(member_id), moment, is_asked_now=True)

    def stop(self) -> None:
        """Forgets what is no part of the log."""
        self._patterns.stop()
        self._decisions.stop()

    def put_out_silent(self, timer: ConsumerSessionTimer, moment: Moment) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that put a member out whose session is over; none where it has gone."""
        return self.remove(timer.group_id, (timer.member_id,), moment, RebalanceReason.SILENT)

    def put_out_slow(self, timer: RebalanceTimer, moment: Moment) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that put a member out which keeps what it was to give back; none where it has not."""
        group = self._groups.find(timer.group_id)
        current = None if group is None else group.current.get(timer.member_id)
        if current is None or current.state is not MemberState.UNREVOKED_PARTITIONS or current.epoch != timer.epoch:
            return ()
        return self.remove(timer.group_id, (timer.member_id,), moment, RebalanceReason.SLOW)

    def decide(self, timer: TargetsTimer, moment: Moment) -> Outcome:
        """Decides new targets of a group that has changed in a pause; see `Decisions.decide`.

        Raises:
            RecordTooLargeError: They are not one change.
        """
        return self._decisions.decide(timer, moment)

    def take_decided(self, timer: TargetsTimer, decided: Decided | None, moment: Moment) -> None:
        """Takes in what was decided beside the loop; None: it has failed."""
        self._decisions.take_decided(timer, decided, moment)

    def refresh_patterns(self, timer: PatternTimer, moment: Moment) -> None:
        """Begins to look what the patterns of a group match now."""
        self._patterns.begin(timer.group_id, moment)

    def await_member(
        self,
        group_id: str,
        member_id: str,
        told: MemberMetadata,
        current: MemberAssignment | None,
        moment: Moment,
        *,
        is_asked_now: bool = False,
    ) -> None:
        """Sets the timers of a member.  None is ever cancelled: what it was set for may be taken back.

        Args:
            group_id: The group.
            member_id: The member.
            told: What it has told.
            current: What it has.
            moment: The time.
            is_asked_now: Whether it hears only now what it has to give back: it has its time anew, from when that has committed.
        """
        classic = classic_of(told)
        session_ms = self._config.session_timeout_ms if classic is None else classic.session_timeout_ms
        self._timers.set(ConsumerSessionTimer(group_id, member_id), moment.now_ms + session_ms)
        if classic is None and current is not None and current.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = max(told.rebalance_timeout_ms, 0) or self._config.session_timeout_ms
            timer = RebalanceTimer(group_id, member_id, current.epoch)
            self._timers.want(timer, timeout_ms, is_anew=is_asked_now)

    def remove(
        self, group_id: str, member_ids: Iterable[str], moment: Moment, reason: RebalanceReason
    ) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that remove members, who are moved in one new epoch; none where they have gone."""
        group = self._groups.find(group_id)
        going = {} if group is None else {each: None for each in member_ids if each in group.members}
        if group is None or not going:
            return ()
        if len(going) == len(group.members):
            group.emptied_ms = moment.wall_ms
        self._counts[reason] += 1
        downgrade = self._downgrade(group_id, group, going, moment)
        if downgrade:
            return downgrade
        epoch = epoch_record(group_id, group.epoch.get() + 1, group.metadata_hash.get())
        patterns = removal_of_patterns(group_id, group, going)
        return (*(record for each in going for record in member_removal(group_id, each)), *patterns, epoch)

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerHeartbeat, moment: Moment, converted: ConsumerGroup | None = None
    ) -> tuple[tuple[CoordinatorRecord, ...], ConsumerHeartbeatResponse]:
        """Takes in the heartbeat of a member.

        Args:
            request: What the member says.
            moment: The time.
            converted: The group as it will be, where it has been one of the classic protocol until now.

        Returns:
            The records, and the answer.

        Raises:
            ReplogError: The request is wrong, the group is full, or the member is not what it takes itself for.
        """
        check_heartbeat(request, self._config.assignors)
        group = self._groups.find(request.group_id) if converted is None else converted
        if group is None and request.member_epoch != JOINING_EPOCH:
            raise GroupIdNotFoundError(f"there is no group {request.group_id!r}: the member has to join it anew")
        if group is None:
            group = self._groups.empty()
        if request.member_epoch < JOINING_EPOCH:
            return self._leave(group, request, moment)
        change = self._change(group, request)
        told = _told(change.old, request)
        pattern = told.subscribed_topic_regex or ""
        self._patterns.check(pattern)
        self._patterns.hear((request.group_id, pattern), request.sees, is_named=request.subscribed_regex is not None)
        records, current = self.advance(group, request.group_id, change, told, request.owned, moment)
        is_new = change.leads_to(current)
        self.await_member(request.group_id, change.member_id, told, current, moment, is_asked_now=is_new)
        is_news = _is_full(request) or current.assigned != change.current.assigned
        return records, self._response(change.member_id, current.epoch, current.assigned if is_news else None)

    def advance(
        self,
        group: ConsumerGroup,
        group_id: str,
        change: Change,
        told: MemberMetadata,
        owned: Assignment | None,
        moment: Moment,
    ) -> tuple[tuple[CoordinatorRecord, ...], MemberAssignment]:
        """Takes in what a member tells, decides on new targets if need be, and makes the member's next step.

        Args:
            group: The group; an empty one where it begins.
            group_id: The id of the group.
            change: The member that speaks.
            told: What the member has told by now.
            owned: The partitions that it says it reads; None where it says nothing.
            moment: The time.

        Returns:
            The records, and what the member has.
        """
        records = list(member_removal(group_id, change.replaced_id)) if change.replaced_id else []
        if told != change.old or change.replaced_id:
            records.append(member_record(group_id, change.member_id, told))
        target, target_epoch = self._decisions.target_of(group, group_id, change, told, records, moment)
        current = reconcile(
            change.current,
            target=target,
            target_epoch=target_epoch,
            owned=owned,
            is_free=lambda each: _is_free(group, each, change),
        )
        if change.leads_to(current):
            records.append(current.record(group_id, change.member_id))
        return tuple(records), current

    def _response(self, member_id: str, epoch: int, assignment: Assignment | None) -> ConsumerHeartbeatResponse:
        return ConsumerHeartbeatResponse(member_id, epoch, self._config.heartbeat_interval_ms, assignment)

    def _change(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> Change:
        """Returns the member that speaks.

        Raises:
            ReplogError: It may not, or is not what it takes itself for.
        """
        if request.member_epoch != JOINING_EPOCH:
            old, current = group.member_or_raise(request.member_id, request.instance_id)
            check_member_epoch(request, current)
            return Change(request.member_id, old, current)
        member_id = request.member_id or str(UUID(int=self._rng.getrandbits(128), version=4))
        holder = group.instances.get(request.instance_id) if request.instance_id is not None else None
        if holder is not None and holder != member_id:
            return _taking_over(group, request, member_id, holder)
        if member_id not in group.members and len(group.members) >= self._config.max_size:
            raise GroupMaxSizeReachedError(
                f"group {request.group_id!r} has {len(group.members)} members, and may have {self._config.max_size}"
            )
        current = replace(group.current.get(member_id, MemberAssignment()), epoch=0, previous_epoch=0)
        return Change(member_id, group.members.get(member_id), current)

    def _leave(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, moment: Moment
    ) -> tuple[tuple[CoordinatorRecord, ...], ConsumerHeartbeatResponse]:
        _, current = group.member_or_raise(request.member_id, request.instance_id)
        response = self._response(request.member_id, request.member_epoch, None)
        if request.member_epoch == LEAVING_STATIC_EPOCH:
            # it reads nothing any more: what it was to give back is free, and only what it may read waits for it
            left = replace(current, epoch=LEAVING_STATIC_EPOCH, previous_epoch=current.epoch, revoked={})
            return (left.record(request.group_id, request.member_id),), response
        return self.remove(request.group_id, (request.member_id,), moment, RebalanceReason.LEFT), response


def _told(old: MemberMetadata | None, request: ConsumerHeartbeat) -> MemberMetadata:
    """Returns what a member has told of itself by now; what it leaves out is as before."""
    known = old or NOTHING_TOLD
    names = known.subscribed_topic_names
    if request.subscribed_topics is not None:
        names = sorted(set(request.subscribed_topics))
    return MemberMetadata(
        known.instance_id if request.instance_id is None else request.instance_id,
        known.rack_id if request.rack_id is None else request.rack_id,
        request.client_id,
        request.client_host,
        names,
        known.subscribed_topic_regex if request.subscribed_regex is None else request.subscribed_regex,
        known.rebalance_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms,
        known.server_assignor if request.server_assignor is None else request.server_assignor,
        None,
    )


def _is_full(request: ConsumerHeartbeat) -> bool:
    """Whether a member says everything, and so wants to be told everything."""
    says_topics = request.subscribed_topics is not None or request.subscribed_regex is not None
    says_all = request.rebalance_timeout_ms >= 0 and says_topics and request.owned is not None
    return request.member_epoch == JOINING_EPOCH or says_all


def _is_free(group: ConsumerGroup, partition: TopicPartition, change: Change) -> bool:
    """Whether no member holds a partition; one that takes another's place gives up its own, and what both held is free."""
    holder = group.holders.get(partition)
    return holder is None or (bool(change.replaced_id) and holder in (change.replaced_id, change.member_id))


def _taking_over(group: ConsumerGroup, request: ConsumerHeartbeat, member_id: str, holder: str) -> Change:
    """Returns a static member that comes back as another one; one of the classic protocol is taken over, as in its own.

    Raises:
        UnreleasedInstanceIdError: The one that has the instance id has not left.
    """
    old, current = group.member_or_raise(holder, None)
    if classic_of(old) is None and current.epoch != LEAVING_STATIC_EPOCH:
        raise UnreleasedInstanceIdError(
            f"instance {request.instance_id!r} is used by member {holder!r}, which has not left: stop it, "
            "or wait until its session is over"
        )
    return Change(member_id, old, replace(current, epoch=0, previous_epoch=0), replaced_id=holder)
