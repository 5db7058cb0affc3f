"""What goes on in steps looks again when the log has taken back what it has looked at."""

from __future__ import annotations

import pytest
from consumer_kit import CONFIG, REBALANCE_MS, SESSION_MS, beat, pass_time, told
from mixed_kit import coming, consuming, mixed_host, syncing
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics, group_host, topic_id

from replog.coordinator.classic.requests import LeaveGroup, LeavingMember
from replog.coordinator.config import ConsumersConfig, OffsetsConfig
from replog.coordinator.consumers.manager import ConsumerSessionTimer
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.coordinator.group_machine import SECOND_LOOK_MS, GroupsConfig
from replog.coordinator.offsets.cleaner import NEXT_PASS_MS
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    OffsetToCommit,
    TopicToCommit,
    TopicToForget,
)
from replog.coordinator.runtime.background import PAUSE_MS
from replog.coordinator.runtime.messages import Tick
from replog.errors import ReplogError

GROUPS = 300
"""More than are taken up in one step."""


def joining(group_id: str, member_id: str, instance_id: str | None = None, **more: object) -> ConsumerHeartbeat:
    wanted = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topics": ("t",), "owned": {}} | more
    return ConsumerHeartbeat(group_id, member_id, 0, instance_id, **wanted)  # type: ignore[arg-type]


def commit_offsets(host: Host, *names: str) -> None:
    """Commits an offset of group `g` in each topic."""
    host.ask(CommitOffsets("g", tuple(TopicToCommit(each, NO_TOPIC_ID, (OffsetToCommit(0, 1),)) for each in names)))


def make_steps(host: Host) -> None:
    for _ in range(5):
        host.now_ms += PAUSE_MS
        host.step(Tick())


def test_a_member_whose_removal_was_taken_back_while_sessions_began_has_one() -> None:
    """Goal: a dead member does not keep its partitions for ever."""
    host = group_host(Topics(t=4), CONFIG)
    host.piece = 10_000
    host.lead()
    for number in range(GROUPS):
        host.ask(joining(f"g{number}", "b", "i"))
    host.lead()
    *_, group_id = (
        name
        for name in (f"g{number}" for number in range(GROUPS))
        if host.shard._timers.get(ConsumerSessionTimer(name, "b")) is None
    )
    base_offset = len(host.log)
    host.submit(LeaveGroup(group_id, (LeavingMember("", "i"),)))
    make_steps(host)
    host.lose(base_offset)
    pass_time(host, host.now_ms + SECOND_LOOK_MS + SESSION_MS + 10 * PAUSE_MS)
    answer = host.ask(joining(group_id, "a"))
    assert answer.assignment == {topic_id("t"): frozenset(range(4))}


def test_a_group_whose_conversion_was_taken_back_while_sessions_began_has_some() -> None:
    host = mixed_host()
    host.piece = 10_000
    for number in range(GROUPS):
        host.ask(replace(consuming("m"), group_id=f"g{number}"))
    host.ask(consuming("m"))
    joined = host.ask(coming())
    host.ask(syncing(joined.member_id, joined.generation))
    host.lead()
    base_offset = len(host.log)
    host.submit(consuming("m", -1))
    make_steps(host)
    host.lose(base_offset)
    pass_time(host, host.now_ms + SECOND_LOOK_MS + 2 * SESSION_MS)
    assert host.machine._groups.find("g").members.keys() == set()


