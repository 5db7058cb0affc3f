"""Voter sets, their history in a log, and what depends on who votes (KIP-853; docs/KAFKA.md 5.6)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorum_cores import fetch, sole_voter

from replog_quorum import (
    AddVoter,
    Appended,
    AppendVoters,
    ChangeVoters,
    Flushed,
    HighWatermarkAdvanced,
    QuorumConfigError,
    QuorumInvariantError,
    Voter,
    VoterChangeAnswered,
    VoterSet,
)
from replog_quorum.roles.majority import CheckQuorum, Lease
from replog_quorum.roles.progress import ProgressTable
from replog_quorum.roles.votes import VoteTally
from replog_quorum.voter_history import CONFIGURED_OFFSET, VoterHistory
from tests.sim.quorum_sim_log import SimLog
from tests.sim.quorum_sim_nodes import directory_id

IDS = st.sets(st.integers(0, 8), min_size=1, max_size=5)


def voter(voter_id: int, generation: int = 0) -> Voter:
    return Voter(voter_id, directory_id(voter_id, generation), f"n{voter_id}:0")


def dynamic(*ids: int) -> VoterSet:
    return VoterSet(tuple(map(voter, ids)))


def static(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(i, None, f"n{i}:0") for i in ids))


def test_a_voter_is_an_id_and_a_directory() -> None:
    voters = dynamic(1, 2)
    assert voters.contains(1, directory_id(1))
    assert not voters.contains(1, directory_id(1, 1))
    assert not voters.contains(1, None)
    assert not voters.contains(3, directory_id(3))


def test_a_static_voter_is_an_id() -> None:
    voters = static(1, 2)
    assert voters.contains(1, directory_id(1))
    assert voters.contains(1, directory_id(1, 1))
    assert voters.is_static
    assert not dynamic(1, 2).is_static


@given(IDS, st.integers(0, 8))
def test_adding_and_removing_are_inverse(ids: set[int], voter_id: int) -> None:
    voters = dynamic(*sorted(ids - {voter_id}), 9)
    assert voters.with_voter(voter(voter_id)).without(voter_id) == voters
    assert list(voters.with_voter(voter(voter_id)).ids) == sorted({*voters.ids, voter_id})


def test_a_voter_takes_the_place_of_its_id() -> None:
    assert dynamic(1, 2).with_voter(voter(2, 5)) == VoterSet((voter(1), voter(2, 5)))


def test_nobody_left_is_no_set() -> None:
    with pytest.raises(QuorumConfigError):
        dynamic(1).without(1)


@given(IDS)
def test_two_majorities_have_a_voter_in_common(ids: set[int]) -> None:
    assert 2 * static(*sorted(ids)).majority_size > len(ids)


@given(IDS, st.integers(0, 8))
def test_majorities_of_neighbours_have_a_voter_in_common(ids: set[int], added: int) -> None:
    """Why one change at a time is safe (Ongaro's thesis, 4.1)."""
    before = static(*sorted(ids))
    after = before.with_voter(Voter(added, None, ""))
    assert before.majority_size + after.majority_size > len(after)


def test_the_last_set_is_in_force_and_truncation_brings_the_one_before_back() -> None:
    history = VoterHistory(static(1), [(2, dynamic(1)), (7, dynamic(1, 2))])
    history.add(9, dynamic(1, 2, 3))
    assert (history.offset, history.in_force.ids, history.previous) == (9, (1, 2, 3), dynamic(1, 2))
    history.truncate(9)
    assert (history.offset, history.in_force.ids) == (7, (1, 2))
    history.truncate(2)
    assert (history.offset, history.in_force, history.previous) == (CONFIGURED_OFFSET, static(1), None)
    assert not history.is_dynamic


def test_a_snapshot_brings_its_own_set() -> None:
    history = VoterHistory(static(1), [(2, dynamic(1)), (7, dynamic(1, 2))])
    history.install(20, dynamic(4))
    assert (history.offset, history.in_force) == (19, dynamic(4))
    history.install(30, None)
    assert (history.offset, history.in_force) == (CONFIGURED_OFFSET, static(1))


def test_offsets_ascend() -> None:
    history = VoterHistory(static(1), [(2, dynamic(1))])
    with pytest.raises(QuorumInvariantError):
        history.add(2, dynamic(1, 2))


def test_cleaning_keeps_what_can_come_into_force_again() -> None:
    history = VoterHistory(static(1), [(2, dynamic(1)), (7, dynamic(1, 2)), (12, dynamic(1, 2, 3))])
    history.forget_before(10)
    history.truncate(12)
    assert (history.offset, history.in_force) == (7, dynamic(1, 2))


def test_a_voter_joined_with_the_first_set_of_an_unbroken_row() -> None:
    history = VoterHistory(static(1), [(2, dynamic(1)), (5, dynamic(1, 2)), (7, dynamic(1)), (9, dynamic(1, 2))])
    assert history.joined_offsets == {1: CONFIGURED_OFFSET, 2: 9}
    history.add(11, dynamic(1, 2, 3))
    assert history.joined_offsets == {1: CONFIGURED_OFFSET, 2: 9, 3: 11}


def test_a_new_disk_is_another_voter() -> None:
    history = VoterHistory(static(1, 2), [(2, dynamic(1, 2)), (5, dynamic(1)), (6, VoterSet((voter(1), voter(2, 1))))])
    assert history.joined_offsets == {1: CONFIGURED_OFFSET, 2: 6}


@settings(max_examples=50)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True).map(sorted), st.integers(0, 31))
def test_truncation_equals_never_having_seen_the_rest(offsets: list[int], end_offset: int) -> None:
    sets = [(offset, dynamic(1, 2 + i % 2)) for i, offset in enumerate(offsets)]
    history = VoterHistory(static(1), sets)
    history.truncate(end_offset)
    expected = VoterHistory(static(1), [entry for entry in sets if entry[0] < end_offset])
    assert (history.offset, history.in_force) == (expected.offset, expected.in_force)
    assert history.joined_offsets == expected.joined_offsets


