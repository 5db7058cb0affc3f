"""Groups of both kinds: which of them a name stands for, and when one may take the place of the other.

A group without members is replaced when members of the other kind join: its offsets stay, and its records are removed with the
first change that is written for the new one.  One with members is converted (`replog.coordinator.conversion`).  There is only one
with members in the log; where a change is taken back, this coordinator may still know members of the classic protocol that wait:
the log counts, and they are asked to join again.
"""

from __future__ import annotations

from collections.abc import Iterable

from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.groups import ClassicGroups
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups
from replog.coordinator.records import CoordinatorRecord


class AllGroups:
    """The groups of a shard, as their offsets see them (replog.coordinator.offsets.owners).

    Attributes:
        classic: The groups of the classic protocol.
        consumers: The groups of KIP-848.
    """

    def __init__(self, classic: ClassicGroups, consumers: ConsumerGroups) -> None:
        self.classic = classic
        self.consumers = consumers

    def group_ids(self) -> Iterable[str]:
        """Returns their ids."""
        return dict.fromkeys((*self.consumers.group_ids(), *self.classic.group_ids()))

    def find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Returns a group; None where there is none."""
        classic, consumers = self.classic.find(group_id), self.consumers.find(group_id)
        if consumers is not None and consumers.members:
            return consumers
        return classic if classic is not None and (classic.members or consumers is None) else consumers

    def is_as_written(self, group_id: str) -> bool:
        """Whether the log says of a group what this coordinator knows: not, while it refuses that a classic one has no members."""
        group = self.find(group_id)
        return not isinstance(group, ClassicGroup) or group.record is self.classic.written(group_id)

    def removal(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that remove a group; none where there is none, or it has members."""
        group = self.find(group_id)
        if group is None or group.members:
            return ()
        return (*self.classic.removal(group_id), *self.consumers.removal(group_id))
