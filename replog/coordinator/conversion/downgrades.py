"""A group of KIP-848 becomes one of the classic protocol when its last member of the former goes, and others are left.

Its epoch is the generation, and each member keeps what it has.  As what has gone with the last one has to be given away, and
members may be on their way to their targets, they are asked to join again; the record says so by naming no leader, so that the
next coordinator asks them, too.  All of it is one change.

No member of a group of KIP-848 leads it.  In a classic group one has to, for nobody else sees that a topic has got more
partitions: where the others need not join again, the one that joins is told that it leads, and that all keep what they have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.records import group_record, group_value
from replog.coordinator.classic.requests import JoinGroupResponse
from replog.coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE
from replog.coordinator.classic.turn import ClassicSessionTimer, RecoveryTimer
from replog.coordinator.config import ClassicConfig, ConversionConfig
from replog.coordinator.consumers.group import ConsumerGroup, MemberMetadata, classic_of
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.coordinator.consumers.records import group_removal, member_removal, pattern_removal
from replog.coordinator.consumers.targets import hash_of_topics, places_of
from replog.coordinator.conversion.translation import classic_member
from replog.coordinator.group_records import packed, size_of_records
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.machine import Moment, Timers
from replog.coordinator.topic_view import TopicView


class StayingMember(NamedTuple):
    """A member as it is to be in the classic group."""

    told: MemberMetadata
    current: MemberAssignment


class JoiningMember(NamedTuple):
    """A member that takes the place of another one.

    Attributes:
        can_lead: Whether it can be told that it leads a generation whose members keep what they have.
    """

    member_id: str
    member: StayingMember
    can_lead: bool


class Downgraded(NamedTuple):
    """A conversion.

    Attributes:
        records: The records.
        response: The answer to the member that leads; None where the members have to join again.
    """

    records: tuple[CoordinatorRecord, ...]
    response: JoinGroupResponse | None


class Downgrades:
    """Converts groups."""

    def __init__(self, config: ConversionConfig, classic: ClassicConfig, topics: TopicView, timers: Timers) -> None:
        self._config = config
        self._classic = classic
        self._topics = topics
        self._timers = timers

    def of_going(
        self, group_id: str, group: ConsumerGroup, going: Collection[str], moment: Moment
    ) -> tuple[CoordinatorRecord, ...]:
        """Returns the records of a conversion when members go; none where the group stays what it is."""
        is_due = any(classic_of(group.members[each]) is None for each in going)
        staying = _staying(group, going) if is_due else None
        classic = self._group(group_id, group, staying) if staying else None
        return () if classic is None else self._records(group, classic, moment)

    def of_replacement(
        self, group_id: str, group: ConsumerGroup, holder: str, joining: JoiningMember, moment: Moment
    ) -> Downgraded | None:
        """Returns the conversion when one of the classic protocol takes a static member's place; None where there is none.

        The others need not join again, if everybody has what it is to have, the new one wants what the old one did, and it
        can lead.

        Args:
            group_id: The id of the group.
            group: The group.
            holder: The member whose place is taken.
            joining: The member that takes it.
            moment: The time.
        """
        before = group.members[holder]
        others = _staying(group, (holder,)) if classic_of(before) is None else None
        if others is None:
            return None
        staying = {**others, joining.member_id: joining.member}
        classic = self._group(group_id, group, staying)
        if classic is None:
            return None
        leads = joining.can_lead and self._is_settled(group, before, joining.member.told, staying, classic)
        records = self._records(group, classic, moment, leader_id=joining.member_id if leads else None)
        response = classic.joined(joining.member_id, skip_assignment=True) if leads else None
        return Downgraded(records, response) if records else None

    def _is_settled(
        self,
        group: ConsumerGroup,
        before: MemberMetadata,
        now: MemberMetadata,
        staying: Mapping[str, StayingMember],
        classic: ClassicGroup,
    ) -> bool:
        """Whether all is given out, and each member has been told the protocol of the classic group, with which it syncs."""
        topics_hash = hash_of_topics(places_of([each.told for each in staying.values()], self._topics, {}))
        return (
            now.subscribed_topic_names == before.subscribed_topic_names
            and not before.subscribed_topic_regex
            and topics_hash == group.metadata_hash.get()
            and all(_is_there(each.current, group.epoch.get()) for each in staying.values())
            and all(each.protocols[0].name == classic.protocol for each in classic.members.values())
        )

    def _records(
        self, group: ConsumerGroup, classic: ClassicGroup, moment: Moment, *, leader_id: str | None = None
    ) -> tuple[CoordinatorRecord, ...]:
        """Returns the records of a conversion; none where one change cannot have them."""
        classic.timestamp_ms = moment.wall_ms
        classic.leader_id = leader_id
        group_id = classic.group_id
        records = packed(
            (
                *(record for member_id in group.members for record in member_removal(group_id, member_id)),
                *(pattern_removal(group_id, each) for each in group.patterns),
                *group_removal(group_id),
                group_record(group_id, group_value(classic)),
            )
        )
        if size_of_records(records) > self._config.max_change_bytes:
            return ()
        for member in classic.members.values():
            timer = ClassicSessionTimer(group_id, member.member_id)
            self._timers.set(timer, moment.now_ms + member.session_timeout_ms)
        self._timers.set(RecoveryTimer(group_id), moment.now_ms)
        return records

    def _group(self, group_id: str, group: ConsumerGroup, staying: Mapping[str, StayingMember]) -> ClassicGroup | None:
        """Returns the classic group of members; None where there cannot or may not be one."""
        if not self._config.downgrades:
            return None
        classic = ClassicGroup(group_id)
        places = places_of([each.told for each in staying.values()], self._topics, {})  # of each name once
        for member_id, each in staying.items():
            member = classic_member(member_id, each.told, each.current, places.get)
            if member is None:
                return None
            classic.add(member)
        classic.generation = group.epoch.get()
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.protocol = classic.chosen_protocol()
        has_room = (
            len(classic.members) <= self._classic.max_size and classic.size_bytes <= self._classic.max_group_bytes
        )
        return classic if has_room and classic.protocol is not None else None


def _staying(group: ConsumerGroup, going: Collection[str]) -> dict[str, StayingMember] | None:
    """Returns the members that stay; None where one of them is of KIP-848, without a look at all others."""
    found: dict[str, StayingMember] = {}
    for member_id, told in group.members.items():
        if member_id in going:
            continue
        if classic_of(told) is None:
            return None
        found[member_id] = StayingMember(told, group.current.get(member_id, MemberAssignment()))
    return found


def _is_there(current: MemberAssignment, epoch: int) -> bool:
    """Whether a member has what it is to have in an epoch."""
    return current.epoch == epoch and current.state is MemberState.STABLE