def test_progress_counts_the_disk_in_the_set_and_only_behind_its_record() -> None:
    progress = ProgressTable((1, directory_id(1)), 20)
    history = VoterHistory(static(1, 2), [(2, dynamic(1, 2)), (10, dynamic(1, 2, 3))])
    progress.fetched((2, directory_id(2, 1)), 20, 20, now_ms=1)
    progress.fetched((3, directory_id(3)), 10, 20, now_ms=1)
    assert progress.voter_end_offsets(history) == {1: 20, 2: -1, 3: -1}
    progress.fetched((2, directory_id(2)), 4, 20, now_ms=2)
    progress.fetched((3, directory_id(3)), 11, 20, now_ms=2)
    assert progress.voter_end_offsets(history) == {1: 20, 2: 4, 3: 11}
    assert progress.observer_end_offsets(history.in_force) == {}


def test_a_replica_has_caught_up_when_it_had_what_there_was_at_its_last_fetch() -> None:
    """Under load the end has moved on each time (docs/KAFKA.md 4.2)."""
    progress = ProgressTable((1, directory_id(1)), 0)
    replica = (5, directory_id(5))
    for now_ms, fetch_offset, leader_end_offset, expected in [(10, 0, 8, None), (20, 5, 12, None), (30, 12, 15, 20)]:
        progress.touch(replica, now_ms)
        progress.fetched(replica, fetch_offset, leader_end_offset, now_ms)
        found = progress.get(replica)
        assert found is not None
        assert found.caught_up_ms == expected


def test_check_quorum_needs_the_whole_majority_of_others_once_the_leader_is_no_voter() -> None:
    check = CheckQuorum(1, dynamic(1, 2, 3), 100, 0, leader_votes=True)
    check.fetched(2, 50)
    assert check.deadline_ms == 150
    check.voters_changed(dynamic(2, 3), 60, leader_votes=False)
    check.fetched(2, 70)
    assert check.deadline_ms == 160
    check.fetched(3, 80)
    assert check.deadline_ms == 180


def test_a_sole_voter_needs_nobody_until_it_is_not_alone() -> None:
    check = CheckQuorum(1, dynamic(1), 100, 0, leader_votes=True)
    lease = Lease(1, dynamic(1), 100, leader_votes=True)
    assert check.deadline_ms is None
    assert lease.is_held(10_000)
    check.voters_changed(dynamic(1, 2), 10_000, leader_votes=True)
    lease.voters_changed(dynamic(1, 2), leader_votes=True)
    assert check.deadline_ms == 10_100
    assert not lease.is_held(10_000)


def test_votes_of_another_set_do_not_count() -> None:
    tally = VoteTally(dynamic(1, 2, 3), granted_by=1)
    tally.record(2, granted=True)
    assert tally.is_won
    tally.use(VoterSet((voter(1), voter(2, 1), voter(3))))
    assert not tally.is_won
    assert [v.voter_id for v in tally.unanswered] == [2, 3]
    tally.use(dynamic(2, 3))
    assert tally.granting_voters == ()


def test_the_high_watermark_does_not_pass_a_set_that_is_being_appended() -> None:
    """Its record commits by the set in it, which counts votes only once the append is told: the fsync may be told first."""
    log = SimLog()
    quorum = sole_voter(log)
    quorum.step(fetch(3, replica_id=2), 10)
    (appending,) = quorum.step(ChangeVoters(1, AddVoter(voter(2))), 10)
    assert isinstance(appending, AppendVoters)
    log.append(1, appending.voters)
    log.flushed_offset = 4
    assert quorum.step(Flushed(4), 20) == ()
    assert quorum.status().high_watermark == 3
    quorum.step(Appended(4, ((3, appending.voters),)), 20)
    assert quorum.status().high_watermark == 3
    advanced, answered = quorum.step(fetch(4, replica_id=2), 30)[:2]
    assert (advanced, type(answered)) == (HighWatermarkAdvanced(4), VoterChangeAnswered)
