"""Requests that take long: they go on in steps, others have their turn in between, and each is answered once."""

from __future__ import annotations

from typing import Any

import pytest
from classic_kit import classic_host, joining, stable
from shard_kit import FULL, WALL_MS, Host

from replog.coordinator import group_machine
from replog.coordinator.consumers.requests import ConsumerHeartbeat, DeleteGroup, DeleteGroupResponse
from replog.coordinator.describing import describer
from replog.coordinator.describing.requests import ListGroups, ReadOffsets
from replog.coordinator.group_machine import Deletions
from replog.coordinator.offsets import manager
from replog.coordinator.offsets.requests import (
    NO_TOPIC_ID,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    OffsetToCommit,
    TopicToCommit,
)
from replog.coordinator.runtime import background
from replog.coordinator.runtime.background import PAUSE_MS, Background, Work
from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.runtime.messages import AppendRefused, Paused, Reply, ReplyError, Resigned, Resumed, Tick
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InternalError,
    InvariantViolationError,
    ReplogError,
)

OFFSETS = 10_000


@pytest.fixture
def host() -> Host:
    found = classic_host()
    found.piece = 100_000
    return found


def commit(host: Host, group_id: str = "g", partitions: range = range(1)) -> None:
    offsets = tuple(OffsetToCommit(each, 1) for each in partitions)
    host.ask(CommitOffsets(group_id, (TopicToCommit("t" * 249, NO_TOPIC_ID, offsets),)))


def commit_many(host: Host, count: int = OFFSETS) -> None:
    for start in range(0, count, 2_000):
        commit(host, partitions=range(start, min(start + 2_000, count)))


def steps(host: Host, count: int) -> None:
    """Lets so many steps go on."""
    for _ in range(count):
        host.now_ms += PAUSE_MS
        host.step(Tick())
        host.commit()


def fetched(host: Host) -> list[CommittedOffset]:
    """All offsets of the group, however many steps that takes."""
    request_id = host.submit(FetchOffsets("g"))
    host.commit()
    while request_id not in host.answers:
        steps(host, 1)
    return [offset for topic in host.response(request_id).topics for offset in topic.partitions]


def left(host: Host) -> int:
    return len(fetched(host))


# ---- fetches --------------------------------------------------------------------------------------------------------------


