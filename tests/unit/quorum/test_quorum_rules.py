"""The small parts of the quorum, one rule per test."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from quorum_cores import fetch, follower, good_answer, quorum_of, sole_voter, static

from replog_quorum import (
    AppendBatches,
    Appended,
    BecameLeader,
    ElectionState,
    EpochEnd,
    Flushed,
    HighWatermarkAdvanced,
    PersistElectionState,
    Quorum,
    QuorumConfig,
    QuorumConfigError,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
    QuorumInvariantError,
    Received,
    Send,
    SendFailed,
    SendFetchedData,
    Tick,
    VoteResponse,
    arithmetic,
)
from replog_quorum.context import Outbox
from replog_quorum.messages import LostLeadership
from replog_quorum.requests import RequestTracker
from replog_quorum.roles.progress import OBSERVER_SESSION_TIMEOUT_MS
from replog_quorum.roles.votes import VoteTally
from replog_quorum.transitions import RoleName, check_transition
from tests.sim.quorum_sim_log import SimLog
from tests.sim.quorum_sim_nodes import directory_id

OFFSETS = st.lists(st.integers(-1, 20), min_size=1, max_size=7)


@given(OFFSETS)
def test_majority_end_offset_is_reached_by_a_majority_and_is_the_largest_such(ends: list[int]) -> None:
    offset = arithmetic.majority_end_offset(ends)
    needed = arithmetic.majority_size(len(ends))
    assert sum(end >= offset for end in ends) >= needed
    assert sum(end > offset for end in ends) < needed


def test_high_watermark_waits_for_the_leaders_own_epoch() -> None:
    """Raft 5.4.2: reaching the epoch's start is not enough."""
    assert arithmetic.high_watermark(-1, {1: 5, 2: 5, 3: 0}, 5) == -1
    assert arithmetic.high_watermark(-1, {1: 6, 2: 6, 3: 0}, 5) == 6
    assert arithmetic.high_watermark(8, {1: 6, 2: 6, 3: 0}, 5) == 8


@pytest.mark.parametrize(
    ("diverging", "local", "expected"),
    [
        (EpochEnd(3, 4), EpochEnd(3, 6), 4),  # both know the epoch: the smaller end
        (EpochEnd(3, 8), EpochEnd(3, 6), 6),
        (EpochEnd(3, 4), EpochEnd(2, 5), 5),  # it is unknown here: where the last one below it ends
        (EpochEnd(0, 0), EpochEnd(2, 5), 0),  # the leader has nothing in common with us
    ],
)
def test_truncation_offset(diverging: EpochEnd, local: EpochEnd, expected: int) -> None:
    assert arithmetic.truncation_offset(diverging, local, 9) == expected


def test_successors_wait_by_rank() -> None:
    waits = [arithmetic.successor_backoff_ms(node_id, (4, 2, 3), 1000) for node_id in (4, 2, 3, 9)]
    assert waits == [0, 250, 500, 1000]


@pytest.mark.parametrize("field", QuorumConfig.__slots__)
@pytest.mark.parametrize("value", [-1, 8_388_609, True, 1.5])
def test_config_names_the_field_out_of_range(field: str, value: object) -> None:
    with pytest.raises(QuorumConfigError) as caught:
        replace(QuorumConfig(), **{field: value})
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize("field", [name for name in QuorumConfig.__slots__ if name != "commit_notice_ms"])
def test_only_news_of_commits_may_take_no_time(field: str) -> None:
    assert QuorumConfig(commit_notice_ms=0).commit_notice_ms == 0
    with pytest.raises(QuorumConfigError):
        replace(QuorumConfig(), **{field: 0})


def test_config_keeps_the_fetch_wait_below_the_timeouts() -> None:
    with pytest.raises(QuorumConfigError) as caught:
        QuorumConfig(fetch_max_wait_ms=2000)
    assert caught.value.field == "fetch_max_wait_ms"


@pytest.mark.parametrize("ids", [(), (1, 1, 2), (-1, 2, 3), (2, 1)])
def test_voter_ids_are_checked(ids: tuple[int, ...]) -> None:
    with pytest.raises(QuorumConfigError):
        static(*ids)


def test_transitions_outside_the_table_are_refused() -> None:
    check_transition(RoleName.PROSPECTIVE, RoleName.CANDIDATE, 4, 5)
    for old, new, epoch in [
        (RoleName.FOLLOWER, RoleName.LEADER, 4),
        (RoleName.RESIGNED, RoleName.LEADER, 4),
        (RoleName.PROSPECTIVE, RoleName.CANDIDATE, 6),
        (RoleName.FOLLOWER, RoleName.UNATTACHED, 3),
    ]:
        with pytest.raises(QuorumInvariantError):
            check_transition(old, new, 4, epoch)


def test_two_changes_of_the_election_state_are_one_write() -> None:
    outbox = Outbox()
    before, after = LostLeadership(1), LostLeadership(2)
    outbox.emit(before)
    outbox.persist(ElectionState(5))
    outbox.persist(ElectionState(5, None, 3))
    outbox.emit(after)
    assert outbox.drain() == (before, PersistElectionState(ElectionState(5, None, 3), (after,)))
    assert outbox.drain() == ()


