"""Keeps up to date which topics match the patterns of groups' members.

A pattern that a member brings is resolved within its heartbeat if that takes one step; else it is work for the background, and
the member has its topics some heartbeats later, as in Kafka.  A timer looks now and then for topics that have come or gone:
each such change moves the group, so that topics which are made one after the other move it once, not each.

A pattern matches what the member may describe that has named it last, as in Kafka (KAFKA-18813): with others, whoever may read a
group would find the names of hidden topics letter by letter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers.checks import TOPICS_MAX
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups, MemberMetadata
from replog.coordinator.consumers.records import epoch_record, pattern_record, pattern_removal
from replog.coordinator.consumers.requests import Sees
from replog.coordinator.consumers.targets import hash_of_topics, places_of
from replog.coordinator.name_pattern import NamePattern
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import Background, Work
from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.topic_view import TopicView
from replog.errors import BrokerNotAvailableError, InvalidRegularExpressionError
from replog.metadata.persistent_map import difference

PATTERNS_KEPT: Final = 200
"""The patterns that are remembered: each may hold a MiB of RE2's memory beside the names that it matches."""
NAMES_CHARS_MAX: Final = 400_000
"""The characters of the names that one pattern may match: they are written in one record."""
STEP_COST: Final = 200_000
"""What one step may cost, in instructions of RE2: a millisecond or two, unless a single name takes longer."""
NAME_COST: Final = 200
"""What a name costs beside RE2's work."""


SEEN_AT_ONCE: Final = 500
"""The names of which one step asks whether they may be described: a millisecond or two."""
HEARD_MAX: Final = 10_000
"""The patterns of groups of which it is known by whose rights they match."""


class PatternScans:
    """The patterns of a shard.

    Args:
        topics: The topics of the cluster.
    """

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self._scans: OrderedDict[str, _Scan] = OrderedDict()

    def clear(self) -> None:
        """Forgets everything."""
        self._scans.clear()

    def step(self, pattern: str) -> frozenset[str] | None:
        """Looks at some names.

        Returns:
            The topics that match; None where there are names left to be looked at.

        Raises:
            InvalidRegularExpressionError: It is no pattern that can be used here, or matches too much.
        """
        scan = self._scans.get(pattern)
        if scan is None:
            scan = self._scans[pattern] = _Scan(NamePattern(pattern, "or name the topics"))
            if len(self._scans) > PATTERNS_KEPT:
                self._scans.popitem(last=False)
        self._scans.move_to_end(pattern)
        return scan.step(self._topics.by_name)

    def check(self, pattern: str) -> None:
        """Checks a pattern that a member goes on to want.

        Raises:
            InvalidRegularExpressionError: It has been found to match too much.
        """
        scan = self._scans.get(pattern)
        if scan is not None:
            scan.check()


class _Scan:
    """What one pattern matches.

    A name that has been looked at is not looked at again: behind the first pass over all of them, only topics that have come or
    gone since cost something.  What is known is shared by all groups of a shard; it is no part of the log, and a pattern that was
    not asked for in a long time is forgotten.

    Invariants:
        - `_found` is what matches in `_seen`, but for the names that `_pending` has not come to.
    """

    def __init__(self, pattern: NamePattern) -> None:
        self._pattern = pattern
        self._seen: Mapping[str, object] = {}
        self._pending: Iterator[tuple[str, bool]] | None = None
        self._found: set[str] = set()
        self._chars = 0
        self._result: frozenset[str] = frozenset()

    def step(self, now: Mapping[str, object]) -> frozenset[str] | None:
        if self._pending is None:
            if now is self._seen:
                self.check()
                return self._result
            self._pending, self._seen = _changes(self._seen, now), now
        cost = 0
        for name, is_there in self._pending:
            self._look_at(name, is_there=is_there)
            cost += NAME_COST + len(name) * self._pattern.size
            if cost >= STEP_COST:
                return None
        self._pending = None
        self.check()
        self._result = frozenset(self._found)
        return self.step(now) if now is self._seen else None

    def _look_at(self, name: str, *, is_there: bool) -> None:
        if not is_there:
            if name in self._found:
                self._found.remove(name)
                self._chars -= len(name)
        elif name not in self._found and self._pattern.matches(name):
            self._found.add(name)
            self._chars += len(name)

    def check(self) -> None:
        if len(self._found) > TOPICS_MAX or self._chars > NAMES_CHARS_MAX:
            raise InvalidRegularExpressionError(
                f"the pattern matches {len(self._found)} topics, whose names have {self._chars} characters, and may match "
                f"{TOPICS_MAX} with {NAMES_CHARS_MAX}: make it narrower, or name the topics"
            )


