"""Batches of a leader's appends (docs/KAFKA.md 5.7), against a list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replog_quorum import (
    AccumulatorFullError,
    AppendTooLargeError,
    BatchAccumulator,
    PendingBatch,
    QuorumConfigError,
    QuorumInvariantError,
    StaleAppendError,
)

MAX_BYTES = 10
MAX_BATCHES = 3
LINGER_MS = 5


def opened(*, linger_ms: int = 0) -> BatchAccumulator:
    accumulator = BatchAccumulator(linger_ms=linger_ms, max_batch_bytes=MAX_BYTES, max_batches=MAX_BATCHES)
    accumulator.open(7, 100)
    return accumulator


def test_appends_share_a_batch_while_they_fit() -> None:
    accumulator = opened()
    assert accumulator.append(7, [b"aaa", b"bbb"], now_ms=1) == 100
    assert accumulator.append(7, [b"cccc"], now_ms=2) == 102
    assert accumulator.append(7, [b"d"], now_ms=3) == 103
    assert accumulator.drain(3) == (PendingBatch(100, (b"aaa", b"bbb", b"cccc"), 1), PendingBatch(103, (b"d",), 3))
    assert (accumulator.is_empty, accumulator.next_offset) == (True, 104)


def test_linger_counts_from_the_first_append_after_a_drain() -> None:
    accumulator = opened(linger_ms=LINGER_MS)
    assert accumulator.next_deadline_ms() is None
    accumulator.append(7, [b"a"], now_ms=10)
    accumulator.append(7, [b"b"], now_ms=14)
    assert accumulator.next_deadline_ms() == 15
    assert accumulator.drain(14) == ()
    assert accumulator.drain(15) == (PendingBatch(100, (b"a", b"b"), 10),)
    assert accumulator.next_deadline_ms() is None


def test_a_full_batch_does_not_linger() -> None:
    accumulator = opened(linger_ms=LINGER_MS)
    accumulator.append(7, [b"a" * MAX_BYTES], now_ms=10)
    accumulator.append(7, [b"b"], now_ms=10)
    assert len(accumulator.drain(10)) == 2


def test_what_is_refused_changes_nothing() -> None:
    accumulator = opened()
    accumulator.append(7, [b"a" * MAX_BYTES], now_ms=0)
    with pytest.raises(StaleAppendError) as stale:
        accumulator.append(6, [b"a"], now_ms=0)
    assert (stale.value.epoch, stale.value.open_epoch) == (6, 7)
    with pytest.raises(AppendTooLargeError) as large:
        accumulator.append(7, [b"a" * MAX_BYTES, b"b"], now_ms=0)
    assert (large.value.value_count, large.value.size_bytes, large.value.max_bytes) == (2, MAX_BYTES + 1, MAX_BYTES)
    with pytest.raises(AppendTooLargeError):
        accumulator.append(7, [], now_ms=0)
    for _ in range(MAX_BATCHES - 1):
        accumulator.append(7, [b"a" * MAX_BYTES], now_ms=0)
    with pytest.raises(AccumulatorFullError) as full:
        accumulator.append(7, [b"a"], now_ms=0)
    assert full.value.max_batches == MAX_BATCHES
    assert accumulator.next_offset == 100 + MAX_BATCHES
    assert len(accumulator.drain(0)) == MAX_BATCHES


def test_a_control_batch_moves_the_next_offset_only_while_nothing_waits() -> None:
    accumulator = opened()
    accumulator.skip_to(103)
    assert accumulator.append(7, [b"a"], now_ms=0) == 103
    with pytest.raises(QuorumInvariantError):
        accumulator.skip_to(110)
    accumulator.drain_all(0)
    with pytest.raises(QuorumInvariantError):
        accumulator.skip_to(103)


def test_the_end_of_leadership_drops_what_waits() -> None:
    accumulator = opened()
    accumulator.append(7, [b"a"], now_ms=0)
    with pytest.raises(QuorumInvariantError):
        accumulator.open(8, 50)
    accumulator.close()
    assert accumulator.drain_all(0) == ()
    with pytest.raises(StaleAppendError):
        accumulator.append(7, [b"a"], now_ms=0)
    accumulator.open(8, 50)
    assert (accumulator.epoch, accumulator.append(8, [b"a"], now_ms=0)) == (8, 50)


@pytest.mark.parametrize("field", ["linger_ms", "max_batch_bytes", "max_batches"])
def test_bounds_are_checked(field: str) -> None:
    with pytest.raises(QuorumConfigError) as caught:
        BatchAccumulator(**{field: -1})
    assert caught.value.field == field


class AccumulatorMachine(RuleBasedStateMachine):
    """The model: a list of appends, each with its base offset, that are waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.accumulator = opened(linger_ms=LINGER_MS)
        self.waiting: list[tuple[int, tuple[bytes, ...], int]] = []
        self.next_offset = 100
        self.now_ms = 0

    @rule(values=st.lists(st.binary(max_size=6), max_size=4))
    def append(self, values: list[bytes]) -> None:
        try:
            base_offset = self.accumulator.append(7, values, self.now_ms)
        except AppendTooLargeError:
            assert not values or sum(map(len, values)) > MAX_BYTES
        except AccumulatorFullError:
            assert len(self.waiting) >= MAX_BATCHES
        else:
            assert base_offset == self.next_offset
            self.waiting.append((base_offset, tuple(values), self.now_ms))
            self.next_offset += len(values)

    @rule(wait_ms=st.integers(0, LINGER_MS))
    def drain(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        drained = self.accumulator.drain(self.now_ms)
        is_late = bool(self.waiting) and self.now_ms >= self.waiting[0][2] + LINGER_MS
        assert drained or not is_late
        if drained:
            self.check(drained)

    @rule()
    def drain_all(self) -> None:
        self.check(self.accumulator.drain_all(self.now_ms))

    @precondition(lambda self: not self.waiting)
    @rule(count=st.integers(0, 3))
    def control_batch(self, count: int) -> None:
        self.next_offset += count
        self.accumulator.skip_to(self.next_offset)

    def check(self, drained: tuple[PendingBatch, ...]) -> None:
        """Everything comes out, in order, at its offset, appends undivided."""
        assert [v for batch in drained for v in batch.values] == [v for _, vs, _ in self.waiting for v in vs]
        starts = {base_offset: created_ms for base_offset, _, created_ms in self.waiting}
        for batch in drained:
            assert sum(map(len, batch.values)) <= MAX_BYTES
            assert starts[batch.base_offset] == batch.created_ms
        assert len(drained) <= MAX_BATCHES
        self.waiting.clear()

    @invariant()
    def offsets_agree(self) -> None:
        assert self.accumulator.next_offset == self.next_offset
        assert self.accumulator.is_empty == (not self.waiting)


TestAccumulatorAgainstAList = AccumulatorMachine.TestCase
TestAccumulatorAgainstAList.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=2), max_size=20))
@settings(max_examples=50)
def test_without_linger_every_append_can_be_drained_at_once(appends: list[list[bytes]]) -> None:
    accumulator = opened()
    for values in appends:
        base_offset = accumulator.append(7, values, now_ms=3)
        assert accumulator.drain(3) == (PendingBatch(base_offset, tuple(values), 3),)
