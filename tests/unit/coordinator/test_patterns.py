"""Patterns of topics that members of KIP-848 subscribe to: what they match, when that is known, what they may cost."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from shard_kit import FULL, Host, Topics, group_host, topic_id

from replog.coordinator.assignors import Assignment
from replog.coordinator.classic.requests import LeaveGroup, LeavingMember
from replog.coordinator.config import ConsumersConfig
from replog.coordinator.consumers import pattern_keeper
from replog.coordinator.consumers.pattern_keeper import PatternScans
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse, DeleteGroup
from replog.coordinator.describing.requests import DescribeConsumerGroup
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import ConsumerGroupRegularExpressionKey
from replog.coordinator.name_pattern import PATTERN_CHARS_MAX, NamePattern
from replog.coordinator.offsets.requests import (
    CommitOffsets,
    DeleteOffsets,
    OffsetToCommit,
    TopicToCommit,
    TopicToForget,
)
from replog.coordinator.runtime.background import PAUSE_MS
from replog.coordinator.runtime.messages import Tick
from replog.errors import ConfigError, GroupSubscribedToTopicError, InvalidRegularExpressionError

REFRESH_MS = 10_000
CONFIG = GroupsConfig(consumers=ConsumersConfig(60_000, 5_000, max_patterns=2))


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("re2", reason="the extra replog[patterns] is not installed")


@pytest.fixture
def topics() -> Topics:
    return Topics(orders_eu=1, orders_us=1, payments=1)


@pytest.fixture
def host(topics: Topics) -> Host:
    found = group_host(topics, CONFIG)
    found.lead()
    return found


def joining(member_id: str, pattern: str | None, *names: str, **more: Any) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        "g", member_id, 0, rebalance_timeout_ms=300, subscribed_topics=names, subscribed_regex=pattern, owned={}, **more
    )


def beat(member_id: str, epoch: int, **more: Any) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", member_id, epoch, **more)


def told(host: Host, request: ConsumerHeartbeat) -> tuple[int, Assignment | None]:
    answer: ConsumerHeartbeatResponse = host.ask(request)
    return answer.member_epoch, answer.assignment


def reads(*names: str) -> Assignment:
    return {topic_id(each): frozenset({0}) for each in names}


def pass_time(host: Host, span_ms: int) -> None:
    """Lets time pass, timers being run when they are due."""
    until_ms = host.now_ms + span_ms
    while (due := host.shard.next_deadline_ms()) is not None and due <= until_ms:
        host.now_ms = max(host.now_ms, due)
        host.step(Tick())
    host.now_ms = until_ms
    host.commit()


def written(host: Host) -> dict[str, list[str]]:
    """What the log says of patterns in the end."""
    found: dict[str, list[str]] = {}
    for each in host.log:
        record: Any = GROUP_RECORDS.decode(*each)
        if isinstance(record.key, ConsumerGroupRegularExpressionKey):
            if record.value is None:
                del found[record.key.regular_expression]
            else:
                found[record.key.regular_expression] = record.value.topics
    return found


# ---- what matches -------------------------------------------------------------------------------------------------------


def test_a_member_reads_what_its_pattern_matches_and_what_it_names(host: Host) -> None:
    assert told(host, joining("a", "orders_.*", "payments")) == (1, reads("orders_eu", "orders_us", "payments"))
    assert written(host) == {"orders_.*": ["orders_eu", "orders_us"]}
    assert host.ask(DescribeConsumerGroup("g")).members[0].subscribed_regex == "orders_.*"


def test_a_member_may_read_nothing_yet(host: Host) -> None:
    assert told(host, joining("a", None)) == told(host, joining("a", "")) == (1, {})


def test_the_whole_name_has_to_match(host: Host) -> None:
    assert told(host, joining("a", "orders"))[1] == {}
    assert told(host, joining("b", "orders_eu|pay"))[1] == reads("orders_eu")


def test_a_topic_that_comes_is_read_and_one_that_goes_is_not(host: Host, topics: Topics) -> None:
    told(host, joining("a", "orders_.*"))
    topics.change(orders_asia=1, other=1)
    assert told(host, beat("a", 1)) == (1, None)
    pass_time(host, REFRESH_MS + 10)
    assert told(host, beat("a", 1)) == (2, reads("orders_asia", "orders_eu", "orders_us"))
    topics.change(orders_us=0, payments=2)
    pass_time(host, REFRESH_MS + 10)
    epoch, assignment = told(host, beat("a", 2, owned=reads("orders_asia", "orders_eu")))
    assert (epoch, assignment) == (3, reads("orders_asia", "orders_eu"))
    assert written(host) == {"orders_.*": ["orders_asia", "orders_eu"]}


def test_a_pattern_matches_what_its_member_may_describe(host: Host, topics: Topics) -> None:
    """KAFKA-18813; trap: whoever may read a group found the names of hidden topics, a letter at a time."""
    may, of_asia = {"orders_us"}, reads("orders_asia")
    assert told(host, joining("a", "orders_.*", sees=may.__contains__)) == (1, reads("orders_us"))
    topics.change(orders_asia=1)
    pass_time(host, REFRESH_MS + 10)
    assert told(host, beat("a", 1, sees=may.__contains__)) == (1, None)
    may.add("orders_asia")
    pass_time(host, REFRESH_MS + 10)
    assert told(host, beat("a", 1)) == (2, {**reads("orders_us"), **of_asia})
    may.remove("orders_us")
    pass_time(host, REFRESH_MS + 10)
    assert told(host, beat("a", 2, owned=of_asia)) == (3, of_asia)
    assert written(host) == {"orders_.*": ["orders_asia"]}
    told(host, joining("b", "orders_.*", sees=lambda _: True))
    pass_time(host, REFRESH_MS + 10)
    assert written(host) == {"orders_.*": ["orders_asia", "orders_eu", "orders_us"]}, "who has named it last"


def test_the_next_coordinator_shows_nothing_more_before_it_has_heard_a_member(topics: Topics) -> None:
    host = group_host(topics, GroupsConfig(consumers=ConsumersConfig(60_000, 5_000, hides_topics=True)))
    host.lead()
    told(host, joining("a", "orders_.*", sees={"orders_us"}.__contains__))
    host.lead()
    topics.change(orders_asia=1)
    pass_time(host, REFRESH_MS + 10)
    assert written(host) == {"orders_.*": ["orders_us"]}
    told(host, beat("a", 1, sees={"orders_us", "orders_asia"}.__contains__))
    pass_time(host, REFRESH_MS + 10)
    assert written(host) == {"orders_.*": ["orders_asia", "orders_us"]}


def test_rights_to_thousands_of_topics_are_asked_in_steps(
    host: Host, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_keeper, "SEEN_AT_ONCE", 2)
    monkeypatch.setattr(pattern_keeper, "HEARD_MAX", 1)
    asked: list[str] = []

    def sees(name: str) -> bool:
        asked.append(name)
        return name != "payments"

    assert told(host, joining("a", ".*", sees=sees)) == (1, {})
    assert len(asked) == 2, "three topics are two steps, and none within a heartbeat"
    pass_time(host, 10 * PAUSE_MS)
    assert set(asked) == {"orders_eu", "orders_us", "payments"}
    assert told(host, beat("a", 1, sees=sees))[1] == reads("orders_eu", "orders_us")


def test_topics_that_come_one_after_the_other_move_the_group_once(host: Host, topics: Topics) -> None:
    told(host, joining("a", "orders_.*"))
    records = len(host.log)
    for number in range(20):
        topics.change(**{f"orders_{number}": 1})
        told(host, beat("a", 1))
        pass_time(host, REFRESH_MS // 20 - 1)
    assert len(host.log) == records
    pass_time(host, REFRESH_MS + 10)
    epoch, assignment = told(host, beat("a", 1))
    assert (epoch, len(assignment or ())) == (2, 22)


def test_nothing_is_written_while_topics_stay_or_others_come(host: Host, topics: Topics) -> None:
    told(host, joining("a", "orders_.*"))
    records = len(host.log)
    topics.change(other=1)
    pass_time(host, 3 * REFRESH_MS)
    assert told(host, beat("a", 1)) == (1, None)
    assert len(host.log) == records


def test_members_with_one_pattern_share_what_it_matches(host: Host) -> None:
    told(host, joining("a", "orders_.*"))
    assert told(host, joining("b", "orders_.*"))[0] == 2
    _, kept = told(host, beat("a", 1))
    assert told(host, beat("a", 1, owned=kept)) == (2, None)
    assert {**(kept or {}), **(told(host, beat("b", 2))[1] or {})} == reads("orders_eu", "orders_us")
    assert written(host) == {"orders_.*": ["orders_eu", "orders_us"]}


def test_a_member_changes_its_pattern_and_gives_it_up(host: Host) -> None:
    told(host, joining("a", "orders_.*"))
    told(host, beat("a", 1, subscribed_regex="pay.*"))
    assert told(host, beat("a", 1, owned={})) == (2, reads("payments"))
    assert written(host) == {"pay.*": ["payments"]}
    told(host, beat("a", 2, subscribed_regex="", subscribed_topics=("orders_eu",)))
    assert told(host, beat("a", 2, owned={})) == (3, reads("orders_eu"))
    assert written(host) == {}


def test_offsets_of_matching_topics_are_in_use(host: Host) -> None:
    told(host, joining("a", "orders_.*"))
    for name in ("orders_eu", "payments"):
        topic = TopicToCommit(name, topic_id(name), (OffsetToCommit(0, 1),))
        host.ask(CommitOffsets("g", (topic,), "a", None, 1))
    asked = DeleteOffsets("g", (TopicToForget("orders_eu", (0,)), TopicToForget("payments", (0,))))
    errors = [each.partitions[0].error for each in host.ask(asked).topics]
    assert isinstance(errors[0], GroupSubscribedToTopicError)
    assert errors[1] is None


# ---- members that go ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "silent", "removed"])
def test_a_pattern_goes_with_the_last_member_that_has_it(host: Host, how: str) -> None:
    told(host, joining("a", "orders_.*"))
    told(host, joining("b", "orders_.*"))
    told(host, beat("b", -1))
    assert list(written(host)) == ["orders_.*"]
    match how:
        case "leaves":
            told(host, beat("a", -1))
        case "silent":
            pass_time(host, 60_000)
        case _:
            host.ask(LeaveGroup("g", (LeavingMember("a"),)))
    assert written(host) == {}
    host.ask(DeleteGroup("g"))
    pass_time(host, 2 * REFRESH_MS)
    assert not any("Pattern" in repr(key) for key in host.shard._timers._deadlines._deadlines)


def test_a_static_member_that_comes_back_keeps_its_pattern(host: Host) -> None:
    told(host, joining("a", "orders_.*", instance_id="i"))
    told(host, beat("a", -2, instance_id="i"))
    assert told(host, joining("b", "orders_.*", instance_id="i")) == (1, reads("orders_eu", "orders_us"))
    assert list(written(host)) == ["orders_.*"]


# ---- many topics ----------------------------------------------------------------------------------------------------------


def test_many_topics_are_looked_at_in_short_steps(host: Host, topics: Topics) -> None:
    topics.change(**{f"many-{number}": 1 for number in range(5_000)})
    assert told(host, joining("a", "orders_.*")) == (1, {})
    assert told(host, beat("a", 1)) == (1, None)
    pass_time(host, PAUSE_MS)
    assert told(host, beat("a", 1)) == (1, None)
    pass_time(host, 1_000)
    assert told(host, beat("a", 1)) == (2, reads("orders_eu", "orders_us"))


def test_no_name_is_looked_at_twice(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    matches = NamePattern.matches
    monkeypatch.setattr(NamePattern, "matches", lambda one, name: looked_at.append(name) or matches(one, name))
    scans = PatternScans(topics)
    assert scans.step("orders.*") == {"orders_eu", "orders_us"}
    topics.change(orders_asia=1, payments=7)
    assert scans.step("orders.*") == {"orders_asia", "orders_eu", "orders_us"}
    topics.change(orders_asia=0)
    assert scans.step("orders.*") == {"orders_eu", "orders_us"}
    assert sorted(looked_at) == ["orders_asia", "orders_eu", "orders_us", "payments"]


def test_topics_that_come_in_the_middle_of_a_scan_are_found(topics: Topics) -> None:
    topics.change(**{f"many-{number}": 1 for number in range(5_000)})
    scans = PatternScans(topics)
    assert scans.step("orders.*|last") is None
    topics.change(last=1)
    found = None
    while found is None:
        found = scans.step("orders.*|last")
    assert found == {"orders_eu", "orders_us", "last"}


def test_patterns_are_forgotten_that_nobody_has_asked_for(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_keeper, "PATTERNS_KEPT", 2)
    scans = PatternScans(topics)
    for number in range(5):
        scans.step(f"x{number}")
    assert list(scans._scans) == ["x3", "x4"]


# ---- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "missing"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)b", "invalid perl operator"),
        ("a" * (PATTERN_CHARS_MAX + 1), "has 2001 characters, and may have 2000"),
        ("((a{100}){10}){3}", "invalid repetition size|takes .* instructions"),
        ("(a{100}){9}" * 3, "takes 2.* instructions, and may take 2000"),
    ],
)
def test_patterns_that_cannot_be_used_are_refused(host: Host, pattern: str, says: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match=says):
        host.ask(joining("a", pattern))
    assert host.log == []


def test_a_pattern_that_would_hold_re_for_years_is_nothing_here() -> None:
    """Goal: the time for a name does not explode; with Python's `re` this test does not end."""
    assert not NamePattern("(a*)*(a*)*(a|a)*b", "").matches("a" * 249)


