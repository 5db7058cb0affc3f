"""Decides what each member of a group is to have, once its members, their wishes or the topics are others than before.

What a decision costs grows with the group, so between two of a large one there is a pause (`targets.pause_ms`): what changes
meanwhile is decided together (the idea of KIP-1263), and until then members are told the targets of before.

A decision is one change, which has a bound.  Where that may be reached, a member that joins or wants something else has it decided
at once, and is refused if the targets are too large.  Nobody can be refused where topics have grown.  Then members keep the
targets that they have, which is told in the broker's log, and the decision is tried again now and then, and with each change:
a member that comes, goes, or wants something else may make the targets small enough.

The decision of a large group is made beside the loop: of a question that does not change, and it counts only if the same question
stands when it comes back, or, where a group goes on changing, for the members that are still there.  Until then members are told the targets of before; the first one of a group is told that it has nothing,
in an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from replog.coordinator.assignors import Assignment, Assignor
from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups, MemberMetadata, classic_of
from replog.coordinator.consumers.member import MemberAssignment
from replog.coordinator.consumers.pattern_keeper import PatternKeeper
from replog.coordinator.consumers.records import epoch_record, target_epoch_record, target_record
from replog.coordinator.consumers.targets import (
    Question,
    decide_targets,
    hash_of_topics,
    pause_ms,
    places_of,
    targets_bytes_max,
)
from replog.coordinator.group_records import packed, size_of_records
from replog.coordinator.messages import ConsumerGroupTargetAssignmentMemberKey
from replog.coordinator.rebalance_reasons import RebalanceCounts, RebalanceReason
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.machine import Beside, Moment, Outcome, Timers
from replog.coordinator.topic_view import TopicView
from replog.errors import RecordTooLargeError

TOO_LARGE_PAUSE_MS: Final = 30_000
"""How long a group waits whose targets are too large for one change before they are decided again, unless it changes."""

DECIDED_AT_ONCE: Final = 2_000
"""Members, partitions and names of topics that are decided on within a heartbeat: some ten milliseconds."""

STALE_MAX: Final = 4
"""Answers in a row that came too late for a group that goes on changing; the next one counts for those members that are still there, or no
member would ever get anything while others come."""

_SHARES_TOLD: Final = 3
"""How often a partition may stand in the records of one heartbeat: in targets, in what a member has, in what it gives back."""

_SHARES_TOLD_LATER: Final = 2
"""As above, where targets are decided by themselves."""

NOTHING_TOLD: Final = MemberMetadata(None, None, subscribed_topic_regex="", server_assignor=None)
"""The words of a member that has said nothing yet."""


class TargetsTimer(Struct, frozen=True):
    """The pause behind a decision is over, and a group has changed in it."""

    group_id: str


class Decided(Struct, frozen=True):
    """A decision.

    Attributes:
        question: What it was made of.
        targets: The targets of all members.
        records: The records of those that are others than before, and of the epoch in which they were decided, with their bytes:
            to write a megabyte of them is most of the work.
    """

    question: Question
    targets: Mapping[str, Assignment]
    records: tuple[CoordinatorRecord, ...]


class Change(Struct):
    """What one heartbeat, or one join, leads to, before it is replayed.

    Attributes:
        old: What the member has told before; None where it is new.
        current: What it has, if need be from the member whose place it takes.
        replaced_id: The member whose place it takes; "" where there is none.
    """

    member_id: str
    old: MemberMetadata | None
    current: MemberAssignment
    replaced_id: str = ""

    def leads_to(self, current: MemberAssignment) -> bool:
        """Whether what a member has then is news, which has to be written."""
        return self.old is None or bool(self.replaced_id) or current != self.current


class Decisions:
    """The targets of the groups of a shard."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: TopicView,
        config: ConsumersConfig,
        timers: Timers,
        patterns: PatternKeeper,
        rebalances: RebalanceCounts,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._config = config
        self._timers = timers
        self._patterns = patterns
        self._counts = rebalances
        self._asked: set[str] = set()  # groups of which something is decided beside the loop
        self._decided: dict[str, Decided] = {}  # what has come back, for the timer of the group
        self._stale_counts: dict[str, int] = {}  # answers that came too late since the last one that counted

    def stop(self) -> None:
        """Forgets what is no part of the log."""
        self._asked.clear()
        self._decided.clear()
        self._stale_counts.clear()

    def target_of(
        self,
        group: ConsumerGroup,
        group_id: str,
        change: Change,
        told: MemberMetadata,
        records: list[CoordinatorRecord],
        moment: Moment,
    ) -> tuple[Assignment, int]:
        """Returns what the member that speaks is to have; where something has changed, this begins a new epoch, and decides anew.

        Args:
            group: The group; an empty one where it begins.
            group_id: The id of the group.
            change: The member that speaks.
            told: What the member has told by now.
            records: The records of the change, to which those of the epoch and of the targets are added.
            moment: The time.

        Returns:
            The target of the member, and the epoch in which it was decided.

        Raises:
            RecordTooLargeError: The member makes the targets too large for one change.
        """
        epoch, target_epoch = group.epoch.get(), group.target_epoch.get()
        is_pause = _is_pause(group, told, moment)
        if (epoch == target_epoch or is_pause) and self._is_news_free(group, change, told):
            if epoch != target_epoch:
                self._decide_later(group_id, group.pause_ends_ms)
            return group.targets.get(change.member_id, {}), target_epoch
        members, targets = dict(group.members.items()), dict(group.targets.items())
        members.pop(change.replaced_id, None)
        members[change.member_id] = told
        if change.replaced_id:
            targets[change.member_id] = targets.pop(change.replaced_id, {})
            records.append(target_record(group_id, change.member_id, targets[change.member_id]))
        pattern = told.subscribed_topic_regex or ""
        patterns = self._patterns.of_members(group_id, group.patterns, members, pattern, records, moment)
        question = Question(epoch, members, targets, patterns, places_of(members.values(), self._topics, patterns))
        topics_hash = self._topics_hash(group, change, told, question)
        leaves_own_place = bool(change.replaced_id) and change.member_id in group.members  # and its target to others
        wants_the_same = _wishes(change.old or NOTHING_TOLD, group.patterns) == _wishes(told, patterns)
        is_as_before = wants_the_same and not leaves_own_place
        if epoch == 0 or not is_as_before or topics_hash != group.metadata_hash.get():
            epoch += 1
            self._counts[RebalanceReason.JOINED if change.old is None else RebalanceReason.CHANGED] += 1
            records.append(epoch_record(group_id, epoch, topics_hash))
        if epoch == target_epoch:
            return targets.get(change.member_id, {}), target_epoch
        if self._is_large(question) and self._fits(group_id, question, _SHARES_TOLD_LATER):
            self._decide_later(group_id, moment.now_ms if epoch != group.epoch.get() else group.pause_ends_ms)
            if target_epoch == 0:
                target_epoch = epoch
                records += (target_epoch_record(group_id, epoch), epoch_record(group_id, epoch + 1, topics_hash))
            return targets.get(change.member_id, {}), target_epoch
        fits = self._fits(group_id, question)
        is_none_of_its_doing = (change.old is not None and is_as_before) or group.is_too_large
        if (is_pause and fits) or (is_none_of_its_doing and (is_pause or not fits)):
            is_new_epoch = epoch != group.epoch.get()
            self._decide_later(group_id, group.decides_again_ms if is_new_epoch else group.pause_ends_ms)
            return targets.get(change.member_id, {}), target_epoch
        decided = decide_targets(question, self._config.assignors)
        changed = _target_records(group_id, targets, decided, epoch)
        if not fits:
            self._check_size(group_id, decided, changed)
        records += changed
        group.decides_again_ms = moment.now_ms + pause_ms(question.visits())
        return decided[change.member_id], epoch

    def decide(self, timer: TargetsTimer, moment: Moment) -> Outcome:
        """Decides new targets of a group that has changed in a pause; of a large one, has them decided beside the loop.

        Returns:
            The records of the targets; none where they are decided, or will be.

        Raises:
            RecordTooLargeError: They are not one change: the members keep those that they have, and the timer is set again.
        """
        group_id, ready = timer.group_id, self._decided.pop(timer.group_id, None)
        group = self._groups.find(group_id)
        stale_count = self._stale_counts.pop(group_id, 0)
        if group is None or not group.members or group.epoch.get() == group.target_epoch.get():
            return Outcome()
        question = self._question(group)
        if ready is not None and ready.question != question:
            stale_count += 1
            ready = _left_of(ready, group) if stale_count > STALE_MAX else None
        if ready is None and self._is_large(question):
            self._stale_counts[group_id] = stale_count
            return self._begin(timer, question)
        if ready is None:
            ready = _decided(group_id, question, self._config.assignors)
        group.decides_again_ms = moment.now_ms + pause_ms(ready.question.visits())
        if ready.question.epoch != question.epoch:
            self._decide_later(group_id, group.decides_again_ms)
        if not self._fits(group_id, question):
            try:
                self._check_size(group_id, ready.targets, ready.records)
            except RecordTooLargeError:
                group.too_large_epoch, group.tries_again_ms = group.epoch.get(), moment.now_ms + TOO_LARGE_PAUSE_MS
                self._decide_later(group_id, group.pause_ends_ms)
                raise
        return Outcome(ready.records)

    def _question(self, group: ConsumerGroup) -> Question:
        members, patterns = dict(group.members.items()), dict(group.patterns.items())
        places = places_of(members.values(), self._topics, patterns)
        return Question(group.epoch.get(), members, dict(group.targets.items()), patterns, places)

    def _begin(self, timer: TargetsTimer, question: Question) -> Outcome:
        """Begins to decide a question beside the loop, unless an older one of the group is decided: its answer begins this again."""
        if timer.group_id in self._asked:
            return Outcome()
        self._asked.add(timer.group_id)
        decide = partial(_decided, timer.group_id, question, self._config.assignors)
        return Outcome(beside=(Beside(timer, decide),))

    def take_decided(self, timer: TargetsTimer, decided: Decided | None, moment: Moment) -> None:
        """Takes in what was decided beside the loop, for the timer of the group; None: it has failed."""
        self._asked.discard(timer.group_id)
        if decided is not None:
            self._decided[timer.group_id] = decided
            self._timers.set(timer, moment.now_ms)

    def _decide_later(self, group_id: str, deadline_ms: int) -> None:
        timer = TargetsTimer(group_id)
        due_ms = self._timers.get(timer)
        if due_ms is None or deadline_ms < due_ms:
            self._timers.set(timer, deadline_ms)

    # ---- the size of a decision -------------------------------------------------------------------------------------

    def _is_large(self, question: Question) -> bool:
        return question.visits() > DECIDED_AT_ONCE

    def _fits(self, group_id: str, question: Question, shares_told: int = _SHARES_TOLD) -> bool:
        """Whether a decision for these members is one change for certain, also within a heartbeat and what that leads to.

        Where it is not, the member that makes it too large hears of it now, and for others it is decided by itself.
        """
        bytes_max = shares_told * targets_bytes_max(group_id, question)
        return bytes_max <= self._config.max_change_bytes

    def _check_size(
        self, group_id: str, decided: Mapping[str, Assignment], changed: Collection[CoordinatorRecord]
    ) -> None:
        """Checks that the records of a decision are one change.

        Raises:
            RecordTooLargeError: They are not.
        """
        size_bytes, most = size_of_records(changed), self._config.max_change_bytes
        if size_bytes > most:
            count = sum(len(each) for target in decided.values() for each in target.values())
            raise RecordTooLargeError(
                f"the targets of group {group_id!r}, of {len(decided)} members and {count} partitions, are {size_bytes} bytes, "
                f"and one change may have {most}: divide the topics among several groups, or have fewer members"
            )

    # ---- whether something has changed ------------------------------------------------------------------------------

    def _is_news_free(self, group: ConsumerGroup, change: Change, told: MemberMetadata) -> bool:
        """Whether a member is as it was, and so are the topics: most heartbeats, which must not look at all of a large group."""
        is_as_it_was = told == change.old and not change.replaced_id
        return is_as_it_was and group.topics_seen == (self._topics.version, group.metadata_hash.get())

    def _topics_hash(self, group: ConsumerGroup, change: Change, told: MemberMetadata, question: Question) -> int:
        """Returns the hash of the topics that a group reads, counted anew only where it may be another one."""
        known_hash = group.metadata_hash.get()
        if self._is_news_free(group, change, told):
            return known_hash
        found = hash_of_topics(question.places)
        if found == known_hash:  # else it is looked at again, for the records of the new epoch may be refused
            group.topics_seen = (self._topics.version, known_hash)
        return found


