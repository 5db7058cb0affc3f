"""A group of the classic protocol becomes one of KIP-848 when a member of that joins it.

The others stay, with what they have: their generation is their epoch, and their assignment is their target.  A member that joins
makes a new epoch, which the others learn of by their next heartbeat; one that takes the place of a static member makes none where
all has been given out.  All of it is one change.

What a large group becomes is worked out beside the loop.  Until that is done the member is told to ask again, and again where the group or
the topics have changed meanwhile; where they always have, it is worked out at once in the end, or the member would never come in.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct

from replog.coordinator.assignors import Assignment, TopicPartition, assignment_of, partitions_of
from replog.coordinator.classic.group import ClassicGroup, ClassicMember, GroupState
from replog.coordinator.classic.records import group_removal
from replog.coordinator.classic.requests import Protocol
from replog.coordinator.classic.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    topics_count,
)
from replog.coordinator.config import ConversionConfig
from replog.coordinator.consumers.checks import TOPICS_MAX
from replog.coordinator.consumers.decisions import STALE_MAX
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups, MemberMetadata
from replog.coordinator.consumers.manager import ConsumerManager
from replog.coordinator.consumers.member import JOINING_EPOCH, MemberAssignment, MemberState
from replog.coordinator.consumers.records import epoch_record, member_record, target_epoch_record, target_record
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.coordinator.consumers.targets import hash_of_topics, places_of
from replog.coordinator.conversion.translation import by_id, classic_metadata
from replog.coordinator.group_records import packed, size_of_records
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.machine import Beside, Moment, Outcome, Timers
from replog.coordinator.topic_view import TopicView
from replog.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    InvariantViolationError,
    ReplogError,
    raised_anew,
)
from replog_timeline import SnapshotRegistry

KNOWN_ASSIGNORS: Final = frozenset({"sticky", "cooperative-sticky"})
"""Assignors of clients that keep what they have given: that is known from the assignment, too, and need not be kept."""


AT_ONCE_BYTES: Final = 50_000
"""What the members of a group have told and got, that becomes one of KIP-848 within a heartbeat: some twenty milliseconds."""

_MEMBER_BYTES: Final = 500
"""What a member costs beside that."""

READY_KEPT_MS: Final = 60_000
"""How long what a large group becomes is kept for a member that asks again."""


class UpgradeTimer(Struct, frozen=True):
    """A large group is to become one of KIP-848; or nobody has asked for long for what it becomes."""

    group_id: str


class _Standing(NamedTuple):
    """What a conversion is made of; nothing of it changes.

    Attributes:
        topics_version: The version of the topics that were known.
        members: The fields of each member, as far as they are not of requests that wait.
    """

    topics_version: int
    generation: int
    state: GroupState
    protocol: str | None
    members: tuple[tuple[str, str | None, str, str, int, int, tuple[Protocol, ...], bytes], ...]

    @classmethod
    def of(cls, group: ClassicGroup, topics: TopicView) -> _Standing:
        members = tuple(
            (
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                each.protocols,
                each.assignment,
            )
            for each in group.members.values()
        )
        return cls(topics.version, group.generation, group.state, group.protocol, members)

    def group(self, group_id: str) -> ClassicGroup:
        """Returns a group that stands so, for nobody else to change."""
        found = ClassicGroup(group_id)
        found.generation, found.state, found.protocol = self.generation, self.state, self.protocol
        found.members = {each[0]: ClassicMember(*each) for each in self.members}
        return found


class Upgraded(NamedTuple):
    """What a group becomes, or why it does not.

    Attributes:
        records: The records, with their bytes.
        group: The group of KIP-848 that they make.
    """

    standing: _Standing
    records: tuple[CoordinatorRecord, ...]
    group: ConsumerGroup | ReplogError


class Upgrades:
    """Converts groups."""

    def __init__(
        self,
        config: ConversionConfig,
        max_size: int,
        topics: TopicView,
        consumers: ConsumerManager,
        timers: Timers,
    ) -> None:
        """Makes it.

        Args:
            config: The settings.
            max_size: The members that a group of KIP-848 may have.
            topics: The topics of the cluster.
            consumers: The manager of groups of KIP-848.
            timers: The timers of the shard.
        """
        self._config = config
        self._max_size = max_size
        self._topics = topics
        self._consumers = consumers
        self._timers = timers
        self._asked: set[str] = set()  # groups of which it is worked out beside the loop what they become
        self._ready: dict[str, Upgraded] = {}
        self._stale_counts: dict[str, int] = {}  # how often in a row that came too late

    def stop(self) -> None:
        """Forgets what is no part of the log."""
        self._asked.clear()
        self._ready.clear()
        self._stale_counts.clear()

    def heartbeat(
        self, request: ConsumerHeartbeat, group: ClassicGroup, moment: Moment
    ) -> tuple[tuple[CoordinatorRecord, ...], ConsumerHeartbeatResponse]:
        """Lets a member of KIP-848 join a group of the classic protocol.

        Returns:
            The records, and the answer.

        Raises:
            GroupIdNotFoundError: The group cannot be converted.
            CoordinatorLoadInProgressError: It is large, and is not ready yet.
            ReplogError: The member may not join.
        """
        if request.member_epoch != JOINING_EPOCH:
            raise GroupIdNotFoundError(
                f"group {group.group_id!r} is one of the classic protocol now: the member has to join it anew"
            )
        self._check(group)
        ready = self._ready_for(group, moment)
        converted = ready.group
        if isinstance(converted, ReplogError):
            raise raised_anew(converted)
        more, response = self._consumers.heartbeat(request, moment, converted)
        records = (*ready.records, *packed(more))
        if size_of_records(records) > self._config.max_change_bytes:
            raise _refusal(
                group, f"its members need more than the {self._config.max_change_bytes} bytes that one change may have"
            )
        self._consumers.begin_sessions(group.group_id, converted, moment)
        self._ready.pop(group.group_id, None)
        self._stale_counts.pop(group.group_id, None)
        return records, response

    def _ready_for(self, group: ClassicGroup, moment: Moment) -> Upgraded:
        """Returns what a group becomes.

        Raises:
            CoordinatorLoadInProgressError: It is large, and that has to be worked out first.
        """
        group_id, standing = group.group_id, _Standing.of(group, self._topics)
        told_bytes = group.size_bytes + sum(len(each.assignment) for each in group.members.values())
        if told_bytes + _MEMBER_BYTES * len(group.members) <= AT_ONCE_BYTES:
            return _upgraded(group_id, standing, self._topics)
        ready = self._ready.get(group_id)
        if ready is not None and ready.standing == standing:
            return ready
        stale_count = self._stale_counts.pop(group_id, 0) + (self._ready.pop(group_id, None) is not None)
        if stale_count > STALE_MAX:
            return _upgraded(group_id, standing, self._topics)
        self._stale_counts[group_id] = stale_count
        self._timers.set(UpgradeTimer(group_id), moment.now_ms)
        raise CoordinatorLoadInProgressError(
            f"group {group_id!r}, of {len(group.members)} members of the classic protocol, becomes one of the consumer protocol; ask "
            "again a little later"
        )

    def begin(self, timer: UpgradeTimer, group: ClassicGroup | None) -> Outcome:
        """Begins to work out beside the loop what a group becomes, unless that is under way; forgets what nobody has asked for.

        Args:
            timer: The timer that is due.
            group: The group; None where there is none, or it is another one by now.
        """
        is_ready = self._ready.pop(timer.group_id, None) is not None
        if is_ready or group is None:
            self._stale_counts.pop(timer.group_id, None)
            return Outcome()
        if timer.group_id in self._asked:
            return Outcome()
        self._asked.add(timer.group_id)
        work = partial(_upgraded, timer.group_id, _Standing.of(group, self._topics), self._topics)
        return Outcome(beside=(Beside(timer, work),))

    def take_ready(self, timer: UpgradeTimer, upgraded: Upgraded | None, moment: Moment) -> None:
        """Takes in what a group becomes; None: that has failed."""
        self._asked.discard(timer.group_id)
        if upgraded is not None:
            self._ready[timer.group_id] = upgraded
            self._timers.set(timer, moment.now_ms + READY_KEPT_MS)

    def _check(self, group: ClassicGroup) -> None:
        """Checks that a group can be converted.

        Raises:
            GroupIdNotFoundError: It cannot.
        """
        if not self._config.upgrades:
            raise _refusal(group, "group.consumer.migration.policy does not allow it")
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _refusal(group, f"its members are no consumers, but of the type {group.protocol_type!r}")
        if len(group.members) > self._max_size:
            raise _refusal(group, f"it has more than the {self._max_size} that group.consumer.max.size allows")


def _upgraded(group_id: str, standing: _Standing, topics: TopicView) -> Upgraded:
    """Returns what a group becomes.

    Any thread may: topics that change meanwhile have another version, and what comes of it does not count.
    """
    try:
        records = packed(_records(standing.group(group_id), topics))
    except ReplogError as refusal:
        return Upgraded(standing, (), refusal.with_traceback(None))
    return Upgraded(standing, records, _replayed(group_id, records))


def _records(group: ClassicGroup, topics: TopicView) -> tuple[CoordinatorRecord, ...]:
    """Returns the records that make a group of KIP-848 of one of the classic protocol."""
    group_id, epoch = group.group_id, group.generation
    members = {each.member_id: _told(group, each) for each in group.members.values()}
    taken: set[TopicPartition] = set()
    has = {each.member_id: _has(group, each, taken, topics) for each in group.members.values()}
    is_settled = group.state is GroupState.STABLE and _places(members.values(), topics) <= taken
    topics_hash = hash_of_topics(places_of(members.values(), topics, {})) if is_settled else 0  # 0: a new epoch is due
    current = {name: _current(group, group.members[name], each, taken, topics) for name, each in has.items()}
    return (
        group_removal(group_id),
        *(member_record(group_id, member_id, told) for member_id, told in members.items()),
        epoch_record(group_id, epoch, topics_hash),
        *(target_record(group_id, member_id, each) for member_id, each in has.items()),
        target_epoch_record(group_id, epoch),
        *(each.record(group_id, member_id) for member_id, each in current.items()),
    )


def _places(members: Iterable[MemberMetadata], topics: TopicView) -> set[TopicPartition]:
    """Returns the partitions that members want."""
    names = {name for each in members for name in each.subscribed_topic_names}
    found = [place for name in names if (place := topics.find(name)) is not None]
    return {(topic_id, partition) for topic_id, count in found for partition in range(count)}


def _has(group: ClassicGroup, member: ClassicMember, taken: set[TopicPartition], topics: TopicView) -> Assignment:
    """Returns what a member has got, without what an earlier one has got, too.

    Raises:
        GroupIdNotFoundError: That cannot be told, or more would be lost than partitions.
    """
    found = read_assignment(member.assignment)
    if found is None:
        raise _refusal(group, f"what member {member.member_id!r} has got is not understood")
    if found.user_data and group.protocol not in KNOWN_ASSIGNORS:
        raise _refusal(
            group,
            f"the assignor of member {member.member_id!r} keeps data of its own, so give it another one first",
        )
    partitions = partitions_of(by_id(found.partitions, topics)) - taken
    taken |= partitions
    return assignment_of(partitions)


def _current(
    group: ClassicGroup,
    member: ClassicMember,
    assigned: Assignment,
    taken: set[TopicPartition],
    topics: TopicView,
) -> MemberAssignment:
    """Returns what a member has; to give back is what it said that it reads beside that, and nobody else has got.

    It may read that until it joins again: nobody knows whether it has been told of what it got.
    """
    subscription = read_subscription(_wish(group, member))
    reads: frozenset[TopicPartition] = frozenset()
    if subscription is not None:
        reads = partitions_of(by_id(subscription.owned, topics)) - taken
    taken |= reads
    state = MemberState.UNREVOKED_PARTITIONS if reads else MemberState.STABLE
    return MemberAssignment(group.generation, group.generation, state, assigned, assignment_of(reads))


def _wish(group: ClassicGroup, member: ClassicMember) -> bytes:
    """Returns what a member tells in the protocol of the generation, or, if it supports that no more, in another one."""
    return member.metadata(group.protocol or "") or next((each.metadata for each in member.protocols), b"")


def _told(group: ClassicGroup, member: ClassicMember) -> MemberMetadata:
    """Returns what a member has told, in the words of KIP-848.

    Raises:
        GroupIdNotFoundError: It has not told it as a consumer does.
    """
    count = max(map(topics_count, (_wish(group, member), member.protocols[0].metadata)))
    if count > TOPICS_MAX:
        raise _refusal(group, f"member {member.member_id!r} names {count} topics, and may name {TOPICS_MAX}")
    subscription = read_subscription(_wish(group, member))
    if subscription is None or read_subscription(member.protocols[0].metadata) is None:
        raise _refusal(group, f"what member {member.member_id!r} wants is not understood")
    return MemberMetadata(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        sorted(set(subscription.topics)),
        "",
        member.rebalance_timeout_ms,
        None,
        classic_metadata(member.session_timeout_ms, member.protocols),
    )


def _replayed(group_id: str, records: tuple[CoordinatorRecord, ...]) -> ConsumerGroup:
    """Returns the group that records make, without touching those that are there."""
    groups = ConsumerGroups(SnapshotRegistry())
    replays = groups.replays()
    for each in records:
        if type(each.key) in replays:
            replays[type(each.key)](each.key, each.value)
    found = groups.find(group_id)
    if found is None:
        raise InvariantViolationError(f"the records of group {group_id!r} do not make it")
    return found


def _refusal(group: ClassicGroup, reason: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(
        f"group {group.group_id!r} is one of the classic protocol, with {len(group.members)} members, and cannot become one "
        f"of the consumer protocol: {reason}; let this member use group.protocol=classic, or stop the others"
    )
