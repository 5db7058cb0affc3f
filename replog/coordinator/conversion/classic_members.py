"""Members of the classic protocol in a group of KIP-848: the coordinator assigns, and tells it in their words.

======================== ================================================================================================
request                  what it is here
======================== ================================================================================================
join                     the member tells what it wants and what it reads, and makes its next step (`reconcile`); it is
                         answered at once, and no member leads
sync                     the member asks what it may read
heartbeat                the member is alive; it is told to join again when there is a newer epoch, when it has to give
                         something back, or when what it waits for has become free
======================== ================================================================================================

Its generation is its epoch.  Once it has been told to join again, and once it has joined, it has its rebalance timeout to go on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.coordinator.assignors import Assignment, partitions_of
from replog.coordinator.classic.checks import check_join, distinct
from replog.coordinator.classic.group import size_of
from replog.coordinator.classic.requests import (
    NO_MEMBER_ID,
    ClassicHeartbeat,
    ClassicHeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from replog.coordinator.classic.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    topics_count,
)
from replog.coordinator.config import ClassicConfig, ConsumersConfig
from replog.coordinator.consumers.checks import TOPICS_MAX
from replog.coordinator.consumers.decisions import Change
from replog.coordinator.consumers.group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerGroups,
    MemberMetadata,
    classic_of,
)
from replog.coordinator.consumers.manager import ConsumerManager
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.coordinator.consumers.reconcile import reconcile
from replog.coordinator.conversion.downgrades import Downgrades, JoiningMember, StayingMember
from replog.coordinator.conversion.translation import assignment_bytes, by_id, classic_metadata, protocols_of
from replog.coordinator.rebalance_reasons import RebalanceReason
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.machine import Moment, Timers
from replog.coordinator.topic_view import TopicView
from replog.errors import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    JoinRefusal,
    MemberIdRequiredError,
    RebalanceInProgressError,
    ReplogError,
    UnknownMemberIdError,
)


class LateJoinTimer(Struct, frozen=True):
    """A member that was told in this epoch to join again has not."""

    group_id: str
    member_id: str
    epoch: int


class LateSyncTimer(Struct, frozen=True):
    """A member that has joined, and is in this epoch, has not asked what it gets."""

    group_id: str
    member_id: str
    epoch: int


class ClassicMembers:
    """Decides on their requests and timers."""

    def __init__(
        self,
        groups: ConsumerGroups,
        consumers: ConsumerManager,
        downgrades: Downgrades,
        topics: TopicView,
        config: tuple[ClassicConfig, ConsumersConfig],
        timers: Timers,
        rng: random.Random,
    ) -> None:
        self._groups = groups
        self._consumers = consumers
        self._downgrades = downgrades
        self._topics = topics
        self._classic, self._config = config
        self._timers = timers
        self._rng = rng

    # ---- joins ------------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroup, group: ConsumerGroup, moment: Moment
    ) -> tuple[tuple[CoordinatorRecord, ...], JoinGroupResponse]:
        """Lets a member join, or join again.

        Returns:
            The records, and the answer.

        Raises:
            ReplogError: It may not, or has to come again with the id that it is told.
        """
        check_join(request, self._classic)
        try:
            return self._let_join(request, group, moment)
        except ReplogError as error:
            if isinstance(error, JoinRefusal):
                error.names_member = False
            raise

    def _let_join(
        self, request: JoinGroup, group: ConsumerGroup, moment: Moment
    ) -> tuple[tuple[CoordinatorRecord, ...], JoinGroupResponse]:
        protocols = distinct(request.protocols)
        self._check_room(group, request, protocols)
        _check_protocols(group, request, protocols)
        _check_topics(protocols)
        subscription = read_subscription(protocols[0].metadata)
        if subscription is None:
            raise InconsistentGroupProtocolError(
                f"what the member wants, in its protocol {protocols[0].name!r}, is not understood as that of a consumer"
            )
        change = self._change(group, request, subscription)
        told = _told(change.old, request, subscription, protocols)
        owned = by_id(subscription.owned, self._topics)
        downgraded = self._take_over(group, request, change, told, owned, moment) if change.replaced_id else None
        if downgraded is not None:
            return downgraded
        records, current = self._consumers.advance(group, request.group_id, change, told, owned, moment)
        key = (request.group_id, change.member_id)
        self._timers.cancel(LateJoinTimer(*key, change.current.epoch))
        self._timers.set(LateSyncTimer(*key, current.epoch), moment.now_ms + self._patience_ms(told))
        self._consumers.await_member(*key, told, current, moment)
        return records, _joined(change.member_id, current, protocols)

    def _check_room(self, group: ConsumerGroup, request: JoinGroup, protocols: tuple[Protocol, ...]) -> None:
        """Checks that a group can take a member.

        Raises:
            GroupMaxSizeReachedError: There is no room.
        """
        is_known = request.member_id in group.members or request.instance_id in group.instances
        if not is_known and len(group.members) >= self._config.max_size:
            raise GroupMaxSizeReachedError(
                f"group {request.group_id!r} has {len(group.members)} members, and may have {self._config.max_size}"
            )
        others = (each for member_id, each in _classics(group) if member_id != request.member_id)
        size_bytes = size_of(protocols) + sum(size_of(protocols_of(each)) for each in others)
        if size_bytes > self._classic.max_group_bytes:
            raise GroupMaxSizeReachedError(
                f"the members of group {request.group_id!r} would tell {size_bytes} bytes, and may tell "
                f"{self._classic.max_group_bytes}"
            )

    def _change(self, group: ConsumerGroup, request: JoinGroup, subscription: Subscription) -> Change:
        """Returns the member that joins.

        Raises:
            MemberIdRequiredError: It has to come again with the id that it is told.
            UnknownMemberIdError: The instance id of one that has an id is not known, or it still reads what it had before it
                was put out.
            FencedInstanceIdError: It is that of another one.
        """
        is_new = request.member_id == NO_MEMBER_ID
        member_id = str(UUID(int=self._rng.getrandbits(128), version=4)) if is_new else request.member_id
        if request.instance_id is None:
            if is_new and request.is_id_required:
                raise MemberIdRequiredError("the member has to join with the id that it is told here", member_id)
            if member_id not in group.members and subscription.owned:
                raise UnknownMemberIdError(
                    f"member {member_id!r} was put out and still reads {len(subscription.owned)} partitions, which may be "
                    "those of others now: it has to give them up and join anew"
                )
            return Change(member_id, group.members.get(member_id), group.current.get(member_id, MemberAssignment()))
        if not is_new:
            return Change(member_id, *group.member_or_raise(member_id, request.instance_id))
        holder = group.instances.get(request.instance_id)
        if holder is None:
            return Change(member_id, None, MemberAssignment())
        old, current = group.member_or_raise(holder, None)
        return Change(member_id, old, replace(current, epoch=0, previous_epoch=0), replaced_id=holder)

    def _take_over(
        self,
        group: ConsumerGroup,
        request: JoinGroup,
        change: Change,
        told: MemberMetadata,
        owned: Assignment,
        moment: Moment,
    ) -> tuple[tuple[CoordinatorRecord, ...], JoinGroupResponse] | None:
        """Returns what a join leads to which takes the place of the last member of KIP-848; None where it does not."""
        current = reconcile(
            change.current,
            target=group.targets.get(change.replaced_id, {}),
            target_epoch=group.target_epoch.get(),
            owned=owned,
            is_free=lambda each: group.holders.get(each) in {None, change.replaced_id},
        )
        joining = JoiningMember(change.member_id, StayingMember(told, current), request.can_skip_assignment)
        found = self._downgrades.of_replacement(request.group_id, group, change.replaced_id, joining, moment)
        if found is None:
            return None
        return found.records, found.response or _joined(change.member_id, current, distinct(request.protocols))

    # ---- syncs and heartbeats ---------------------------------------------------------------------------------------

    def sync(self, request: SyncGroup, group: ConsumerGroup, moment: Moment) -> SyncGroupResponse:
        """Tells a member what it may read.

        Raises:
            RebalanceInProgressError: It has to join again.
            ReplogError: It is no member, or of another generation.
        """
        told, current, classic = _member(group, request)
        name = classic.supported_protocols[0].name
        for said, known in ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol, name)):
            if said is not None and said != known:
                raise InconsistentGroupProtocolError(
                    f"member {request.member_id!r} has joined with {known!r}, not with {said!r}"
                )
        if group.reachable_epoch > current.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._raise_to_rejoin(request, told, current, moment)
        self._timers.cancel(LateSyncTimer(request.group_id, request.member_id, current.epoch))
        self._consumers.await_member(request.group_id, request.member_id, told, current, moment)
        return SyncGroupResponse(
            CONSUMER_PROTOCOL_TYPE, name, assignment_bytes(told, current, self._topics.find) or b""
        )

    def heartbeat(self, request: ClassicHeartbeat, group: ConsumerGroup, moment: Moment) -> ClassicHeartbeatResponse:
        """Takes in a heartbeat.

        Raises:
            RebalanceInProgressError: The member has to join again.
            ReplogError: It is no member, or of another generation.
        """
        told, current, _ = _member(group, request)
        self._consumers.await_member(request.group_id, request.member_id, told, current, moment)
        if _has_to_rejoin(group, request.member_id, current):
            self._raise_to_rejoin(request, told, current, moment)
        return ClassicHeartbeatResponse()

    def _raise_to_rejoin(
        self, request: SyncGroup | ClassicHeartbeat, told: MemberMetadata, current: MemberAssignment, moment: Moment
    ) -> None:
        timer = LateJoinTimer(request.group_id, request.member_id, current.epoch)
        self._timers.set_if_none(timer, moment.now_ms + self._patience_ms(told))
        raise RebalanceInProgressError(f"group {request.group_id!r} is rebalanced: join it again")

    def _patience_ms(self, told: MemberMetadata) -> int:
        """Returns how long a member may take to do what it has been told."""
        return max(told.rebalance_timeout_ms, 0) or self._config.session_timeout_ms

    def put_out_late(self, timer: LateJoinTimer | LateSyncTimer, moment: Moment) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that put out a member which has not gone on; none where it has."""
        group = self._groups.find(timer.group_id)
        told = None if group is None else group.members.get(timer.member_id)
        current = None if group is None else group.current.get(timer.member_id)
        if group is None or told is None or current is None or current.epoch != timer.epoch or classic_of(told) is None:
            return ()
        if isinstance(timer, LateJoinTimer) and not _has_to_rejoin(group, timer.member_id, current):
            return ()
        return self._consumers.remove(timer.group_id, (timer.member_id,), moment, RebalanceReason.SLOW)


