"""The happy paths of `replog.open_log`: append, read, iterate, by time, reopen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from local_kit import T0, values

import replog
from replog.errors import BrokerClosedError, ConfigError, CorruptRecordError, OffsetOutOfRangeError
from replog.local import Codec, NewRecord


@pytest.fixture(params=["always", "os"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"flush": request.param}


def test_records_come_back_as_they_were_appended(tmp_path: Path, settings: dict[str, Any]) -> None:
    with replog.open_log(tmp_path / "log", **settings) as log:
        assert log.append(b"coffee", key=b"table-7", headers=[("cup", b"large"), ("to go", None)], timestamp_ms=T0) == 0
        assert log.append(None, timestamp_ms=T0 + 1) == 1
        assert log.append(bytearray(b"tea"), key=memoryview(b"k"), timestamp_ms=T0 + 2) == 2
        assert list(log) == [
            (0, T0, b"table-7", b"coffee", (("cup", b"large"), ("to go", None))),
            (1, T0 + 1, None, None, ()),
            (2, T0 + 2, b"k", b"tea", ()),
        ]


def test_many_records_get_consecutive_offsets(tmp_path: Path, settings: dict[str, Any]) -> None:
    with replog.open_log(tmp_path / "log", **settings) as log:
        log.append(b"zero")
        offsets = log.append_many([b"one", (b"two", b"key"), NewRecord(b"three", timestamp_ms=T0), None])
        assert offsets == range(1, 5)
        assert [(record.value, record.key) for record in log.iterate(1)] == [
            (b"one", None),
            (b"two", b"key"),
            (b"three", None),
            (None, None),
        ]
        assert log.append_many([]) == range(0)
        assert log.append_many(iter([b"four"])) == range(5, 6)


def test_a_record_without_a_timestamp_gets_the_time_of_the_append(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append(b"now")
        assert next(iter(log)).timestamp > T0


def test_a_wrong_length_sends_no_reader_in_circles(tmp_path: Path) -> None:
    """In the last batch of a sealed segment, where it looks like a batch that was cut off."""
    with replog.open_log(tmp_path / "log", segment_bytes=1024, max_batch_bytes=512) as log:
        for number in range(12):
            log.append_many([b"x%d" % number] * 3)
    segment = min((tmp_path / "log" / "log-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    last = max(at for at in range(len(content)) if content[at : at + 7] == bytes(7) and content[at + 16] == 2)
    content[last + 8] ^= 1
    segment.write_bytes(content)
    with (
        pytest.raises(CorruptRecordError, match=segment.name),
        replog.open_log(tmp_path / "log", read_only=True) as log,
    ):
        list(log)


def test_a_range_may_end_inside_a_batch(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append_many([b"%d" % number for number in range(10)])
        assert [record.offset for record in log.iterate(2, 5)] == [2, 3, 4]
        assert log.to_arrow(2, 5)["offset"].to_pylist() == [2, 3, 4]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd", Codec.ZSTD])
def test_every_codec_survives_a_reopening(tmp_path: Path, codec: Any) -> None:
    with replog.open_log(tmp_path / "log", codec=codec) as log:
        log.append_many([b"x" * 1000] * 50)
        small = log.size_bytes
    with replog.open_log(tmp_path / "log") as log:
        assert values(log) == [b"x" * 1000] * 50
    assert (small > 50_000) == (codec == "none")


def test_a_reopened_log_goes_on_where_it_ended(tmp_path: Path, settings: dict[str, Any]) -> None:
    for number in range(3):
        with replog.open_log(tmp_path / "log", **settings) as log:
            assert log.append(b"%d" % number) == number
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, number + 1, number + 1)
    with replog.open_log(tmp_path / "log") as log:
        assert values(log) == [b"0", b"1", b"2"]
        assert log.flushed_offset == 3


def test_a_log_of_many_segments_reads_as_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    with replog.open_log(tmp_path / "log", segment_bytes=1024, **settings) as log:
        for number in range(100):
            log.append(b"%d" % number)
        assert len(list((tmp_path / "log/log-0").glob("*.log"))) > 5
        expected = [b"%d" % number for number in range(100)]
        assert values(log) == expected
        assert [record.value for record in log.read(0)] == expected
        assert [record.offset for record in log.iterate(37, 63)] == list(range(37, 63))


def test_read_keeps_to_its_limits(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append_many([b"x" * 100] * 10)
        for _ in range(10):
            log.append(b"y" * 100)
        assert [record.offset for record in log.read(4, max_records=3)] == [4, 5, 6]
        assert [record.offset for record in log.read(8, max_records=4)] == [8, 9, 10, 11]
        assert [record.offset for record in log.read(10, max_bytes=1)] == [10]  # the first batch whatever its size
        assert [record.offset for record in log.read(10, max_bytes=400)] == [10, 11]
        assert [record.offset for record in log.read(18)] == [18, 19]
        assert log.read(20) == []
        for wrong in ({"max_records": 0}, {"max_bytes": 0}):
            with pytest.raises(ConfigError):
                log.read(0, **wrong)


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_outside_of_the_log_is_refused(tmp_path: Path, offset: int) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
        for read in (log.read, log.iterate, log.tail, log.arrow_batches):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                read(offset)
            assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 2)


def test_by_time(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", segment_bytes=1024) as log:
        for number in range(50):
            log.append(b"%d" % number, timestamp_ms=T0 + 10 * number)
        assert log.offset_for_timestamp(0) == 0
        assert log.offset_for_timestamp(T0 + 95) == 10
        assert log.offset_for_timestamp(T0 + 490) == 49
        assert log.offset_for_timestamp(T0 + 491) is None
        assert [record.offset for record in log.read_from(T0 + 471)] == [48, 49]
        assert log.read_from(T0 + 491) == []


def test_an_iterator_ends_at_what_was_there_when_it_began(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
        seen = []
        for record in log:
            seen.append(record.value)
            log.append(b"later")
        assert seen == [b"a", b"b"]
        assert log.log_end_offset == 4


def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = replog.open_log(tmp_path / "log")
    log.append(b"a")
    reader = iter(log)
    log.close()
    log.close()
    assert log.closed
    for use in (lambda: log.append(b"b"), lambda: log.read(0), log.flush, log.maintain, lambda: next(reader)):
        with pytest.raises(BrokerClosedError):
            use()
    with pytest.raises(BrokerClosedError):
        log.truncate_before(1)
    assert "closed" in repr(log)


def test_a_forgotten_log_warns_and_gives_its_lock_back(tmp_path: Path) -> None:
    import gc

    replog.open_log(tmp_path / "log").append(b"a")
    with pytest.warns(ResourceWarning, match="never closed"):
        gc.collect()
    with replog.open_log(tmp_path / "log") as log:
        assert values(log) == [b"a"]


def test_a_large_append_many_is_cut_into_batches(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", max_batch_bytes=1000) as log:
        offsets = log.append_many([b"%03d" % number * 20 for number in range(300)])
        assert offsets == range(300)
        assert values(log) == [b"%03d" % number * 20 for number in range(300)]


def test_flush_makes_everything_durable(tmp_path: Path) -> None:
    with replog.open_log(tmp_path / "log", flush="os", maintenance_interval_ms=0) as log:
        log.append_many([b"a", b"b"])
        assert (log.flushed_offset, log.high_watermark) == (0, 2)
        assert log.flush() == 2
        assert log.flushed_offset == 2