def test_all_offsets_of_a_large_group_are_told_in_steps(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a request of thirty bytes for the 100,000 offsets of a group was one step of 210 ms."""
    told: list[int] = [0]
    tell = manager._told_value

    def counted(*asked: Any) -> CommittedOffset:
        told[-1] += 1
        return tell(*asked)

    step = host.shard.step

    def stepped(*message: Any) -> Any:
        told.append(0)
        return step(*message)

    commit_many(host)
    monkeypatch.setattr(manager, "_told_value", counted)
    monkeypatch.setattr(host.shard, "step", stepped)
    assert [each.partition for each in fetched(host)] == list(range(OFFSETS))
    assert (sum(told), max(told)) == (OFFSETS, 2_000)


def test_offsets_are_told_as_they_were_at_one_moment(host: Host) -> None:
    commit_many(host)
    request_id = host.submit(FetchOffsets("g"))
    host.ask(CommitOffsets("g", (TopicToCommit("t" * 249, NO_TOPIC_ID, (OffsetToCommit(OFFSETS - 1, 2),)),)))
    steps(host, 10)
    assert {each.offset for each in host.response(request_id).topics[0].partitions} == {1}
    assert fetched(host)[-1].offset == 2


def test_no_offset_is_told_that_the_log_has_taken_back(host: Host) -> None:
    """Trap: what the first step has read of an append that is refused later would be told by the last one."""
    commit_many(host)
    base_offset = len(host.log)
    refused = host.submit(CommitOffsets("g", (TopicToCommit("t" * 249, NO_TOPIC_ID, (OffsetToCommit(0, 2),)),)))
    request_id = host.submit(FetchOffsets("g"))
    del host.log[base_offset:]
    host.step(AppendRefused(host.epoch, base_offset, FULL))
    assert isinstance(host.answers[refused], ReplyError)
    steps(host, 10)
    assert {each.offset for each in host.response(request_id).topics[0].partitions} == {1}


# ---- deletions ------------------------------------------------------------------------------------------------------------


def test_a_group_with_more_offsets_than_one_change_may_have_is_deleted(host: Host) -> None:
    commit_many(host)
    records = len(host.log)
    request_id = host.submit(DeleteGroup("g"))
    host.commit()
    assert request_id not in host.answers
    steps(host, 20)
    assert host.response(request_id) == DeleteGroupResponse()
    assert left(host) == 0
    assert len(host.log) - records == OFFSETS
    host.lead()
    with pytest.raises(GroupIdNotFoundError):
        host.ask(DeleteGroup("g"))


def test_nobody_joins_or_commits_while_a_group_goes(host: Host) -> None:
    """Goal: an offset that is acknowledged meanwhile does not go with the rest."""
    commit_many(host)
    request_id = host.submit(DeleteGroup("g"))
    for request in (
        joining(),
        ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=1, subscribed_topics=("t",), owned={}),
        DeleteGroup("g"),
    ):
        with pytest.raises(CoordinatorLoadInProgressError, match="is being deleted"):
            host.ask(request)
    with pytest.raises(CoordinatorLoadInProgressError):
        commit(host)
    commit(host, "other")
    steps(host, 20)
    assert host.response(request_id) == DeleteGroupResponse()
    commit(host)
    assert left(host) == 1


def expect_the_rest_to_be_deleted(host: Host) -> None:
    """Looks that a deletion has ended in the middle, that the group can be used, and that deleting it again goes on."""
    assert 0 < left(host) < OFFSETS
    commit(host)
    again = host.submit(DeleteGroup("g"))
    steps(host, 20)
    assert host.response(again) == DeleteGroupResponse()
    assert left(host) == 0


def test_a_deletion_that_another_coordinator_does_not_know_is_asked_for_again(host: Host) -> None:
    commit_many(host)
    request_id = host.submit(DeleteGroup("g"))
    steps(host, 2)
    host.step(Resigned())
    assert isinstance(host.answers[request_id], ReplyError)
    host.lead()
    expect_the_rest_to_be_deleted(host)


def test_a_deletion_that_is_not_done_when_nothing_may_be_served_any_more_is_asked_for_again(host: Host) -> None:
    """Goal: nobody waits through a pause, and the group is not kept from others behind it."""
    commit_many(host)
    request_id = host.submit(DeleteGroup("g"))
    steps(host, 2)
    host.step(Paused(host.now_ms))
    with pytest.raises(CoordinatorNotAvailableError, match="may not serve for now"):
        host.response(request_id)
    host.now_ms += 60_000
    host.step(Resumed())
    steps(host, 20)
    expect_the_rest_to_be_deleted(host)


def test_a_deletion_goes_on_when_the_log_takes_records_again_and_ends_when_it_does_not(host: Host) -> None:
    commit_many(host, 3_000)
    request_id = host.submit(DeleteGroup("g"))
    host.refuses = FULL
    steps(host, 3)
    host.refuses = None
    steps(host, 5)
    assert host.response(request_id) == DeleteGroupResponse()
    long = "g" * 10_000  # so that 24 offsets fit into one change
    commit(host, long, range(50))
    commit(host, long, range(50, 100))
    request_id = host.submit(DeleteGroup(long))
    host.refuses = FULL
    steps(host, 100)
    assert request_id not in host.answers
    steps(host, 150)
    host.refuses = None
    with pytest.raises(CoordinatorNotAvailableError, match="could not be deleted; ask again"):
        host.response(request_id)
    commit(host, long)


def test_a_deletion_that_fails_leaves_the_group_to_others(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    commit_many(host)
    request_id = host.submit(DeleteGroup("g"))
    with monkeypatch.context() as patch:
        patch.setattr(Deletions, "_some", fail)
        steps(host, 1)
    with pytest.raises(ReplogError, match="a bug"):
        host.response(request_id)
    commit(host)
    again = host.submit(DeleteGroup("g"))
    steps(host, 20)
    assert host.response(again) == DeleteGroupResponse()


# ---- lists ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count_max", [0, 60, 1_000])
def test_many_offsets_are_read_in_steps(host: Host, monkeypatch: pytest.MonkeyPatch, count_max: int) -> None:
    """Goal: metrics of 10,000 groups do not hold the loop for a tenth of a second; a group may go meanwhile."""
    monkeypatch.setattr(describer, "VISITS_PER_STEP", 10)
    for number in range(35):
        commit(host, f"g{number:02}")
    commit(host, "many", range(50))
    request_id = host.submit(ReadOffsets(count_max))
    steps(host, 2)
    assert request_id not in host.answers
    host.ask(DeleteGroup("g34"))
    steps(host, 20)
    found = host.response(request_id)
    assert (len(found.offsets), found.left_out_count) == (min(count_max, 84), max(0, 84 - count_max))


def test_many_groups_are_listed_in_steps(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describer, "VISITS_PER_STEP", 10)
    for number in range(35):
        commit(host, f"g{number:02}")
    request_id = host.submit(ListGroups())
    steps(host, 2)
    assert request_id not in host.answers
    host.ask(DeleteGroup("g34"))
    host.ask(DeleteGroup("g00"))
    steps(host, 2)
    assert [each.group_id for each in host.response(request_id).groups] == [f"g{number:02}" for number in range(34)]


# ---- work in turns ----------------------------------------------------------------------------------------------------------


def counting(told: list[str], name: str, count: int, request_id: int | None = None) -> Work:
    for _ in range(count):
        told.append(name)
        yield Outcome()
    if request_id is not None:
        yield Outcome(answers=(Reply(request_id, name),))


def run(timers: Timers, work: Background, count: int, now_ms: int = 0) -> list[object]:
    """The answers of so many steps, each of which is due."""
    found: list[object] = []
    for _ in range(count):
        now_ms += PAUSE_MS
        if timers.take_due(now_ms) is not None:
            found += [each.response for each in work.step(Moment(now_ms, WALL_MS)).answers if isinstance(each, Reply)]
    return found


def test_works_have_their_steps_in_turn_one_at_a_time() -> None:
    told: list[str] = []
    timers = Timers()
    work = Background(timers)
    work.add(counting(told, "a", 2), Moment(0, WALL_MS))
    work.answer(1, counting(told, "b", 3, 1), Moment(0, WALL_MS))
    assert (told, len(timers)) == (["b"], 1)
    assert run(timers, work, 20) == ["b"]
    assert told == ["b", "a", "b", "a", "b"]
    assert len(timers) == 0
    work.add(counting(told, "c", 1), Moment(100, WALL_MS))
    run(timers, work, 5, 100)
    assert told[-1] == "c"


def test_a_work_that_fails_ends_alone_and_whoever_waits_is_told() -> None:
    def failing(error: Exception) -> Work:
        yield Outcome()
        raise error

    told: list[str] = []
    timers = Timers()
    work = Background(timers)
    work.answer(1, failing(FULL), Moment(0, WALL_MS))
    work.answer(2, failing(ZeroDivisionError("a bug")), Moment(0, WALL_MS))
    work.add(failing(ZeroDivisionError("another one")), Moment(0, WALL_MS))
    work.add(counting(told, "a", 2), Moment(0, WALL_MS))
    answers = [work.step(Moment(each, WALL_MS)).answers for each in range(2)]
    errors = [each.error for (each,) in answers if isinstance(each, ReplyError)]
    assert [type(each) for each in errors] == [ReplogError, InternalError]
    assert "a bug" in str(errors[1])
    work.step(Moment(3, WALL_MS))
    work.step(Moment(4, WALL_MS))
    with pytest.raises(ZeroDivisionError):
        work.step(Moment(5, WALL_MS))
    assert run(timers, work, 5, 10) == []
    assert told == ["a", "a"]


def test_what_nobody_waits_for_goes_on_where_requests_are_given_up() -> None:
    told: list[str] = []
    timers = Timers()
    work = Background(timers)
    work.add(counting(told, "a", 2), Moment(0, WALL_MS))
    work.answer(1, counting(told, "b", 5, 1), Moment(0, WALL_MS))
    assert work.give_up_requests() == [1]
    assert run(timers, work, 20) == []
    assert told == ["b", "a", "a"]


def test_a_broken_rule_is_no_answer_it_stops_the_node() -> None:
    def breaking() -> Work:
        yield Outcome()
        raise InvariantViolationError("a rule is broken")

    work = Background(Timers())
    work.answer(1, breaking(), Moment(0, WALL_MS))
    with pytest.raises(InvariantViolationError):
        work.step(Moment(1, WALL_MS))


def test_only_so_many_requests_are_worked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "REQUESTS_MAX", 2)
    work = Background(Timers())
    for number in range(2):
        work.answer(number, counting([], "a", 5, number), Moment(0, WALL_MS))
    with pytest.raises(CoordinatorLoadInProgressError, match="2 requests"):
        work.answer(3, counting([], "a", 5, 3), Moment(0, WALL_MS))
    assert work.stop() == [0, 1]
    work.answer(3, counting([], "a", 5, 3), Moment(0, WALL_MS))


# ---- a new coordinator ------------------------------------------------------------------------------------------------------


def test_a_new_coordinator_gives_sessions_in_steps_and_serves_meanwhile(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what is read of 100,000 groups does not hold the loop when the last piece has come; nobody is forgotten."""
    stable(host, "one", "two")
    for number in range(30):
        host.ask(ConsumerHeartbeat(f"k{number}", "m", 0, rebalance_timeout_ms=1, subscribed_topics=("t",), owned={}))
    monkeypatch.setattr(group_machine, "VISITS_PER_STEP", 10)
    host.lead()
    assert host.shard.status().timers < 10
    assert host.ask(ConsumerHeartbeat("k29", "m", 1)).member_epoch == 1
    steps(host, 10)
    assert host.shard.status().timers >= 32
    host.now_ms += 100_000
    steps(host, 10)
    host.now_ms += 100_000
    steps(host, 10)
    states = {each.group_id: each.state for each in host.ask(ListGroups()).groups}
    assert states == {"g": "Empty", **{f"k{number}": "Empty" for number in range(30)}}