def _changes(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """Yields the names that have come or gone, each with whether it is there now."""
    if not before:  # nothing has been looked at: a difference of all of them would be one long step
        yield from ((name, True) for name in now)
        return
    for name, value in difference(before, now).items():
        if value is None or name not in before:
            yield name, value is not None


class PatternTimer(Struct, frozen=True):
    """It is time to look which topics match the patterns of a group."""

    group_id: str


class PatternKeeper:
    """The patterns of the groups of a shard."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: TopicView,
        config: ConsumersConfig,
        timers: Timers,
        background: Background,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._config = config
        self._timers = timers
        self._background = background
        self._scans = PatternScans(topics)
        self._busy: set[str] = set()  # the groups whose patterns are being resolved
        self._heard: OrderedDict[tuple[str, str], Sees | None] = OrderedDict()  # by group and pattern

    def stop(self) -> None:
        """Forgets what is no part of the log."""
        self._scans.clear()
        self._busy.clear()
        self._heard.clear()

    def hear(self, key: tuple[str, str], sees: Sees | None, *, is_named: bool) -> None:
        """Notes by whose rights the pattern of a group matches.

        Args:
            key: The group, and the pattern of the member that speaks; "" where it has none.
            sees: What the member may describe; None: everything.
            is_named: Whether it names the pattern now; one that it has named before stays with whoever was heard.
        """
        if key[1] and (is_named or key not in self._heard):
            self._heard[key] = sees
            self._heard.move_to_end(key)
            if len(self._heard) > HEARD_MAX:
                self._heard.popitem(last=False)

    def begin(self, group_id: str, moment: Moment) -> None:
        """Begins to look what the patterns of a group match, and does so again and again while it has some."""
        if group_id not in self._busy and self._wanted(group_id):
            self._busy.add(group_id)
            self._background.add(self._refresh(group_id), moment)

    def check(self, pattern: str) -> None:
        """Checks the pattern of a member; "" where it has none.

        Raises:
            InvalidRegularExpressionError: It has been found to match too much.
        """
        self._scans.check(pattern)

    def of_members(
        self,
        group_id: str,
        known: Mapping[str, frozenset[str]],
        members: Mapping[str, MemberMetadata],
        pattern: str,
        records: list[CoordinatorRecord],
        moment: Moment,
    ) -> Mapping[str, frozenset[str]]:
        """Adds the records of what a heartbeat changes in the patterns of a group.

        Args:
            group_id: The group.
            known: What has been resolved before.
            members: The members, as they are after the heartbeat.
            pattern: The pattern of the member that speaks; "" where it has none.
            records: The records of the heartbeat.
            moment: The time.

        Returns:
            The patterns that are resolved now, with their topics.

        Raises:
            InvalidRegularExpressionError: The member's pattern cannot be used, or the group has too many.
        """
        if not pattern and not known:
            return known
        wanted = _patterns_of(members.values())
        records += [pattern_removal(group_id, each) for each in known if each not in wanted]
        found = {each: topics for each, topics in known.items() if each in wanted}
        if pattern and pattern not in found:
            if len(wanted) > self._config.max_patterns:
                raise InvalidRegularExpressionError(
                    f"the members of group {group_id!r} have {len(wanted)} patterns, and may have "
                    f"{self._config.max_patterns}: use one that another member has, or name the topics"
                )
            topics, sees = self._scans.step(pattern), self._heard.get((group_id, pattern))
            if topics is None or (sees is not None and len(topics) > SEEN_AT_ONCE):
                self._timers.set_if_none(PatternTimer(group_id), moment.now_ms)
            else:
                found[pattern] = topics = topics if sees is None else frozenset(filter(sees, topics))
                records.append(self._record(group_id, pattern, topics, moment))
                self._timers.set_if_none(PatternTimer(group_id), moment.now_ms + self._config.pattern_refresh_ms)
        return found

    def _refresh(self, group_id: str) -> Work:
        """Resolves all patterns of a group, each in as many steps as it takes, and sets the timer for the next time."""
        try:
            for pattern in sorted(self._wanted(group_id)):
                # the members that have it are told with their next heartbeats; who may describe what is known soon
                with suppress(InvalidRegularExpressionError, BrokerNotAvailableError):
                    while (topics := self._scans.step(pattern)) is None:
                        yield Outcome()
                    seen = yield from self._seen(group_id, pattern, topics)
                    yield Outcome(self._news(group_id, pattern, seen))
        finally:
            self._busy.discard(group_id)
        if self._wanted(group_id):
            due_ms = self._background.moment.now_ms + self._config.pattern_refresh_ms
            self._timers.set(PatternTimer(group_id), due_ms)

    def _seen(self, group_id: str, pattern: str, topics: frozenset[str]) -> Generator[Outcome, None, frozenset[str]]:
        """Returns the topics that the pattern matches by the rights of its member; none more where nobody was heard yet."""
        key = group_id, pattern
        if key not in self._heard and self._config.hides_topics:
            group = self._groups.find(group_id)
            return frozenset() if group is None else topics & group.patterns.get(pattern, frozenset())
        sees = self._heard.get(key)
        if sees is None:
            return topics
        seen: set[str] = set()
        for number, name in enumerate(topics, 1):
            if sees(name):
                seen.add(name)
            if number % SEEN_AT_ONCE == 0:
                yield Outcome()
        return frozenset(seen)

    def _wanted(self, group_id: str) -> Collection[str]:
        """Returns the patterns that members of a group have."""
        group = self._groups.find(group_id)
        return () if group is None else _patterns_of(group.members.values())

    def _news(self, group_id: str, pattern: str, topics: frozenset[str]) -> tuple[CoordinatorRecord, ...]:
        """Returns the records of what a pattern matches, and of the group's new epoch; none where that is as it was."""
        group = self._groups.find(group_id)
        if (
            group is None
            or pattern not in _patterns_of(group.members.values())
            or group.patterns.get(pattern) == topics
        ):
            return ()
        patterns = {**group.patterns, pattern: topics}
        metadata_hash = hash_of_topics(places_of(group.members.values(), self._topics, patterns))
        epoch = epoch_record(group_id, group.epoch.get() + 1, metadata_hash)
        return (self._record(group_id, pattern, topics, self._background.moment), epoch)

    def _record(self, group_id: str, pattern: str, topics: frozenset[str], moment: Moment) -> CoordinatorRecord:
        return pattern_record(group_id, pattern, topics, self._topics.version, moment.wall_ms)


def removal_of_patterns(group_id: str, group: ConsumerGroup, going: Collection[str]) -> list[CoordinatorRecord]:
    """Returns the records that forget the patterns which only members that go have had.

    Args:
        group_id: The group.
        group: Its state.
        going: The ids of the members that go.
    """
    if not group.patterns:
        return []
    left = _patterns_of(each for member_id, each in group.members.items() if member_id not in going)
    return [pattern_removal(group_id, each) for each in group.patterns if each not in left]


def _patterns_of(members: Iterable[MemberMetadata]) -> set[str]:
    return {each.subscribed_topic_regex for each in members if each.subscribed_topic_regex}
