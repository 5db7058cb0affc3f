"""Records that the log does not take: the request that made them fails, and the state is what the log says."""

from __future__ import annotations

from typing import Any

import pytest
from controller_kit import Quorum

from replog.controller.config import ControllerConfig
from replog.controller.managers import replication
from replog.controller.messages import AppendRecords, AppendRefused, Effect, Submit
from replog.controller.requests import CreateTopics, NewTopic
from replog.errors import PolicyViolationError
from replog.metadata.records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
)

REFUSAL = PolicyViolationError("too large")


class Refusing(Quorum):
    """Its log takes batches of at most `records_max` records, and none with a record of a class in `refused`."""

    records_max = 100
    refused: tuple[type, ...] = ()

    def step(self, node_id: int, message: object) -> None:
        first: AppendRefused | None = None
        for effect in self.nodes[node_id].step(message, self.now_ms):  # type: ignore[arg-type]
            if first is not None and isinstance(effect, AppendRecords):
                continue
            if self._is_refused(effect):
                first = AppendRefused(effect.base_offset, REFUSAL)  # type: ignore[union-attr]
            else:
                self._perform(node_id, effect)
        if first is not None:
            self.step(node_id, first)

    def _is_refused(self, effect: Effect) -> bool:
        if not isinstance(effect, AppendRecords):
            return False
        too_many = len(effect.records) > self.records_max
        return too_many or any(isinstance(record, self.refused) for record in effect.records)

    def check_equal(self) -> None:
        """The nodes agree with each other and with their log, and none gave up."""
        self.commit()
        assert self.nodes[1].committed_state_hash() == self.nodes[2].committed_state_hash()
        assert self.nodes[1].status().next_write_offset == self.end_offset
        assert self.resigned == []


def refusing(**settings: int) -> Refusing:
    quorum = Refusing(1, 2, config=ControllerConfig(**settings))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    return quorum


def create(name: str, partitions: int) -> CreateTopics:
    return CreateTopics((NewTopic(name, partitions, 1),))


def test_exactly_that_request_fails_and_the_state_goes_back() -> None:
    quorum = refusing()
    quorum.records_max = 5
    earlier = quorum.submit(create("small", 2))
    end_offset = quorum.end_offset
    large = quorum.submit(create("large", 7))
    assert quorum.replies == {**quorum.replies, large: REFUSAL}
    assert earlier not in quorum.replies, "it waits for its own commit"
    assert quorum.end_offset == end_offset
    again = quorum.submit(create("large", 3))
    quorum.check_equal()
    assert not isinstance(quorum.replies[earlier], Exception)
    assert not isinstance(quorum.replies[again], Exception)
    assert sorted(quorum.image.topics_by_name) == ["large", "small"]
    assert len(quorum.image.topics_by_name["large"].partitions) == 3


def test_of_a_transaction_that_is_cut_off_nothing_counts() -> None:
    quorum = refusing(max_records_per_batch=4)
    quorum.refused = (EndTransactionRecord,)
    large = quorum.submit(create("large", 9))
    assert quorum.replies[large] is REFUSAL
    assert isinstance(quorum.log[-1].records[-1], AbortTransactionRecord)
    quorum.refused = ()
    small = quorum.submit(create("small", 2))
    quorum.check_equal()
    assert not isinstance(quorum.replies[small], Exception)
    assert list(quorum.image.topics_by_name) == ["small"]


def test_a_transaction_of_which_nothing_was_taken_leaves_no_trace() -> None:
    quorum = refusing(max_records_per_batch=4)
    quorum.records_max = 3
    end_offset = quorum.end_offset
    large = quorum.submit(create("large", 9))
    assert quorum.replies[large] is REFUSAL
    assert quorum.end_offset == end_offset
    quorum.renounce()
    quorum.claim(2)
    quorum.commit()
    assert not quorum.image.topics_by_name


def test_a_large_change_has_a_step_for_each_part_and_nothing_else_is_made_in_between() -> None:
    quorum = refusing(max_records_per_step=100)
    controller, begin = quorum.leader, quorum.end_offset
    request_ids = (quorum._request_ids + 1, quorum._request_ids + 2)
    quorum.step(1, Submit(request_ids[0], create("large", 250), 10**9))
    assert quorum.end_offset - begin <= 100
    quorum.step(1, Submit(request_ids[1], create("small", 2), 10**9))
    steps = 0
    while (due_ms := controller.next_deadline_ms()) is not None and due_ms <= quorum.now_ms:
        before, steps = quorum.end_offset, steps + 1
        quorum.commit()
        assert not set(request_ids) & set(quorum.replies)
        quorum.tick()
        assert quorum.end_offset - before <= 100
    quorum.check_equal()
    assert steps > 1
    assert all(not isinstance(quorum.replies[number], Exception) for number in request_ids)
    assert {name: len(topic.partitions) for name, topic in quorum.image.topics_by_name.items()} == {
        "large": 250,
        "small": 2,
    }


def test_a_large_change_fails_whose_end_the_log_does_not_take_behind_a_record_of_the_quorum() -> None:
    """The record moved the end of the change by one, behind what its answer waits for."""
    quorum = refusing(max_records_per_step=10)
    quorum.refused = (EndTransactionRecord,)
    quorum.step(1, Submit(900, create("large", 18), 10**9))  # with its topic and marks 21 records
    quorum.tick()
    assert 900 not in quorum.replies
    quorum.skip(1)
    quorum._go_on()
    assert quorum.replies[900] is REFUSAL
    quorum.check_equal()
    assert not quorum.image.topics_by_name


def test_what_a_request_made_behind_the_refused_records_of_another_is_taken_back_too() -> None:
    """One step may handle a round of the controller's own and a request; both fail, for one was made of the other."""
    quorum = refusing()
    controller, claim_epoch = quorum.leader, quorum.epoch
    first, second = (
        list(controller.step(Submit(900 + number, create(name, 1), 10**9), 0)) for number, name in enumerate(("a", "b"))
    )
    (append,) = [effect for effect in first if isinstance(effect, AppendRecords)]
    assert append.epoch == claim_epoch
    assert any(isinstance(effect, AppendRecords) for effect in second)
    failed = controller.step(AppendRefused(append.base_offset, REFUSAL), 0)
    assert sorted(effect.request_id for effect in failed) == [900, 901]  # type: ignore[union-attr]
    quorum.ask(create("c", 1))
    quorum.check_equal()
    assert list(quorum.image.topics_by_name) == ["c"]


# ---- a broker with many replicas goes ---------------------------------------------------------------------------------------


def losing(monkeypatch: pytest.MonkeyPatch) -> tuple[Refusing, list[int]]:
    """A quorum that hears nothing more of broker 1, with 45 partitions on all three brokers, in steps of ten; and what is made in each."""
    quorum = refusing(max_records_per_step=10)
    quorum.ask(CreateTopics((NewTopic("t", 45, 3),)))
    quorum.now_ms += quorum.config.broker_session_timeout_ms
    quorum.heartbeat(2)
    quorum.heartbeat(3)
    quorum.now_ms += 500
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
    return quorum, made


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
    assert (sum(made), max(made)) == (45, 11), "one more than is appended, to know whether there are any"


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
        assert quorum.leader.status().failed_rounds == {"fence": 1}


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
