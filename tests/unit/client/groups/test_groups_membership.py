"""A membership by itself and with a coordinator: joining, moving, being put out, leaving."""

from __future__ import annotations

import random

import pytest
from membership_kit import INTERVAL_MS, SESSION_MS, Member, T, coordinator, parts, settle

from replog.client.backoff import Backoff
from replog.client.groups.classic_membership import ClassicMembership
from replog.client.groups.membership import MemberConfig, State
from replog.client.groups.messages import (
    Answered,
    Ask,
    Failed,
    Leave,
    Lose,
    ReaderBack,
    ReaderLate,
    Released,
    Revoke,
    Subscribe,
    Tick,
)
from replog.coordinator.assignors import Assignment
from replog.coordinator.classic.group import ClassicGroup, ClassicMember
from replog.coordinator.classic.requests import JoinGroup
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.coordinator.runtime.messages import Tick as CoordinatorTick
from replog.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    NotCoordinatorError,
    ReplogError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)


def answer(member: Member, epoch: int, now_ms: int, *partitions: int, is_news: bool = True) -> None:
    assignment: Assignment = {T: frozenset(partitions)} if partitions else {}
    member.under_way = None
    response = ConsumerHeartbeatResponse("m", epoch, 1_000, assignment if is_news else None)
    member.step(Answered(response), now_ms)


def fail(member: Member, error: ReplogError, now_ms: int) -> None:
    member.under_way = None
    member.step(Failed(error), now_ms)


def tick(member: Member, now_ms: int) -> None:
    member.step(Tick(), now_ms)


def release(member: Member, now_ms: int) -> None:
    assert member.giving_back is not None
    partitions, member.giving_back = member.giving_back.partitions, None
    member.reads -= partitions
    member.step(Released(partitions), now_ms)


def joined(*partitions: int) -> Member:
    """A member that has heard of its assignment at time 0, and speaks again at 1,000."""
    member = Member("m")
    member.step(Subscribe(("t",)), 0)
    answer(member, 1, 0, *partitions)
    return member


def test_the_first_heartbeat_says_everything_the_next_one_what_is_new() -> None:
    member = Member("m", rack_id="r", client_id="app")
    member.step(Subscribe(("t",)), 0)
    first = ConsumerHeartbeat("g", "m", 0, None, "r", 300, ("t",), None, None, {}, "app")
    assert member.said == [first]
    answer(member, 7, 10, 0)
    assert (member.reads, member.core.next_deadline_ms()) == (parts(0), 1_000)
    member.step(Subscribe(("t",)), 20)
    assert member.under_way is None
    tick(member, 1_000)
    assert member.said[1] == ConsumerHeartbeat("g", "m", 7, owned={T: frozenset({0})}, client_id="app")
    answer(member, 7, 1_010, is_news=False)
    tick(member, 2_000)
    assert member.said[2] == ConsumerHeartbeat("g", "m", 7, client_id="app")


@pytest.mark.parametrize(
    "error", [RequestTimedOutError("late"), NotCoordinatorError("moved"), CoordinatorLoadInProgressError("reading")]
)
def test_after_an_error_it_waits_and_says_everything(error: ReplogError) -> None:
    """The answer may have been lost, or another coordinator is asked: what was told before may not be known."""
    member = joined(0, 1)
    tick(member, 1_000)
    fail(member, error, 1_010)
    due_ms = member.core.next_deadline_ms()
    assert due_ms is not None
    assert 1_010 < due_ms < 2_000
    tick(member, due_ms)
    said = member.said[-1]
    assert (said.member_epoch, said.subscribed_topics, said.owned) == (1, ("t",), {T: frozenset({0, 1})})
    assert said.rebalance_timeout_ms == 300
    assert member.reads == parts(0, 1)


def test_nothing_is_assigned_before_what_was_given_back_is_acknowledged() -> None:
    member = joined(0, 1)
    tick(member, 1_000)
    answer(member, 2, 1_010, 1, 2)
    assert member.giving_back == Revoke(parts(0))
    tick(member, 2_000)  # the application takes its time, heartbeats go on
    assert member.said[-1].owned is None
    answer(member, 2, 2_010, is_news=False)
    assert member.reads == parts(0, 1)
    release(member, 2_020)
    assert member.said[-1].owned == {T: frozenset({1})}
    assert member.reads == parts(1)
    answer(member, 3, 2_030, 1, 2)
    assert member.reads == parts(1, 2)


