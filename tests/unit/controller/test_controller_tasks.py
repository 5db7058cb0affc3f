"""What a controller does by itself, what its driver tells it besides requests, and what it does with what it cannot use."""

from __future__ import annotations

import random
from typing import get_args
from uuid import UUID

import pytest
from controller_kit import CLUSTER_ID, Quorum

from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.managers.cluster import GONE_PAUSE_MS
from replog.controller.messages import (
    AppendRecords,
    BrokerGone,
    ChangeFailed,
    Claim,
    CommittedRecords,
    Effect,
    LoadSnapshot,
    Renounce,
    Reply,
    ReplyError,
    Skip,
    Submit,
    Tick,
    WatchedBroker,
)
from replog.controller.requests import ClientChange, CreateTopics, Heartbeat, NewTopic, NodeWish, RegisterBrokerResponse
from replog.controller.rights import CHANGE_RIGHTS
from replog.errors import (
    InvariantViolationError,
    NotControllerError,
    RequestTimedOutError,
    ThrottledError,
)
from replog.metadata import image_records
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    ResourceType,
    TopicRecord,
)
from tests.envelopes import in_envelope

FLIGHTS = CreateTopics((NewTopic("flights", assignments=((1,),)),))
FAR_MS = 10**9


def new_controller(**config: int) -> Controller:
    return Controller(
        node_id=1, cluster_id=CLUSTER_ID, config=ControllerConfig(**config), rng=random.Random(1), wall_ms=lambda: 0
    )


def active_controller(**config: int) -> Controller:
    controller = new_controller(**config)
    controller.step(Claim(1, 0), 0)
    end_offset = controller.status().next_write_offset
    controller.step(CommittedRecords(0, end_offset, 1, tuple([NoOpRecord()] * end_offset)), 0)
    return controller


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(1, 2)
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2)
    return quorum


def run_until(controller: Controller, now_ms: int) -> list[tuple[int, Effect]]:
    """Ticks when they are due, and commits at once."""
    done: list[tuple[int, Effect]] = []
    while (deadline_ms := controller.next_deadline_ms()) is not None and deadline_ms <= now_ms:
        for effect in controller.step(Tick(), deadline_ms):
            done.append((deadline_ms, effect))
            if isinstance(effect, AppendRecords):
                end_offset = effect.base_offset + len(effect.records)
                batch = CommittedRecords(effect.base_offset, end_offset, effect.epoch, effect.records)
                assert controller.step(batch, deadline_ms) == ()
    return done


# ---- periodic tasks ---------------------------------------------------------------------------------------------------


def test_an_idle_controller_writes_a_no_op_now_and_then() -> None:
    controller = active_controller(metadata_max_idle_interval_ms=500)
    written = [(at_ms, effect.records) for at_ms, effect in run_until(controller, 1_600)]  # type: ignore[union-attr]
    assert written == [(500, (NoOpRecord(),)), (1_000, (NoOpRecord(),)), (1_500, (NoOpRecord(),))]


def test_a_busy_controller_writes_no_no_op(quorum: Quorum) -> None:
    controller = active_controller(metadata_max_idle_interval_ms=500)
    end_offset = controller.status().next_write_offset
    for now_ms in range(300, 3_000, 300):
        (append,) = controller.step(Submit(now_ms, quorum.register_request(1, now_ms), FAR_MS), now_ms)
        assert isinstance(append, AppendRecords)
        end_offset = append.base_offset + len(append.records)
        controller.step(CommittedRecords(append.base_offset, end_offset, 1, append.records), now_ms)
        assert run_until(controller, now_ms + 299) == []


def test_no_ops_can_be_turned_off() -> None:
    assert run_until(active_controller(metadata_max_idle_interval_ms=0), 10_000) == []


