"""Between two decisions of a large group there is a pause: what changes in it is decided together, by itself, and soon."""

from __future__ import annotations

from random import Random

import pytest
from consumer_bytes import wanting
from consumer_kit import CONFIG, SESSION_MS, beat, pass_time
from consumer_kit import joining as consuming
from mixed_kit import coming
from msgspec.structs import replace
from shard_kit import FULL, Host, Topics, group_host, topic_id

from replog.coordinator.classic.requests import ClassicHeartbeat, JoinGroupResponse, Protocol, SyncGroup
from replog.coordinator.config import ClassicConfig, ConsumersConfig
from replog.coordinator.consumers import decisions
from replog.coordinator.consumers.decisions import NOTHING_TOLD, TOO_LARGE_PAUSE_MS
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.consumers.targets import PAUSE_MS_MAX, Question, pause_ms
from replog.coordinator.group_machine import GroupMachine, GroupsConfig
from replog.errors import RecordTooLargeError

PARTITIONS = 5_000
PAUSE_MS = 100
SMALL = 40


@pytest.fixture(autouse=True)
def nothing_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "DECIDED_AT_ONCE", 10 * PARTITIONS)


@pytest.fixture
def host() -> Host:
    found = group_host(Topics(large=PARTITIONS, small=SMALL), CONFIG)
    found.lead()
    return found


def joined(host: Host, member_id: str, topic: str = "large") -> int:
    """The epoch that a new member is told."""
    epoch: int = host.ask(consuming(member_id, topic)).member_epoch
    return epoch


def group_of(host: Host) -> ConsumerGroup:
    found: ConsumerGroup = host.machine._groups.find("g")
    return found


def epochs(host: Host) -> tuple[int, int]:
    """That of the group, and that of its targets."""
    return group_of(host).epoch.get(), group_of(host).target_epoch.get()


def shares(host: Host) -> list[int]:
    """How many partitions each member is to have."""
    return sorted(sum(map(len, target.values())) for target in group_of(host).targets.values())


def test_members_that_join_in_a_pause_are_given_their_shares_together(host: Host) -> None:
    assert [joined(host, each) for each in "ab"] == [1, 2]
    assert [joined(host, each) for each in "cd"] == [2, 2]
    assert epochs(host) == (4, 2)
    assert shares(host) == [PARTITIONS / 2] * 2
    pass_time(host, PAUSE_MS - 1)
    assert epochs(host) == (4, 2)
    pass_time(host, PAUSE_MS)
    assert epochs(host) == (4, 4)
    assert shares(host) == [PARTITIONS / 4] * 4
    assert host.ask(beat("d", 2)).member_epoch == 4


def test_a_group_that_is_left_alone_decides_at_once_again(host: Host) -> None:
    joined(host, "a")
    joined(host, "b")
    pass_time(host, PAUSE_MS)
    assert joined(host, "c") == 3
    assert epochs(host) == (3, 3)


def test_a_heartbeat_in_a_pause_has_a_departure_decided_when_it_is_over(host: Host) -> None:
    for each in "abc":
        joined(host, each)
        pass_time(host, host.now_ms + PAUSE_MS)
    joined(host, "d")
    host.ask(beat("a", -1))
    host.ask(beat("b", 2))
    assert epochs(host) == (5, 4)
    pass_time(host, host.now_ms + PAUSE_MS)
    assert epochs(host) == (5, 5)
    assert group_of(host).targets.keys() == {"b", "c", "d"}


def test_small_groups_never_wait(host: Host) -> None:
    assert [joined(host, each, "small") for each in "abcd"] == [1, 2, 3, 4]
    assert epochs(host) == (4, 4)


def test_nothing_is_decided_of_a_change_that_the_log_refuses(host: Host) -> None:
    joined(host, "a")
    joined(host, "b")
    host.refuses = FULL
    host.submit(consuming("c", "large"))
    host.refuses = None
    records = len(host.log)
    pass_time(host, PAUSE_MS)
    assert len(host.log) == records
    assert epochs(host) == (2, 2)


