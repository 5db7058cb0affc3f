"""The small parts: parked answers, offsets, sessions, settings."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.controller.config import ControllerConfig
from replog.controller.events.offset_control import DeferredReplies, OffsetControl
from replog.controller.managers.heartbeats import BrokerHeartbeats
from replog.controller.messages import CommittedRecords, Reply
from replog.controller.requests import AlterConfigsResponse
from replog.errors import ConfigError, InvariantViolationError, NotControllerError, RequestTimedOutError
from replog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
    encoded_bytes_max,
)
from replog_timeline import SnapshotRegistry, TimelineLong


def offset_control(registry: SnapshotRegistry, batch_records: int) -> OffsetControl:
    return OffsetControl(registry, batch_records, 10_000, max_records_per_step=1_000, knows_transactions=lambda: True)


def reply(request_id: int) -> Reply:
    return Reply(request_id, AlterConfigsResponse(()))


def test_answers_leave_in_order_of_their_offset() -> None:
    deferred = DeferredReplies()
    for request_id, end_offset in ((1, 5), (2, 5), (3, 8)):
        deferred.park(end_offset, 100, reply(request_id))
    assert deferred.complete_up_to(4) == ()
    assert deferred.complete_up_to(5) == (reply(1), reply(2))
    assert len(deferred) == 1
    assert deferred.complete_up_to(9) == (reply(3),)
    assert deferred.next_deadline_ms() is None


def test_the_earliest_deadline_of_those_still_waiting_counts() -> None:
    deferred = DeferredReplies()
    deferred.park(5, 50, reply(1))
    deferred.park(6, 70, reply(2))
    deferred.park(7, 60, reply(3))
    deferred.complete_up_to(5)
    assert deferred.next_deadline_ms() == 60
    assert deferred.expire(59) == ()
    (expired,) = deferred.expire(60)
    assert expired.request_id == 3
    assert isinstance(expired.error, RequestTimedOutError)
    assert deferred.complete_up_to(9) == (reply(2),)


def test_lost_leadership_fails_all() -> None:
    deferred = DeferredReplies()
    deferred.park(5, 50, reply(1))
    (failed,) = deferred.fail_all()
    assert isinstance(failed.error, NotControllerError)
    assert (len(deferred), deferred.next_deadline_ms()) == (0, None)


def test_a_request_waits_once() -> None:
    deferred = DeferredReplies()
    deferred.park(5, 50, reply(1))
    with pytest.raises(InvariantViolationError):
        deferred.park(6, 50, reply(1))


def committed(base_offset: int, end_offset: int, epoch: int = 1, *records: MetadataRecord) -> CommittedRecords:
    return CommittedRecords(base_offset, end_offset, epoch, records)


def test_offsets_go_back_to_what_is_committed() -> None:
    registry = SnapshotRegistry()
    offsets, value = offset_control(registry, 10), TimelineLong(registry)
    value.set(1)
    offsets.commit(committed(0, 3))
    offsets.activate()
    assert not offsets.has_pending
    for number in (2, 3):
        value.set(number)
        offsets.skip_to(offsets.next_write_offset_or_raise() + 2)
    assert (offsets.next_write_offset, offsets.has_pending) == (7, True)
    offsets.commit(committed(3, 5, 2))
    assert list(offsets.deactivate()) == []
    assert (value.get(), offsets.committed_end_offset, offsets.next_write_offset) == (2, 5, None)
    assert tuple(registry.epochs()) == (5,)


def test_commits_follow_each_other_and_end_where_batches_end() -> None:
    offsets = offset_control(SnapshotRegistry(), 10)
    offsets.commit(committed(0, 3))
    for base_offset, end_offset in ((2, 5), (4, 5), (3, 2)):
        with pytest.raises(InvariantViolationError):
            offsets.commit(committed(base_offset, end_offset))
    with pytest.raises(InvariantViolationError):
        offsets.skip_to(offsets.next_write_offset_or_raise() + 1)
    offsets.activate()
    offsets.skip_to(offsets.next_write_offset_or_raise() + 2)
    with pytest.raises(InvariantViolationError):
        offsets.commit(committed(3, 4))


def test_a_commit_may_cover_several_own_batches() -> None:
    offsets = offset_control(SnapshotRegistry(), 10)
    offsets.activate()
    for count in (2, 3, 1):
        offsets.skip_to(offsets.next_write_offset_or_raise() + count)
    offsets.skip_to(8)
    with pytest.raises(InvariantViolationError):
        offsets.skip_to(7)
    offsets.commit(committed(0, 5))
    with pytest.raises(InvariantViolationError):
        offsets.commit(committed(5, 7))
    offsets.commit(committed(5, 8))
    assert (offsets.stable_end_offset, offsets.has_pending) == (8, False)


def test_a_large_change_is_a_transaction_of_batches() -> None:
    offsets = offset_control(SnapshotRegistry(), 3)
    offsets.activate()
    records = tuple(RemoveTopicRecord(UUID(int=number)) for number in range(4))
    assert offsets.batches(()) == []
    assert offsets.batches(records[:3]) == [records[:3]]
    first, second = offsets.batches(records)
    assert (first[0], first[1:]) == (BeginTransactionRecord("4 records"), records[:2])
    assert second == (*records[2:], EndTransactionRecord())
    assert (offsets.end_after(records[:3]), offsets.end_after(records)) == (3, 6)


def test_a_change_of_many_bytes_is_a_transaction_of_batches_that_are_small_enough() -> None:
    offsets = offset_control(SnapshotRegistry(), 100)
    offsets.activate()
    records = tuple(TopicRecord("x" * 3_000, UUID(int=number)) for number in range(7))
    batches = offsets.batches(records)
    assert [len(batch) for batch in batches] == [4, 3, 2]
    assert all(sum(map(encoded_bytes_max, batch)) <= 10_000 for batch in batches)
    assert tuple(record for batch in batches for record in batch)[1:-1] == records
    assert offsets.end_after(records) == 9


def test_nothing_of_a_transaction_counts_before_its_end() -> None:
    registry = SnapshotRegistry()
    offsets, value = offset_control(registry, 10), TimelineLong(registry)
    marks = (NoOpRecord(), BeginTransactionRecord("t"), NoOpRecord())
    offsets.replay_begin(1)
    value.set(5)
    offsets.commit(committed(0, 3, 1, *marks))
    assert (offsets.committed_end_offset, offsets.stable_end_offset) == (3, 1)
    with pytest.raises(InvariantViolationError):
        offsets.replay_begin(3)
    offsets.replay_end(3)
    offsets.commit(committed(3, 4, 1, EndTransactionRecord()))
    assert (offsets.stable_end_offset, value.get(epoch=4)) == (4, 5)
    with pytest.raises(InvariantViolationError):
        offsets.replay_end(4)


def test_an_aborted_transaction_never_happened() -> None:
    registry = SnapshotRegistry()
    offsets, value = offset_control(registry, 10), TimelineLong(registry)
    offsets.replay_begin(0)
    value.set(5)
    offsets.commit(committed(0, 2, 1, BeginTransactionRecord("t"), NoOpRecord()))
    offsets.replay_abort(2)
    assert value.get() == 0
    offsets.commit(committed(2, 3, 1, AbortTransactionRecord("no")))
    assert offsets.stable_end_offset == 3


def test_a_batch_may_hold_several_transactions_and_the_beginning_of_one() -> None:
    registry = SnapshotRegistry()
    offsets, value = offset_control(registry, 10), TimelineLong(registry)
    for offset, end in ((0, offsets.replay_end), (2, offsets.replay_abort), (4, None)):
        offsets.replay_begin(offset)
        value.set(10 + offset)
        if end is not None:
            end(offset + 1)
    assert value.get() == 14
    offsets.commit(committed(0, 6))
    assert (offsets.stable_end_offset, value.get(epoch=4)) == (4, 10)
    offsets.replay_end(6)
    offsets.commit(committed(6, 7))
    assert (offsets.stable_end_offset, value.get(epoch=7)) == (7, 14)


def test_of_several_transactions_under_way_each_counts_at_its_own_end() -> None:
    registry = SnapshotRegistry()
    offsets, value = offset_control(registry, 10), TimelineLong(registry)
    offsets.activate()
    for start in (0, 5):
        offsets.replay_begin(start)
        offsets.skip_to(start + 3)
        value.set(start + 5)
        offsets.replay_end(start + 4)
        offsets.skip_to(start + 5)
    stable: list[int] = []
    for base_offset, end_offset in ((0, 3), (3, 5), (5, 8), (8, 10)):
        offsets.commit(committed(base_offset, end_offset))
        stable.append(offsets.stable_end_offset)
        assert value.get(epoch=stable[-1]) == stable[-1]
    assert stable == [0, 5, 5, 10]


def test_half_a_transaction_that_committed_is_replayed_again_after_a_revert() -> None:
    registry = SnapshotRegistry()
    offsets, value = offset_control(registry, 10), TimelineLong(registry)
    marks = (NoOpRecord(), BeginTransactionRecord("t"), NoOpRecord())
    offsets.activate()
    offsets.replay_begin(1)
    offsets.skip_to(offsets.next_write_offset_or_raise() + 3)
    value.set(5)
    offsets.replay_end(3)
    offsets.skip_to(offsets.next_write_offset_or_raise() + 1)
    offsets.commit(committed(0, 3, 1, *marks))
    assert offsets.stable_end_offset == 1
    assert list(offsets.deactivate()) == [(1, marks[1]), (2, marks[2])]
    assert value.get() == 0


def test_a_session_is_stale_only_beyond_the_timeout() -> None:
    heartbeats = BrokerHeartbeats(100)
    heartbeats.start(1, 7, 8, 0)
    heartbeats.start(2, 8, 9, 0)
    heartbeats.touch(2, 8, 5, 20, 10)
    assert heartbeats.is_live(1, 7, 100)
    assert not heartbeats.is_live(1, 7, 101)
    assert not heartbeats.is_live(1, 6, 0)
    assert heartbeats.stale_broker((1, 2), 100) is None
    assert heartbeats.stale_broker((1, 2), 101) == 1
    assert heartbeats.stale_broker((1, 2), 500) == 1
    assert heartbeats.next_expiry_ms((1, 2)) == 101
    assert heartbeats.lowest_metadata_offset((1, 2)) == -1
    assert heartbeats.lowest_metadata_offset((2,)) == 5
    assert heartbeats.lowest_metadata_offset(()) is None
    assert heartbeats.next_expiry_ms(()) is None


@pytest.mark.parametrize(
    "values",
    [
        {"broker_session_timeout_ms": 0},
        {"max_partitions": 250_000},
        {"producer_id_block_size": -1},
        {"metadata_max_idle_interval_ms": -1},
    ],
)
def test_settings_are_checked(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        ControllerConfig(**values)
    assert caught.value.field in values
