"""Changes of many partitions: each step makes those that it appends, and whoever asked is answered at the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID

import pytest
from controller_kit import REFUSAL, Refusing, alterable, refusing
from msgspec.structs import replace

from replog.controller.managers import elections, replication
from replog.controller.managers.partition_walk import PartitionWalk
from replog.controller.messages import Submit
from replog.controller.requests import (
    AlterConfigs,
    AlterConfigsResource,
    ControllerRequest,
    CreateTopics,
    DeleteTopics,
    Heartbeat,
    HeartbeatResponse,
    NewTopic,
    OfflineReplica,
    RegisterBrokerResponse,
)
from replog.controller.state import partition_map
from replog.controller.state.partition_map import PartitionMap
from replog.errors import NotControllerError, ReplogError
from replog.metadata.records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    ResourceType,
)
from replog_timeline import SnapshotRegistry
from tests.envelopes import in_envelope
from tests.work_counts import calls_of


def three_with_many() -> Refusing:
    """A quorum with 45 partitions on all three brokers, in steps of ten."""
    quorum = refusing(max_records_per_step=10, max_elections_per_round=10)
    quorum.ask(CreateTopics((NewTopic("t", 45, 3),)))
    return quorum


def counting(quorum: Refusing, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns how many partitions are decided in each step from now on."""
    made: list[int] = []
    change, step = replication.partition_change, quorum.leader.step

    def counted(*asked: Any, **more: Any) -> Any:
        made[-1] += 1
        return change(*asked, **more)

    def stepped(message: Any, now_ms: int) -> Any:
        made.append(0)
        return step(message, now_ms)

    monkeypatch.setattr(replication, "partition_change", counted)
    monkeypatch.setattr(quorum.leader, "step", stepped)
    return made


def losing(monkeypatch: pytest.MonkeyPatch) -> tuple[Refusing, list[int]]:
    """A quorum that hears nothing more of broker 1; and what is made in each step."""
    quorum = three_with_many()
    quorum.now_ms += quorum.config.broker_session_timeout_ms
    quorum.heartbeat(2)
    quorum.heartbeat(3)
    quorum.now_ms += 500
    return quorum, counting(quorum, monkeypatch)


def go_on(quorum: Refusing) -> None:
    quorum.tick()
    quorum._go_on()


def is_without_the_first(quorum: Refusing) -> bool:
    partitions = quorum.image.topics_by_name["t"].partitions.values()
    assert {1 in each.isr for each in partitions} == {not quorum.image.brokers[1].fenced}
    assert {each.leader for each in partitions} == ({2, 3} if quorum.image.brokers[1].fenced else {1, 2, 3})
    return quorum.image.brokers[1].fenced