def test_a_decision_that_the_log_refuses_is_made_again(host: Host) -> None:
    for each in "abc":
        joined(host, each)
    host.refuses = FULL
    pass_time(host, PAUSE_MS)
    assert epochs(host) == (3, 2)
    host.refuses = None
    pass_time(host, SESSION_MS - 1)
    assert epochs(host) == (3, 3)


def test_nothing_is_decided_of_a_group_that_all_have_left(host: Host) -> None:
    for each in "abc":
        joined(host, each)
    for each in "abc":
        host.ask(beat(each, -1))
    records = len(host.log)
    pass_time(host, PAUSE_MS)
    assert len(host.log) == records


def test_a_new_coordinator_decides_by_the_next_heartbeat(host: Host) -> None:
    for each in "abc":
        joined(host, each)
    host.lead()
    pass_time(host, PAUSE_MS)
    assert epochs(host) == (3, 2)
    assert host.ask(beat("c", 2)).member_epoch == 3
    assert epochs(host) == (3, 3)


def test_a_member_of_the_classic_protocol_does_not_wait(host: Host) -> None:
    """It would be told to join again until the pause is over."""
    joined(host, "a")
    joined(host, "b")
    answer: JoinGroupResponse = host.ask(
        coming(protocols=(Protocol("range", wanting("large")),), session_timeout_ms=10_000)
    )
    assert answer.generation == 3
    assert epochs(host) == (3, 3)


