"""What a core does with what its host and its peers tell it: snapshots, refused connections, requests in other names."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace
from quorum_cores import fetch, follower, good_answer, sole_voter, static

from replog_quorum import (
    Appended,
    BeginQuorumEpochRequest,
    ElectionState,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    HighWatermarkAdvanced,
    InstallSnapshot,
    OpenSnapshot,
    Quorum,
    QuorumConfig,
    QuorumError,
    QuorumFetchRequest,
    QuorumInvariantError,
    Received,
    Request,
    Send,
    SendFailed,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotInstalled,
    SnapshotOpened,
    Tick,
    UpdateVoterRequest,
    Voter,
    VoteRequest,
    VoterSet,
    VoterSetChanged,
    WriteSnapshotChunk,
)
from tests.sim.quorum_sim_log import SimLog
from tests.sim.quorum_sim_nodes import directory_id


@pytest.mark.parametrize(
    "request_of_5",
    [
        VoteRequest(7, 1, 5, 9, 0, 0, pre_vote=False, replica_directory_id=directory_id(5), voter_directory_id=None),
        BeginQuorumEpochRequest(7, 1, 5, 9, None),
        EndQuorumEpochRequest(7, 1, 5, 9, (), None),
        QuorumFetchRequest(7, 5, 1, 0, 0, -1, 500, directory_id(5)),
        FetchSnapshotRequest(7, 5, directory_id(5), 1, EpochEnd(1, 3), 0, 100),
        UpdateVoterRequest(7, 5, 1, Voter(5, directory_id(5), "n5:0")),
    ],
    ids=lambda request: type(request).__name__,
)
def test_nobody_speaks_for_another_node(request_of_5: Request) -> None:
    """Whatever it says, a request in the name of another node than its sender changes nothing."""
    quorum = sole_voter(SimLog())
    before = quorum.status()
    (sent,) = quorum.step(Received(6, request_of_5), 10)
    assert isinstance(sent, Send)
    assert sent.destination == 6
    assert not isinstance(sent.message, Request)
    assert sent.message.error is QuorumError.INVALID_REQUEST
    assert quorum.status() == before


def test_a_leader_has_no_use_for_a_snapshot() -> None:
    """M7."""
    quorum = sole_voter(SimLog())
    with pytest.raises(QuorumInvariantError):
        quorum.step(SnapshotInstalled(EpochEnd(1, 9), None), 10)


def test_a_snapshot_above_the_high_watermark_is_not_given_away() -> None:
    log = SimLog()
    quorum = sole_voter(log)
    log.append(1, 0)
    quorum.step(Appended(4), 10)
    log.take_snapshot(4)
    with pytest.raises(QuorumInvariantError):
        quorum.step(fetch(0), 10)


def installing_follower() -> Quorum:
    """Node 1, a voter that follows 2, while its host installs snapshot 3/9."""
    quorum, request = follower(SimLog())
    snapshot_id = EpochEnd(3, 9)
    answer = replace(good_answer(request), snapshot_id=snapshot_id)
    assert quorum.step(Received(2, answer), 10) == (OpenSnapshot(snapshot_id),)
    (asked,) = quorum.step(SnapshotOpened(snapshot_id, 5), 10)
    assert isinstance(asked, Send)
    assert isinstance(asked.message, FetchSnapshotRequest)
    chunk = FetchSnapshotResponse(asked.message.correlation_id, 2, QuorumError.NONE, 2, 3, snapshot_id, 7, 5, b"ab")
    assert quorum.step(Received(2, chunk), 10) == (WriteSnapshotChunk(snapshot_id, 5, b"ab"),)
    assert quorum.step(SnapshotChunkWritten(snapshot_id, 7), 10) == (InstallSnapshot(snapshot_id),)
    return quorum


def test_no_fetch_and_no_election_while_a_snapshot_is_installed() -> None:
    quorum = installing_follower()
    assert quorum.step(Tick(), 60_000) == ()
    assert quorum.status().role == "Follower"
    assert quorum.next_deadline_ms() is not None
    begin = BeginQuorumEpochRequest(8, 1, 3, 4, None)
    effects = quorum.step(Received(3, begin), 60_000)
    assert not any(isinstance(effect, Send) and isinstance(effect.message, QuorumFetchRequest) for effect in effects)
    installed = quorum.step(SnapshotInstalled(EpochEnd(3, 9), static(1, 2, 3)), 60_001)
    assert HighWatermarkAdvanced(9) in installed
    assert any(isinstance(effect, Send) and isinstance(effect.message, QuorumFetchRequest) for effect in installed)


def test_what_an_earlier_role_asked_of_the_disk_is_nothing_to_the_next() -> None:
    quorum = installing_follower()
    quorum.step(Received(3, BeginQuorumEpochRequest(8, 1, 3, 4, None)), 20)
    for message in (SnapshotOpened(EpochEnd(3, 9), 0), SnapshotChunkWritten(EpochEnd(3, 9), 7)):
        assert quorum.step(message, 30) == ()
    (fetched,) = quorum.step(SnapshotDamaged(EpochEnd(3, 9)), 40)
    assert isinstance(fetched, Send)
    assert fetched.destination == 3


def test_a_refused_connection_lets_a_follower_stand_soon() -> None:
    """Within a quarter of the election timeout; a mere failure changes nothing."""
    for refused, latest_ms in ((True, 250), (False, 2_250)):
        quorum, request = follower(SimLog())
        quorum.step(SendFailed(2, request.correlation_id, refused), 0)
        asked_others = [ms for ms in range(0, latest_ms + 1, 10) if quorum.step(Tick(), ms) and is_prospective(quorum)]
        assert asked_others
        assert refused == (asked_others[0] <= 250)


def is_prospective(quorum: Quorum) -> bool:
    return quorum.status().role == "Prospective"


def test_a_wiped_follower_of_a_dynamic_set_is_an_observer() -> None:
    voters = VoterSet(tuple(Voter(i, directory_id(i, 4), f"n{i}:0") for i in (1, 2, 3)))
    log = SimLog()
    log.append(1, voters)
    log.flushed_offset = 1
    quorum = Quorum(
        node_id=1,
        directory_id=directory_id(1, 5),
        endpoint="n1:0",
        voters=static(1, 2, 3),
        voter_history=((0, voters),),
        log=log,
        election_state=ElectionState(1, 1, 1, directory_id(1, 4)),
        config=QuorumConfig(),
        rng=random.Random(1),
        now_ms=0,
    )
    assert VoterSetChanged(voters) in quorum.start(0)
    assert quorum.status().role == "Unattached"
    for now_ms in range(0, 20_000, 500):
        quorum.step(Tick(), now_ms)
    assert quorum.status().role == "Unattached"