def _is_pause(group: ConsumerGroup, told: MemberMetadata, moment: Moment) -> bool:
    """Whether a change by this member is decided later.

    One of the classic protocol would join again and again until then.
    """
    return group.is_pausing(moment.now_ms) and classic_of(told) is None


def _target_records(
    group_id: str, targets: Mapping[str, Assignment], decided: Mapping[str, Assignment], epoch: int
) -> tuple[CoordinatorRecord, ...]:
    """Returns the records of those targets that are others than before, and that of the epoch in which they were decided."""
    changed = (each for each in decided if decided[each] != targets.get(each, {}))
    return (*(target_record(group_id, each, decided[each]) for each in changed), target_epoch_record(group_id, epoch))


def _decided(group_id: str, question: Question, assignors: Mapping[str, Assignor]) -> Decided:
    """Decides; needs only its arguments, so that any thread may."""
    targets = decide_targets(question, assignors)
    records = _target_records(group_id, question.targets, targets, question.epoch)
    return Decided(question, targets, packed(records))


def _left_of(stale: Decided, group: ConsumerGroup) -> Decided | None:
    """Returns what an answer that came too late says of the members that are still there.

    None where it is not of an earlier epoch for certain: members that it does not know would never be decided on, or it would undo what
    was decided since.
    """
    if not group.target_epoch.get() < stale.question.epoch < group.epoch.get():
        return None
    records = tuple(each for each in stale.records if _is_left(each, group))
    return Decided(stale.question, stale.targets, records)


def _is_left(record: CoordinatorRecord, group: ConsumerGroup) -> bool:
    key = record.key
    return not isinstance(key, ConsumerGroupTargetAssignmentMemberKey) or key.member_id in group.members


def _wishes(
    value: MemberMetadata, patterns: Mapping[str, frozenset[str]]
) -> tuple[Iterable[str], frozenset[str] | None, str | None]:
    """Returns what of a member's words decides on targets."""
    matching = patterns.get(value.subscribed_topic_regex or "")
    return value.subscribed_topic_names, matching, value.server_assignor
