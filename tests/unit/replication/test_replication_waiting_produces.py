"""Produces that wait for the high watermark: in the order of their offsets, by deadline, each leaving once."""

from __future__ import annotations

import pytest

from replog.errors import InvariantViolationError
from replog.replication.waiting_produces import WaitingProduces


def test_waiting_produces_leave_in_offset_order_each_once() -> None:
    waiting = WaitingProduces()
    for request_id, end_offset, deadline_ms in [(1, 30, 500), (2, 10, 100), (3, 20, 900), (4, 40, 300)]:
        waiting.add(request_id, end_offset, deadline_ms)
    assert waiting.pop_expired(100) == [2]
    assert waiting.pop_reached(30) == [3, 1]
    assert waiting.next_deadline_ms() == 300
    assert waiting.pop_all() == [4]
    assert waiting.pop_reached(1_000) == waiting.pop_expired(10_000) == waiting.pop_all() == []
    assert len(waiting) == 0


def test_waiting_produces_do_not_keep_leftovers_while_nothing_advances() -> None:
    waiting = WaitingProduces()
    for request_id in range(1_000):
        waiting.add(request_id, 10, request_id)
        waiting.pop_expired(request_id)
    assert len(waiting._by_offset) < 100


def test_a_request_cannot_wait_twice() -> None:
    waiting = WaitingProduces()
    waiting.add(1, 10, 100)
    with pytest.raises(InvariantViolationError):
        waiting.add(1, 20, 100)