def test_patterns_are_looked_at_again_where_the_log_refuses_that_the_last_member_leaves() -> None:
    pytest.importorskip("re2")
    topics = Topics(t1=2)
    host = group_host(topics, GroupsConfig(consumers=ConsumersConfig(SESSION_MS, 100, pattern_refresh_ms=300)))
    host.lead()
    answer = host.ask(joining("g", "a", subscribed_topics=None, subscribed_regex="t.*"))
    epoch, assignment = answer.member_epoch, answer.assignment
    while not host.machine._consumers._patterns._busy:
        host.now_ms += 1
        host.step(Tick())
        host.commit()
    base_offset = len(host.log)
    host.submit(beat("a", -1))
    make_steps(host)
    host.lose(base_offset)
    topics.change(t2=2)
    for _ in range(2 * SECOND_LOOK_MS // 100):
        pass_time(host, host.now_ms + 100)
        epoch, given = told(host, beat("a", epoch, assignment))
        assignment = assignment if given is None else given
    assert assignment.keys() == {topic_id("t1"), topic_id("t2")}


def test_offsets_of_a_deleted_topic_go_though_the_log_refused_it_once() -> None:
    host = group_host(Topics(), CONFIG)
    host.lead()
    commit_offsets(host, "t")
    host.refuses = FULL
    host.submit(ForgetTopics(frozenset({"t"})))
    host.refuses = None
    pass_time(host, 2 * SECOND_LOOK_MS)
    assert host.ask(FetchOffsets("g")).topics == ()


def test_offsets_of_all_deleted_topics_go_though_the_log_takes_back_several_passes() -> None:
    """Goal: a topic is not forgotten by the pass over the next one while what was removed of it may come back."""
    host = group_host(Topics(), CONFIG)
    host.lead()
    commit_offsets(host, "t", "u")
    base_offset = len(host.log)
    for name in "tu":
        host.submit(ForgetTopics(frozenset({name})))
    assert len(host.log) == base_offset + 2
    host.lose(base_offset)
    pass_time(host, 2 * NEXT_PASS_MS)
    assert host.ask(FetchOffsets("g")).topics == ()


def test_offsets_that_come_back_behind_a_pass_are_looked_for_again() -> None:
    host = group_host(Topics(), replace(CONFIG, offsets=OffsetsConfig(visits_per_step=2)))
    host.lead()
    commit_offsets(host, "t", *(f"u{number}" for number in range(20)))
    commit_offsets(host, "v")  # which is visited first
    base_offset = len(host.log)
    host.submit(DeleteOffsets("g", (TopicToForget("v", (0,)),)))
    host.submit(ForgetTopics(frozenset({"t", "v"})))
    make_steps(host)
    host.lose(base_offset)
    pass_time(host, 3 * NEXT_PASS_MS)
    request_id = host.submit(FetchOffsets("g"))
    while request_id not in host.answers:
        make_steps(host)
    assert {each.topic for each in host.response(request_id).topics} == {f"u{number}" for number in range(20)}


def test_the_names_of_deleted_topics_are_kept_until_their_offsets_are_gone_for_good() -> None:
    """Goal: a coordinator of a cluster whose topics live for a day does not grow."""
    host = group_host(Topics(), CONFIG)
    host.lead()
    commit_offsets(host, "t", "u")
    host.submit(ForgetTopics(frozenset({"t"})))
    committed = len(host.log)
    host.submit(CommitOffsets("g", (TopicToCommit("x", NO_TOPIC_ID, (OffsetToCommit(0, 1),)),)))
    host.submit(ForgetTopics(frozenset({"u"})))
    assert host.machine._cleaner._deleted.keys() == {"t", "u"}
    host.commit(committed)
    assert host.machine._cleaner._deleted.keys() == {"u"}
    host.commit()
    assert not host.machine._cleaner._deleted


def test_where_nothing_was_taken_back_nothing_is_looked_at_again() -> None:
    host = group_host(Topics(t=4), CONFIG)
    host.lead()
    host.ask(joining("g", "a"))
    assert host.shard.next_deadline_ms() == host.now_ms + SESSION_MS
    host.refuses = ReplogError("no")
    host.submit(joining("g", "b"))
    host.refuses = None
    for _ in range(2 * SECOND_LOOK_MS // 100):
        pass_time(host, host.now_ms + 100)
        told(host, beat("a", 1))
    assert host.shard.next_deadline_ms() == host.now_ms + SESSION_MS