def test_the_changes_when_a_broker_goes_are_made_as_many_in_a_step_as_are_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: those of 100,000 replicas were made in one step of more than a second, in which no heartbeat was answered."""
    quorum, made = losing(monkeypatch)
    go_on(quorum)
    quorum.check_equal()
    assert is_without_the_first(quorum)
    assert (sum(made), max(made)) == (45, 10)


@pytest.mark.parametrize("refused", [BrokerRegistrationChangeRecord, EndTransactionRecord, PartitionChangeRecord])
def test_a_broker_goes_as_a_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, refused: type) -> None:
    quorum, _ = losing(monkeypatch)
    quorum.refused = (refused,)
    quorum.tick()
    for _ in range(12):
        quorum.tick()
    quorum.commit()
    assert not is_without_the_first(quorum)
    quorum.refused = ()
    quorum.now_ms += 500
    quorum.heartbeat(2)
    quorum.heartbeat(3)
    go_on(quorum)
    quorum.check_equal()
    assert is_without_the_first(quorum)


def test_changes_that_cannot_be_made_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum, made = losing(monkeypatch)
    change = replication.partition_change

    def failing(*asked: Any, **more: Any) -> Any:
        if sum(made) == 20:
            raise ZeroDivisionError("a bug")
        return change(*asked, **more)

    with monkeypatch.context() as patch:
        patch.setattr(replication, "partition_change", failing)
        go_on(quorum)
        quorum.commit()
        assert not is_without_the_first(quorum)
        assert isinstance(quorum.log[-1].records[-1], AbortTransactionRecord)
        assert quorum.failed == [("fence", ZeroDivisionError)]


def test_what_is_half_made_is_given_up_with_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum, _ = losing(monkeypatch)
    quorum.tick()
    quorum.tick()
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    assert not is_without_the_first(quorum)
    quorum.tick()
    quorum.commit()
    assert quorum.nodes[1].committed_state_hash() == quorum.nodes[2].committed_state_hash()


# ---- somebody waits for the end --------------------------------------------------------------------------------------


def wants_fence(quorum: Refusing) -> ControllerRequest:
    return Heartbeat(1, quorum.broker_epoch(1), quorum.image.end_offset, want_fence=True)


def shuts_down(quorum: Refusing) -> ControllerRequest:
    return Heartbeat(1, quorum.broker_epoch(1), quorum.image.end_offset, want_shut_down=True)


def starts_anew(quorum: Refusing) -> ControllerRequest:
    return quorum.register_request(1, incarnation=2)


def comes_back(quorum: Refusing) -> ControllerRequest:
    """Everything has lost its last replica but one, which comes back."""
    for broker_id in (2, 3, 1):
        quorum.heartbeat(broker_id, want_fence=True)
    return Heartbeat(1, quorum.broker_epoch(1), quorum.image.end_offset)


def allows_unclean_leaders(quorum: Refusing) -> ControllerRequest:
    """Everything is led by nobody, and the only broker that is there may lead once that is allowed."""
    for broker_id in (2, 3, 1):
        quorum.heartbeat(broker_id, want_fence=True)
    assert not quorum.heartbeat(2).is_fenced
    change = alterable("unclean.leader.election.enable", "true")
    return AlterConfigs((AlterConfigsResource(ResourceType.BROKER, "", (change,)),))


REQUESTS = [wants_fence, shuts_down, starts_anew, comes_back, allows_unclean_leaders]


@pytest.mark.parametrize("prepare", REQUESTS)
def test_a_request_that_changes_much_is_answered_when_all_of_it_has_committed(
    monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Refusing], ControllerRequest]
) -> None:
    """Trap: the heartbeat of a broker with 100,000 replicas that stops held the controller for two seconds."""
    quorum = three_with_many()
    asked = prepare(quorum)
    made = counting(quorum, monkeypatch)
    request_id = quorum.submit(asked)
    assert request_id not in quorum.replies
    assert not quorum.leader.is_changing
    quorum.commit(len(quorum.log) - quorum.committed_count - 1)
    assert request_id not in quorum.replies, "its last batch has not committed"
    quorum.check_equal()
    answer = quorum.replies[request_id]
    assert not isinstance(answer, Exception)
    assert (sum(made), max(made)) == (45, 10)
    if isinstance(answer, HeartbeatResponse):
        assert answer.metadata_offset == quorum.image.end_offset
    if isinstance(answer, RegisterBrokerResponse):
        assert answer.broker_epoch == quorum.broker_epoch(1)
        assert not quorum.heartbeat(1).is_fenced


@pytest.mark.parametrize("prepare", REQUESTS)
def test_a_request_that_changes_much_fails_with_what_the_log_refuses(
    prepare: Callable[[Refusing], ControllerRequest],
) -> None:
    quorum = three_with_many()
    asked = prepare(quorum)
    before = quorum.image.topics_by_name["t"]
    quorum.refused = (EndTransactionRecord,)
    request_id = quorum.submit(asked)
    assert quorum.replies[request_id] is REFUSAL
    quorum.refused = ()
    quorum.check_equal()
    assert quorum.image.topics_by_name["t"] == before
    assert quorum.ask(prepare(quorum))
    quorum.check_equal()
    assert quorum.image.topics_by_name["t"] != before


def test_a_request_that_changes_much_fails_with_the_leadership() -> None:
    quorum = three_with_many()
    request_id = 900
    quorum.step(1, Submit(request_id, in_envelope(wants_fence(quorum)), 10**9))
    assert quorum.leader.is_changing
    quorum.renounce()
    assert isinstance(quorum.replies[request_id], NotControllerError)


def test_a_request_whose_changes_cannot_be_made_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = three_with_many()
    made = counting(quorum, monkeypatch)
    change = replication.partition_change

    def failing(*asked: Any, **more: Any) -> Any:
        if sum(made) == 20:
            raise ZeroDivisionError("a bug")
        return change(*asked, **more)

    with monkeypatch.context() as patch:
        patch.setattr(replication, "partition_change", failing)
        request_id = quorum.submit(wants_fence(quorum))
    quorum.check_equal()
    assert isinstance(answer := quorum.replies[request_id], ReplogError)
    assert "a bug" in str(answer)
    assert not is_without_the_first(quorum)


# ---- how much one step looks at --------------------------------------------------------------------------------------


def test_a_topic_is_deleted_at_the_same_cost_however_large_it_is() -> None:
    """Trap: one of 100,000 partitions held the controller for 400 ms, and each standby for 300."""

    def cost(partitions: int) -> int:
        quorum = refusing(max_records_per_step=1_000)
        quorum.records_max = 1_000
        quorum.ask(CreateTopics((NewTopic("t", partitions, 3),)))
        asked = Submit(900, in_envelope(DeleteTopics(("t",))), 10**9)
        taken = calls_of(lambda: quorum.leader.step(asked, quorum.now_ms))
        assert quorum.leader.status().partitions_count == 0
        return taken

    assert cost(900) < cost(9) + 20


def test_a_deletion_that_is_refused_leaves_all_partitions() -> None:
    quorum = three_with_many()
    quorum.refused = (RemoveTopicRecord,)
    with pytest.raises(type(REFUSAL)):
        quorum.ask(DeleteTopics(("t",)))
    quorum.refused = ()
    quorum.check_equal()
    assert quorum.leader.status().partitions_count == 45
    assert quorum.drain(1) == 45


def offline(quorum: Refusing, numbers: Iterable[int]) -> Heartbeat:
    topic_id = quorum.image.topics_by_name["t"].topic_id
    told = tuple(OfflineReplica(topic_id, number) for number in numbers)
    return Heartbeat(1, quorum.broker_epoch(1), quorum.image.end_offset, offline_replicas=told)


def test_offline_replicas_leave_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: a heartbeat that names 10,000 of them was one step of 130 ms; only those that are usable again were counted."""
    quorum = three_with_many()
    made = counting(quorum, monkeypatch)
    quorum.ask(offline(quorum, range(45)))
    quorum.check_equal()
    assert (sum(made), max(made)) == (45, 10)
    assert all(1 not in each.isr for each in quorum.image.topics_by_name["t"].partitions.values())
    end_offset = quorum.end_offset
    quorum.ask(offline(quorum, range(45)))
    assert quorum.end_offset == end_offset, "what is told again changes nothing, and takes no room in the log"
    assert sum(made) == 45
    quorum.ask(replace(offline(quorum, range(45)), want_shut_down=True))
    assert quorum.image.brokers[1].fenced, "a broker with many offline replicas may stop, too"


