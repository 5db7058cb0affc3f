"""The groups of KIP-848 of a shard, as the log says them.

A record of a member may stand before that of its group, and one of an assignment before that of its member: compaction keeps
the last of each key where it was.  So each kind is kept by itself, and a member is there when its metadata are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final
from uuid import UUID

from replog.coordinator.assignors import Assignment, TopicPartition, assignment_in
from replog.coordinator.consumers.member import LEAVING_STATIC_EPOCH, MemberAssignment
from replog.coordinator.consumers.records import group_removal
from replog.coordinator.instances import check_instance
from replog.coordinator.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
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
from replog.errors import (
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from replog_timeline import SnapshotRegistry, TimelineHashMap, TimelineLong

MemberMetadata = ConsumerGroupMemberMetadataValue
ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


WISHES_KEPT: Final = 16
"""Lists of topics of a group by which members that name the same are found."""


def classic_of(told: MemberMetadata) -> ClassicMetadata | None:
    """Returns what only a member of the classic protocol tells; None of a member of KIP-848."""
    classic = told.classic_member_metadata
    return classic if classic is not None and classic.supported_protocols else None


class ConsumerGroup:
    """One group.

    Attributes:
        epoch: The number of changes of members, subscriptions and topics.
        metadata_hash: The hash of the topics that its members read.
        target_epoch: The epoch in which the targets were decided.
        members: The members, by id.
        patterns: The topics that match each pattern of the members, once they have been looked for.
        current: What each member has.
        targets: What each member is to have.
        instances: The member of each instance id.
        holders: The members that have a partition, or have to give it back.
        topics_seen: The version of the topics at which their hash was found to be that of the group, and the hash; None where
            nobody has looked.  No part of the log.
        decides_again_ms: The time before which new targets are not decided, unless there is no other way.  No part of the log.
        too_large_epoch: The epoch whose targets were too large for one change; 0: none.  No part of the log.
        tries_again_ms: The time before which those are not decided again.  No part of the log.
        emptied_ms: The wall time at which the last member went, or, where this coordinator has found it empty, at which it began
            to serve.  No part of the log.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.epoch = TimelineLong(registry)
        self.metadata_hash = TimelineLong(registry)
        self.target_epoch = TimelineLong(registry)
        self.members = TimelineHashMap[str, MemberMetadata](registry)
        self.patterns = TimelineHashMap[str, frozenset[str]](registry)
        self.current = TimelineHashMap[str, MemberAssignment](registry)
        self.targets = TimelineHashMap[str, Assignment](registry)
        self.instances = TimelineHashMap[str, str](registry)
        self.holders = TimelineHashMap[TopicPartition, str](registry)
        self.topics_seen: tuple[int, int] | None = None
        self.decides_again_ms = 0
        self.too_large_epoch = 0
        self.tries_again_ms = 0
        self.emptied_ms = 0
        self._wishes: dict[tuple[str, ...], list[str]] = {}

    # ---- when its targets are decided -------------------------------------------------------------------------------

    @property
    def is_too_large(self) -> bool:
        """Whether targets were too large for one change, and none have been decided since: members keep those that they have."""
        return self.too_large_epoch > self.target_epoch.get()

    @property
    def reachable_epoch(self) -> int:
        """The epoch that its members can come to: that of the group, as a rule."""
        return self.target_epoch.get() if self.is_too_large else self.epoch.get()

    @property
    def pause_ends_ms(self) -> int:
        """The time before which new targets of the present epoch are not decided."""
        is_tried = self.too_large_epoch == self.epoch.get()
        return max(self.decides_again_ms, self.tries_again_ms if is_tried else 0)

    def is_pausing(self, now_ms: int) -> bool:
        """Whether new targets are not decided yet: there are some, somebody has them, and the pause behind them goes on."""
        return now_ms < self.pause_ends_ms and self.target_epoch.get() > 0 and bool(self.members)

    # ---- who may ask ------------------------------------------------------------------------------------------------

    def member_or_raise(self, member_id: str, instance_id: str | None) -> tuple[MemberMetadata, MemberAssignment]:
        """Returns a member, and what it has.

        Raises:
            UnknownMemberIdError: There is none of this id.
            FencedInstanceIdError: Its instance id is that of another one.
        """
        if instance_id is not None:
            check_instance(self.instances.get(instance_id), instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"the group has no member {member_id!r}: it has to join it anew")
        return member, self.current.get(member_id, MemberAssignment())

    # ---- as the keeper of its offsets sees it (replog.coordinator.offsets.owners) ---------------------------------------

    def check_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:  # noqa: ARG002 - ids are enough
        """Checks that a member commits, in its epoch; anybody may where there is none.

        Raises:
            UnknownMemberIdError: It is no member.
            StaleMemberEpochError: The member has been told another epoch, or has left for a while: another one may own its
                partitions.
            IllegalGenerationError: As above, of a member of the classic protocol, whose generation is its epoch.
        """
        if member_epoch < 0 and not self.members:
            return
        self._check_epoch(member_id, member_epoch)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, member_epoch: int) -> None:
        """Checks that a member commits, in its epoch; or somebody who names no member.

        Raises:
            UnknownMemberIdError: It is no member.
            IllegalGenerationError: The member has been told another epoch, or has left for a while.
        """
        if member_epoch < 0 and (not self.members or (not member_id and instance_id is None)):
            return
        try:
            self._check_epoch(member_id, member_epoch)
        except StaleMemberEpochError as stale:
            raise IllegalGenerationError(str(stale)) from None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Checks that a member asks in its epoch; a caller that does not say that it is one may ask.

        Raises:
            UnknownMemberIdError: It is no member.
            StaleMemberEpochError: The member has been told another epoch, or has left for a while.
            IllegalGenerationError: As above, of a member of the classic protocol.
        """
        if member_id is not None or member_epoch >= 0:
            self._check_epoch(member_id or "", member_epoch)

    def _check_epoch(self, member_id: str, member_epoch: int) -> None:
        told, current = self.members.get(member_id), self.current.get(member_id)
        if told is None or current is None:
            raise UnknownMemberIdError(f"the group has no member {member_id!r}: it has to join again")
        if current.epoch == LEAVING_STATIC_EPOCH:  # others read what it was to give back
            raise StaleMemberEpochError(f"member {member_id!r} has left for a while: it has to join again")
        if member_epoch == current.epoch:
            return
        if classic_of(told) is not None:
            raise IllegalGenerationError(
                f"member {member_id!r} comes with generation {member_epoch}, and is in {current.epoch}: join again"
            )
        raise StaleMemberEpochError(f"member {member_id!r} comes with epoch {member_epoch}, and is in {current.epoch}")

    def check_delete_offsets(self) -> None:
        """Lets offsets be deleted: those of topics that members read are kept one by one."""

    def subscribed_among(self, topics: Collection[str]) -> Collection[str]:
        """Returns those of some topics that a member reads; costs one look at each list of names, however many are asked for."""
        asked, found = frozenset(topics), set[str]()
        lists = {id(each.subscribed_topic_names): each.subscribed_topic_names for each in self.members.values()}
        for names in lists.values():
            found |= asked.intersection(names)
        for matching in self.patterns.values():
            found |= asked & matching
        return found

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Returns the time of the commit, or when the last member went: nobody commits anew where nothing has come.

        What members read is kept anyway.
        """
        return commit_timestamp_ms if self.members else max(commit_timestamp_ms, self.emptied_ms)

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay_member(self, member_id: str, value: MemberMetadata | None) -> None:
        """Keeps what a member has told of itself, or forgets the member."""
        old = self.members.get(member_id)
        if old is not None and old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
            del self.instances[old.instance_id]
        if value is None:
            self.members.pop(member_id, None)
            return
        self._share_names(value)
        self.members[member_id] = value
        if value.instance_id is not None:
            self.instances[value.instance_id] = member_id

    def _share_names(self, value: MemberMetadata) -> None:
        """Lets members that name the same topics, as most do, have one list in common, which is looked at once for all of them."""
        if len(self._wishes) >= WISHES_KEPT:
            self._wishes.clear()
        names = value.subscribed_topic_names
        value.subscribed_topic_names = self._wishes.setdefault(tuple(names), names)

    def replay_pattern(self, pattern: str, topics: frozenset[str] | None) -> None:
        """Keeps which topics match a pattern."""
        if topics is None:
            self.patterns.pop(pattern, None)
        else:
            self.patterns[pattern] = topics

    def replay_current(self, member_id: str, current: MemberAssignment | None) -> None:
        """Keeps what a member has, and that nobody else has it."""
        old = self.current.pop(member_id, None)
        if current is not None:
            self.current[member_id] = current
        before, after = _held(old), _held(current)
        for topic_id, partitions in before.items():
            for each in partitions - after.get(topic_id, frozenset()):
                if self.holders.get((topic_id, each)) == member_id:
                    del self.holders[topic_id, each]
        for topic_id, partitions in after.items():
            for each in partitions:
                if self.holders.get((topic_id, each)) != member_id:
                    self.holders[topic_id, each] = member_id

    def replay_target(self, member_id: str, target: Assignment | None) -> None:
        """Keeps what a member is to have."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target


def _held(current: MemberAssignment | None) -> dict[UUID, frozenset[int]]:
    """Returns the partitions that a member has or has to give back."""
    if current is None:
        return {}
    held = dict(current.assigned)
    for topic_id, partitions in current.revoked.items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held


class ConsumerGroups:
    """All groups of a shard."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._groups = TimelineHashMap[str, ConsumerGroup](registry)

    def group_ids(self) -> Iterable[str]:
        """Returns their ids."""
        return self._groups.keys()

    def find(self, group_id: str) -> ConsumerGroup | None:
        """Returns a group; None where there is none."""
        return self._groups.get(group_id)

    def empty(self) -> ConsumerGroup:
        """Returns a group without members, as every one begins; it is not kept."""
        return ConsumerGroup(self._registry)

    def removal(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that remove a group; none where there is none, or it has members."""
        group = self._groups.get(group_id)
        if group is None or group.members:
            return ()
        patterns = tuple(
            CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, each), None) for each in group.patterns
        )
        return (*patterns, *group_removal(group_id))

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replays(self) -> dict[type, Any]:
        """Returns the functions that replay a key and a value, by the class of the key."""
        return {
            ConsumerGroupMetadataKey: self._replay_epoch,
            ConsumerGroupMemberMetadataKey: self._replay_member,
            ConsumerGroupRegularExpressionKey: self._replay_pattern,
            ConsumerGroupTargetAssignmentMetadataKey: self._replay_target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._replay_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._replay_current,
        }

    def _group(self, group_id: str, value: object) -> ConsumerGroup | None:
        """Returns a group, new where a value is to be kept and there is none."""
        group = self._groups.get(group_id)
        if group is None and value is not None:
            group = self._groups[group_id] = ConsumerGroup(self._registry)
        return group

    def _replay_epoch(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        group = self._group(key.group_id, value)
        if value is None:
            self._groups.pop(key.group_id, None)
        elif group is not None:
            group.epoch.set(value.epoch)
            group.metadata_hash.set(value.metadata_hash)

    def _replay_member(self, key: ConsumerGroupMemberMetadataKey, value: MemberMetadata | None) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_member(key.member_id, value)

    def _replay_pattern(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_pattern(key.regular_expression, None if value is None else frozenset(value.topics))

    def _replay_target_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.target_epoch.set(0 if value is None else value.assignment_epoch)

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_target(key.member_id, None if value is None else assignment_in(value.topic_partitions))

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.replay_current(key.member_id, None if value is None else MemberAssignment.from_value(value))
