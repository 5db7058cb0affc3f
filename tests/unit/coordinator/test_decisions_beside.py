"""The targets of a large group are decided beside the loop, of a question that does not change; a stale answer does not count."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import syncing
from consumer_kit import CONFIG, beat, joining, parts, pass_time, told
from mixed_kit import coming, got
from shard_kit import FULL, Host, Topics, group_host

from replog.coordinator import records
from replog.coordinator.classic.requests import ClassicHeartbeat
from replog.coordinator.consumers import decisions
from replog.coordinator.consumers.group import ConsumerGroup
from replog.coordinator.consumers.targets import decide_targets
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.runtime.messages import Done, Tick
from replog.coordinator.runtime.shard import TIMER_RETRY_MS
from replog.errors import RebalanceInProgressError

PARTITIONS = 6


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """A coordinator for which each group is large, and that has to wait for what is decided."""
    monkeypatch.setattr(decisions, "DECIDED_AT_ONCE", 0)
    found = group_host(Topics(t=PARTITIONS), CONFIG)
    found.lead()
    found.holds_beside = True
    return found


def epochs(host: Host) -> tuple[int, int]:
    """That of the group, and that of its targets."""
    group: ConsumerGroup = host.machine._groups.consumers.find("g")
    return group.epoch.get(), group.target_epoch.get()


def decided(host: Host) -> None:
    """Lets all be decided that is to be."""
    while host.beside:
        host.do_beside()
    host.commit()


def test_the_first_member_has_an_epoch_at_once_and_its_partitions_later(host: Host) -> None:
    """Trap: 9,900 topics were decided on within the heartbeat, a fifth of a second in which nobody else was answered."""
    assert told(host, joining("a")) == (1, {})
    assert (epochs(host), len(host.beside)) == ((2, 1), 1)
    assert told(host, beat("a", 1)) == (1, None)
    decided(host)
    assert epochs(host) == (2, 2)
    assert told(host, beat("a", 1)) == (2, parts(*range(PARTITIONS)))


def test_what_was_decided_of_an_older_group_is_dropped_and_decided_anew(host: Host) -> None:
    host.ask(joining("a"))
    host.ask(joining("b"))
    assert (epochs(host), len(host.beside)) == ((3, 1), 1), "one at a time for a group"
    host.do_beside()
    host.commit()
    assert (epochs(host), len(host.beside)) == ((3, 1), 1), "the targets without the other one do not count"
    decided(host)
    assert epochs(host) == (3, 3)
    shares = [told(host, beat(each, 1))[1] for each in "ab"]
    assert sorted(sum(map(len, (share or {}).values())) for share in shares) == [PARTITIONS / 2] * 2


def test_the_same_number_of_another_epoch_does_not_count(host: Host) -> None:
    """Trap: the log refuses what an epoch was made of, and another change has the same number then."""
    told(host, joining("a"))
    decided(host)
    end = len(host.log)
    host.submit(joining("b"))
    host.lose(end)
    host.submit(joining("c"))
    host.commit()
    assert epochs(host) == (3, 2)
    decided(host)
    assert epochs(host) == (3, 3)
    assert set(host.machine._groups.consumers.find("g").targets) == {"a", "c"}


def test_targets_that_the_log_refuses_are_decided_again(host: Host) -> None:
    told(host, joining("a"))
    host.refuses = FULL
    decided(host)
    assert epochs(host) == (2, 1)
    host.refuses = None
    pass_time(host, TIMER_RETRY_MS)
    decided(host)
    assert epochs(host) == (2, 2)


def test_a_decision_that_fails_is_counted_and_made_again(host: Host) -> None:
    told(host, joining("a"))
    wanted = host.beside.pop()
    host.step(Done(wanted.epoch, wanted.key, None, ZeroDivisionError("a bug")))
    assert host.shard.status().timer_failures == 1
    assert "a bug" in host.shard.status().timer_failure
    pass_time(host, TIMER_RETRY_MS)
    decided(host)
    assert epochs(host) == (2, 2)


def test_what_a_leadership_wanted_that_has_ended_does_not_count(host: Host) -> None:
    told(host, joining("a"))
    host.lead()
    assert told(host, beat("a", 1)) == (1, None)
    host.do_beside()
    host.commit()
    assert epochs(host) == (2, 1)
    host.step(Tick())
    decided(host)
    assert epochs(host) == (2, 2)


def test_a_group_that_never_stands_still_gets_targets_all_the_same(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: each answer was too late for the member that had come meanwhile, so that nobody had anything while members came.

    What was decided of such a group within a step held the loop for as long as that takes.
    """
    monkeypatch.setattr(decisions, "STALE_MAX", 2)
    told(host, joining("a"))
    for member_id in "bcd":
        host.ask(joining(member_id))
        if member_id == "d":
            host.ask(beat("b", -1))
        assert epochs(host)[1] == 1, "nothing has counted yet"
        host.do_beside()
        host.commit()
    targets = host.machine._groups.consumers.find("g").targets
    assert (epochs(host), dict(targets)) == ((6, 4), {"a": parts(0, 3), "c": parts(2, 5)}), (
        "b has left, d came too late"
    )
    assert len(host.beside) == 1
    decided(host)
    assert epochs(host) == (6, 6)
    assert sorted(len(partitions) for each in targets.values() for partitions in each.values()) == [2, 2, 2]


