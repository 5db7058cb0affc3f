"""The crash table of `atomic_file`, row by row: stop at every step, under many seeds."""

from __future__ import annotations

import errno
import random

import pytest

from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import make_durable_dirs, parent_of, read_file, replace_file

OLD, NEW = b"old" * 300, b"the new one" * 200
STEPS = 5  # create, write, sync, rename, sync_dir


def disk_with_old_file() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    make_durable_dirs(disk, "/logs")
    replace_file(disk, "/logs/file", OLD)
    return disk


@pytest.mark.parametrize("steps", range(STEPS + 1))
def test_power_cut_after_each_step_leaves_old_or_new(steps: int) -> None:
    found = set()
    for seed in range(60):
        disk = disk_with_old_file()
        disk.faults.cut_power_after(steps)
        if steps < STEPS:
            with pytest.raises(PowerCutError):
                replace_file(disk, "/logs/file", NEW)
        else:
            replace_file(disk, "/logs/file", NEW)
        disk.crash(random.Random(seed))
        found.add(read_file(disk, "/logs/file", 10_000))
    only_old, either, only_new = {OLD}, {OLD, NEW}, {NEW}
    assert found == (only_old if steps < 4 else either if steps == 4 else only_new)


class NoFileSync(SimulatedFileSystem):
    def sync_file(self, file: object) -> None:
        """Returns at once."""


class NoDirectorySync(SimulatedFileSystem):
    def sync_dir(self, path: str) -> None:
        """Returns at once."""


@pytest.mark.parametrize("forgetful", [NoFileSync, NoDirectorySync])
def test_leaving_out_either_fsync_is_found(forgetful: type[SimulatedFileSystem]) -> None:
    """The test above is worth something: without an fsync it would fail."""
    found = set()
    for seed in range(60):
        disk = forgetful()
        make_durable_dirs(disk, "/logs")
        replace_file(disk, "/logs/file", NEW)
        disk.crash(random.Random(seed))
        found.add(read_file(disk, "/logs/file", 10_000) if disk.exists("/logs/file") else None)
    assert found - {NEW}


def test_errors_leave_the_old_file_and_reach_the_caller() -> None:
    for operation in (Operation.CREATE, Operation.WRITE, Operation.SYNC, Operation.RENAME):
        disk = disk_with_old_file()
        disk.faults.fail_next(operation, error_number=errno.ENOSPC)
        with pytest.raises(OSError) as caught:
            replace_file(disk, "/logs/file", NEW)
        lost = operation is Operation.SYNC  # what an fsync could not write is lost, not refused
        assert caught.value.errno == (errno.EIO if lost else errno.ENOSPC)
        assert read_file(disk, "/logs/file", 10_000) == OLD
        replace_file(disk, "/logs/file", NEW)  # a temporary file left behind is no obstacle
        assert read_file(disk, "/logs/file", 10_000) == NEW


def test_new_folders_survive_a_crash_with_their_parents() -> None:
    for seed in range(20):
        disk = SimulatedFileSystem()
        make_durable_dirs(disk, "/data/logs/flights-0")
        make_durable_dirs(disk, "/data/logs/flights-0")
        disk.crash(random.Random(seed))
        assert disk.is_dir("/data/logs/flights-0")


@pytest.mark.parametrize(("path", "parent"), [("/a/b", "/a"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("a/b/", "a")])
def test_parent(path: str, parent: str) -> None:
    assert parent_of(path) == parent
