"""Members that wait to hear that their next heartbeat would tell them something.

KIP-848 has no such request: a member hears of a change by a heartbeat, which may be seconds away.  Members of our own client
ask for news beside their heartbeats, and speak as soon as there is some: a rebalance takes round trips, not intervals.  Nothing
is decided here, and nothing is lost where an answer is: the heartbeats go on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from replog.coordinator.assignors import partitions_of
from replog.coordinator.consumers.group import ConsumerGroup, ConsumerGroups
from replog.coordinator.consumers.member import MemberState
from replog.coordinator.consumers.requests import GroupNews, WaitForGroupNews
from replog.coordinator.runtime.machine import Moment, Timers
from replog.coordinator.runtime.messages import Answer, Reply

WAIT_MS_MAX: Final = 60_000
"""The longest wait for news; a member that wants to wait longer asks again."""

PAUSE_MS: Final = 100
"""Between two looks at a group: what many members change one after the other is told together."""


class NewsTimer(Struct, frozen=True):
    """A group has changed, and members of it may have news."""

    group_id: str


class WaitTimer(Struct, frozen=True):
    """A member has waited for as long as it wanted."""

    group_id: str
    member_id: str


class _Wait(NamedTuple):
    """A member that waits.

    Attributes:
        epoch: The member epoch that it knows.
    """

    request_id: int
    epoch: int


class GroupNewsWaits:
    """One waiting request for each member at most.  No part of the log: a member that waits asks the next coordinator again.

    Args:
        groups: The groups.
        timers: The timers of the shard.
    """

    def __init__(self, groups: ConsumerGroups, timers: Timers) -> None:
        self._groups = groups
        self._timers = timers
        self._waiting: dict[str, dict[str, _Wait]] = {}
        self._looked_ms: dict[str, int] = {}

    def wait(self, request_id: int, request: WaitForGroupNews, moment: Moment) -> tuple[Answer, ...]:
        """Takes in a request; returns the answers to it, if there is news, and to an earlier one of the same member."""
        group_id, member_id = request.group_id, request.member_id
        before = self._take(group_id, member_id)
        answers = () if before is None else (Reply(before.request_id, GroupNews(is_news=False)),)
        wait = _Wait(request_id, request.member_epoch)
        if _has_news(self._groups.find(group_id), member_id, wait.epoch):
            return (*answers, Reply(request_id, GroupNews(is_news=True)))
        self._waiting.setdefault(group_id, {})[member_id] = wait
        wait_ms = max(0, min(request.wait_ms, WAIT_MS_MAX))
        self._timers.set(WaitTimer(group_id, member_id), moment.now_ms + wait_ms)
        if _is_undecided(self._groups.find(group_id)):
            self.note_change(group_id)  # nobody may have waited when it changed
        return answers

    def note_change(self, group_id: str) -> None:
        """Sets the timer for a look at a group that is another one after a record."""
        if group_id in self._waiting:
            self._look_at(group_id, self._looked_ms.get(group_id, -PAUSE_MS) + PAUSE_MS)

    def look(self, timer: NewsTimer, moment: Moment) -> tuple[Answer, ...]:
        """Returns the answers to those members of a group that have news."""
        group_id = timer.group_id
        waiting, group = self._waiting.get(group_id, {}), self._groups.find(group_id)
        found = [member_id for member_id, wait in waiting.items() if _has_news(group, member_id, wait.epoch)]
        is_due = group is not None and _is_undecided(group) and not group.is_pausing(moment.now_ms)
        if group is not None and is_due and group.members.keys().isdisjoint(found):
            found += [each for each in waiting if each in group.members][
                :1
            ]  # the member that speaks next has the targets decided
        self._looked_ms[group_id] = moment.now_ms
        taken = [self._take(group_id, member_id) for member_id in found]
        if group_id not in self._waiting:
            self._looked_ms.pop(group_id, None)  # also where nobody has waited any more
        elif group is not None and _is_undecided(group):  # the members that were told may have died: then others are
            self._look_at(group_id, max(moment.now_ms + PAUSE_MS, group.pause_ends_ms))
        return tuple(Reply(each.request_id, GroupNews(is_news=True)) for each in taken if each is not None)

    def _look_at(self, group_id: str, deadline_ms: int) -> None:
        timer = NewsTimer(group_id)
        due_ms = self._timers.get(timer)
        if due_ms is None or deadline_ms < due_ms:
            self._timers.set(timer, deadline_ms)

    def give_up(self, timer: WaitTimer) -> tuple[Answer, ...]:
        """Returns the answer to a member that has waited for long enough."""
        wait = self._take(timer.group_id, timer.member_id)
        return () if wait is None else (Reply(wait.request_id, GroupNews(is_news=False)),)

    def stop(self) -> list[int]:
        """Forgets the members that wait; returns the ids of the requests."""
        waiting = [wait.request_id for members in self._waiting.values() for wait in members.values()]
        self._waiting.clear()
        self._looked_ms.clear()
        return waiting

    def _take(self, group_id: str, member_id: str) -> _Wait | None:
        members = self._waiting.get(group_id)
        wait = None if members is None else members.pop(member_id, None)
        if wait is not None:
            self._timers.cancel(WaitTimer(group_id, member_id))
        if members is not None and not members:
            del self._waiting[group_id]
            self._looked_ms.pop(group_id, None)
        return wait


def _is_undecided(group: ConsumerGroup | None) -> bool:
    """Whether a group has changed since its targets were decided: the next heartbeat of any member decides them anew."""
    return group is not None and group.epoch.get() != group.target_epoch.get()


def _has_news(group: ConsumerGroup | None, member_id: str, epoch: int) -> bool:
    """Whether a heartbeat would tell a member another epoch or other partitions, or that it is none."""
    current = None if group is None else group.current.get(member_id)
    if group is None or current is None or member_id not in group.members or current.epoch != epoch:
        return True
    match current.state:
        case MemberState.STABLE:
            return epoch != group.target_epoch.get()
        case MemberState.UNREVOKED_PARTITIONS:
            return False  # it has been told, and says by itself when it is done
        case MemberState.UNRELEASED_PARTITIONS:
            wanted = partitions_of(group.targets.get(member_id, {})) - partitions_of(current.assigned)
            return epoch != group.target_epoch.get() or any(each not in group.holders for each in wanted)
        case MemberState.UNKNOWN:
            return True
