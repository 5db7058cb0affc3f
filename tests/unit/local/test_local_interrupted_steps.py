"""Ctrl-C at every step of a flush, of a write-back and of a deletion: nothing is promised that is not kept, nothing leaks."""

from __future__ import annotations

import os
import random
from functools import partial
from typing import Any

import pytest
from local_kit import open_simulated
from msgspec.structs import replace

from replog.local import LocalLog
from replog.testing import SimulatedFileSystem
from tests.interrupting import STEPS_MAX, interrupted_at

pytestmark = pytest.mark.exhaustive

SETTINGS: dict[str, Any] = {"segment_bytes": 1024, "max_batch_bytes": 512}
COUNT = 12
STRIDE = 1 if os.environ.get("REPLOG_INTERRUPT_STEPS") == "all" else 37


def filled(disk: SimulatedFileSystem, **settings: Any) -> LocalLog:
    """A log in four segments, that begin at 0, 3, 6 and 9."""
    log = open_simulated(disk, **{**SETTINGS, **settings})
    for number in range(COUNT):
        log.append(value(number))
    return log


def value(offset: int) -> bytes:
    return b"%03d" % offset * 90


def check(log: LocalLog, start_max: int, end_offset: int = COUNT) -> None:
    """Every record from `start_max` on is there, and what is there is right."""
    found = {record.offset: record.value for record in log}
    assert log.log_start_offset <= start_max
    assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
    assert log.log_end_offset >= end_offset
    assert all(found[offset] == value(offset) for offset in found)


def open_logs(disk: SimulatedFileSystem) -> list[str]:
    return [file.path for file in disk._files.values() if file.path.endswith(".log")]


def crashed(disk: SimulatedFileSystem, seed: int) -> SimulatedFileSystem:
    """What a power cut leaves."""
    copy = disk.copied()
    copy.crash(random.Random(seed))
    return copy


def steps(first: int) -> range:
    """The steps of a test: all of them, or some, others for each parameter."""
    return range(1 + first * 11 % STRIDE, STEPS_MAX, STRIDE)


@pytest.mark.parametrize("flush", ["always", "os"])
@pytest.mark.parametrize("start", [3, 5, 6, 10, COUNT])
def test_a_log_start_that_is_interrupted(start: int, flush: str) -> None:
    """Called again it is durable when it returns; a crash leaves the old start or the new one."""
    for number in steps(start):
        disk = SimulatedFileSystem()
        log = filled(disk, flush=flush)
        log.flush()
        where = interrupted_at(number, partial(log.truncate_before, start))
        if where is None:
            log.close()
            return
        check(log, start)
        with open_simulated(crashed(disk, number), **SETTINGS) as again:
            check(again, start)
        assert log.truncate_before(start) == start, where
        with open_simulated(crashed(disk, number), **SETTINGS) as again:
            assert again.log_start_offset == start, where
            check(again, start)
        log.append(value(COUNT))
        log.append(value(COUNT + 1))
        log.flush()
        check(log, start, COUNT + 2)
        log.close()
        with open_simulated(disk, **SETTINGS) as again:
            assert again.log_start_offset == start, where
            check(again, start, COUNT + 2)
    pytest.fail("it never ends")


@pytest.mark.parametrize("window_bytes", [0, 512])
def test_a_flush_that_is_interrupted(window_bytes: int) -> None:
    """What it held is let go: a log that is closed has no file open; and what it should have made durable the next one does."""
    for number in steps(window_bytes):
        disk = SimulatedFileSystem()
        log = filled(disk, flush="os", dirty_window_bytes=window_bytes)
        is_over = interrupted_at(number, log.flush) is None
        log.append(value(COUNT))
        assert log.flush() == COUNT + 1
        log.close()
        assert not open_logs(disk)
        if is_over:
            return
    pytest.fail("it never ends")


def test_a_write_back_that_is_interrupted() -> None:
    """The next window is written back all the same."""
    window_bytes = 512
    for number in steps(window_bytes):
        disk = SimulatedFileSystem()
        log = filled(disk, flush="os")
        log._log.set_config(replace(log._log.config, dirty_window_bytes=window_bytes))  # appends do not write back
        is_over = interrupted_at(number, log._write_behind.run) is None
        for offset in range(COUNT, 2 * COUNT):
            log.append(value(offset))
        log._write_behind.run()
        assert log._log.dirty_bytes <= window_bytes
        log.close()
        assert not open_logs(disk)
        if is_over:
            return
    pytest.fail("it never ends")


def test_jobs_that_nobody_has_any_more_hold_nothing() -> None:
    """Whoever prepared them was interrupted before it had them."""
    disk = SimulatedFileSystem()
    log = filled(disk, flush="os")
    inner = log._log
    inner.set_config(replace(inner.config, dirty_window_bytes=64))
    log.append(value(COUNT))
    for prepare in (inner.prepare_flush, inner.prepare_write_back, inner.prepare_write_back):
        log.append(b"more than a window" * 20)
        job = prepare()
        assert job is not None
        assert job.files
        del job
    log.close()
    assert not open_logs(disk)