def test_an_answer_is_taken_once() -> None:
    tracker = RequestTracker(iter(range(10, 20)).__next__, timeout_ms=100, backoff_ms=20)
    first = tracker.begin(2, 0)
    assert not tracker.complete(3, first)
    assert not tracker.complete(2, first + 1)
    assert tracker.complete(2, first)
    assert not tracker.complete(2, first)


def test_a_request_times_out_and_a_pause_ends() -> None:
    tracker = RequestTracker(iter(range(10, 20)).__next__, timeout_ms=100, backoff_ms=20)
    tracker.begin(2, 0)
    tracker.back_off(3, 0)
    assert (tracker.is_ready(3), tracker.next_deadline_ms()) == (False, 20)
    assert tracker.expire(20) == ()
    assert tracker.is_ready(3)
    assert tracker.expire(99) == ()
    assert tracker.expire(100) == (2,)
    assert tracker.next_deadline_ms() is None


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=8))
def test_a_tally_is_never_won_and_lost(answers: list[tuple[int, bool]]) -> None:
    tally = VoteTally(static(1, 2, 3, 4, 5), granted_by=1)
    for voter_id, granted in answers:
        tally.record(voter_id, granted=granted)
    assert not (tally.is_won and tally.is_lost)
    assert set(tally.granting_voters) <= {1, 2, 3, 4, 5}


def test_start_and_step_keep_their_order() -> None:
    log = SimLog()
    quorum = quorum_of(static(1), log)
    with pytest.raises(QuorumInvariantError):
        quorum.step(Tick(), 0)
    (persist,) = quorum.start(0)
    assert isinstance(persist, PersistElectionState)
    assert BecameLeader(1, 0) in persist.then
    with pytest.raises(QuorumInvariantError):
        quorum.start(0)


def test_a_waiting_fetch_is_answered_by_the_append() -> None:
    log = SimLog()
    quorum = sole_voter(log)
    assert quorum.step(fetch(), 10) == ()
    log.append(1, 0)
    (sent,) = quorum.step(Appended(4), 20)
    assert isinstance(sent, SendFetchedData)
    assert (sent.destination, sent.fetch_offset, sent.response.high_watermark) == (9, 3, 3)


def test_a_waiting_fetch_is_answered_by_the_high_watermark() -> None:
    log = SimLog()
    quorum = sole_voter(log)
    log.append(1, 0)
    quorum.step(Appended(4), 10)
    assert quorum.step(fetch(4), 10) == ()
    log.flushed_offset = 4
    advanced, sent = quorum.step(Flushed(4), 20)
    assert advanced == HighWatermarkAdvanced(4)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, QuorumFetchResponse)
    assert sent.message.high_watermark == 4


def test_a_waiting_fetch_is_answered_empty_in_time() -> None:
    quorum = sole_voter(SimLog())
    quorum.step(fetch(), 10)
    assert quorum.next_deadline_ms() == 510
    assert quorum.step(Tick(), 509) == ()
    (sent,) = quorum.step(Tick(), 510)
    assert isinstance(sent, Send)


def test_an_old_flush_does_not_count_what_the_log_does_not_hold_on_disk() -> None:
    log = SimLog()
    quorum = sole_voter(log)
    log.append(1, 0)
    quorum.step(Appended(4), 10)
    assert quorum.step(Flushed(5), 20) == ()
    assert quorum.status().high_watermark == 3


def test_silent_observers_are_forgotten() -> None:
    quorum = sole_voter(SimLog())
    quorum.step(fetch(), 10)
    assert quorum.status().observer_end_offsets == {9: 3}
    quorum.step(Tick(), 10 + OBSERVER_SESSION_TIMEOUT_MS)
    assert quorum.status().observer_end_offsets == {}


def test_one_fetch_is_in_flight() -> None:
    quorum, request = follower(SimLog())
    assert quorum.step(Tick(), 100) == ()
    (sent,) = quorum.step(Received(2, good_answer(request)), 200)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, QuorumFetchRequest)
    assert sent.message.correlation_id != request.correlation_id


def test_a_doubled_answer_changes_nothing() -> None:
    quorum, request = follower(SimLog())
    quorum.step(Received(2, good_answer(request)), 200)
    assert quorum.step(Received(2, good_answer(request)), 200) == ()


def test_an_answer_to_an_earlier_life_is_not_taken() -> None:
    """Each life begins its correlation ids elsewhere: else bytes from 1 would be appended at 3."""
    log = SimLog()
    log.append(3, 0)
    log.flushed_offset = 1
    _, before = follower(log, seed=1)
    late = Received(2, replace(good_answer(before), batches=b"from 1"))
    log.append(3, 0)
    log.append(3, 0)
    log.flushed_offset = 3
    quorum, request = follower(log, seed=2)
    assert (before.fetch_offset, request.fetch_offset) == (1, 3)
    assert quorum.step(late, 10) == ()
    taken, *_ = quorum.step(Received(2, replace(good_answer(request), batches=b"from 3")), 20)
    assert taken == AppendBatches(b"from 3", 3)