def test_a_task_that_fails_is_tried_again_and_the_term_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = active_controller()
    with monkeypatch.context() as broken:
        broken.setattr(controller._managers.drains, "next_changes", lambda *_: 1 // 0)
        told = [effect for _, effect in run_until(controller, 10_000) if isinstance(effect, ChangeFailed)]
    assert [(each.name, type(each.bug)) for each in told] == [("drain", ZeroDivisionError)]
    assert controller.status().is_active
    assert not any(isinstance(effect, ChangeFailed) for _, effect in run_until(controller, 30_000))


def test_balancing_goes_on_at_once_where_a_round_was_not_enough() -> None:
    quorum = Quorum(1, config=ControllerConfig(max_elections_per_round=2))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2)
    quorum.create("flights", 1, 2, partitions=5)
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(1)
    for partition_id in range(5):
        quorum.alter_isr("flights", (2, 1), partition_id)
    counts: list[int] = []
    while quorum.leader.status().imbalanced_partitions_count:
        quorum.now_ms = max(quorum.now_ms, quorum.leader.next_deadline_ms() or 0)
        for broker_id in (1, 2):
            quorum.heartbeat(broker_id)
        quorum.tick()
        counts.append(quorum.leader.status().imbalanced_partitions_count)
    assert [count for index, count in enumerate(counts) if count != 5 or counts[index - 1] != 5][-3:] == [3, 1, 0]
    assert quorum.now_ms < 300_100


def test_a_partition_without_a_leader_is_found_by_time() -> None:
    """As an older version might have left it: nothing happens to its broker, so nothing else elects."""
    controller = active_controller(broker_session_timeout_ms=10**6)
    controller.step(Renounce(), 0)
    offset = controller.status().committed_end_offset
    topic_id = UUID(int=1)
    records: tuple[MetadataRecord, ...] = (
        RegisterBrokerRecord(1, UUID(int=2), offset, "localhost", 9, (UUID(int=3),), fenced=False),
        TopicRecord("flights", topic_id),
        TopicRecord("taxis", UUID(int=4)),
        ConfigRecord(ResourceType.TOPIC, "flights", "unclean.leader.election.enable", "true"),
        PartitionRecord(0, topic_id, (1,), (), -1, 0, 0),
        PartitionRecord(0, UUID(int=4), (1,), (), -1, 0, 0),
        PartitionRecord(1, UUID(int=4), (1,), (1,), -1, 0, 0),
    )
    end_offset = offset + len(records)
    controller.step(CommittedRecords(offset, end_offset, 1, records), 0)
    controller.step(Claim(2, end_offset), 0)
    run_until(controller, 299_999)
    assert controller.status().leaderless_partitions_count == 3
    run_until(controller, 300_000)
    assert {key for key, p in controller._state.replication.partitions.items() if p.leader == 1} == {
        (topic_id, 0),
        (UUID(int=4), 1),
    }


# ---- terms ------------------------------------------------------------------------------------------------------------


def test_requests_wait_for_the_activation_and_are_answered_after_it(quorum: Quorum) -> None:
    quorum.renounce()
    quorum.claim(2)
    controller = quorum.leader
    first, late = quorum.submit(FLIGHTS), quorum.submit(FLIGHTS, timeout_ms=10)
    assert controller.status().queued_requests == 2
    assert controller.next_deadline_ms() == quorum.now_ms + 10
    quorum.now_ms += 10
    quorum.tick()
    assert isinstance(quorum.replies[late], RequestTimedOutError)
    assert first not in quorum.replies
    quorum.commit()
    assert not isinstance(quorum.replies[first], Exception)


def test_requests_that_waited_are_told_when_the_claim_is_lost(quorum: Quorum) -> None:
    quorum.renounce()
    quorum.claim(2)
    waiting = quorum.submit(FLIGHTS)
    quorum.renounce()
    assert isinstance(quorum.replies[waiting], NotControllerError)
    assert quorum.nodes[2].next_deadline_ms() is None


def test_requests_that_wait_are_bounded() -> None:
    controller = new_controller(max_parked_requests=1)
    controller.step(Claim(1, 1), 0)
    assert controller.step(Submit(1, in_envelope(FLIGHTS), FAR_MS), 0) == ()
    (refused,) = controller.step(Submit(2, in_envelope(FLIGHTS), FAR_MS), 0)
    assert isinstance(refused, ReplyError)
    assert isinstance(refused.error, ThrottledError)


def test_the_past_does_not_change_while_a_leader_goes_on(quorum: Quorum) -> None:
    before = quorum.leader.committed_state_hash()
    quorum.submit(FLIGHTS)
    assert quorum.leader.committed_state_hash() == before
    assert quorum.leader._state.state_hash(None) != before
    quorum.renounce(lost_batches=1)
    assert quorum.nodes[1]._state.state_hash(None) == before


