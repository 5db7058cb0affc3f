"""Ends are handed over once, when they have committed, and again only where nobody has heard of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from shard_kit import FULL
from transaction_kit import A0, A1, B0, SPARE, Producer, TransactionHost, begun, marked

from replog.coordinator.runtime.messages import HighWatermarkMoved, Paused, Resigned, Resumed, Tick
from replog.coordinator.runtime.shard import TIMER_RETRY_MS
from replog.coordinator.transactions import ends as ends_module
from replog.coordinator.transactions.records import (
    TRANSACTION_RECORDS,
    TransactionStatus,
    WrittenTransaction,
    transaction_record,
)
from replog.coordinator.transactions.requests import (
    MarkedEnd,
    MarkersWritten,
    TransactionEnd,
    TransactionPartition,
    WaitForEnds,
)
from replog.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError
from tests.work_counts import calls_of, instructions_of


@pytest.fixture
def host() -> TransactionHost:
    found = TransactionHost()
    found.lead()
    return found


def deciding(host: TransactionHost, name: str = "etl", *, bumps: bool = True) -> Producer:
    """A producer whose transaction is decided, which has not committed."""
    producer = begun(host, name=name, bumps=bumps)
    host.ask(producer.add(A0, A1))
    host.submit(producer.commit())
    return producer


def ends_of(host: TransactionHost, request_id: int) -> list[TransactionEnd]:
    return list(host.response(request_id).ends)


def test_nobody_hears_of_an_end_that_may_be_taken_back(host: TransactionHost) -> None:
    waiting = host.submit(WaitForEnds())
    deciding(host)
    assert waiting not in host.answers
    host.commit()
    (end,) = ends_of(host, waiting)
    assert (end.transactional_id, end.partitions) == ("etl", (A0, A1))


def test_each_end_is_handed_over_once(host: TransactionHost) -> None:
    first, second = host.submit(WaitForEnds()), host.submit(WaitForEnds())
    deciding(host, "a")
    host.commit()
    assert [each.transactional_id for each in ends_of(host, first)] == ["a"]
    assert second not in host.answers
    deciding(host, "b")
    host.commit()
    assert [each.transactional_id for each in ends_of(host, second)] == ["b"]
    third = host.submit(WaitForEnds())
    host.pass_time(10_000)
    assert third not in host.answers


def test_it_is_complete_with_the_last_partition(host: TransactionHost) -> None:
    waiting = host.submit(WaitForEnds())
    deciding(host)
    host.commit()
    (end,) = ends_of(host, waiting)
    appended_count = len(host.log)
    for partitions in ((A1,), (A1, B0), ()):
        host.ask(marked(end, *partitions))
        assert host.describe().partitions == (A0,)
        assert len(host.log) == appended_count, "which partitions have a marker is written"
    host.ask(marked(end, A0))
    assert host.status() is TransactionStatus.COMPLETE_COMMIT
    host.ask(marked(end, A0))
    assert len(host.log) == appended_count + 1


def test_what_is_late_of_one_end_does_not_count_for_the_next_one(host: TransactionHost) -> None:
    """Producers of `transaction.version` 1 have the same epoch in both: the second would lack a marker for ever."""
    host.cluster.transaction_version = 1
    producer = deciding(host, bumps=False)
    (first,) = host.write_markers()
    host.ask(producer.add(A0, A1))
    host.ask(producer.commit())
    (second,) = ends_of(host, host.submit(WaitForEnds()))
    assert replace(first, number=0) == replace(second, number=0)
    host.ask(marked(first, A0, A1))
    assert host.status() is TransactionStatus.PREPARE_COMMIT
    host.ask(marked(second, A0, A1))
    assert host.status() is TransactionStatus.COMPLETE_COMMIT


def test_another_leader_hands_over_all_of_it_again(host: TransactionHost) -> None:
    deciding(host)
    host.commit()
    (end,) = ends_of(host, host.submit(WaitForEnds()))
    host.ask(marked(end, A0))
    host.change_leader()
    (again,) = ends_of(host, host.submit(WaitForEnds()))
    assert again == replace(end, coordinator_epoch=host.epoch, number=again.number)
    host.ask(marked(end, A0, A1))
    assert host.status() is TransactionStatus.PREPARE_COMMIT, "an end of the leadership before counts"
    host.ask(marked(again, A0, A1))
    assert host.status() is TransactionStatus.COMPLETE_COMMIT


def test_an_answer_that_the_log_takes_back_is_given_to_the_next_one(host: TransactionHost) -> None:
    producer = deciding(host)
    host.commit()
    base = len(host.log)
    begun_again = host.submit(Producer(name="other").init())  # uncommitted: the answer waits for it
    waiting = host.submit(WaitForEnds())
    host.lose(base)
    for request_id in (begun_again, waiting):
        with pytest.raises(CoordinatorNotAvailableError):
            host.response(request_id)
    (end,) = ends_of(host, host.submit(WaitForEnds()))
    host.ask(marked(end, *end.partitions))
    assert host.ask(producer.commit()).producer.producer_epoch == 1


def test_an_answer_that_waits_too_long_is_given_to_the_next_one(host: TransactionHost) -> None:
    waiting = host.submit(WaitForEnds())
    deciding(host)
    host.now_ms = host.shard._config.commit_timeout_ms
    host.step(Tick())
    assert waiting in host.answers
    again = host.submit(WaitForEnds())
    host.commit()
    (end,) = ends_of(host, again)
    third = host.submit(WaitForEnds())
    host.pass_time(60_000)
    assert third not in host.answers
    host.ask(marked(end, *end.partitions))
    assert host.status() is TransactionStatus.COMPLETE_COMMIT


def test_a_decision_that_is_taken_back_is_not_handed_over(host: TransactionHost) -> None:
    producer = begun(host)
    host.ask(producer.add(A0))
    waiting = host.submit(WaitForEnds())
    host.refuses = FULL
    host.submit(producer.commit())
    host.refuses = None
    assert host.status() is TransactionStatus.ONGOING
    again = host.submit(WaitForEnds())
    host.pass_time(1_000)
    assert again not in host.answers
    assert host.ask(producer.abort()).producer.producer_epoch == 1
    host.commit()
    told = [
        end for each in (waiting, again) if hasattr(host.answers.get(each), "response") for end in ends_of(host, each)
    ]
    assert [each.is_commit for each in told] == [False]


def test_a_completion_that_is_taken_back_is_written_again_without_new_markers(host: TransactionHost) -> None:
    producer = deciding(host)
    host.commit()
    (end,) = ends_of(host, host.submit(WaitForEnds()))
    base = len(host.log)
    host.submit(marked(end, *end.partitions))
    host.submit(producer.add())
    host.lose(base)
    waiting = host.submit(WaitForEnds())
    host.refuses = FULL
    host.pass_time(10 * TIMER_RETRY_MS)
    assert host.status() is TransactionStatus.PREPARE_COMMIT
    host.refuses = None
    host.pass_time(TIMER_RETRY_MS)
    assert host.status() is TransactionStatus.COMPLETE_COMMIT
    assert waiting not in host.answers, "markers are written again"


def test_a_log_that_refuses_is_not_asked_all_the_time(host: TransactionHost) -> None:
    ends = []
    for number in range(2 * ends_module.ENDS_MAX):
        deciding(host, f"t{number}")
        host.commit()
        ends += ends_of(host, host.submit(WaitForEnds()))
    host.refuses = FULL
    for end in ends:
        host.submit(marked(end, *end.partitions))
    end_ms, steps = host.now_ms + 2 * TIMER_RETRY_MS, 0
    while (deadline_ms := host.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms and steps < 100:
        host.now_ms = max(host.now_ms, deadline_ms)
        host.step(Tick())
        steps += 1
    assert steps <= 4
    host.refuses = None
    host.pass_time(2 * TIMER_RETRY_MS)
    assert {host.status(each.transactional_id) for each in ends} == {TransactionStatus.COMPLETE_COMMIT}


def test_a_transaction_that_stays_in_the_log_gets_its_own_markers(host: TransactionHost) -> None:
    """Goal: that the markers of the one before are there is no reason to leave out those of the next one."""
    producer = deciding(host)
    host.commit()
    (end,) = ends_of(host, host.submit(WaitForEnds()))
    host.submit(marked(end, *end.partitions))
    next_one = replace(producer, at=end.producer)
    host.submit(next_one.add(A0, B0))
    host.submit(next_one.commit())
    decided = len(host.log)
    host.submit(Producer(name="other").init())
    host.lose(decided)
    host.commit()
    (again,) = host.write_markers()
    assert again.partitions == (A0, B0)
    assert host.status() is TransactionStatus.COMPLETE_COMMIT


def test_ends_without_partitions_are_complete_at_once_and_in_bounded_steps(
    host: TransactionHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends_module, "ENDS_MAX", 3)
    value = WrittenTransaction(SPARE, transaction_status=TransactionStatus.PREPARE_ABORT, transaction_partitions=[])
    host.log = [TRANSACTION_RECORDS.encode(transaction_record(f"t{n}", value, 2)) for n in range(8)]
    host.high_watermark = 8
    host.lead()
    assert len(host.log) == 8 + 3
    host.pass_time(100)
    assert len(host.log) == 16
    assert all(host.status(f"t{n}") is TransactionStatus.COMPLETE_ABORT for n in range(8))


def test_an_abort_of_nothing_that_the_log_takes_in_half_is_completed_later(host: TransactionHost) -> None:
    producer = begun(host)
    base = len(host.log)
    host.submit(producer.abort())
    assert len(host.log) == base + 2
    host.lose(base + 1)
    assert host.status() is TransactionStatus.PREPARE_ABORT
    host.pass_time(TIMER_RETRY_MS)
    assert host.status() is TransactionStatus.COMPLETE_ABORT
    host.submit(replace(producer, at=host.describe().producer).abort())
    host.lose(base + 2)
    host.pass_time(TIMER_RETRY_MS)
    assert len(host.log) == base + 2


def test_what_is_complete_together_is_one_change(host: TransactionHost) -> None:
    for name in ("a", "b", "c"):
        deciding(host, name)
    host.commit()
    ends = ends_of(host, host.submit(WaitForEnds()))
    changes, records = len(host.appended), len(host.log)
    halves = [MarkedEnd(each, (one,)) for each in ends for one in (A0, A1)][:-1]
    host.ask(MarkersWritten((*halves, halves[0])))
    assert (len(host.appended) - changes, len(host.log) - records) == (1, 2)
    assert [host.status(each) for each in "abc"] == [
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.PREPARE_COMMIT,
    ]
    host.ask(marked(ends[-1], A1))
    assert host.status("c") is TransactionStatus.COMPLETE_COMMIT


def test_a_hand_over_is_bounded(host: TransactionHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends_module, "PARTITIONS_MAX", 4)
    many = tuple(TransactionPartition("a", n) for n in range(9))
    for name in ("a", "b", "c"):
        producer = begun(host, name=name)
        host.ask(producer.add(*(many if name == "c" else (A0, A1))))
        host.ask(producer.commit())
    handed = [[each.transactional_id for each in ends_of(host, host.submit(WaitForEnds()))] for _ in range(2)]
    assert handed == [["a", "b"], ["c"]]
    monkeypatch.setattr(ends_module, "ENDS_MAX", 1)
    host.change_leader()
    waiting = [host.submit(WaitForEnds()) for _ in range(4)]
    assert [[each.transactional_id for each in ends_of(host, one)] for one in waiting[:3]] == [["a"], ["b"], ["c"]]
    assert waiting[3] not in host.answers


def test_several_that_wait_share_what_there_is(host: TransactionHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends_module, "ENDS_MAX", 1)
    host.step(Paused(0))
    for name in ("a", "b"):
        deciding(host, name)
    host.commit()
    waiting = [host.submit(WaitForEnds()) for _ in range(2)]
    assert not any(each in host.answers for each in waiting)
    host.step(Resumed())
    assert [ends_of(host, each)[0].transactional_id for each in waiting] == ["a", "b"]


def test_who_waits_hears_that_another_node_leads_and_too_many_do_not_wait(host: TransactionHost) -> None:
    waiting = [host.submit(WaitForEnds()) for _ in range(ends_module.WAITS_MAX)]
    with pytest.raises(CoordinatorLoadInProgressError):
        host.response(host.submit(WaitForEnds()))
    host.step(Resigned())
    for each in waiting:
        with pytest.raises(NotCoordinatorError):
            host.response(each)


def test_what_is_said_of_unknown_ends_is_noted_and_changes_nothing(host: TransactionHost) -> None:
    deciding(host)
    host.commit()
    (end,) = ends_of(host, host.submit(WaitForEnds()))
    host.ask(marked(replace(end, transactional_id="none"), A0, A1))
    host.ask(marked(replace(end, number=end.number + 1), A0, A1))
    assert host.describe().partitions == (A0, A1)


def test_a_step_that_commits_and_hands_over_at_once(host: TransactionHost) -> None:
    """Goal: an answer that leaves in the same step is told, and not taken for lost later."""
    deciding(host)
    host.commit()
    (end,) = ends_of(host, host.submit(WaitForEnds()))
    base = len(host.log)
    host.submit(Producer(name="other").init())
    host.lose(base)
    other = host.submit(WaitForEnds())
    host.pass_time(10_000)
    assert other not in host.answers, "it is handed over twice"
    host.step(HighWatermarkMoved(base))
    answer: Any = host.ask(marked(end, *end.partitions))
    assert answer is not None


def test_many_ends_make_no_work_where_the_log_refuses_a_change(host: TransactionHost) -> None:
    """Goal: a log that refuses for a while does not hold the loop for as long as there are transactions being ended."""
    value = WrittenTransaction(
        SPARE,
        transaction_status=TransactionStatus.PREPARE_COMMIT,
        transaction_partitions=[WrittenTransaction.PartitionsSchema("a", [0])],
    )
    work = []
    for count in (10, 1_000):
        host.log = [TRANSACTION_RECORDS.encode(transaction_record(f"t{n}", value, 2)) for n in range(count)]
        host.high_watermark = count
        host.refuses = None
        host.lead()
        host.refuses = FULL
        work.append(instructions_of(lambda: host.submit(Producer(name="other").init())))
    assert work[1] < 1.1 * work[0]


@pytest.mark.parametrize("count", [10, 100])
def test_a_hand_over_passes_a_bounded_number_of_ends_that_were_taken_back(
    host: TransactionHost, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(ends_module, "ENDS_MAX", 3)
    producers = [begun(host, name=f"t{n}") for n in range(count)]
    for producer in producers:
        host.ask(producer.add())
    base = len(host.log)
    for producer in producers:
        host.submit(producer.commit())
    host.lose(base)
    waiting: list[int] = []
    assert calls_of(lambda: waiting.append(host.submit(WaitForEnds()))) < 500
    host.pass_time(1_000)
    host.ask(producers[-1].commit())
    host.commit()
    assert [each.transactional_id for each in ends_of(host, waiting[0])] == [f"t{count - 1}"]