def _joined(member_id: str, current: MemberAssignment, protocols: tuple[Protocol, ...]) -> JoinGroupResponse:
    """Returns the answer to a member of a group that no member leads."""
    name = protocols[0].name
    return JoinGroupResponse(member_id, current.epoch, CONSUMER_PROTOCOL_TYPE, name, NO_MEMBER_ID)


def _member(
    group: ConsumerGroup, request: SyncGroup | ClassicHeartbeat
) -> tuple[MemberMetadata, MemberAssignment, ClassicMetadata]:
    """Returns the member that asks, what it has, and what only one of the classic protocol tells.

    Raises:
        UnknownMemberIdError: There is none, or none of the classic protocol.
        FencedInstanceIdError: Its instance id is that of another one.
        IllegalGenerationError: It is in another epoch.
    """
    told, current = group.member_or_raise(request.member_id, request.instance_id)
    classic = classic_of(told)
    if classic is None:
        raise UnknownMemberIdError(
            f"member {request.member_id!r} is one of the consumer protocol, and speaks it no more"
        )
    if request.generation != current.epoch:
        raise IllegalGenerationError(
            f"member {request.member_id!r} comes with generation {request.generation}, and is in {current.epoch}: join again"
        )
    return told, current, classic


def _has_to_rejoin(group: ConsumerGroup, member_id: str, current: MemberAssignment) -> bool:
    """Whether a join would bring a member on."""
    if current.epoch < group.reachable_epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    wanted = partitions_of(group.targets.get(member_id, {})) - partitions_of(current.assigned)
    return not any(each in group.holders for each in wanted)


