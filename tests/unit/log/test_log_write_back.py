"""The dirty window: what is written back and dropped when, and what a failure of it means."""

from __future__ import annotations

import random

import pytest
from log_test_kit import T0, batch, content, open_log

from replog.errors import BrokerClosedError, StorageError
from replog.log import Log, LogConfig, WriteBackJob
from replog.log.dirty_window import BEHIND_WINDOWS, KEPT_WINDOWS, READER_AGE_MS
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem, _SimulatedFile

WINDOW = 64 * 1024
CONFIG = LogConfig(dirty_window_bytes=WINDOW)
BATCH = batch(b"x" * (8 * 1024 - 100))


class Disk(SimulatedFileSystem):
    """Notes what happens to record files."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int, int]] = []

    def wait_write_back(self, file: _SimulatedFile, position: int, length: int) -> None:
        super().wait_write_back(file, position, length)
        self.calls.append(("waited", position, position + length))

    def drop_cache(self, file: _SimulatedFile, position: int, length: int) -> None:
        super().drop_cache(file, position, length)
        self.calls.append(("dropped", position, position + length))


def opened(config: LogConfig = CONFIG) -> tuple[Disk, Log]:
    fs = Disk()
    return fs, open_log(fs, config=config)


def fill(log: Log, size_bytes: int) -> None:
    for _ in range(size_bytes // len(BATCH) + 1):
        log.append_as_leader(BATCH, leader_epoch=0, now_ms=T0)


def due(log: Log) -> WriteBackJob:
    job = log.prepare_write_back()
    assert job is not None
    return job


def write_back(log: Log) -> None:
    job = due(log)
    job.run()
    log.complete_write_back(job)


def test_the_older_half_is_written_back_when_a_window_is_full() -> None:
    fs, log = opened()
    fill(log, WINDOW // 2)
    assert log.prepare_write_back() is None
    fill(log, WINDOW // 2)
    size = log.size_bytes
    assert log.dirty_bytes == size
    job = due(log)
    assert log.prepare_write_back() is None, "one at a time"
    job.run()
    assert fs.calls == [("waited", 0, size - WINDOW // 2), ("dropped", 0, size - WINDOW // 2)]
    log.complete_write_back(job)
    assert log.dirty_bytes == WINDOW // 2
    assert log.prepare_write_back() is None
    fill(log, WINDOW // 2)
    write_back(log)
    assert fs.calls[-1] == ("dropped", size - WINDOW // 2, log.size_bytes - WINDOW // 2)


def test_it_moves_no_recovery_point_and_promises_nothing() -> None:
    lengths = set()
    for seed in range(20):
        fs, log = opened()
        fill(log, 2 * WINDOW)
        write_back(log)
        assert log.flushed_offset == 0
        fs.crash(random.Random(seed))
        lengths.add(len(content(open_log(fs, config=CONFIG))))
    assert min(lengths) == 0, "a power cut may take what was written back"


def test_without_a_window_nothing_happens() -> None:
    _, log = opened(LogConfig())
    fill(log, 4 * WINDOW)
    assert log.prepare_write_back() is None
    assert not log.is_behind_write_back


def test_who_appends_is_told_when_the_disk_is_behind() -> None:
    _, log = opened()
    fill(log, WINDOW)
    job = due(log)
    fill(log, (BEHIND_WINDOWS - 1) * WINDOW)
    assert log.is_behind_write_back
    job.run()
    log.complete_write_back(job)
    write_back(log)
    assert not log.is_behind_write_back


def test_a_flush_cleans_the_window() -> None:
    _, log = opened()
    fill(log, (BEHIND_WINDOWS + 1) * WINDOW)
    assert log.is_behind_write_back
    log.flush()
    assert log.dirty_bytes == 0
    fill(log, 0)
    assert log.dirty_bytes == len(BATCH)


# Errors


def test_a_failed_write_back_is_a_failed_fsync() -> None:
    fs, log = opened()
    fill(log, WINDOW)
    job = due(log)
    fs.faults.fail_next(Operation.WRITE_BACK)
    with pytest.raises(OSError, match="simulated"):
        job.run()
    assert not any(call[0] == "dropped" for call in fs.calls)
    with pytest.raises(StorageError):  # before the owner hears of it
        fill(log, 0)
    with pytest.raises(StorageError):
        log.complete_write_back(job)
    with pytest.raises(StorageError):
        log.flush()
    assert log.failed
    assert log.flushed_offset == 0
    assert log.prepare_write_back() is None


def test_it_fails_the_log_after_a_truncation_too() -> None:
    """What could not be written may belong to what is left."""
    fs, log = opened()
    fill(log, WINDOW)
    job = due(log)
    log.truncate_to(2)
    fs.faults.fail_next(Operation.WRITE_BACK)
    with pytest.raises(OSError, match="simulated"):
        job.run()
    with pytest.raises(StorageError):
        log.complete_write_back(job)
    assert log.failed


# Races: a job that was prepared before the owner did something else


def test_a_roll_under_a_job() -> None:
    fs, log = opened()
    fill(log, WINDOW)
    job = due(log)
    log.roll(T0)
    log.flush()  # completes the sealed segment: a cache would close it now
    fill(log, WINDOW)
    before = content(log)
    job.run()
    log.complete_write_back(job)
    write_back(log)
    assert content(log) == before
    log.close(T0)
    assert not fs._files


def test_a_window_over_two_segments() -> None:
    fs, log = opened(LogConfig(dirty_window_bytes=WINDOW, segment_bytes=WINDOW // 2 + 100))
    fill(log, 3 * WINDOW)
    count = len(log.segment_base_offsets)
    assert count > 4
    write_back(log)
    assert sum(call[0] == "waited" for call in fs.calls) >= count - 2
    assert log.dirty_bytes <= WINDOW // 2 + len(BATCH)
    fill(log, WINDOW)
    write_back(log)
    assert len(content(log)) == log.log_end_offset


@pytest.mark.parametrize("cut", [0, 2, 8])
def test_a_truncation_under_a_job(cut: int) -> None:
    """Whatever a job from before it writes back or drops, the records are those of the log."""
    fs, log = opened()
    fill(log, WINDOW)
    job = due(log)
    log.truncate_to(cut)
    log.append_as_leader(batch(b"new"), leader_epoch=0, now_ms=T0)
    before, dirty = content(log), log.dirty_bytes
    job.run()
    log.complete_write_back(job)
    assert content(log) == before
    assert log.dirty_bytes == dirty == len(batch(b"new"))
    fill(log, WINDOW)
    write_back(log)
    log.flush()
    fs.crash(random.Random(1))
    assert len(content(open_log(fs, config=CONFIG, recovery_point=log.log_end_offset))) == log.log_end_offset


def test_starting_anew_and_deleting_segments_under_a_job() -> None:
    _, log = opened(LogConfig(dirty_window_bytes=WINDOW, segment_bytes=WINDOW, retention_bytes=1))
    fill(log, 2 * WINDOW)
    job = due(log)
    log.delete_old_segments(T0, high_watermark=log.log_end_offset)
    job.run()
    log.complete_write_back(job)
    fill(log, WINDOW)
    job = due(log)
    log.truncate_fully_and_start_at(500)
    job.run()
    log.complete_write_back(job)
    fill(log, WINDOW)
    write_back(log)
    assert len(content(log)) == log.log_end_offset - 500


@pytest.mark.parametrize("end", ["close", "close for good"])
def test_a_log_that_ends_under_a_job(end: str) -> None:
    fs, log = opened()
    fill(log, WINDOW)
    job = due(log)
    log.close(T0) if end == "close" else log.close_for_good()
    assert len(fs._files) == 1, "the job still uses it"
    job.run()
    with pytest.raises(BrokerClosedError):
        log.complete_write_back(job)
    assert not fs._files


# Readers


def cached(log: Log, offset: int) -> bool:
    places = dict(log._reader._places)  # looking is not reading
    found = log.read_cached(offset, max_bytes=1, end_offset=log.log_end_offset, min_one_batch=True)
    log._reader._places = places
    return found is not None


def read_to(log: Log, offset: int) -> None:
    """A reader that has read up to `offset` and will go on there."""
    log.read(offset - 1, max_bytes=1, end_offset=offset, min_one_batch=True)


def test_what_a_tail_reader_needs_next_is_kept() -> None:
    _, log = opened()
    fill(log, WINDOW // 2)
    read_to(log, 4)
    fill(log, 3 * WINDOW)
    write_back(log)
    assert [cached(log, offset) for offset in (1, 4, 5, 20)] == [False, True, True, True]
    log.read(4, max_bytes=1 << 30, end_offset=20, min_one_batch=True)  # it goes on, up to 20
    fill(log, WINDOW)
    write_back(log)
    assert [cached(log, offset) for offset in (5, 18, 20)] == [False, False, True]


def test_a_reader_far_behind_keeps_nothing() -> None:
    _, log = opened()
    fill(log, WINDOW)
    write_back(log)
    read_to(log, 1)  # cold already
    fill(log, WINDOW)
    write_back(log)
    assert not cached(log, 5)


def test_a_reader_that_stopped_keeps_a_few_windows_and_not_for_ever() -> None:
    _, log = opened()
    fill(log, 0)
    read_to(log, 1)
    fill(log, (KEPT_WINDOWS + 4) * WINDOW)
    write_back(log)
    assert not cached(log, 2)
    first_kept = log.log_end_offset - (KEPT_WINDOWS - 1) * WINDOW // len(BATCH)
    assert cached(log, first_kept)
    log.append_as_leader(batch(timestamp_ms=T0), leader_epoch=0, now_ms=T0 + READER_AGE_MS + 1)
    for _ in range(WINDOW // len(BATCH) + 1):
        log.append_as_leader(BATCH, leader_epoch=0, now_ms=T0 + READER_AGE_MS + 1)
    write_back(log)
    assert not cached(log, first_kept)
