"""Where the batches of a range stand, for whoever reads the files by itself."""

from __future__ import annotations

import pytest
from log_test_kit import append, batch, filled, open_log, read_file

from replog.errors import OffsetOutOfRangeError
from replog.log import FileSpan, LogConfig
from replog.records import scan
from replog.testing import SimulatedFileSystem

MANY = 1000
COUNT = 40


def bases(fs: SimulatedFileSystem, spans: list[FileSpan]) -> list[int]:
    """Base offsets of the batches that the spans name, read from the files."""
    found = []
    for span in spans:
        data = read_file(fs, span.path)[span.position : span.end_position]
        headers = list(scan(data))
        assert headers[-1].end_position == len(data)  # whole batches
        assert headers[0].base_offset == span.base_offset
        found += [header.base_offset for header in headers]
    return found


@pytest.mark.parametrize("start", [0, 1, 13, COUNT - 1])
@pytest.mark.parametrize("end", [1, 14, 27, COUNT])
def test_spans_name_the_batches_of_the_range_and_no_others(start: int, end: int) -> None:
    fs, log = filled(COUNT)
    assert len(log.segment_base_offsets) > 3
    spans = log.locate(start, end, spans_max=MANY)
    assert bases(fs, spans) == list(range(start, end))
    if spans:
        assert (spans[-1].end_offset, [span.is_sealed for span in spans[:-1]]) == (end, [True] * (len(spans) - 1))


def test_only_the_active_segment_is_not_sealed() -> None:
    _, log = filled(COUNT)
    *sealed, active = log.locate(0, COUNT, spans_max=MANY)
    assert all(span.is_sealed for span in sealed)
    assert not active.is_sealed


def test_a_batch_that_holds_an_end_of_the_range_is_named_whole() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=LogConfig())
    for _ in range(3):
        log.append_as_leader(batch(b"a", b"b", b"c", b"d"), leader_epoch=0, now_ms=0)
    assert bases(fs, log.locate(5, 6, spans_max=MANY)) == [4]
    assert bases(fs, log.locate(2, 9, spans_max=MANY)) == [0, 4, 8]


def test_the_number_of_spans_is_bounded_and_the_rest_is_asked_for_again() -> None:
    fs, log = filled(COUNT)
    start, found = 0, []
    while start < COUNT:
        spans = log.locate(start, COUNT, spans_max=2)
        assert 0 < len(spans) <= 2
        found += bases(fs, spans)
        start = spans[-1].end_offset
    assert found == list(range(COUNT))


def test_offsets_outside_of_the_log_are_refused() -> None:
    _, log = filled(COUNT)
    log.set_log_start_offset(5)
    for start, end in ((4, 10), (6, COUNT + 1)):
        with pytest.raises(OffsetOutOfRangeError):
            log.locate(start, end, spans_max=MANY)
    assert log.locate(7, 7, spans_max=MANY) == []


def test_what_is_appended_later_is_not_named() -> None:
    fs, log = filled(3, config=LogConfig())
    (span,) = log.locate(0, 3, spans_max=MANY)
    append(log, 2)
    assert bases(fs, [span]) == [0, 1, 2]