def _classics(group: ConsumerGroup) -> Iterable[tuple[str, ClassicMetadata]]:
    """Returns the members of the classic protocol."""
    return ((name, classic) for name, told in group.members.items() if (classic := classic_of(told)) is not None)


def _check_protocols(group: ConsumerGroup, request: JoinGroup, protocols: tuple[Protocol, ...]) -> None:
    """Checks that there is a protocol which all members of the classic one support, so that they can be alone again.

    Raises:
        InconsistentGroupProtocolError: There is none, or the member is no consumer.
    """
    names = {each.name for each in protocols}
    for member_id, classic in _classics(group):
        if member_id != request.member_id:
            names &= {each.name for each in classic.supported_protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise InconsistentGroupProtocolError(
            f"the member is a {request.protocol_type!r} with {[each.name for each in protocols]}; group "
            f"{request.group_id!r} has members of the consumer protocol, and no protocol of this one is supported by all "
            "others of the classic one"
        )


def _check_topics(protocols: tuple[Protocol, ...]) -> None:
    """Checks that a member names no more topics than one of KIP-848 may, before they are read.

    Raises:
        InvalidRequestError: It does.
    """
    count = topics_count(protocols[0].metadata)
    if count > TOPICS_MAX:
        raise InvalidRequestError(
            f"the member names {count} topics, and in a group of the consumer protocol may name {TOPICS_MAX}: divide them "
            "among several groups"
        )


def _told(
    old: MemberMetadata | None, request: JoinGroup, subscription: Subscription, protocols: tuple[Protocol, ...]
) -> MemberMetadata:
    """Returns what a member has told of itself by now."""
    return MemberMetadata(
        request.instance_id if request.instance_id is not None or old is None else old.instance_id,
        subscription.rack_id if subscription.rack_id is not None or old is None else old.rack_id,
        request.client_id,
        request.client_host,
        sorted(set(subscription.topics)),
        "",
        request.rebalance_timeout_ms,
        None if old is None else old.server_assignor,
        classic_metadata(request.session_timeout_ms, protocols),
    )