def test_a_heartbeat_of_before_acknowledges_nothing() -> None:
    """It says that the partition is still owned; the one that says that it is not goes out at once when it is answered."""
    member = joined(0, 1)
    tick(member, 1_000)
    answer(member, 2, 1_010, 1, 2)
    tick(member, 2_000)
    release(member, 2_005)
    answer(member, 2, 2_010, 1, 2)
    assert member.reads == parts(1)
    assert member.said[-1].owned == {T: frozenset({1})}
    answer(member, 3, 2_020, 1, 2)
    assert member.reads == parts(1, 2)


def test_an_acknowledgement_that_was_lost_is_said_again() -> None:
    member = joined(0)
    tick(member, 1_000)
    answer(member, 2, 1_010)
    release(member, 1_020)
    fail(member, RequestTimedOutError("lost"), 1_030)
    tick(member, member.core.next_deadline_ms() or 0)
    assert member.said[-1].owned == {}
    answer(member, 3, 2_000, 5)
    assert member.reads == parts(5)


@pytest.mark.parametrize(
    "error",
    [
        UnknownMemberIdError("who"),
        FencedMemberEpochError("out"),
        StaleMemberEpochError("old"),
        GroupIdNotFoundError("no"),
    ],
)
def test_who_is_put_out_loses_everything_and_joins_again_when_the_application_knows(error: ReplogError) -> None:
    member = joined(0, 1)
    tick(member, 1_000)
    fail(member, error, 1_010)
    assert (member.core.state, member.core.epoch) == (State.FENCED, 0)
    assert member.giving_back == Lose(parts(0, 1))
    (text,) = member.texts
    assert f"this member was put out of the group: {error}. It joins again by itself" in text
    tick(member, 60_000)
    assert member.under_way is None
    release(member, 60_010)
    assert member.said[-1].member_epoch == 0
    assert member.said[-1].owned == {}
    answer(member, 9, 60_020, 1)
    assert member.reads == parts(1)


def test_who_is_put_out_while_giving_back_loses_the_rest_afterwards() -> None:
    member = joined(0, 1)
    tick(member, 1_000)
    answer(member, 2, 1_010, 1)
    tick(member, 2_000)
    fail(member, FencedMemberEpochError("out"), 2_010)
    assert member.giving_back == Revoke(parts(0))
    release(member, 2_020)
    assert member.giving_back == Lose(parts(1))
    release(member, 2_030)
    assert member.core.state is State.JOINING


@pytest.mark.parametrize(
    "error", [GroupMaxSizeReachedError("full"), FencedInstanceIdError("taken"), ReplogError("a bug")]
)
def test_what_asking_again_does_not_mend_is_told_once(error: ReplogError) -> None:
    member = joined(0)
    tick(member, 1_000)
    fail(member, error, 1_010)
    assert member.failure is error
    assert member.giving_back == Lose(parts(0))
    release(member, 1_020)
    assert (member.core.state, member.core.next_deadline_ms()) == (State.FAILED, None)
    member.step(Subscribe(("t",)), 2_000)
    assert member.said[-1].member_epoch == 0


def test_who_is_kept_out_of_a_group_of_the_other_protocol_goes_on_by_that_one() -> None:
    host = coordinator(t=4)
    host.machine._groups.classic.keep(group := ClassicGroup("g"))
    group.protocol_type = "connect"
    group.add(ClassicMember("worker", None, "", "", 1_000, 1_000, ()))
    member = Member("m")
    member.subscribe(host, "t")
    member.answer(host)
    assert isinstance(member.classic_because, GroupIdNotFoundError)
    assert (len(member.said), member.core.next_deadline_ms()) == (1, None)


def test_where_the_broker_has_no_such_groups_what_was_owned_is_lost_before_it_joins_otherwise() -> None:
    """Goal: a coordinator that moves to an older broker ends the membership, and nothing is read in both."""
    member = joined(0, 1)
    tick(member, 1_000)
    answer(member, 2, 1_010, 1)
    assert member.giving_back == Revoke(parts(0))
    tick(member, 2_000)
    fail(member, UnsupportedVersionError("no such groups"), 2_010)
    assert isinstance(member.classic_because, UnsupportedVersionError)
    classic = ClassicMembership(MemberConfig("g", "m", 300), Backoff(random.Random(1)))
    assert classic.succeed(member.core) == ()
    assert classic.step(Released(parts(0)), 2_020) == (Lose(parts(1)),)
    (asked,) = classic.step(Released(parts(1)), 2_030)
    assert isinstance(asked, Ask)
    assert isinstance(asked.request, JoinGroup)


