"""Waiting operations: by key, by deadline, each leaving once; bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.errors import InvariantViolationError, ThrottledError
from replog.replication.purgatory import Purgatory
from replog.replication.waiting_produces import WaitingProduces


def test_candidates_of_a_key_come_in_order_of_arrival_and_stay() -> None:
    purgatory: Purgatory[str] = Purgatory(operations_max=10)
    purgatory.add(7, ["a", "b"], 100, "first")
    purgatory.add(3, ["b"], 50, "second")
    assert [operation.payload for operation in purgatory.check("b")] == ["first", "second"]
    assert [operation.payload for operation in purgatory.check("a")] == ["first"]
    assert purgatory.check("c") == ()
    assert len(purgatory) == 2


def test_completed_once_under_all_keys() -> None:
    purgatory: Purgatory[str] = Purgatory(operations_max=10)
    purgatory.add(7, ["a", "b", "a"], 100, "fetch")
    done = purgatory.complete(7)
    assert done is not None
    assert done.keys == ("a", "b")
    assert purgatory.complete(7) is None
    assert purgatory.check("a") == purgatory.check("b") == ()
    assert purgatory.expire(1_000) == []
    assert purgatory.next_deadline_ms() is None


def test_expiry_by_deadline() -> None:
    purgatory: Purgatory[str] = Purgatory(operations_max=10)
    for operation_id, deadline_ms in [(1, 300), (2, 100), (3, 200)]:
        purgatory.add(operation_id, ["a"], deadline_ms, "")
    assert purgatory.next_deadline_ms() == 100
    assert [operation.operation_id for operation in purgatory.expire(200)] == [2, 3]
    assert purgatory.next_deadline_ms() == 300
    assert [operation.operation_id for operation in purgatory.check("a")] == [1]


def test_full_is_a_typed_error_and_twice_the_same_id_our_bug() -> None:
    purgatory: Purgatory[None] = Purgatory(operations_max=1)
    purgatory.add(1, ["a"], 100, None)
    with pytest.raises(ThrottledError):
        purgatory.add(2, ["a"], 100, None)
    with pytest.raises(InvariantViolationError):
        purgatory.add(1, ["a"], 100, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("acx"), st.integers(0, 15), st.integers(0, 30)), max_size=60))
def test_like_a_plain_dictionary(operations: list[tuple[str, int, int]]) -> None:
    """add, complete and expire against a dictionary that is searched from end to end."""
    purgatory: Purgatory[int] = Purgatory(operations_max=1_000)
    model: dict[int, tuple[int, int]] = {}
    for number, (verb, value, time_ms) in enumerate(operations):
        if verb == "a":
            purgatory.add(number, [value % 3, value % 5], time_ms, value)
            model[number] = (time_ms, value)
        elif verb == "c":
            assert (purgatory.complete(value) is None) == (model.pop(value, None) is None)
        else:
            expired = sorted((key for key in model if model[key][0] <= time_ms), key=lambda key: (model[key][0], key))
            assert [operation.operation_id for operation in purgatory.expire(time_ms)] == expired
            for key in expired:
                del model[key]
        assert purgatory.next_deadline_ms() == min((deadline for deadline, _ in model.values()), default=None)
        for key in range(5):
            watched = [number for number, (_, value) in model.items() if key in {value % 3, value % 5}]
            assert [operation.operation_id for operation in purgatory.check(key)] == watched


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
