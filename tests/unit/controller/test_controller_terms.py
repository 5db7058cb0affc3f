"""Being active and ceasing to be: claims, commits, deadlines, and what must never be handed in."""

from __future__ import annotations

import random

import pytest
from controller_kit import CLUSTER_ID, Quorum

from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import (
    Claim,
    CommittedRecords,
    Renounce,
    Reply,
    ReplyError,
    ResignLeadership,
    Submit,
    Tick,
)
from replog.controller.requests import AllocateProducerIds, AllocateProducerIdsResponse, CreateTopics, NewTopic
from replog.errors import (
    ErrorCode,
    InvariantViolationError,
    NotControllerError,
    ReplogError,
    RequestTimedOutError,
    ThrottledError,
)
from replog.metadata.config_keys import FlushPolicy
from replog.metadata.records import ConfigRecord, FeatureLevelRecord, NoOpRecord, RemoveTopicRecord
from tests.envelopes import in_envelope

FLIGHTS = CreateTopics((NewTopic("flights", assignments=((1,),)),))


def new_controller() -> Controller:
    return Controller(
        node_id=1, cluster_id=CLUSTER_ID, config=ControllerConfig(), rng=random.Random(1), wall_ms=lambda: 0
    )


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1, 2)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    return quorum


def test_a_standby_refuses_and_needs_no_clock(quorum: Quorum) -> None:
    standby = quorum.nodes[2]
    (effect,) = standby.step(Submit(1, in_envelope(FLIGHTS), 10**6), 0)
    assert isinstance(effect, ReplyError)
    assert isinstance(effect.error, NotControllerError)
    assert standby.next_deadline_ms() is None
    assert standby.step(Tick(), 10**9) == ()
    assert standby.step(Renounce(), 0) == ()


def test_a_claim_waits_for_the_records_of_earlier_terms() -> None:
    controller = new_controller()
    assert controller.step(Claim(5, next_offset=2), 0) == ()
    assert not controller.status().is_active
    assert controller.step(CommittedRecords(0, 1, 4, (FeatureLevelRecord("metadata.version", 1),)), 0) == ()
    controller.step(CommittedRecords(1, 2, 5), 0)
    status = controller.status()
    assert (status.is_active, status.epoch, status.next_write_offset) == (True, 5, 2)


def test_a_claim_that_is_taken_back_before_it_begins() -> None:
    controller = new_controller()
    controller.step(Claim(5, next_offset=1), 0)
    controller.step(Renounce(), 0)
    controller.step(CommittedRecords(0, 1, 5), 0)
    assert not controller.status().is_active


def test_what_elections_depend_on_is_written_for_everybody() -> None:
    """Leaders read it from the metadata, the controller too: a setting of one process would not be enough."""
    config = ControllerConfig(
        min_insync_replicas=2, unclean_leader_election_enable=True, flush_policy=FlushPolicy.ALWAYS
    )
    quorum = Quorum(1, config=config)
    quorum.claim(1)
    quorum.commit()
    records = [record for batch in quorum.log for record in batch.records]
    written = {record.name: record.value for record in records if isinstance(record, ConfigRecord)}
    assert written == {
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "flush.policy": "always",
    }


def test_the_bootstrap_records_are_written_once(quorum: Quorum) -> None:
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    records = [record for batch in quorum.log for record in batch.records]
    names = [record.name for record in records if isinstance(record, FeatureLevelRecord)]
    assert names == ["metadata.version", "transaction.version"]


def test_a_request_answers_when_its_batch_commits(quorum: Quorum) -> None:
    first, second = quorum.submit(FLIGHTS), quorum.submit(AllocateProducerIds(1, quorum.broker_epoch(1)))
    assert first not in quorum.replies
    quorum.commit(1)
    assert first in quorum.replies
    assert second not in quorum.replies
    quorum.commit(1)
    assert quorum.replies[second] == AllocateProducerIdsResponse(0, 1000)


