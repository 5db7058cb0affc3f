"""A descriptor tells an error once: what a write-back was told counts against the fsync beside it."""

from __future__ import annotations

import contextlib
import threading

import pytest
from log_test_kit import T0, batch, open_log

from replog.errors import StorageError
from replog.log import Log, LogConfig
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem, _SimulatedFile

CONFIG = LogConfig(dirty_window_bytes=2000)


def filled(fs: SimulatedFileSystem) -> Log:
    log = open_log(fs, config=CONFIG)
    for _ in range(40):
        log.append_as_leader(batch(b"x" * 60), leader_epoch=0, now_ms=T0)
    return log


def test_a_flush_does_not_count_after_a_failed_write_back() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    write_back, flush = log.prepare_write_back(), log.prepare_flush()
    assert write_back is not None
    assert flush is not None
    fs.faults.fail_next(Operation.WRITE_BACK)
    with pytest.raises(OSError, match="simulated"):
        write_back.run()
    flush.run()
    with pytest.raises(StorageError):
        log.complete_flush(flush)
    assert log.flushed_offset == 0


class SlowDisk(SimulatedFileSystem):
    """The error of a write-back is on its way up while the test does something else."""

    def __init__(self) -> None:
        super().__init__()
        self.was_told = threading.Event()
        self.may_tell = threading.Event()

    def wait_write_back(self, file: _SimulatedFile, position: int, length: int) -> None:
        try:
            super().wait_write_back(file, position, length)
        except OSError:
            self.was_told.set()
            self.may_tell.wait(5)
            raise


def test_a_flush_waits_until_the_error_of_a_write_back_is_noted() -> None:
    fs = SlowDisk()
    log = filled(fs)
    write_back, flush = log.prepare_write_back(), log.prepare_flush()
    assert write_back is not None
    assert flush is not None
    fs.faults.fail_next(Operation.WRITE_BACK)

    def run_write_back() -> None:
        with contextlib.suppress(OSError):
            write_back.run()

    threads = [threading.Thread(target=run_write_back), threading.Thread(target=flush.run)]
    threads[0].start()
    assert fs.was_told.wait(5)
    threads[1].start()
    threads[1].join(0.05)
    assert not flush.finished
    fs.may_tell.set()
    for thread in threads:
        thread.join(5)
    with pytest.raises(StorageError):
        log.complete_flush(flush)
    assert log.flushed_offset == 0