def test_a_group_has_as_many_patterns_as_it_may(host: Host) -> None:
    told(host, joining("a", "a.*"))
    told(host, joining("b", "b.*"))
    with pytest.raises(InvalidRegularExpressionError, match="have 3 patterns, and may have 2"):
        host.ask(joining("c", "c.*"))
    told(host, joining("c", "b.*"))
    with pytest.raises(ConfigError):
        ConsumersConfig(max_patterns=0)


def test_a_pattern_that_matches_too_much_is_refused_at_once_or_later(
    host: Host, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_keeper, "NAMES_CHARS_MAX", 30)
    monkeypatch.setattr(pattern_keeper, "TOPICS_MAX", 2)
    with pytest.raises(InvalidRegularExpressionError, match="matches 3 topics, whose names have 26 characters"):
        host.ask(joining("a", ".*"))
    monkeypatch.setattr(pattern_keeper, "TOPICS_MAX", 3)
    assert told(host, joining("a", ".*"))[0] == 1
    topics.change(more=1)
    told(host, beat("a", 1))
    pass_time(host, REFRESH_MS + 10)
    with pytest.raises(InvalidRegularExpressionError, match="make it narrower"):
        host.ask(beat("a", 1))
    told(host, beat("a", 1, subscribed_regex="more"))
    assert written(host) == {"more": ["more"]}