def test_the_place_of_an_instance_that_died_is_waited_for_with_one_line() -> None:
    member = Member("m", instance_id="i")
    member.step(Subscribe(("t",)), 0)
    fail(member, UnreleasedInstanceIdError("in use"), 10)
    fail_again_at = member.core.next_deadline_ms()
    assert fail_again_at is not None
    tick(member, fail_again_at)
    fail(member, UnreleasedInstanceIdError("in use"), fail_again_at)
    assert len(member.texts) == 1
    assert "change one" in member.texts[0]
    assert member.failure is None


def test_a_late_reader_leaves_with_one_line_and_joins_when_it_is_back() -> None:
    member = joined(0)
    member.step(ReaderLate(300_001), 300_001)
    assert [said.member_epoch for said in member.said] == [0, -1]
    assert member.giving_back == Lose(parts(0))
    assert len(member.texts) == 1
    assert "max_poll_interval_ms" in member.texts[0]
    member.step(ReaderLate(300_002), 300_002)
    fail(member, RequestTimedOutError("late"), 300_010)  # best effort: else the session ends by itself
    assert member.under_way is None
    member.step(ReaderBack(), 400_000)
    release(member, 400_010)
    assert member.said[-1].member_epoch == 0
    assert len(member.texts) == 1


def test_a_late_reader_that_is_back_before_it_has_left_joins_after_that() -> None:
    member = joined(0)
    tick(member, 1_000)
    member.step(ReaderLate(5), 1_001)  # a heartbeat is under way: its answer counts for nothing
    member.step(ReaderBack(), 1_002)
    release(member, 1_003)
    answer(member, 1, 1_004, 0)
    assert [said.member_epoch for said in member.said[-2:]] == [1, -1]
    assert member.reads == frozenset()
    answer(member, -1, 1_005, is_news=False)
    assert member.said[-1].member_epoch == 0


def test_a_static_member_with_a_late_reader_leaves_for_a_while_and_takes_its_place_again() -> None:
    """Kafka's `ConsumerMembershipManager.leaveGroupEpoch`: its partitions are kept for it until its session ends."""
    member = Member("m", instance_id="i")
    member.step(Subscribe(("t",)), 0)
    answer(member, 1, 10, 0)
    member.step(ReaderLate(300_001), 300_001)
    assert member.said[-1] == ConsumerHeartbeat("g", "m", -2, "i")
    answer(member, -2, 300_002, is_news=False)
    release(member, 300_003)
    member.step(ReaderBack(), 400_000)
    assert (member.said[-1].member_epoch, member.said[-1].instance_id) == (0, "i")


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_is_said_once_and_a_static_member_keeps_its_place(instance_id: str | None, epoch: int) -> None:
    member = Member("m", instance_id=instance_id)
    member.step(Subscribe(("t",)), 0)
    answer(member, 1, 10, 0)
    member.step(Leave(), 20)
    assert member.said[-1] == ConsumerHeartbeat("g", "m", epoch, instance_id)
    fail(member, RequestTimedOutError("late"), 30)
    assert (member.core.state, member.core.next_deadline_ms()) == (State.OUT, None)


def test_who_leaves_twice_is_out_when_the_coordinator_knows() -> None:
    member = Member("m")
    member.step(Subscribe(("t",)), 0)
    answer(member, 1, 10, 0)
    member.step(Leave(), 20)
    member.step(Leave(), 21)
    assert (member.core.state, member.said[-1].member_epoch) == (State.LEAVING, -1)


def test_who_never_joined_has_nothing_to_leave() -> None:
    member = Member("m")
    member.step(Leave(), 0)
    assert member.said == []


def test_topics_that_change_while_a_heartbeat_is_under_way_are_said_behind_it() -> None:
    member = Member("m")
    member.step(Subscribe(("t",)), 0)
    member.step(Subscribe(("t", "u")), 1)
    answer(member, 1, 10)
    assert member.said[-1].subscribed_topics == ("t", "u")


# ---- with a coordinator ---------------------------------------------------------------------------------------------


