"""Between two decisions of a large group there is a pause: what changes in it is decided together, by itself, and soon."""

from __future__ import annotations

from random import Random

import pytest
from consumer_bytes import wanting
from consumer_kit import CONFIG, SESSION_MS, beat, pass_time
from consumer_kit import joining as consuming
from mixed_kit import coming
from shard_kit import FULL, Host, Topics, group_host, topic_id

from replog.coordinator.assignors.model import assignment_of
from replog.coordinator.classic.requests import JoinGroupResponse, Protocol
from replog.coordinator.consumers.config import ConsumersConfig
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.consumers.targets import pause_ms
from replog.coordinator.group_machine import GroupMachine, GroupsConfig
from replog.errors import RecordTooLargeError

PARTITIONS = 5_000
PAUSE_MS = 100
SMALL = 40


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
    refused = 0
    for number in range(120):
        try:
            host.ask(consuming(f"m{number}", *topics.partitions, server_assignor="range"))
        except RecordTooLargeError:
            refused += 1
    assert 20 < refused < 100
    pass_time(host, PAUSE_MS)
    assert epochs(host) == (120 - refused, 120 - refused)
    assert sum(shares(host)) == PARTITIONS


def test_the_pause_grows_with_members_and_partitions() -> None:
    topic = topic_id("t")
    assert pause_ms({}) == 0
    assert pause_ms({"a": assignment_of((topic, each) for each in range(48))}) == 0
    assert pause_ms({"a": assignment_of((topic, each) for each in range(99))}) == 2
    assert pause_ms({f"m{each}": {} for each in range(1_000)}) == 20
