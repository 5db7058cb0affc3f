"""The groups of the classic protocol of a shard: what the log says of them, and what this coordinator knows beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from replog.coordinator.classic.group import ClassicGroup
from replog.coordinator.classic.records import group_from_value, group_removal
from replog.coordinator.messages import GroupMetadataKey, GroupMetadataValue
from replog.coordinator.records import CoordinatorRecord
from replog_timeline import SnapshotRegistry, TimelineHashMap


class ClassicGroups:
    """All groups of a shard.

    A group is made of its record when it is asked for first.  It goes when its removal is replayed: should that be taken back,
    it is made of its record again.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._written = TimelineHashMap[str, GroupMetadataValue](registry)
        self._groups: dict[str, ClassicGroup] = {}
        self._pending_members = 0

    @property
    def pending_members(self) -> int:
        """The number of members of all groups that have an id and have not come back with it."""
        return self._pending_members

    def group_ids(self) -> Iterable[str]:
        """Returns their ids: of those that the log has, and of those that begin."""
        return dict.fromkeys((*self._written, *self._groups))

    def find(self, group_id: str) -> ClassicGroup | None:
        """Returns a group; None where there is none."""
        group = self._groups.get(group_id)
        if group is None and (value := self._written.get(group_id)) is not None:
            group = self._groups[group_id] = group_from_value(group_id, value)
        return group

    def keep(self, group: ClassicGroup) -> None:
        """Keeps a group that begins, with its first member."""
        self._groups[group.group_id] = group

    def forget_void(self, group: ClassicGroup) -> None:
        """Forgets a group without members of which nothing was ever written."""
        if not group.members and not group.pending and group.record is None:
            self._groups.pop(group.group_id, None)

    def forget_unwritten(self, group_id: str) -> None:
        """Forgets a group without members that the log does not have: those that were told an id for it join anew."""
        group = self._groups.get(group_id)
        if group is not None and not group.members and group_id not in self._written:
            self.forget(group_id)

    def forget(self, group_id: str) -> list[int]:
        """Forgets what is no part of the log of a group; returns the ids of the requests that wait."""
        group = self._groups.pop(group_id, None)
        if group is None:
            return []
        self._pending_members -= len(group.pending)
        return group.waiting_requests()

    def add_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Lets a member come back with an id."""
        group.pending[member_id] = None
        self._pending_members += 1

    def drop_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Waits no more for a member to come back with its id; does nothing if nobody does."""
        if member_id in group.pending:
            del group.pending[member_id]
            self._pending_members -= 1

    def written(self, group_id: str) -> GroupMetadataValue | None:
        """Returns what the log says of a group; None where it says nothing."""
        return self._written.get(group_id)

    def removal(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that remove a group; none where there is none, or it has members."""
        group = self.find(group_id)
        if group is None or group.members or group_id not in self._written:
            return ()
        return (group_removal(group_id),)

    def stop(self) -> list[int]:
        """Forgets what is no part of the log; returns the ids of the requests that wait."""
        waiting = [request_id for group in self._groups.values() for request_id in group.waiting_requests()]
        self._groups.clear()
        self._pending_members = 0
        return waiting

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replays(self) -> dict[type, Any]:
        """Returns the functions that replay a key and a value, by the class of the key."""
        return {GroupMetadataKey: self._replay}

    def _replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self._written[key.group] = value
            return
        self._written.pop(key.group, None)
        self.forget(key.group)
