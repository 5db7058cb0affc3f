"""A disk that fails, fills up, or is written back in the background."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest
from local_kit import PARTITION, abandon, fill_disk, open_simulated, values, wait_until

import replog
from replog.errors import DiskFullError, StorageError
from replog.log.reading.captured_read import ReadJob
from replog.testing import Operation, SimulatedFileSystem
from replog_checkpoints import OpenMode

ROOMY = 8 << 20


def test_after_a_failed_fsync_nothing_is_appended_any_more() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append(b"safe")
    disk.faults.fail_next(Operation.SYNC, path_part=".log")
    with pytest.raises(StorageError):
        log.append(b"unknown")
    assert log.failed
    for _ in range(2):
        with pytest.raises(StorageError, match="nothing more is appended"):
            log.append(b"refused")
    with pytest.raises(StorageError):
        log.flush()
    with pytest.raises(StorageError):
        log.truncate_before(1)
    assert values(log) == [b"safe"]  # reads go on, of what was acknowledged
    with pytest.raises(StorageError, match="failed while it was open"):
        log.close()
    with open_simulated(disk) as log:
        assert values(log)[:1] == [b"safe"]


def test_after_a_failed_write_nothing_is_appended_any_more() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, flush="os")
    log.append(b"safe")
    disk.faults.fail_next(Operation.WRITE, path_part=".log")
    with pytest.raises(StorageError):
        log.append(b"unknown")
    with pytest.raises(StorageError):
        log.append(b"refused")
    with pytest.raises(StorageError, match="no record will come"):
        log.wait_for(log.high_watermark)
    abandon(log)


def test_a_full_disk_is_a_state() -> None:
    disk = SimulatedFileSystem(capacity_bytes=ROOMY)
    log = open_simulated(disk)
    appended = fill_disk(log)
    assert appended > 0
    with pytest.raises(DiskFullError):
        log.append(b"x" * 100_000)
    assert not log.failed
    assert (log.log_end_offset, len(values(log))) == (appended, appended)
    disk.capacity_bytes = 2 * ROOMY
    assert log.append(b"goes on") == appended
    log.close()
    with open_simulated(disk) as log:
        assert log.log_end_offset == appended + 1


def test_truncation_makes_room_on_a_full_disk() -> None:
    disk = SimulatedFileSystem(capacity_bytes=ROOMY)
    with open_simulated(disk, segment_bytes=1 << 20) as log:
        end_offset = fill_disk(log)
        assert log.truncate_before(end_offset - 3) == end_offset - 3
        assert log.append(b"x" * 100_000) == end_offset
    with open_simulated(disk) as log:
        assert log.log_start_offset == end_offset - 3


def test_no_room_at_any_write_leaves_a_log_that_goes_on() -> None:
    for nth in range(1, 40, 2):
        disk = SimulatedFileSystem()
        log = open_simulated(disk, segment_bytes=1024)
        acknowledged = []
        disk.faults.fail_next(Operation.WRITE, nth=nth, error_number=errno.ENOSPC)
        for number in range(25):
            value = b"%d" % number + b"x" * 100
            try:
                log.append(value)
            except DiskFullError:
                continue
            acknowledged.append(value)
        assert values(log) == acknowledged
        with contextlib.suppress(StorageError):  # where it is the close that finds no room: an unclean stop
            log.close()
        with open_simulated(disk) as log:
            assert values(log) == acknowledged, f"write {nth}"


def test_a_disk_that_cannot_read_says_so_and_appends_go_on() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk) as log:
        log.append(b"a")
        disk.faults.fail_next(Operation.READ, path_part=PARTITION)
        with pytest.raises(StorageError, match="cannot be read"):
            log.read(0)
        assert log.append(b"b") == 1
        assert values(log) == [b"a", b"b"]


def _forget_pages(disk: SimulatedFileSystem) -> None:
    file = disk.open(f"{PARTITION}/00000000000000000000.log", OpenMode.READ)
    file.drop_cache(0, file.size())
    file.close()


def test_what_must_come_from_the_disk_is_read_beside_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk) as log:
        log.append_many([b"x" * 1000] * 50)
        _forget_pages(disk)
        locked: list[bool] = []
        run = ReadJob.run
        monkeypatch.setattr(ReadJob, "run", lambda job: (locked.append(log._mutex.locked()), run(job)))
        assert values(log) == [b"x" * 1000] * 50
        assert locked == [False]


def test_a_disk_that_fails_under_a_cold_read_says_so_and_closes_in_order() -> None:
    disk = SimulatedFileSystem()
    with open_simulated(disk) as log:
        log.append_many([b"x" * 1000] * 50)
        _forget_pages(disk)
        disk.faults.fail_next(Operation.READ, path_part=".log")
        with pytest.raises(StorageError):
            log.read(0)
        assert len(log.read(0)) == 50


@pytest.mark.parametrize("interval_ms", [0, 10])
def test_the_dirty_window_is_kept_small(tmp_path: Path, interval_ms: int) -> None:
    window_bytes = 256 * 1024
    settings = {"flush": "os", "flush_interval_ms": 0, "maintenance_interval_ms": interval_ms}
    with replog.open_log(tmp_path / "log", dirty_window_bytes=window_bytes, **settings) as log:
        for number in range(200):
            log.append(b"%d" % number + b"x" * 32_000)
        wait_until(lambda: log._log.dirty_bytes < window_bytes)
        assert log.flushed_offset == 0  # it never counts as flushed
        assert [record.offset for record in log] == list(range(200))


def test_a_failed_write_back_is_a_failed_fsync() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk, flush="os", dirty_window_bytes=10_000)
    disk.faults.fail_next(Operation.WRITE_BACK)
    for _ in range(2):
        log.append(b"x" * 6_000)  # the second one fills the window; whoever comes next is told
    with pytest.raises(StorageError):
        log.append(b"refused")
    abandon(log)
