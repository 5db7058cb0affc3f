"""Truncation from the front, retention, checkpoints, and the thread that looks after them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from local_kit import PARTITION, PATH, T0, abandon, open_simulated, values, wait_until

import replog
from replog.errors import OffsetOutOfRangeError
from replog.local import LocalLog
from replog.testing import Operation, SimulatedFileSystem
from replog_checkpoints import read_offset_checkpoint


def _fill(log: LocalLog, count: int = 40) -> None:
    for number in range(count):
        log.append(b"%d" % number + b"x" * 100, timestamp_ms=T0 + number)


def _segments(disk: SimulatedFileSystem) -> int:
    return sum(name.endswith(".log") for name in disk.list_dir(PARTITION))


def test_truncation_from_the_front_is_durable_and_gives_space_back() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, segment_bytes=1024)
    _fill(log)
    segments, size_bytes = _segments(disk), log.size_bytes
    assert log.truncate_before(20) == 20
    assert log.log_start_offset == 20
    assert [record.offset for record in log] == list(range(20, 40))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(19)
    assert _segments(disk) < segments
    assert log.size_bytes < size_bytes
    assert not any(name.endswith(".deleted") for name in disk.list_dir(PARTITION))
    disk.kill()
    abandon(log)
    with open_simulated(disk, segment_bytes=1024) as log:
        assert log.log_start_offset == 20
        assert [record.offset for record in log] == list(range(20, 40))


def test_truncation_of_everything_keeps_the_offsets_going() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk) as log:
        _fill(log, 10)
        assert log.truncate_before(10) == 10
        assert values(log) == []
    with open_simulated(disk) as log:
        assert (log.log_start_offset, log.log_end_offset) == (10, 10)
        assert log.append(b"next") == 10


def test_truncation_below_the_start_does_nothing_and_above_the_end_is_refused() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk) as log:
        _fill(log, 10)
        log.truncate_before(5)
        assert log.truncate_before(3) == 5
        for offset in (-1, 11):
            with pytest.raises(OffsetOutOfRangeError):
                log.truncate_before(offset)
        assert log.log_start_offset == 5


def test_an_iterator_that_the_start_has_passed_says_so() -> None:
    with open_simulated(SimulatedFileSystem(), segment_bytes=1024) as log:
        _fill(log)
        tail = log.tail(0)
        next(tail)
        log.truncate_before(40)
        with pytest.raises(OffsetOutOfRangeError):
            list(tail)


@pytest.mark.parametrize("start", [20, 40])
def test_a_reader_that_the_start_has_passed_says_where_the_log_starts(tmp_path: Path, start: int) -> None:
    settings = {"segment_bytes": 1024, "maintenance_interval_ms": 0}
    with replog.open_log(tmp_path / "log", **settings) as log:
        _fill(log)
        with replog.open_log(tmp_path / "log", read_only=True) as reader:
            log.truncate_before(start)
            for read in (
                lambda: reader.read(3),
                lambda: list(reader.iterate(3)),
                lambda: reader.to_arrow(3),
                lambda: reader.offset_for_timestamp(T0),
            ):
                with pytest.raises(OffsetOutOfRangeError) as caught:
                    read()
                assert caught.value.log_start_offset == start
        with replog.open_log(tmp_path / "log", read_only=True) as reader:
            assert [record.offset for record in reader] == list(range(start, 40))


def test_retention_by_age_deletes_closed_segments() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk, segment_bytes=1024, retention_ms=60_000) as log:
        _fill(log)
        log.append(b"new")
        log.maintain()
        assert log.log_start_offset > 20
        assert values(log)[-1] == b"new"


def test_a_quiet_log_is_empty_when_its_records_are_too_old() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, retention_ms=60_000)
    _fill(log, 3)
    log.maintain()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    assert log.append(b"young") == 3
    log.maintain()
    disk.kill()
    abandon(log)
    with open_simulated(disk, retention_ms=60_000) as log:
        assert (log.log_start_offset, values(log)) == (3, [b"young"])


def test_retention_by_size_keeps_at_least_that_much() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk, segment_bytes=1024, retention_bytes=3000) as log:
        _fill(log)
        log.maintain()
        assert 3000 <= log.size_bytes < 3000 + 1024


def test_nothing_is_deleted_by_default() -> None:
    with open_simulated(SimulatedFileSystem(), segment_bytes=1024) as log:
        log.append(b"old", timestamp_ms=1)
        _fill(log)
        log.maintain()
        assert log.log_start_offset == 0


def test_segments_are_young_enough_for_their_retention() -> None:
    from replog.local import LocalLogConfig

    day_ms = 24 * 60 * 60 * 1000
    assert LocalLogConfig().log_config().segment_ms == 7 * day_ms
    assert LocalLogConfig(retention_ms=day_ms).log_config().segment_ms == day_ms // 4
    assert LocalLogConfig(retention_ms=day_ms, segment_ms=5).log_config().segment_ms == 5


def test_the_recovery_point_follows_the_segments() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk, segment_bytes=1024) as log:
        _fill(log)
        log.maintain()
        found = read_offset_checkpoint(disk, f"{PATH}/recovery-point-offset-checkpoint")
        assert found == {("log", 0): 40}


def test_a_closed_segment_is_flushed_with_flush_os() -> None:
    with open_simulated(SimulatedFileSystem(), flush="os", flush_interval_ms=0, segment_bytes=1024) as log:
        log.append(b"a")
        log.maintain()
        assert log.flushed_offset == 0
        _fill(log)
        log.maintain()
        assert log.flushed_offset == 41


def test_the_thread_flushes_and_deletes(tmp_path: Path) -> None:
    settings = {"flush": "os", "flush_interval_ms": 5, "maintenance_interval_ms": 5}
    with replog.open_log(tmp_path / "log", segment_bytes=1024, retention_bytes=3000, **settings) as log:
        _fill(log)
        wait_until(lambda: log.flushed_offset == 40 and log.log_start_offset > 0)


def test_the_thread_survives_a_full_disk_and_ends_with_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, segment_bytes=1024, flush="os", flush_interval_ms=1, maintenance_interval_ms=1)
    disk.faults.fail_next(Operation.WRITE, error_number=errno.ENOSPC, path_part="recovery-point")
    _fill(log)
    wait_until(lambda: log.flushed_offset == 40)
    assert not log.failed
    disk.faults.fail_next(Operation.SYNC, path_part=".log")
    log.append(b"x")
    wait_until(lambda: log.failed)
    assert log._keeper_thread is not None
    log._keeper_thread._thread.join(20)
    assert not log._keeper_thread._thread.is_alive()
    assert "maintenance of /logs/orders" in caplog.text
    abandon(log)
