"""A group of KIP-848 becomes one of the classic protocol when its last member of the former goes, and others are left.

Its epoch is the generation, and each member keeps what it has.  As what has gone with the last one has to be given away, and
members may be on their way to their targets, they are asked to join again; the record says so by naming no leader, so that the
next coordinator asks them, too.  All of it is one change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from replog.coordinator.classic.config import ClassicConfig
from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.records import group_record, group_value
from replog.coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE
from replog.coordinator.classic.turn import RecoveryTimer, SessionTimer
from replog.coordinator.consumers.config import TopicView
from replog.coordinator.consumers.group import ConsumerGroup, MemberMetadata, classic_of
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.coordinator.consumers.records import group_removal, member_removal, pattern_removal
from replog.coordinator.conversion.config import ConversionConfig
from replog.coordinator.conversion.translation import classic_member, size_of
from replog.coordinator.records import Record
from replog.coordinator.runtime.machine import Moment, Timers


class StayingMember(NamedTuple):
    """A member as it is to be in the classic group."""

    told: MemberMetadata
    current: MemberAssignment


class Downgrades:
    """Converts groups."""

    def __init__(self, config: ConversionConfig, classic: ClassicConfig, topics: TopicView, timers: Timers) -> None:
        self._config = config
        self._classic = classic
        self._topics = topics
        self._timers = timers

    def of_going(
        self, group_id: str, group: ConsumerGroup, going: Collection[str], moment: Moment
    ) -> tuple[Record, ...]:
        """Returns the records of a conversion when members go; none where the group stays what it is."""
        staying = _staying(group, going)
        is_due = staying and any(classic_of(group.members[each]) is None for each in going)
        return self._records(group_id, group, staying, moment, is_settled=False) if is_due else ()

    def of_replacement(
        self, group_id: str, group: ConsumerGroup, holder: str, joining: tuple[str, StayingMember], moment: Moment
    ) -> tuple[Record, ...]:
        """Returns the records of a conversion when one of the classic protocol takes a static member's place.

        The others need not join again, if everybody has what it is to have, and the new one wants what the old one did.

        Args:
            group_id: The id of the group.
            group: The group.
            holder: The member whose place is taken.
            joining: The member that takes it, and its id.
            moment: The time.
        """
        if classic_of(group.members[holder]) is not None:
            return ()
        epoch = group.epoch.get()
        member_id, member = joining
        staying = {**_staying(group, (holder,)), member_id: member}
        before = group.members[holder]
        wants_the_same = (
            member.told.subscribed_topic_names == before.subscribed_topic_names and not before.subscribed_topic_regex
        )
        is_settled = wants_the_same and all(
            each.current.epoch == epoch and each.current.state is MemberState.STABLE for each in staying.values()
        )
        return self._records(group_id, group, staying, moment, is_settled=is_settled)

    def _records(
        self,
        group_id: str,
        group: ConsumerGroup,
        staying: Mapping[str, StayingMember],
        moment: Moment,
        *,
        is_settled: bool,
    ) -> tuple[Record, ...]:
        classic = self._group(group_id, group, staying) if self._config.downgrades else None
        if classic is None:
            return ()
        classic.timestamp_ms = moment.wall_ms
        if not is_settled or any(each.protocols[0].name != classic.protocol for each in classic.members.values()):
            classic.leader_id = None  # each has been told the protocol that it likes best, and syncs with that
        records = (
            *(record for member_id in group.members for record in member_removal(group_id, member_id)),
            *(pattern_removal(group_id, each) for each in group.patterns),
            *group_removal(group_id),
            group_record(group_id, group_value(classic)),
        )
        if size_of(records) > self._config.max_change_bytes:
            return ()
        for member in classic.members.values():
            timer = SessionTimer(group_id, member.member_id)
            self._timers.set(timer, moment.now_ms + member.session_timeout_ms)
        self._timers.set(RecoveryTimer(group_id), moment.now_ms)
        return records

    def _group(self, group_id: str, group: ConsumerGroup, staying: Mapping[str, StayingMember]) -> ClassicGroup | None:
        """Returns the classic group of members; None where there cannot be one."""
        classic = ClassicGroup(group_id)
        for member_id, each in staying.items():
            member = classic_member(member_id, each.told, each.current, self._topics)
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


def _staying(group: ConsumerGroup, going: Collection[str]) -> dict[str, StayingMember]:
    return {
        member_id: StayingMember(told, group.current.get(member_id, MemberAssignment()))
        for member_id, told in group.members.items()
        if member_id not in going
    }