def test_after_a_failed_fetch_another_voter_is_asked_then_the_leader_again() -> None:
    quorum, request = follower(SimLog())
    (asked,) = quorum.step(SendFailed(2, request.correlation_id), 10)
    assert isinstance(asked, Send)
    assert asked.destination == 3
    assert isinstance(asked.message, QuorumFetchRequest)
    assert quorum.step(SendFailed(3, asked.message.correlation_id), 12) == ()  # the leader pauses until 30 ms
    assert quorum.next_deadline_ms() == 30
    (again,) = quorum.step(Tick(), 30)
    assert isinstance(again, Send)
    assert again.destination == 2


def test_data_that_brings_nothing_new_is_no_busy_loop() -> None:
    """The host dropped what came (corrupt, or of a later epoch): the next fetch waits for the backoff."""
    quorum, request = follower(SimLog())
    quorum.step(Received(2, replace(good_answer(request), batches=b"x")), 10)
    assert quorum.step(Appended(0), 10) == ()
    assert quorum.next_deadline_ms() == 30


def test_a_leader_of_another_configuration_is_not_followed() -> None:
    quorum, request = follower(SimLog())
    answer = replace(good_answer(request), error=QuorumError.FENCED_LEADER_EPOCH, leader_id=77, leader_epoch=9)
    quorum.step(Received(2, answer), 10)
    assert (quorum.status().role, quorum.status().epoch) == ("Unattached", 9)


def test_nobody_but_this_node_knows_whether_it_leads() -> None:
    quorum, request = follower(SimLog())
    with pytest.raises(QuorumInvariantError):
        quorum.step(Received(2, replace(good_answer(request), leader_id=1, leader_epoch=9)), 10)


def test_a_log_of_a_later_epoch_outdates_quorum_state() -> None:
    log = SimLog()
    log.append(8, 0)
    log.flushed_offset = 1
    quorum = quorum_of(static(1, 2, 3), log, ElectionState(3, 1, 1))
    (persist,) = quorum.start(0)
    assert isinstance(persist, PersistElectionState)
    assert persist.state == ElectionState(8)


def leader_of_three() -> Quorum:
    """Node 1 leads epoch 1 of voters 1, 2, 3 from time 0 on."""
    log = SimLog()
    quorum = quorum_of(static(1, 2, 3), log, ElectionState(1, None, 1), fetch_timeout_ms=1_000)
    (asked, *_) = [e.message for e in quorum.start(0) if isinstance(e, Send)]
    granted = VoteResponse(asked.correlation_id, 2, QuorumError.NONE, None, 1, vote_granted=True)
    quorum.step(Received(2, granted), 0)
    log.append(1, 0)
    log.flushed_offset = 1
    quorum.step(Appended(1), 0)
    quorum.step(Flushed(1), 0)
    assert quorum.status().role == "Leader"
    return quorum


def voter_fetch(leader_time_ms: int) -> Received:
    request = QuorumFetchRequest(7, 2, 1, 0, 0, -1, 500, directory_id(2), leader_time_ms=leader_time_ms)
    return Received(2, request)


def test_a_lease_begins_when_a_fetch_shows_that_an_answer_arrived() -> None:
    quorum = leader_of_three()
    (answer,) = quorum.step(voter_fetch(-1), 100)
    assert isinstance(answer, SendFetchedData)
    assert answer.response.leader_time_ms == 100
    assert not quorum.holds_lease(100)
    quorum.step(voter_fetch(100), 150)
    assert quorum.holds_lease(150)


def test_a_lease_lasts_the_fetch_timeout_from_the_answer_on() -> None:
    quorum = leader_of_three()
    quorum.step(voter_fetch(100), 600)
    assert quorum.holds_lease(1_099)
    assert not quorum.holds_lease(1_100)


def test_a_fetch_that_waited_while_the_leader_slept_renews_no_lease() -> None:
    quorum = leader_of_three()
    quorum.step(voter_fetch(100), 600)
    quorum.step(voter_fetch(600), 5_000)
    assert not quorum.holds_lease(5_000)


def test_a_time_that_no_answer_can_have_carried_renews_no_lease() -> None:
    quorum = leader_of_three()
    quorum.step(voter_fetch(9_000), 600)
    assert not quorum.holds_lease(600)


def test_a_sole_voter_always_holds_its_lease_and_a_follower_never() -> None:
    assert sole_voter(SimLog()).holds_lease(1_000_000)
    assert not follower(SimLog())[0].holds_lease(0)


def test_a_follower_brings_back_the_time_of_its_leaders_last_answer() -> None:
    quorum, request = follower(SimLog())
    assert request.leader_time_ms == -1
    (sent,) = quorum.step(Received(2, replace(good_answer(request), leader_time_ms=77)), 200)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, QuorumFetchRequest)
    assert sent.message.leader_time_ms == 77