def test_partitions_move_from_one_member_to_two() -> None:
    host = coordinator(t=4)
    first, second = Member("a"), Member("b")
    first.subscribe(host, "t")
    settle(host, first)
    assert first.reads == parts(0, 1, 2, 3)
    second.subscribe(host, "t")
    settle(host, first, second)
    assert (len(first.reads), len(second.reads)) == (2, 2)
    assert first.reads | second.reads == parts(0, 1, 2, 3)


def test_more_members_than_partitions_wait_and_take_over() -> None:
    host = coordinator(t=1)
    first, second = Member("a"), Member("b")
    first.subscribe(host, "t")
    settle(host, first)
    second.subscribe(host, "t")
    settle(host, first, second)
    assert (first.reads, second.reads) == (parts(0), frozenset())
    first.reads = frozenset()
    first.step(Leave(), host.now_ms)
    settle(host, first, second)
    assert (first.core.state, second.reads) == (State.OUT, parts(0))


def test_who_was_silent_for_a_session_is_put_out_and_finds_its_way_back() -> None:
    host = coordinator(t=2)
    first, second = Member("a"), Member("b")
    first.subscribe(host, "t")
    second.subscribe(host, "t")
    settle(host, first, second)
    for _ in range(3 * SESSION_MS // INTERVAL_MS):
        host.now_ms += INTERVAL_MS
        host.step(CoordinatorTick())
        host.commit()
        second.tick(host)
        if second.under_way is not None:
            second.answer(host)
    assert second.reads == parts(0, 1)
    settle(host, first, second)
    assert first.core.state is State.MEMBER
    assert (len(first.reads), len(second.reads)) == (1, 1)


def test_a_new_coordinator_knows_the_member() -> None:
    host = coordinator(t=2)
    member = Member("a")
    member.subscribe(host, "t")
    settle(host, member)
    epoch = member.core.epoch
    host.lead()
    settle(host, member)
    assert (member.core.epoch, member.reads) == (epoch, parts(0, 1))


def test_a_static_member_that_restarts_has_its_partitions_again() -> None:
    host = coordinator(t=3)
    first, second = Member("a", instance_id="i"), Member("b")
    first.subscribe(host, "t")
    second.subscribe(host, "t")
    settle(host, first, second)
    had = first.reads
    first.step(Leave(), host.now_ms)
    first.answer(host)
    again = Member("c", instance_id="i")
    again.subscribe(host, "t")
    settle(host, again, second, turns=10)
    assert again.reads == had


def test_a_member_that_was_silent_is_in_doubt_until_it_has_asked() -> None:
    """Its application may have kept the event loop for longer than the session."""
    member = joined(0)
    assert not member.core.is_in_doubt(1_999)
    assert member.core.is_in_doubt(2_000)
    tick(member, 50_000)
    assert member.core.is_in_doubt(50_000)
    answer(member, 1, 50_010, is_news=False)
    assert not member.core.is_in_doubt(50_010)


def test_a_coordinator_that_is_silent_holds_nobody_up() -> None:
    member = joined(0)
    tick(member, 1_000)
    fail(member, RequestTimedOutError("silent"), 6_000)
    tick(member, 7_000)
    fail(member, RequestTimedOutError("silent"), 12_000)
    assert not member.core.is_in_doubt(60_000)


def test_a_heartbeat_that_was_under_way_while_the_process_stood_still_says_nothing() -> None:
    """Its time is over when the process goes on; others may have had the partitions for long."""
    member = joined(0)
    tick(member, 1_000)
    fail(member, RequestTimedOutError("silent"), 60_000)
    assert member.core.is_in_doubt(60_000)
    tick(member, 61_000)
    fail(member, UnknownMemberIdError("who?"), 61_010)
    assert member.giving_back == Lose(parts(0))
    assert not member.core.is_in_doubt(61_010)


@pytest.mark.parametrize(("sent_ms", "was_silent"), [(1_000, False), (50_000, True)])
def test_who_is_put_out_for_its_own_silence_is_told_why(sent_ms: int, *, was_silent: bool) -> None:
    member = joined(0)
    tick(member, sent_ms)
    fail(member, UnknownMemberIdError("who?"), sent_ms + 10)
    assert member.giving_back == Lose(parts(0))
    assert [f"no heartbeat in {sent_ms} ms" in text for text in member.texts] == [was_silent]
    assert not member.core.is_in_doubt(60_000)
