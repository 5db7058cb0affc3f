"""Offset and time index: golden bytes (docs/KAFKA.md 1.6, 1.7), look-ups against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_test_kit import T0

from replog.errors import CorruptIndexError, InvariantViolationError
from replog.log.segments.offset_index import ActiveOffsetIndex, OffsetPosition
from replog.log.segments.time_index import ActiveTimeIndex, TimestampOffset

ROOM = 1 << 20


def test_offset_index_bytes_are_kafkas() -> None:
    index = ActiveOffsetIndex(100, ROOM)
    index.append(105, 4096)
    index.append(110, 8200)
    assert index.to_bytes().hex() == "00000005000010000000000a00002008"


def test_time_index_bytes_are_kafkas() -> None:
    index = ActiveTimeIndex(100, ROOM)
    index.maybe_append(T0, 105)
    index.maybe_append(T0, 110)
    assert index.to_bytes().hex() == "0000018bcfe5680000000005"


steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60)


@given(steps=steps, target=st.integers(90, 4000), cut=st.integers(90, 4000))
def test_offset_index_agrees_with_a_list(steps: list[tuple[int, int]], target: int, cut: int) -> None:
    index, model = ActiveOffsetIndex(100, ROOM), [OffsetPosition(100, 0)]
    offset, position = 100, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.append(offset, position)
        model.append(OffsetPosition(offset, position))
    assert index.lookup(target) == ([e for e in model if e.offset <= target] or model[:1])[-1]
    assert index.lookup_position(target) == ([e for e in model if e.position <= target] or model[:1])[-1]
    index.truncate_to(cut)
    assert index.last() == ([e for e in model[1:] if e.offset < cut] or model[:1])[-1]
    assert ActiveOffsetIndex(100, ROOM, index.to_bytes()).last() == index.last()


@given(steps=steps, target=st.integers(0, 4000))
def test_time_index_agrees_with_a_list(steps: list[tuple[int, int]], target: int) -> None:
    index, model = ActiveTimeIndex(100, ROOM), [TimestampOffset(-1, 100)]
    offset, timestamp = 100, 0
    for offset_step, timestamp_step in steps:
        offset, timestamp = offset + offset_step, timestamp + timestamp_step // 100
        index.maybe_append(timestamp, offset)
        if timestamp > model[-1].timestamp:
            model.append(TimestampOffset(timestamp, offset))
    assert index.lookup(target) == [e for e in model if e.timestamp <= target][-1]
    assert index.last() == model[-1]


def test_an_index_is_full_and_refuses_what_does_not_rise() -> None:
    index = ActiveOffsetIndex(0, 16)
    index.append(1, 10)
    with pytest.raises(InvariantViolationError):
        index.append(1, 20)
    index.append(2, 20)
    assert index.is_full
    with pytest.raises(InvariantViolationError):
        index.append(3, 30)


def test_half_an_entry_is_corrupt() -> None:
    with pytest.raises(CorruptIndexError):
        ActiveOffsetIndex(0, ROOM, b"123")
    with pytest.raises(CorruptIndexError):
        ActiveTimeIndex(0, ROOM, b"123")
