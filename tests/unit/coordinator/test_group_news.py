"""Members of KIP-848 that wait for news: when they are told that a heartbeat is worth it, and that nobody waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from shard_kit import Host, Topics, group_host, topic_id

from replog.coordinator.assignors import Assignment, assignment_of
from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers import news
from replog.coordinator.consumers.requests import ConsumerHeartbeat, GroupNews, WaitForGroupNews
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.runtime.messages import Reply, ReplyError, Resigned, Tick

T = topic_id("t")
NEWS, NONE = GroupNews(is_news=True), GroupNews(is_news=False)


@pytest.fixture
def host() -> Host:
    found = group_host(Topics(t=4), GroupsConfig(consumers=ConsumersConfig(45_000, 5_000)))
    found.lead()
    return found


def beat(host: Host, member_id: str, epoch: int, owned: Assignment | None = None) -> int:
    """Speaks, fully where it joins; returns the epoch that it is told."""
    more: dict[str, Any] = {"rebalance_timeout_ms": 300, "subscribed_topics": ("t",), "owned": {}} if not epoch else {}
    if owned is not None:
        more["owned"] = owned
    epoch_told: int = host.ask(ConsumerHeartbeat("g", member_id, epoch, **more)).member_epoch
    return epoch_told


def wait(host: Host, member_id: str, epoch: int, wait_ms: int = 30_000, group_id: str = "g") -> int:
    """Waits for news; returns the id of the request."""
    return host.submit(WaitForGroupNews(group_id, member_id, epoch, wait_ms))


def told(host: Host, request_id: int) -> GroupNews | None:
    """The answer; None while there is none."""
    host.commit()
    answer = host.answers.get(request_id)
    assert answer is None or isinstance(answer, Reply)
    return None if answer is None else answer.response


def pass_time(host: Host, for_ms: int) -> None:
    end_ms = host.now_ms + for_ms
    while (due_ms := host.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
        host.now_ms = max(host.now_ms, due_ms)
        host.step(Tick())
    host.now_ms = end_ms


def settled(host: Host) -> None:
    """Members a and b, with two partitions each."""
    beat(host, "a", 0)
    beat(host, "b", 0)
    beat(host, "a", 1)
    beat(host, "a", 1, parts(0, 1))
    assert (beat(host, "a", 2), beat(host, "b", 2)) == (2, 2)
    pass_time(host, news.PAUSE_MS)


def three_settled(host: Host) -> None:
    """Members a, b and c, all in epoch 3."""
    settled(host)
    beat(host, "c", 0)
    for member_id in "ab":
        beat(host, member_id, 2)
        beat(host, member_id, 2, parts(*{"a": (0,), "b": (2,)}[member_id]))
    epochs = {member_id: beat(host, member_id, 3) for member_id in "abc"}
    assert epochs == {"a": 3, "b": 3, "c": 3}
    pass_time(host, news.PAUSE_MS)


def parts(*partitions: int) -> Assignment:
    return assignment_of((T, each) for each in partitions)


def test_a_member_hears_of_one_that_joins_and_the_new_one_of_what_is_given_back(host: Host) -> None:
    beat(host, "a", 0)
    first = wait(host, "a", 1)
    assert told(host, first) is None
    beat(host, "b", 0)
    assert told(host, first) == NEWS
    second = wait(host, "b", 2)
    beat(host, "a", 1)
    pass_time(host, news.PAUSE_MS)
    assert told(host, second) is None, "nothing was given back"
    beat(host, "a", 1, parts(0, 1))
    pass_time(host, news.PAUSE_MS)
    assert told(host, second) == NEWS


def test_of_those_who_stay_one_has_the_targets_decided_and_the_others_hear_of_them(host: Host) -> None:
    three_settled(host)
    waits = {member_id: wait(host, member_id, 3) for member_id in "abc"}
    beat(host, "c", -1)
    assert told(host, waits["c"]) == NEWS
    heard = [member_id for member_id in "ab" if told(host, waits[member_id]) == NEWS]
    assert len(heard) == 1
    assert beat(host, heard[0], 3) == 4
    (other,) = {"a", "b"} - set(heard)
    assert told(host, waits[other]) is None, "looked at a moment ago"
    pass_time(host, news.PAUSE_MS)
    assert told(host, waits[other]) == NEWS


def test_nobody_hears_before_the_change_has_committed(host: Host) -> None:
    beat(host, "a", 0)
    waiting = wait(host, "a", 1)
    host.submit(ConsumerHeartbeat("g", "b", 0, rebalance_timeout_ms=300, subscribed_topics=("t",), owned={}))
    assert waiting not in host.answers
    assert told(host, waiting) == NEWS


@pytest.mark.parametrize(("member_id", "epoch", "group_id"), [("x", 1, "g"), ("a", 7, "g"), ("a", 1, "other")])
def test_who_is_no_member_or_behind_hears_at_once(host: Host, member_id: str, epoch: int, group_id: str) -> None:
    beat(host, "a", 0)
    assert told(host, wait(host, member_id, epoch, group_id=group_id)) == NEWS
    assert not host.machine._news._waiting


def test_who_has_waited_for_long_enough_is_told_that_there_is_none(host: Host) -> None:
    beat(host, "a", 0)
    short = wait(host, "a", 1, wait_ms=1_000)
    pass_time(host, 999)
    assert told(host, short) is None
    pass_time(host, 1)
    assert told(host, short) == NONE
    late = wait(host, "a", 1, wait_ms=2**31 - 1)
    pass_time(host, 30_000)
    beat(host, "a", 1)
    pass_time(host, news.WAIT_MS_MAX - 30_000)
    assert told(host, late) == NONE
    assert told(host, wait(host, "a", 1, wait_ms=-5)) == NONE


def test_a_member_waits_once(host: Host) -> None:
    beat(host, "a", 0)
    first, second = wait(host, "a", 1), wait(host, "a", 1)
    assert (told(host, first), told(host, second)) == (NONE, None)
    timers = host.shard.status().timers
    wait(host, "a", 1)
    assert host.shard.status().timers == timers


def test_who_waits_fails_with_the_leadership(host: Host) -> None:
    beat(host, "a", 0)
    waiting = wait(host, "a", 1)
    host.step(Resigned())
    assert isinstance(host.answers[waiting], ReplyError)
    host.lead()
    assert not host.machine._news._waiting
    again = wait(host, "a", 1)
    beat(host, "b", 0)
    assert told(host, again) == NEWS


def test_nothing_is_kept_of_a_group_that_nobody_waits_for(host: Host) -> None:
    settled(host)
    waiting = wait(host, "a", 2)
    beat(host, "b", -1)
    assert told(host, waiting) == NEWS
    pass_time(host, news.PAUSE_MS)
    assert not host.machine._news._waiting
    assert not host.machine._news._looked_ms


def test_nothing_is_kept_of_a_group_whose_last_waiting_member_has_died(host: Host) -> None:
    settled(host)
    waiting = wait(host, "a", 2)
    host.ask(ConsumerHeartbeat("g", "b", 2, rebalance_timeout_ms=400))
    pass_time(host, news.PAUSE_MS)
    assert told(host, waiting) is None
    assert host.machine._news._looked_ms, "the group was looked at"
    pass_time(host, 30_000)
    assert told(host, waiting) == NONE
    assert not host.machine._news._waiting
    assert not host.machine._news._looked_ms


def test_who_begins_to_wait_after_a_change_has_the_targets_decided_too(host: Host) -> None:
    settled(host)
    beat(host, "b", -1)
    waiting = wait(host, "a", 2)
    pass_time(host, news.PAUSE_MS)
    assert told(host, waiting) == NEWS
    assert beat(host, "a", 2) == 3
    assert told(host, wait(host, "a", 3)) is None


def test_where_the_one_who_was_told_has_died_another_has_the_targets_decided(host: Host) -> None:
    three_settled(host)
    waits = [wait(host, member_id, 3) for member_id in "ab"]
    beat(host, "c", -1)
    assert sorted(told(host, each) is None for each in waits) == [False, True]
    pass_time(host, news.PAUSE_MS)
    assert [told(host, each) for each in waits] == [NEWS, NEWS]
    assert host.machine._news._timers.get(news.NewsTimer("g")) is None, "nobody waits any more"


def test_nobody_is_woken_in_the_pause_between_two_decisions_but_by_news_of_its_own() -> None:
    topics = Topics(t=4, large=8_000)
    host = group_host(topics, GroupsConfig(consumers=ConsumersConfig(45_000, 5_000)))
    host.lead()
    settled(host)
    host.ask(ConsumerHeartbeat("g", "l", 0, rebalance_timeout_ms=300, subscribed_topics=("large",), owned={}))
    for each in "ab":
        beat(host, each, 2)
    beat(host, "a", 3, parts(0, 1))
    host.ask(ConsumerHeartbeat("g", "l", -1))  # in the pause behind the decision about 8,000 partitions
    waiting = [wait(host, each, 3) for each in "ab"]
    pass_time(host, 150)
    assert [told(host, each) for each in waiting] == [None, None]
    pass_time(host, 100)
    assert [told(host, each) for each in waiting] == [NEWS, None]
