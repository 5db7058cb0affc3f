"""Records that the log does not take: the request that made them fails, and the state is what the log says."""

from __future__ import annotations

from controller_kit import REFUSAL, refusing

from replog.controller.messages import AppendRecords, AppendRefused, Submit
from replog.controller.requests import CreateTopics, NewTopic
from replog.metadata.records import AbortTransactionRecord, EndTransactionRecord
from tests.envelopes import in_envelope


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
    quorum.step(1, Submit(request_ids[0], in_envelope(create("large", 250)), 10**9))
    assert quorum.end_offset - begin <= 100
    quorum.step(1, Submit(request_ids[1], in_envelope(create("small", 2)), 10**9))
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
    quorum.step(1, Submit(900, in_envelope(create("large", 18)), 10**9))  # with its topic and marks 21 records
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
        list(controller.step(Submit(900 + number, in_envelope(create(name, 1)), 10**9), 0))
        for number, name in enumerate(("a", "b"))
    )
    (append,) = [effect for effect in first if isinstance(effect, AppendRecords)]
    assert append.epoch == claim_epoch
    assert any(isinstance(effect, AppendRecords) for effect in second)
    failed = controller.step(AppendRefused(append.base_offset, REFUSAL), 0)
    assert sorted(effect.request_id for effect in failed) == [900, 901]  # type: ignore[union-attr]
    quorum.ask(create("c", 1))
    quorum.check_equal()
    assert list(quorum.image.topics_by_name) == ["c"]