def test_an_open_transaction_of_an_earlier_term_is_aborted() -> None:
    controller = new_controller()
    records: tuple[MetadataRecord, ...] = (
        FeatureLevelRecord("metadata.version", 2),
        BeginTransactionRecord("half"),
        TopicRecord("flights", UUID(int=1)),
    )
    controller.step(CommittedRecords(0, 3, 1, records), 0)
    assert controller.status().stable_end_offset == 1
    controller.step(Claim(2, 4), 0)
    (append,) = controller.step(CommittedRecords(3, 4, 2), 0)
    assert isinstance(append, AppendRecords)
    assert [type(record) for record in append.records] == [AbortTransactionRecord]
    assert controller.status().topics_count == 0
    controller.step(CommittedRecords(4, 5, 2, append.records), 0)
    assert controller.status().stable_end_offset == 5


# ---- the quorum's own records, and snapshots --------------------------------------------------------------------------


def test_records_of_the_quorum_are_skipped(quorum: Quorum) -> None:
    first = quorum.submit(FLIGHTS)
    quorum.skip(2)
    second = quorum.submit(CreateTopics((NewTopic("taxis", assignments=((1,),)),)))  # the kit checks where it lands
    quorum.commit()
    assert {type(quorum.replies[request]).__name__ for request in (first, second)} == {"CreateTopicsResponse"}


def test_a_skip_before_the_activation_moves_it(quorum: Quorum) -> None:
    quorum.renounce()
    quorum.claim(2)
    quorum.skip(1)
    quorum.commit(1)
    assert not quorum.leader.status().is_active
    quorum.commit(1)
    assert quorum.leader.status().is_active
    with pytest.raises(InvariantViolationError):
        quorum.nodes[1].step(Skip(99), 0)


def test_a_snapshot_is_the_state(quorum: Quorum) -> None:
    quorum.create("flights", 1, 2, partitions=2, retention_ms="5")
    quorum.drain(2)
    quorum.reassign("flights", (2, 1))
    quorum.restart(2, from_snapshot=True)
    assert quorum.nodes[2].committed_state_hash() == quorum.leader.committed_state_hash()
    quorum.create("taxis", 1)
    assert quorum.nodes[2].committed_state_hash() == quorum.leader.committed_state_hash()
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    quorum.create("trains", 1)


def test_a_snapshot_replaces_what_a_standby_had(quorum: Quorum) -> None:
    quorum.create("flights", 1)
    image = quorum.image
    quorum.nodes[2].step(LoadSnapshot(image.end_offset, tuple(image_records(image))), 0)
    assert quorum.nodes[2].committed_state_hash() == quorum.leader.committed_state_hash()


def test_a_snapshot_that_cannot_be_stops_the_node(quorum: Quorum) -> None:
    image = quorum.image
    snapshot = LoadSnapshot(image.end_offset, tuple(image_records(image)))
    with pytest.raises(InvariantViolationError, match="leading is True"):
        quorum.leader.step(snapshot, 0)
    with pytest.raises(InvariantViolationError):
        quorum.nodes[2].step(LoadSnapshot(1, ()), 0)
    begin = BeginTransactionRecord("t")
    for marks in ((begin,), (begin, EndTransactionRecord()), (begin, AbortTransactionRecord("no"))):
        with pytest.raises(InvariantViolationError, match="marks of a transaction"):
            new_controller().step(LoadSnapshot(3, marks), 0)


ALL = frozenset({1, 2, 3})


# ---- brokers that are gone --------------------------------------------------------------------------------------------


def test_every_unfenced_broker_is_watched_and_no_other(quorum: Quorum) -> None:
    registration = quorum.image.brokers[1]
    broker = WatchedBroker(1, registration.broker_epoch, registration.incarnation_id, "localhost", 9001)
    quorum.heartbeat(2, want_fence=True)
    quorum.register(3)
    assert quorum.watched == (broker,)
    quorum.renounce()
    assert quorum.watched == ()
    quorum.claim(2)
    quorum.commit()
    assert quorum.watched == (broker,)


