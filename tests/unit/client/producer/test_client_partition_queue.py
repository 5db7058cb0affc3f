"""The rules of one partition's batches, without a network: sequences, order, gaps."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.client.cluster.addresses import LeaderAddress
from replog.client.producer.accumulator import BUSY_BYTES, BUSY_LINGER_S, Accumulator, AccumulatorSettings
from replog.client.producer.batch import ProducerBatch, ProducerIdentity
from replog.client.producer.partition_queue import PRODUCER_EPOCH_MAX, PartitionQueue
from replog.errors import (
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from replog.records import decode_batch, parse_header
from replog.rpc.transport import ConnectionLostError

NOW = 1e9


def make(*, idempotent: bool = True, linger_ms: float = 0, batch_size_bytes: int = 100) -> PartitionQueue:
    settings = AccumulatorSettings(
        batch_size_bytes=batch_size_bytes,
        linger_ms=linger_ms,
        buffer_memory_bytes=1 << 20,
        delivery_timeout_ms=60_000,
        max_in_flight=5 if idempotent else 1,
        is_idempotent=idempotent,
    )
    queue = PartitionQueue(Accumulator(settings), "t", UUID(int=1), 0)
    if idempotent:
        queue.set_identity(ProducerIdentity(7, 0))
    return queue


def fill(queue: PartitionQueue, batches: int) -> None:
    """Each record gets a batch of its own: two do not fit into 100 bytes."""
    for i in range(batches):
        queue.append(1000, None, b"%030d" % i, (), 127)


def send(queue: PartitionQueue) -> ProducerBatch | None:
    batch = queue.sendable(NOW, allow_partial=True)
    if batch is not None:
        queue.mark_sent(batch)
    return batch


def establish(queue: PartitionQueue) -> None:
    """The broker knows the producer: the first batch is acknowledged."""
    fill(queue, 1)
    first = send(queue)
    assert first is not None
    queue.handle_acknowledged(first, 0, -1)


def sent(queue: PartitionQueue, count: int) -> list[ProducerBatch]:
    batches = [send(queue) for _ in range(count)]
    return [batch for batch in batches if batch is not None]


def sequences(batches: list[ProducerBatch]) -> list[int]:
    return [parse_header(batch.payload or b"").base_sequence for batch in batches]


def identity_of(batch: ProducerBatch) -> tuple[int, int, int]:
    header = parse_header(batch.payload or b"")
    return header.producer_id, header.producer_epoch, header.base_sequence


async def test_only_one_batch_until_the_broker_knows_the_producer() -> None:
    queue = make()
    fill(queue, 3)
    (first,) = sent(queue, 3)
    queue.handle_acknowledged(first, 0, -1)
    assert sequences(sent(queue, 3)) == [1, 2]


async def test_at_most_five_unresolved_batches() -> None:
    queue = make()
    establish(queue)
    fill(queue, 8)
    batches = sent(queue, 8)
    assert sequences(batches) == [1, 2, 3, 4, 5]
    queue.handle_acknowledged(batches[2], 3, -1)
    assert send(queue) is None, "the broker remembers five batches from the oldest unresolved one on"
    queue.handle_acknowledged(batches[0], 1, -1)
    assert sequences(sent(queue, 8)) == [6]


async def test_without_idempotence_one_batch_at_a_time_keeps_the_order() -> None:
    queue = make(idempotent=False)
    fill(queue, 3)
    (first,) = sent(queue, 3)
    assert parse_header(first.payload or b"").producer_id == -1
    queue.handle_retriable(first, NotEnoughReplicasError("x"), backoff_until_s=NOW)
    assert sent(queue, 3) == [first]


async def test_a_retry_goes_before_everything_later_and_unchanged() -> None:
    queue = make()
    establish(queue)
    fill(queue, 4)
    a, b = sent(queue, 2)
    bytes_before = a.payload
    queue.handle_retriable(a, NotEnoughReplicasError("x"), backoff_until_s=NOW + 0.1)
    assert send(queue) is None, "backing off, and b is still in flight"
    queue.handle_out_of_order(b, OutOfOrderSequenceError("x"), backoff_until_s=NOW)
    assert send(queue) is None, "backing off"
    queue.backoff_until_s = 0
    assert sequences(sent(queue, 4)) == [1, 2, 3, 4]
    assert a.payload == bytes_before


async def test_a_retry_waits_for_what_is_in_flight_behind_it() -> None:
    queue = make()
    establish(queue)
    fill(queue, 2)
    a, b = sent(queue, 2)
    queue.handle_retriable(a, NotEnoughReplicasError("x"), backoff_until_s=0)
    assert send(queue) is None
    queue.handle_out_of_order(b, OutOfOrderSequenceError("x"), backoff_until_s=0)
    assert sent(queue, 2) == [a, b]


async def test_out_of_order_with_nothing_before_it_is_fatal_for_what_is_in_flight_only() -> None:
    queue = make()
    establish(queue)
    fill(queue, 3)
    a, b = sent(queue, 2)
    queue.handle_out_of_order(a, OutOfOrderSequenceError("from broker"), backoff_until_s=0)
    for batch in (a, b):
        with pytest.raises(OutOfOrderSequenceError, match="refuses sequence 1 of producer 7"):
            await batch.wait()
    fill(queue, 1)
    (c,) = sent(queue, 1)
    assert identity_of(c) == (7, 1, 0)


async def test_a_rejected_batch_fails_alone_and_later_ones_get_new_numbers() -> None:
    """1 is too large, 2 and 3 were in flight behind it: the broker refuses them, they go again as 0 and 1 of epoch 1."""
    queue = make()
    establish(queue)
    fill(queue, 3)
    a, b, c = sent(queue, 3)
    values = [decode_batch(batch.payload or b"")[0].value for batch in (b, c)]
    queue.handle_failed(a, RecordTooLargeError("too large"))
    with pytest.raises(RecordTooLargeError):
        await a.wait()
    queue.handle_out_of_order(b, OutOfOrderSequenceError("x"), backoff_until_s=0)
    assert send(queue) is None, "c is still in flight"
    queue.handle_out_of_order(c, OutOfOrderSequenceError("x"), backoff_until_s=0)
    queue.backoff_until_s = 0
    assert sent(queue, 2) == [b], "one at a time until the broker knows the epoch"
    assert identity_of(b) == (7, 1, 0)
    queue.handle_acknowledged(b, 1, -1)
    fill(queue, 1)
    assert sent(queue, 1) == [c], "what could only have been appended behind b is not in the log either"
    assert identity_of(c) == (7, 1, 1)
    assert [decode_batch(batch.payload or b"")[0].value for batch in (c,)] == values[1:]
    queue.handle_acknowledged(c, 2, -1)
    assert [identity_of(batch) for batch in sent(queue, 1)] == [(7, 1, 2)]


async def test_after_a_gap_a_batch_that_was_appended_after_all_is_acknowledged_once() -> None:
    queue, b = with_gap()
    assert identity_of(b) == (7, 0, 2)
    queue.handle_acknowledged(b, 9, -1)
    fill(queue, 1)
    assert [identity_of(batch) for batch in sent(queue, 1)] == [(7, 1, 0)]


async def test_what_may_still_arrive_is_not_sent_under_another_identity() -> None:
    """The broker has not got b, but a copy of it may be on the way, and one of a, with which it would take it."""
    queue, b = with_gap()
    queue.handle_out_of_order(b, OutOfOrderSequenceError("from the broker"), backoff_until_s=0)
    with pytest.raises(RequestTimedOutError, match="may or may not be in the log") as failed:
        await b.wait()
    assert isinstance(failed.value.__cause__, OutOfOrderSequenceError)
    fill(queue, 1)
    assert [identity_of(batch) for batch in sent(queue, 1)] == [(7, 1, 0)]


async def test_what_was_meant_for_an_older_leader_epoch_will_not_arrive() -> None:
    queue, b = with_gap(next_leader_epoch=6)
    queue.handle_out_of_order(b, OutOfOrderSequenceError("x"), backoff_until_s=0)
    assert sent(queue, 1) == [b]
    assert identity_of(b) == (7, 1, 0)


async def test_epochs_that_are_used_up_need_another_producer_id() -> None:
    queue = make()
    queue.set_identity(ProducerIdentity(7, PRODUCER_EPOCH_MAX))
    establish(queue)
    fill(queue, 2)
    (a,) = sent(queue, 1)
    queue.handle_failed(a, RecordTooLargeError("too large"))
    assert send(queue) is None
    assert queue.needs_identity
    queue.set_identity(ProducerIdentity(8, 0))
    assert [identity_of(batch) for batch in sent(queue, 1)] == [(8, 0, 0)]


def with_gap(*, next_leader_epoch: int = 5) -> tuple[PartitionQueue, ProducerBatch]:
    """A queue whose connection was lost with two batches in flight; the first has failed, the second was sent again."""
    queue = make()
    queue.leader = LeaderAddress(1, "a:1", 5, UUID(int=1))
    establish(queue)
    fill(queue, 2)
    a, b = sent(queue, 2)
    for batch in (a, b):
        queue.handle_lost(batch, ConnectionLostError("lost"))
    queue.handle_failed(a, RequestTimedOutError("expired"))
    queue.leader = LeaderAddress(1, "a:1", next_leader_epoch, UUID(int=1))
    assert sent(queue, 2) == [b]
    return queue, b


async def test_deleting_the_topic_fails_everything() -> None:
    queue = make()
    establish(queue)
    fill(queue, 4)
    batches = sent(queue, 2)
    queue.fail_all(RecordTooLargeError("x"))
    assert not queue.has_work
    assert all(batch.is_done for batch in batches)


async def test_lingering_batches_wait_unless_full_or_flushed() -> None:
    queue = make(linger_ms=60_000)
    queue.append(1000, None, b"a", (), 98)
    assert queue.sendable(queue.lingers_until_s() - 1, allow_partial=True) is None
    assert queue.sendable(queue.lingers_until_s(), allow_partial=True) is not None
    queue._accumulator.flushing_count = 1
    assert queue.sendable(NOW, allow_partial=True) is not None


async def test_while_somebody_sends_a_batch_waits_to_be_full_but_not_for_long() -> None:
    queue = make(batch_size_bytes=2 * BUSY_BYTES)
    establish(queue)
    queue.append(1000, None, b"a" * (BUSY_BYTES + 100), (), BUSY_BYTES + 200)
    now_s = queue._open.created_s  # type: ignore[union-attr]
    queue._accumulator.is_busy = True
    assert queue.sendable(now_s + 0.99 * BUSY_LINGER_S, allow_partial=True) is None
    assert queue.sendable(now_s + BUSY_LINGER_S, allow_partial=True) is not None
    queue.append(1000, None, b"a" * BUSY_BYTES, (), BUSY_BYTES + 100)
    assert queue.sendable(now_s, allow_partial=False) is not None, "a full one goes at once"


async def test_a_record_of_which_nobody_makes_a_batch_does_not_wait_for_who_sends_elsewhere() -> None:
    queue = make(batch_size_bytes=2 * BUSY_BYTES)
    establish(queue)
    queue._accumulator.is_busy = True
    queue.append(1000, None, b"a", (), 98)
    now_s = queue._open.created_s  # type: ignore[union-attr]
    assert queue.sendable(now_s + 0.001 * BUSY_LINGER_S, allow_partial=True) is not None
    queue.append(1000, None, b"a" * (BUSY_BYTES // 2), (), BUSY_BYTES)
    assert queue.sendable(now_s + 0.49 * BUSY_LINGER_S, allow_partial=True) is None
    assert queue.sendable(now_s + 0.51 * BUSY_LINGER_S, allow_partial=True) is not None, "half of it, half as long"


async def test_while_somebody_sends_a_batch_waits_for_the_answer_to_the_one_before_it() -> None:
    queue = make(batch_size_bytes=200)
    establish(queue)
    queue.append(1000, None, b"a", (), 127)
    first = send(queue)
    assert first is not None, "nobody is in the middle of sending"
    queue.append(1000, None, b"b", (), 127)
    assert queue.sendable(NOW, allow_partial=True) is not None
    queue._accumulator.is_busy = True
    assert queue.sendable(NOW, allow_partial=True) is None
    queue._accumulator.flushing_count = 1
    assert queue.sendable(NOW, allow_partial=True) is not None
    queue._accumulator.flushing_count = 0
    queue.handle_acknowledged(first, 1, -1)
    assert queue.sendable(NOW, allow_partial=True) is not None


async def test_sequences_wrap_at_31_bits() -> None:
    queue = make()
    establish(queue)
    queue._next_sequence = 2**31 - 1
    fill(queue, 2)
    assert sequences(sent(queue, 2)) == [2**31 - 1, 0]
