"""What was appended last is read from memory: the same bytes, within the same limits, and only so many of them."""

from __future__ import annotations

import pytest
from log_test_kit import TINY, append, content, filled, offsets

from replog.log import Log, TailCache
from replog.log.reading.tail_cache import LogTail
from replog.log.segments.reader import SegmentReader
from replog.records import scan


@pytest.fixture
def no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("a file was read")

    monkeypatch.setattr(SegmentReader, "read", read)


def read_cached(log: Log, offset: int, *, max_bytes: int = 10_000, end_offset: int | None = None) -> list[int]:
    """Base offsets of the batches that came."""
    ceiling = log.log_end_offset if end_offset is None else end_offset
    data = log.read_cached(offset, max_bytes=max_bytes, end_offset=ceiling, min_one_batch=True)
    assert data is not None
    return [header.base_offset for header in scan(data)]


@pytest.mark.usefixtures("no_file_is_read")
def test_who_is_right_behind_needs_no_file() -> None:
    _, log = filled(0)
    log.keep_tail(TailCache())
    append(log, 20)  # through several segments
    assert len(log.read_cached(0, max_bytes=10_000, end_offset=20, min_one_batch=True) or b"") > TINY.segment_bytes
    assert read_cached(log, 15) == [15, 16, 17, 18, 19]
    assert read_cached(log, 15, end_offset=17) == [15, 16]
    two = len(log.read_cached(15, max_bytes=10_000, end_offset=17, min_one_batch=True) or b"")
    assert read_cached(log, 15, max_bytes=two) == [15, 16]
    assert read_cached(log, 15, max_bytes=two + 1) == [15, 16]


def test_where_a_reader_stands_is_known_all_the_same() -> None:
    """The page cache is given back behind those who read close to the end; and when it falls behind it needs no index."""
    _, with_tail = filled(0)
    with_tail.keep_tail(TailCache())
    _, from_files = filled(0)
    for log in (with_tail, from_files):
        append(log, 20)
        for offset in (18, 19):
            read_cached(log, offset, end_offset=offset + 1)
    assert list(with_tail._reader.places) == list(from_files._reader.places)
    assert len(list(with_tail._reader.places)) == 1


def test_two_readers_get_one_copy() -> None:
    _, log = filled(3)
    log.keep_tail(TailCache())
    append(log, 1)
    first = log.read_cached(3, max_bytes=1_000, end_offset=4, min_one_batch=True)
    assert first is log.read_cached(3, max_bytes=1_000, end_offset=4, min_one_batch=True)


def test_what_the_tail_does_not_know_comes_from_the_file() -> None:
    _, log = filled(5)
    log.keep_tail(TailCache())
    append(log, 3)
    assert read_cached(log, 4)[0] == 4, "appended before"
    assert read_cached(log, 6, max_bytes=1) == [6], "a first batch over the limit"
    log.truncate_to(6)
    append(log, 1, leader_epoch=1)
    (batch,) = scan(log.read_cached(6, max_bytes=1_000, end_offset=7, min_one_batch=True) or b"")
    assert batch.partition_leader_epoch == 1
    assert offsets(log) == list(range(7))


def test_all_tails_together_have_a_limit() -> None:
    cache = TailCache(bytes_max=1_000)
    logs = [filled(0)[1] for _ in range(3)]
    for log in logs:
        log.keep_tail(cache)
    for _ in range(20):
        for log in logs:
            append(log, 1)
            assert cache.size_bytes <= 1_000
    assert cache.size_bytes > 500
    for log in logs:
        assert len(content(log)) == 20


def test_a_batch_over_the_limit_is_not_kept() -> None:
    cache = TailCache(bytes_max=10)
    tail = LogTail(cache)
    tail.note(0, 1, [bytes(11)], (0, 11))
    assert tail.read(0, max_bytes=100, ceiling=1) is None
    assert cache.size_bytes == 0


def test_an_older_batch_of_the_same_offset_that_goes_leaves_the_newer_one() -> None:
    """A log was cut and has grown again: the cache lets go of what was cut later than the tail did."""
    cache = TailCache(bytes_max=25)
    tail = LogTail(cache)
    tail.note(0, 1, [b"a" * 10], (0, 10))
    tail.forget()
    tail.note(0, 1, [b"b" * 10], (0, 10))
    tail.note(1, 2, [b"c" * 10], (0, 20))
    assert tail.read(0, max_bytes=10, ceiling=2) == (b"b" * 10, 1, (0, 10))