def test_without_the_library_the_error_says_what_to_install(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidRegularExpressionError, match=r"pip install .*(google-re2|patterns).*name the topics"):
        host.ask(joining("a", "orders.*"))
    assert told(host, joining("a", None, "payments"))[0] == 1


# ---- a coordinator that moves, a log that refuses -------------------------------------------------------------------------------


def test_a_new_coordinator_knows_what_matched_and_looks_again(host: Host, topics: Topics) -> None:
    told(host, joining("a", "orders_.*"))
    host.lead()
    assert told(host, beat("a", 1, rebalance_timeout_ms=1, subscribed_regex="orders_.*", owned={})) == (
        1,
        reads("orders_eu", "orders_us"),
    )
    topics.change(orders_asia=1)
    host.lead()
    host.commit()
    assert told(host, beat("a", 1)) == (2, reads("orders_asia", "orders_eu", "orders_us"))


def test_what_was_found_and_not_written_is_found_again(host: Host, topics: Topics) -> None:
    told(host, joining("a", "orders_.*"))
    topics.change(orders_asia=1)
    host.refuses = FULL
    pass_time(host, REFRESH_MS + 10)
    host.refuses = None
    pass_time(host, REFRESH_MS + 10)
    assert told(host, beat("a", 1))[0] == 2
    assert written(host) == {"orders_.*": ["orders_asia", "orders_eu", "orders_us"]}