def test_a_join_whose_targets_no_change_can_hold_is_refused_in_a_pause_too() -> None:
    """Were it taken, the group would have no targets: every later decision would be too large."""
    topics = Topics(**{f"t{number}": PARTITIONS // 20 for number in range(20)})
    config = GroupsConfig(consumers=ConsumersConfig(SESSION_MS, 100, max_change_bytes=45_000))
    host = Host(
        lambda registry, timers: GroupMachine(registry, timers, config, topics, Random(1)), max_batch_bytes=45_000
    )
    host.lead()
    refusals: list[str] = []
    for number in range(120):
        try:
            host.ask(consuming(f"m{number}", *topics.partitions, server_assignor="range"))
        except RecordTooLargeError as error:
            refusals.append(str(error))
    refused = len(refusals)
    assert 20 < refused < 100
    assert all("divide the topics among several groups" in each for each in refusals)
    pass_time(host, PAUSE_MS)
    assert epochs(host) == (120 - refused, 120 - refused)
    assert sum(shares(host)) == PARTITIONS


def test_the_first_to_join_after_all_have_left_does_not_wait(host: Host) -> None:
    for each in "abc":
        joined(host, each)
    for each in "abc":
        host.ask(beat(each, -1))
    assert joined(host, "d") == 7
    assert epochs(host) == (7, 7)


LIMIT = 45_000


def limited(topics: Topics) -> Host:
    """A coordinator whose changes are small."""
    config = GroupsConfig(
        consumers=ConsumersConfig(SESSION_MS, 100, max_change_bytes=LIMIT),
        classic=ClassicConfig(100, 600_000, 0, 5_000, max_size=10, max_group_bytes=1_000_000),
    )
    host = Host(
        lambda registry, timers: GroupMachine(registry, timers, config, topics, Random(1)), max_batch_bytes=LIMIT
    )
    host.lead()
    return host


def speak_for(host: Host, for_ms: int, *members: str) -> set[int]:
    """Has members speak, and give back what they are to, until the group has decided; returns the epochs that they are told."""
    until_ms, told = host.now_ms + for_ms, set()
    while host.now_ms < until_ms:
        for each in members:
            told.add(host.ask(beat(each, group_of(host).current[each].epoch, owned={})).member_epoch)
        pass_time(host, host.now_ms + 100)
        if group_of(host).epoch.get() == group_of(host).target_epoch.get():
            break
    return told


def test_members_keep_their_targets_where_topics_have_grown_too_large() -> None:
    """Each of their heartbeats would fail otherwise, and each look in vain at all partitions."""
    topics = Topics(large=5_000)
    host = limited(topics)
    assert joined(host, "a") == 1
    topics.change(large=20_000)
    assert speak_for(host, 2 * TOO_LARGE_PAUSE_MS, "a") == {1}
    status = host.shard.status()
    assert (status.timer_failures, epochs(host)) == (3, (2, 1))
    assert "group 'g', of 1 members and 20000 partitions, are 80" in status.timer_failure
    topics.change(large=6_000)
    speak_for(host, TOO_LARGE_PAUSE_MS, "a")
    assert epochs(host) == (3, 3)
    assert host.ask(beat("a", 1)).member_epoch == 3
    assert host.shard.status().timer_failures == 3


def test_what_fits_into_a_change_but_not_beside_a_heartbeat_is_decided_by_itself() -> None:
    topics = Topics(large=5_000)
    host = limited(topics)
    joined(host, "a")
    topics.change(large=6_000)
    assert host.ask(beat("a", 1)).member_epoch == 1
    pass_time(host, host.now_ms + PAUSE_MS)
    assert (epochs(host), host.shard.status().timer_failures) == ((2, 2), 0)
    assert host.ask(beat("a", 1)).member_epoch == 2


def test_a_group_that_has_become_too_large_is_mended_by_its_members_one_after_the_other() -> None:
    topics = Topics(large=5_000, small=SMALL)
    host = limited(topics)
    for each in "ab":
        host.ask(consuming(each, "large", "small"))
        pass_time(host, host.now_ms + PAUSE_MS)
    speak_for(host, 5 * PAUSE_MS, "a", "b")
    topics.change(large=30_000)
    speak_for(host, 5 * PAUSE_MS, "a", "b")
    assert host.shard.status().timer_failures > 0
    for each in "ab":
        host.ask(beat(each, -1))
        host.ask(consuming(each, "small"))
    speak_for(host, SESSION_MS, "a", "b")
    assert shares(host) == [SMALL / 2] * 2


def test_a_departure_by_which_targets_fit_again_is_decided_soon() -> None:
    topics = Topics(large=5_000, huge=1)
    host = limited(topics)
    joined(host, "a")
    pass_time(host, host.now_ms + PAUSE_MS * 2)
    host.ask(consuming("b", "huge"))
    topics.change(huge=30_000)
    speak_for(host, 20 * PAUSE_MS, "a", "b")
    assert host.shard.status().timer_failures == 1
    host.ask(beat("b", -1))
    speak_for(host, 2 * SESSION_MS, "a")
    assert epochs(host) == (4, 4)
    assert host.now_ms < TOO_LARGE_PAUSE_MS / 3


def test_a_member_of_the_classic_protocol_is_content_with_what_it_has_where_no_more_can_be_decided() -> None:
    """It would be told to join, and to join again, as there is a newer epoch that it never comes to."""
    topics = Topics(large=5_000)
    host = limited(topics)
    joined(host, "a")
    wants = (Protocol("range", wanting("large")),)
    told: JoinGroupResponse = host.ask(coming(protocols=wants, session_timeout_ms=10_000))
    speak_for(host, PAUSE_MS * 2, "a")
    topics.change(large=30_000)
    speak_for(host, 5 * PAUSE_MS, "a")
    assert host.shard.status().timer_failures == 1
    told = host.ask(coming(told.member_id, protocols=wants, session_timeout_ms=10_000))
    host.ask(SyncGroup("g", told.member_id, told.generation, {}))
    host.ask(ClassicHeartbeat("g", told.member_id, told.generation))


def test_the_pause_grows_with_members_partitions_and_names_up_to_a_bound() -> None:
    members = {name: replace(NOTHING_TOLD, subscribed_topic_names=["t", name]) for name in "ab"}
    shared = dict.fromkeys("cdef", members["a"])
    places = {"t": (topic_id("t"), 30), "a": (topic_id("a"), 5), "b": None}
    question = Question(1, {**members, **shared}, {}, {"x.*": frozenset("xyz")}, places)
    assert question.visits() == 6 + 2 * 2 + 3 + 35, "members, names of each list once, of each pattern, and partitions"
    assert [pause_ms(visits) for visits in (0, 49, 100, 1_000, 300_000)] == [0, 0, 2, 20, PAUSE_MS_MAX]