def test_partitions_without_a_leader_are_looked_through_some_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: all 100,000 were looked at in one step of 550 ms, again and again, while none of them could be led."""
    quorum = three_with_many()
    for broker_id in (2, 3, 1):
        quorum.heartbeat(broker_id, want_fence=True)
    assert quorum.leader.status().leaderless_partitions_count == 45
    made = counting(quorum, monkeypatch)
    monkeypatch.setattr(elections, "partition_change", replication.partition_change)
    quorum.now_ms += quorum.config.leaderless_interval_ms
    for _ in range(20):
        quorum.tick()
        quorum.now_ms += 1
    assert sum(made) == 45, "each once, until the next interval"
    assert max(made) == 10
    made.clear()
    end_offset = quorum.end_offset
    quorum.heartbeat(2)
    assert max(made) <= 11, "and one more, to know whether there are any"
    assert quorum.end_offset == end_offset + 3, "it is back, and leads nothing: a transaction of one record"


# ---- in order ---------------------------------------------------------------------------------------------------------------


def test_a_great_many_topics_are_sorted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: the ids of 100,000 topics were sorted in one step before the first change was made, most of a tenth of a second."""
    looked: list[UUID] = []
    monkeypatch.setattr(partition_map, "_number", lambda each: (looked.append(each), each.int)[1])
    partitions, rng = PartitionMap[None](SnapshotRegistry()), random.Random(1)
    for _ in range(5_000):
        partitions.put(UUID(int=rng.getrandbits(128)), 0, None)
    found = partitions.in_order()
    first = next(found)
    assert len(looked) < 100
    assert [first, *found] == sorted(partitions)
    assert len(looked) == 5_000


def test_the_partitions_under_what_holds_for_all_are_named_when_they_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = three_with_many()
    named: list[int] = []
    in_order, step = PartitionMap.in_order, quorum.leader.step

    def noted(*maps: Any) -> Iterator[Any]:
        for key in in_order(*maps):
            named[-1] += 1
            yield key

    def stepped(message: Any, now_ms: int) -> Any:
        named.append(0)
        return step(message, now_ms)

    monkeypatch.setattr(PartitionMap, "in_order", noted)
    monkeypatch.setattr(quorum.leader, "step", stepped)
    everywhere = AlterConfigsResource(ResourceType.BROKER, "", (alterable("min.insync.replicas", "2"),))
    quorum.ask(AlterConfigs((everywhere,)))
    assert sum(named) >= 45
    assert max(named) <= 20


@pytest.mark.parametrize("leaders_leave", [True, False])
def test_a_round_of_a_drain_looks_at_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch, leaders_leave: bool
) -> None:
    """With all partitions looked at in each, a round with 60,000 topics held the controller for 130 ms, once a second."""
    quorum = refusing(max_elections_per_round=10, max_drain_reassignments=50)
    quorum.ask(CreateTopics((NewTopic("t", 45, 2 if leaders_leave else 3),)))
    looked_at: list[int] = []
    walked = PartitionWalk.next

    def counted(walk: PartitionWalk, count_max: int) -> Any:
        keys, is_last = walked(walk, count_max)
        looked_at.append(len(keys))
        return keys, is_last

    monkeypatch.setattr(PartitionWalk, "next", counted)
    quorum.drain(1)
    for _ in range(30):
        quorum.now_ms += quorum.config.drain_interval_ms
        for broker_id in (1, 2, 3):
            quorum.heartbeat(broker_id)
        go_on(quorum)
    assert max(looked_at) == 10
    assert 1 not in {each.leader for each in quorum.image.topics_by_name["t"].partitions.values()}
    assert bool(quorum.leader.status().reassigning_partitions_count) is leaders_leave