def test_a_late_answer_undoes_nothing_that_was_decided_since(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "STALE_MAX", 0)
    told(host, joining("a"))
    host.ask(joining("b"))
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "DECIDED_AT_ONCE", 1_000)
        host.ask(joining("c"))
    assert epochs(host) == (4, 4)
    decided(host)
    assert epochs(host) == (4, 4)
    assert set(host.machine._groups.consumers.find("g").targets) == {"a", "b", "c"}


def test_long_lists_of_topics_are_not_decided_on_within_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a thousand members with lists of their own, of a hundred out of 1,000 topics, were a decision of 160 ms in one step."""
    decided_of: list[int] = []
    host = group_host(Topics(**{f"t{number}": 1 for number in range(400)}), GroupsConfig())
    host.lead()
    host.holds_beside = True

    def noted(question: Any, assignors: Any) -> Any:
        decided_of.append(len(question.members))
        return decide_targets(question, assignors)

    monkeypatch.setattr(decisions, "decide_targets", noted)
    for number in range(12):
        host.ask(joining(f"m{number}", *(f"t{20 * number + each}" for each in range(180))))
        pass_time(host, host.now_ms + 1_000)
    assert (decided_of, len(host.beside)) == (list(range(1, 10)), 1)
    decided(host)
    assert decided_of == [*range(1, 10), 10, 12]
    assert epochs(host) == (12, 12)


def test_the_records_of_targets_are_written_beside_the_loop(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: to write a megabyte of them was most of the 160 ms of the step that took them in."""
    places: list[bool] = []
    is_in_step = False
    write, step = records._written, host.shard.step

    def noted(*asked: Any) -> Any:
        places.append(is_in_step)
        return write(*asked)

    def stepped(*message: Any) -> Any:
        nonlocal is_in_step
        is_in_step = True
        try:
            return step(*message)
        finally:
            is_in_step = False

    told(host, joining("a"))
    monkeypatch.setattr(records, "_written", noted)
    monkeypatch.setattr(host.shard, "step", stepped)
    decided(host)
    assert epochs(host) == (2, 2)
    assert len(places) == 4, "keys and values of a target and of the epoch"
    assert not any(places)


def test_a_member_of_the_classic_protocol_hears_of_its_share_of_a_large_group_when_it_joins_again(host: Host) -> None:
    """Trap: its join decided on 9,900 topics within one step, 90 ms; one more join costs it less than that costs all."""
    told(host, joining("a"))
    decided(host)
    told(host, beat("a", 1))
    joined = host.ask(coming(session_timeout_ms=6_000))
    assert (joined.generation, epochs(host), len(host.beside)) == (2, (3, 2), 1)
    decided(host)
    with pytest.raises(RebalanceInProgressError):
        host.ask(ClassicHeartbeat("g", joined.member_id, joined.generation))
    told(host, beat("a", 2))
    told(host, beat("a", 2, parts(0, 1, 2)))
    again = host.ask(coming(joined.member_id, session_timeout_ms=6_000))
    assert again.generation == 3
    assert len(got(host.ask(syncing(again.member_id, 3)).assignment)) == PARTITIONS / 2
