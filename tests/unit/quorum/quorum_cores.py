"""Single cores of the quorum in the states that unit tests start from."""

from __future__ import annotations

import random

from replog_quorum import (
    Appended,
    AppendVoters,
    ElectionState,
    Flushed,
    HighWatermarkAdvanced,
    Quorum,
    QuorumConfig,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
    Received,
    Send,
    Voter,
    VoterSet,
)
from tests.sim.quorum_sim_log import SimLog
from tests.sim.quorum_sim_nodes import directory_id


def static(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(voter_id, None, f"n{voter_id}:0") for voter_id in ids))


def quorum_of(
    voters: VoterSet, log: SimLog, state: ElectionState | None = None, *, seed: int = 1, **config: int
) -> Quorum:
    return Quorum(
        node_id=1,
        directory_id=directory_id(1),
        endpoint="n1:0",
        voters=voters,
        log=log,
        election_state=state,
        config=QuorumConfig(**config),
        rng=random.Random(seed),
        now_ms=0,
    )


def sole_voter(log: SimLog) -> Quorum:
    """Leads epoch 1; its log ends at 3: LeaderChange, KRaftVersion, voters."""
    quorum = quorum_of(static(1), log)
    quorum.start(0)
    log.append(1, 0)
    log.flushed_offset = 1
    quorum.step(Appended(1), 0)
    advanced, upgrade = quorum.step(Flushed(1), 0)
    assert advanced == HighWatermarkAdvanced(1)
    assert isinstance(upgrade, AppendVoters)
    for value in (0, upgrade.voters):
        log.append(1, value)
    log.flushed_offset = 3
    quorum.step(Appended(3, ((2, upgrade.voters),)), 0)
    assert quorum.step(Flushed(3), 0) == (HighWatermarkAdvanced(3),)
    return quorum


def fetch(offset: int = 3, *, epoch: int = 1, replica_id: int = 9) -> Received:
    directory = directory_id(replica_id)
    request = QuorumFetchRequest(
        7, replica_id, epoch, offset, epoch, 3, max_wait_ms=500, replica_directory_id=directory
    )
    return Received(replica_id, request)


def follower(log: SimLog, *, seed: int = 1) -> tuple[Quorum, QuorumFetchRequest]:
    stored = ElectionState(3, 2, None)
    quorum = quorum_of(static(1, 2, 3), log, stored, seed=seed)
    (sent,) = [e for e in quorum.start(0) if isinstance(e, Send)]
    assert sent.destination == 2
    assert isinstance(sent.message, QuorumFetchRequest)
    return quorum, sent.message


def good_answer(request: QuorumFetchRequest) -> QuorumFetchResponse:
    return QuorumFetchResponse(request.correlation_id, 2, QuorumError.NONE, 2, 3, high_watermark=-1, log_start_offset=0)
