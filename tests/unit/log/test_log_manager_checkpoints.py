"""Checkpoints written beside their owner: never an older content over a newer one, and the crash rules of one file."""

from __future__ import annotations

import itertools
import random
import threading

import pytest
from log_test_kit import read_file

from replog.errors import StorageError
from replog.log.directories.offset_checkpoints import OffsetCheckpoint
from replog.log.disk_space import NO_LIMITS, DiskSpace
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import make_durable_dirs

PATH = "/data/recovery-point-offset-checkpoint"
KEY = ("t", 0)


def fresh() -> tuple[SimulatedFileSystem, OffsetCheckpoint]:
    fs = SimulatedFileSystem()
    make_durable_dirs(fs, "/data")
    return fs, OffsetCheckpoint(fs, PATH, DiskSpace(fs, "/data", NO_LIMITS))


def content(offset: int) -> bytes:
    return f"0\n1\nt 0 {offset}\n".encode()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_in_whatever_order_jobs_run_the_last_prepared_stands(order: tuple[int, ...]) -> None:
    fs, checkpoint = fresh()
    jobs = [checkpoint.prepare({KEY: offset}) for offset in (10, 4, 7)]
    for number in order:
        job = jobs[number]
        assert job is not None
        job.run()
    assert read_file(fs, PATH) == content(7)
    assert checkpoint.prepare({KEY: 7}) is None


def test_a_lowered_offset_is_durable_although_an_older_write_is_under_way() -> None:
    """A truncation lowers a recovery point while a thread writes the one from before."""
    fs, checkpoint = fresh()
    entered, go_on = threading.Event(), threading.Event()
    sync = fs.sync_file

    def slow_sync(file: object) -> None:
        entered.set()
        go_on.wait(5)
        sync(file)  # type: ignore[arg-type]

    fs.sync_file = slow_sync  # type: ignore[method-assign, assignment]
    older = checkpoint.prepare({KEY: 10})
    assert older is not None
    thread = threading.Thread(target=older.run)
    thread.start()
    assert entered.wait(5)
    lowering = threading.Thread(target=lambda: checkpoint.write({KEY: 4}))
    lowering.start()
    go_on.set()
    thread.join()
    lowering.join()
    fs.crash(random.Random(1))
    assert read_file(fs, PATH) == content(4)


def test_what_failed_is_written_again() -> None:
    fs, checkpoint = fresh()
    checkpoint.write({KEY: 1})
    fs.faults.fail_next(Operation.RENAME)
    with pytest.raises(StorageError):
        checkpoint.write({KEY: 2})
    assert read_file(fs, PATH) == content(1)
    assert checkpoint.may_name(("anything", 9)), "nobody knows what the file says now"
    checkpoint.write({KEY: 2})
    assert read_file(fs, PATH) == content(2)
    assert not checkpoint.may_name(("anything", 9))


def test_an_fsync_that_meets_a_full_disk_is_a_failed_fsync() -> None:
    fs, checkpoint = fresh()
    for operation in (Operation.SYNC, Operation.SYNC_DIR):
        fs.faults.fail_next(operation, error_number=28)
        with pytest.raises(StorageError, match="fsync failed"):
            checkpoint.write({KEY: 5})


def test_a_crash_at_any_step_leaves_the_old_or_the_new() -> None:
    for step in range(8):
        for seed in range(4):
            fs, checkpoint = fresh()
            checkpoint.write({KEY: 1})
            fs.faults.cut_power_after(step)
            try:
                checkpoint.write({KEY: 2})
                done = True
            except BaseException:  # noqa: BLE001 -- a power cut is no Exception
                done = False
            fs.crash(random.Random(seed))
            assert read_file(fs, PATH) in ({content(2)} if done else {content(1), content(2)})