def test_a_deadline_passes_while_waiting(quorum: Quorum) -> None:
    request_id = quorum.submit(FLIGHTS, timeout_ms=500)
    assert quorum.leader.next_deadline_ms() == quorum.now_ms + 500
    quorum.now_ms += 500
    quorum.tick()
    assert isinstance(quorum.replies[request_id], RequestTimedOutError)
    quorum.commit()  # it took effect all the same; the kit refuses a second answer
    assert "flights" in quorum.image.topics_by_name


def test_a_request_that_comes_too_late_changes_nothing(quorum: Quorum) -> None:
    request_id = quorum.submit(FLIGHTS, timeout_ms=0)
    assert isinstance(quorum.replies[request_id], RequestTimedOutError)
    quorum.commit()
    assert "flights" not in quorum.image.topics_by_name


def test_parked_requests_are_bounded() -> None:
    quorum = Quorum(1, config=ControllerConfig(max_parked_requests=2))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1)
    requests = [quorum.submit(FLIGHTS) for _ in range(3)]
    assert isinstance(quorum.replies[requests[2]], ThrottledError)
    quorum.commit()
    assert requests[0] in quorum.replies


def test_lost_leadership_takes_back_what_did_not_commit(quorum: Quorum) -> None:
    before = quorum.leader.status()
    lost = quorum.submit(FLIGHTS)
    assert quorum.leader.status().topics_count == 1
    quorum.renounce(lost_batches=1)
    after = quorum.nodes[1].status()
    assert (after.topics_count, after.is_active, after.parked_requests) == (0, False, 0)
    assert after.committed_end_offset == before.committed_end_offset
    assert isinstance(quorum.replies[lost], NotControllerError)


def test_a_bug_in_a_request_ends_the_term_not_the_node(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(quorum.leader._managers.of_clients, CreateTopics, broken)
    reply, resign = quorum.leader.step(Submit(99, in_envelope(FLIGHTS), 10**9), quorum.now_ms)
    assert isinstance(reply, ReplyError)
    assert isinstance(reply.error, ReplogError)
    assert reply.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(resign, ResignLeadership)
    assert resign.epoch == quorum.epoch


@pytest.mark.parametrize(
    "batch",
    [
        CommittedRecords(1, 2, 1, (NoOpRecord(),)),
        CommittedRecords(0, 3, 1, (NoOpRecord(),)),
        CommittedRecords(0, 1, 1, (RemoveTopicRecord(topic_id=None),)),  # type: ignore[arg-type]
    ],
    ids=["gap", "count", "unknown topic"],
)
def test_a_log_that_cannot_be_stops_the_node(batch: CommittedRecords) -> None:
    with pytest.raises(InvariantViolationError):
        new_controller().step(batch, 0)


def test_a_driver_that_breaks_the_rules_stops_the_node(quorum: Quorum) -> None:
    end_offset = quorum.end_offset
    for message in (
        Claim(9, end_offset),
        CommittedRecords(end_offset, end_offset + 1, quorum.epoch),
        CommittedRecords(end_offset, end_offset, quorum.epoch + 1),
        CommittedRecords(end_offset - 1, end_offset, quorum.epoch),
    ):
        with pytest.raises(InvariantViolationError):
            quorum.leader.step(message, quorum.now_ms)
    with pytest.raises(InvariantViolationError):
        quorum.nodes[2].step(Claim(9, end_offset - 1), quorum.now_ms)


def test_status_counts(quorum: Quorum) -> None:
    quorum.create("flights", 1, partitions=3)
    status = quorum.leader.status()
    assert (status.registered_brokers, status.unfenced_brokers) == ((1,), (1,))
    assert (status.topics_count, status.partitions_count, status.leaderless_partitions_count) == (1, 3, 0)
    quorum.heartbeat(1, want_fence=True)
    assert quorum.leader.status().leaderless_partitions_count == 3


def test_an_answer_made_of_committed_state_leaves_at_once(quorum: Quorum) -> None:
    quorum.create("flights", 1)
    (effect,) = quorum.leader.step(Submit(99, in_envelope(FLIGHTS), 10**9), quorum.now_ms)
    assert isinstance(effect, Reply)
