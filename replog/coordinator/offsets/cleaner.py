"""Removes offsets that nobody needs: those kept long enough after their group was empty, those of deleted topics.

A pass over all groups is made in steps of bounded length, each a timer.  What is left of a pass when the leadership moves is
found by the next leader's: an offset does no harm, and one of an earlier topic of the same name is not told.

An offset is not old while a transaction that is open has one of its partition, and its group is not removed.  Those of a deleted
topic go at once, pending ones among them.

A topic may have been made anew under its name while a pass goes on: what has been committed of that one stays.

The name of a deleted topic is kept until a whole pass has looked for it, and what that has removed has committed: the log may
take it back, also behind the pass, which then is made once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Final

from msgspec import Struct

from replog.coordinator.config import OffsetsConfig
from replog.coordinator.offset_commit_codec import unpack
from replog.coordinator.offsets.owners import OffsetOwners, SimpleGroup
from replog.coordinator.offsets.state import GroupOffsets, OffsetState, TopicPartition, removal_record
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import PAUSE_MS
from replog.coordinator.runtime.machine import Moment, Timers
from replog.coordinator.topic_view import TopicView

_SIMPLE: Final = SimpleGroup()

NEXT_PASS_MS: Final = 5_000
"""How long after a pass over deleted topics, or after the log has taken something back, another one begins: many topics may be
deleted one by one while a pass goes on, and the log may refuse a lot."""


class CleaningPass(Struct, frozen=True):
    """The timer of a pass.

    Attributes:
        is_of_topics: Whether it looks for the offsets of topics that have been deleted; else for old ones.
    """

    is_of_topics: bool


class PassTimer(Struct, frozen=True):
    """What a pass over deleted topics has removed, and those before it, has committed.

    Attributes:
        number: The number of the pass.
    """

    number: int


EXPIRY: Final = CleaningPass(is_of_topics=False)
OF_TOPICS: Final = CleaningPass(is_of_topics=True)

KEY_BYTES_BESIDE_GROUP: Final = 300
"""Bytes that a key has at most beside the name of its group: that of a topic has 249."""


class Removals:
    """The records of one step, as many as fit into a change.

    Attributes:
        records: The records.
    """

    def __init__(self, config: OffsetsConfig) -> None:
        self.records: list[CoordinatorRecord] = []
        self._left = config.removals_per_step
        self._left_bytes = config.removal_bytes_per_step

    def room(self, group_id: str) -> int:
        """Returns how many more offsets of a group there is room for; of the first group, at least for one."""
        room = min(self._left, self._left_bytes // _largest_bytes(group_id))
        return room if self.records else max(room, 1)

    def add(self, group_id: str, records: Collection[CoordinatorRecord]) -> None:
        """Adds records of a group."""
        self.records += records
        self._left -= len(records)
        self._left_bytes -= len(records) * _largest_bytes(group_id)


def _largest_bytes(group_id: str) -> int:
    return len(group_id.encode()) + KEY_BYTES_BESIDE_GROUP


class _Pending(Struct):
    """What a pass has not come to.

    Attributes:
        group_ids: The groups, the next one last.
        partitions: The partitions of that one; None where it has not been begun with.
    """

    group_ids: list[str]
    partitions: list[TopicPartition] | None = None


class OffsetCleaner:
    """Makes the passes, one step at a time."""

    def __init__(
        self, state: OffsetState, owners: OffsetOwners, topics: TopicView, config: OffsetsConfig, timers: Timers
    ) -> None:
        self._state = state
        self._owners = owners
        self._topics = topics
        self._config = config
        self._timers = timers
        self._pending: dict[CleaningPass, _Pending] = {}
        self._passes = 0  # that have begun over deleted topics
        self._deleted: dict[str, int] = {}  # each topic with the number of the first pass that finds all of it

    def start(self, moment: Moment) -> None:
        """Begins to look for old offsets now and then."""
        self._timers.set(EXPIRY, moment.now_ms + self._config.check_interval_ms)

    def stop(self) -> None:
        """Forgets the passes that have begun."""
        self._pending.clear()
        self._deleted.clear()

    def forget_topics(self, topics: frozenset[str], moment: Moment) -> None:
        """Begins to remove the offsets of all groups in topics that have been deleted."""
        self._look_for(topics)
        self._timers.set_if_none(OF_TOPICS, moment.now_ms)

    def was_taken_back(self, moment: Moment) -> None:
        """Begins another pass over all topics later: what has been removed of them may be back behind the one that goes on."""
        if self._deleted:
            self._look_for(self._deleted)
            self._timers.set_if_none(OF_TOPICS, moment.now_ms + NEXT_PASS_MS)

    def _look_for(self, topics: Collection[str]) -> None:
        self._deleted |= dict.fromkeys(topics, self._passes + 1)

    def settle(self, timer: PassTimer) -> None:
        """Forgets the topics of which a pass has found all."""
        self._deleted = {topic: number for topic, number in self._deleted.items() if number > timer.number}

    def step(self, which: CleaningPass, moment: Moment) -> tuple[CoordinatorRecord, ...]:
        """Makes a step of a pass, and sets the timer of the next one.

        Returns:
            The records that remove what was found.
        """
        pending = self._pending.get(which)
        if pending is None:
            pending = self._pending[which] = _Pending(self._groups(which))
        removals = Removals(self._config)
        visits = 0
        group_ids = pending.group_ids
        while group_ids and visits < self._config.visits_per_step and removals.room(group_ids[-1]) > 0:
            visits += self._visit(pending, which, removals, self._config.visits_per_step - visits, moment)
        if group_ids:
            self._timers.set(which, moment.now_ms + PAUSE_MS)
        else:
            self._end(which, moment)
        return tuple(removals.records)

    def _groups(self, which: CleaningPass) -> list[str]:
        """Returns the groups that a pass visits, the last one first."""
        if which == OF_TOPICS:
            self._passes += 1
            return list(self._state.group_ids())
        return list(dict.fromkeys([*self._state.group_ids(), *self._owners.group_ids()]))

    def _end(self, which: CleaningPass, moment: Moment) -> None:
        del self._pending[which]
        if which == EXPIRY:
            self.start(moment)
            return
        self._timers.want(PassTimer(self._passes), 0, is_anew=True)
        if any(number > self._passes for number in self._deleted.values()):
            self._timers.set(OF_TOPICS, moment.now_ms + NEXT_PASS_MS)

    def _visit(
        self, pending: _Pending, which: CleaningPass, removals: Removals, visits_max: int, moment: Moment
    ) -> int:
        """Looks at offsets of one group, as many as may be, and adds the records that remove what is chosen.

        Returns:
            How many were looked at, and the group.
        """
        group_id = pending.group_ids[-1]
        if which == EXPIRY and not self._owners.is_as_written(group_id):
            pending.partitions = None
            pending.group_ids.pop()  # the log may say that it has members, whose offsets would go
            return 1
        kept = self._state.of_group(group_id)
        partitions = list(self._state.partitions(group_id)) if pending.partitions is None else pending.partitions
        topics = {partition[0] for partition in partitions[-visits_max:]}
        is_chosen = self._chooser(which, group_id, kept, topics, moment)
        room, chosen, visits = removals.room(group_id), list[TopicPartition](), 1
        while partitions and visits <= visits_max and len(chosen) < room:
            partition = partitions.pop()
            visits += 1
            if is_chosen(partition):
                chosen.append(partition)
        removals.add(group_id, [removal_record(group_id, each) for each in chosen])
        pending.partitions = partitions or None
        if not partitions:
            pending.group_ids.pop()
            if which == EXPIRY and len(chosen) == len(kept) and not self._state.pending.has_group(group_id):
                removals.add(group_id, self._owners.removal(group_id))
        return visits

    def _chooser(
        self, which: CleaningPass, group_id: str, kept: GroupOffsets, topics: Collection[str], moment: Moment
    ) -> Callable[[TopicPartition], bool]:
        if which == OF_TOPICS:
            return lambda partition: partition[0] in self._deleted and self._is_of_earlier(partition, group_id, kept)
        owner = self._owners.find(group_id) or _SIMPLE
        subscribed = cache(lambda: frozenset(owner.subscribed_among(topics)))  # which may walk over all members
        retention_ms = self._config.retention_ms

        pending = self._state.pending.partitions(group_id)

        def is_old(partition: TopicPartition) -> bool:
            if partition not in kept or partition in pending:
                return False
            times = kept.times(partition)
            start_ms = owner.retention_starts_ms(times.commit_timestamp)
            if start_ms is None or partition[0] in subscribed():
                return False
            end_ms = start_ms + retention_ms if times.expire_timestamp < 0 else times.expire_timestamp
            return moment.wall_ms >= end_ms

        return is_old

    def _is_of_earlier(self, partition: TopicPartition, group_id: str, kept: GroupOffsets) -> bool:
        """Whether there are offsets, and none is known to be of the topic that has the name now."""
        values = [unpack(each) for each in self._state.pending.of_partition(group_id, partition)]
        if partition in kept:
            values.append(kept[partition])
        found = self._topics.find(partition[0])
        is_there = partition in kept or partition in self._state.pending.partitions(group_id)
        return is_there and (found is None or all(each.topic_id != found[0] for each in values))
