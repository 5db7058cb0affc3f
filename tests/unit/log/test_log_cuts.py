"""Where a log may be cut into parts of about equal size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.errors import OffsetOutOfRangeError
from replog.log import Log, LogConfig
from replog.log.reading import cuts
from replog.records import scan
from tests.unit.log.log_test_kit import TINY, append, batch, content, filled

ONE_SEGMENT = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)
"""An index entry about every second batch."""


def sizes(log: Log) -> dict[int, int]:
    """Bytes of each batch by its base offset."""
    return {header.base_offset: header.size_bytes for data in content(log) for header in scan(data)}


def cut(log: Log, target_bytes: int, *, cuts_max: int = 1000, start: int = 0) -> list[tuple[int, int]]:
    return [
        tuple(each) for each in log.find_cuts(start, log.log_end_offset, target_bytes=target_bytes, cuts_max=cuts_max)
    ]


@pytest.mark.parametrize("config", [ONE_SEGMENT, TINY], ids=["one segment", "many segments"])
def test_parts_have_about_the_wished_size(config: LogConfig) -> None:
    _, log = filled(200, config=config)
    parts = cut(log, 1000)
    assert parts[-1][0] == 200
    assert [offset for offset, _ in parts] == sorted({offset for offset, _ in parts})
    assert sum(size for _, size in parts) == log.size_bytes
    by_offset, start = sizes(log), 0
    for offset, size_bytes in parts[:-1]:
        actual = sum(size for base, size in by_offset.items() if start <= base < offset)
        assert abs(actual - size_bytes) < 200  # an index entry is a batch or two away
        assert 700 < actual < 1700
        start = offset


def test_a_cut_lies_between_batches() -> None:
    """Goal: no batch is read by two tasks."""
    _, log = filled(0, config=ONE_SEGMENT)
    for _ in range(50):
        log.append_as_leader(batch(*[b"v" * 30] * 7), leader_epoch=0, now_ms=0)
    bases = set(sizes(log)) | {log.log_end_offset}
    offsets = {offset for offset, _ in cut(log, 900)}
    assert len(offsets) > 10
    assert offsets <= bases


def test_there_are_no_more_cuts_than_asked_for() -> None:
    _, log = filled(200, config=ONE_SEGMENT)
    assert len(cut(log, 1, cuts_max=4)) == 4
    assert cut(log, 1, cuts_max=1) == [(200, log.size_bytes)]


def test_when_look_ups_are_used_up_ends_of_segments_are_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the broker's loop does not walk through the indexes of a terabyte."""
    monkeypatch.setattr(cuts, "LOOK_UPS_MAX", 0)
    _, log = filled(200, config=TINY)
    assert {offset for offset, _ in cut(log, 1)} == {*log.segment_base_offsets[1:], 200}


def test_a_range_that_is_not_in_the_log_is_refused() -> None:
    _, log = filled(5)
    for start, end in ((-1, 5), (0, 6)):
        with pytest.raises(OffsetOutOfRangeError):
            log.find_cuts(start, end, target_bytes=1, cuts_max=1)
    assert log.find_cuts(5, 5, target_bytes=1, cuts_max=1) == []


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 3000), st.integers(1, 40), st.sampled_from([0, 50]))
@settings(max_examples=40, deadline=None)
def test_the_parts_of_any_range_follow_one_another(
    first: int, second: int, target: int, cuts_max: int, gone: int
) -> None:
    _, log = filled(60, config=TINY)
    append(log, 40, leader_epoch=3)
    log.set_log_start_offset(gone)
    start, end = sorted((max(first, gone), max(second, gone)))
    parts = log.find_cuts(start, end, target_bytes=target, cuts_max=cuts_max)
    offsets = [start, *(offset for offset, _ in parts)]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == end
    assert all(size >= 0 for _, size in parts)
    assert len(parts) <= cuts_max
