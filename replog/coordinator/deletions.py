"""Deletes groups with their offsets: in several changes where they do not fit into one.

Offsets go first, the group itself with the last of them.  Until then nobody may join it or commit to it, so that nothing which
was acknowledged meanwhile goes, too.  What a deletion leaves that ends in the middle, because the coordinator does or may not
serve, is an empty group with fewer offsets: deleting it again goes on.
"""

from __future__ import annotations

from itertools import islice

from replog.coordinator.all_groups import AllGroups
from replog.coordinator.consumers.requests import DeleteGroupResponse
from replog.coordinator.offsets.cleaner import Removals
from replog.coordinator.offsets.config import OffsetsConfig
from replog.coordinator.offsets.state import OffsetState, removal_record
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import Work
from replog.coordinator.runtime.machine import Outcome
from replog.coordinator.runtime.messages import Reply
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
)


class Deletions:
    """The groups of a shard that are being deleted."""

    def __init__(self, groups: AllGroups, offsets: OffsetState, config: OffsetsConfig) -> None:
        self._groups = groups
        self._offsets = offsets
        self._config = config
        self._going: set[str] = set()

    def stop(self) -> None:
        """Forgets what has begun."""
        self._going.clear()

    def check_stays(self, group_id: str) -> None:
        """Checks that a group may be used.

        Raises:
            CoordinatorLoadInProgressError: It is being deleted, which takes a moment.
        """
        if group_id in self._going:
            raise CoordinatorLoadInProgressError(f"group {group_id!r} is being deleted; ask again a little later")

    def delete(self, request_id: int, group_id: str) -> Work:
        """Deletes a group.

        Raises:
            GroupIdNotFoundError: There is no such group.
            NonEmptyGroupError: It has members.
            CoordinatorNotAvailableError: The log did not take the changes.
        """
        self.check_stays(group_id)
        group = self._groups.find(group_id)
        offsets = self._offsets.of_group(group_id)
        if group is None and not offsets:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        if group is not None and group.members:
            raise NonEmptyGroupError(f"group {group_id!r} has {len(group.members)} members: stop them first")
        self._going.add(group_id)
        try:
            for _ in range(2 + 2 * len(offsets)):  # more than it takes, unless they are taken back again and again
                records, is_last = self._some(group_id)
                if is_last:
                    break
                yield Outcome(records)
            else:
                raise CoordinatorNotAvailableError(f"offsets of group {group_id!r} could not be deleted; ask again")
        finally:
            self._going.discard(group_id)
        yield Outcome(records, (Reply(request_id, DeleteGroupResponse()),))

    def _some(self, group_id: str) -> tuple[tuple[CoordinatorRecord, ...], bool]:
        """Returns the records of the next change, and whether it is the last one."""
        offsets = self._offsets.of_group(group_id)
        removals = Removals(self._config)
        room = removals.room(group_id)
        removals.add(group_id, [removal_record(group_id, each) for each in islice(offsets, room)])
        is_last = len(offsets) <= room
        if is_last:
            removals.add(group_id, self._groups.removal(group_id))
            self._groups.classic.forget_unwritten(group_id)
        return tuple(removals.records), is_last