def test_only_the_incarnation_that_was_seen_gone_is_fenced(quorum: Quorum) -> None:
    broker_epoch = quorum.broker_epoch(1)
    for gone in (BrokerGone(1, broker_epoch - 1, "refused", ALL), BrokerGone(9, 1, "refused", ALL)):
        assert quorum.leader.step(gone, quorum.now_ms) == ()
    assert quorum.nodes[2].step(BrokerGone(1, broker_epoch, "refused", ALL), quorum.now_ms) == ()
    quorum.gone(1)
    quorum.commit()
    assert quorum.image.brokers[1].fenced
    assert [broker.broker_id for broker in quorum.watched] == [2]


def test_a_pause_lies_between_two_brokers_that_are_gone(quorum: Quorum) -> None:
    quorum.gone(1)
    quorum.now_ms += GONE_PAUSE_MS - 1
    quorum.gone(2)
    quorum.commit()
    assert not quorum.image.brokers[2].fenced
    quorum.now_ms += 1
    quorum.gone(2)
    quorum.commit()
    assert quorum.image.brokers[2].fenced


# ---- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(0, UUID(int=9), (1,), (1,), 1, 0, 0),
        PartitionChangeRecord(0, UUID(int=9)),
        EndTransactionRecord(),
        AbortTransactionRecord("none is open"),
        TopicRecord(None, UUID(int=1)),  # type: ignore[arg-type]
        "not a record",
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_cannot_be_replayed_stops_the_node(record: MetadataRecord) -> None:
    with pytest.raises(InvariantViolationError):
        new_controller().step(CommittedRecords(0, 1, 1, (record,)), 0)


def test_a_bug_in_replay_stops_the_node_whoever_made_the_record(quorum: Quorum) -> None:
    def broken(_record: object) -> None:
        raise ZeroDivisionError

    quorum.leader._state._handlers[TopicRecord] = broken
    with pytest.raises(InvariantViolationError, match="TopicRecord"):
        quorum.leader.step(Submit(99, in_envelope(FLIGHTS), FAR_MS), quorum.now_ms)


def test_every_record_and_every_request_has_somebody_who_handles_it() -> None:
    controller = new_controller()
    marks = {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
    assert {*controller._state._handlers, *marks} == set(get_args(MetadataRecord))
    assert set(controller._managers.of_nodes) == set(get_args(NodeWish))
    assert set(controller._managers.of_clients) == set(get_args(ClientChange)) == set(CHANGE_RIGHTS)


# ---- who is heard -----------------------------------------------------------------------------------------------------


def test_after_a_pause_of_the_controller_heartbeats_come_before_fencing(quorum: Quorum) -> None:
    """What waited in the network is no silence; what stays silent is fenced."""
    quorum.start(3)
    quorum.now_ms += 20_000
    quorum.tick()
    for broker_id in (1, 2):
        quorum.now_ms += 10
        quorum.submit(Heartbeat(broker_id, quorum.broker_epoch(broker_id), quorum.image.end_offset))
    quorum.now_ms += 200
    quorum.tick()
    quorum.commit()
    assert [broker_id for broker_id, broker in quorum.image.brokers.items() if broker.fenced] == [3]


def test_a_lost_claim_leaves_nothing_to_do() -> None:
    controller = active_controller()
    controller.step(Submit(1, in_envelope(FLIGHTS), FAR_MS), 0)
    controller.step(Renounce(), 0)
    assert controller.next_deadline_ms() is None
    assert controller.step(Tick(), 10**6) == ()


def test_a_registration_that_was_lost_leaves_no_session_of_it(quorum: Quorum) -> None:
    old_epoch = quorum.broker_epoch(1)
    lost = quorum.submit(quorum.register_request(1, 2))
    quorum.renounce(lost_batches=1)
    assert isinstance(quorum.replies[lost], NotControllerError)
    quorum.claim(1)
    quorum.commit()
    assert quorum.broker_epoch(1) == old_epoch
    assert not quorum.heartbeat(1).is_fenced
    answer = quorum.ask(quorum.register_request(1, 2))
    assert isinstance(answer, RegisterBrokerResponse)
    assert answer.broker_epoch > old_epoch


def test_answers_of_committed_state_leave_at_once() -> None:
    controller = active_controller()
    (reply,) = controller.step(Submit(1, in_envelope(CreateTopics((), validate_only=True)), FAR_MS), 0)
    assert isinstance(reply, Reply)
