"""`truncate_before` is the way out of a full disk: it works whatever else finds no room, and says success only for good."""

from __future__ import annotations

import errno
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local_kit import (
    PARTITION,
    PATH,
    abandon,
    child_environment,
    fill_disk,
    mount_tmpfs,
    open_simulated,
    umount,
    values,
)
from power_cuts import Once, stops

import replog
from replog.errors import DiskFullError, ReplogError, StorageError, TooManyOpenFilesError
from replog.local import LocalLog
from replog.testing import Operation, SimulatedFileSystem

pytestmark = pytest.mark.exhaustive

SEGMENT_BYTES = 1 << 16
CAPACITY_BYTES = 1 << 20
VALUE = b"x" * 3_000


def _open(disk: SimulatedFileSystem) -> LocalLog:
    return open_simulated(disk, segment_bytes=SEGMENT_BYTES)


def _full_and_killed(disk: SimulatedFileSystem) -> int:
    """Fills the disk to its last byte, then kill -9; returns how many records were acknowledged."""
    log = _open(disk)
    count = fill_disk(log, VALUE)
    disk.kill()
    abandon(log)
    disk.capacity_bytes = disk.used_bytes()
    return count


def _start_after_kill(disk: SimulatedFileSystem, log: LocalLog) -> int:
    disk.kill()
    abandon(log)
    disk.capacity_bytes = None
    disk.faults.clear()
    log = _open(disk)
    start_offset = log.log_start_offset
    log.close()
    return start_offset


@pytest.mark.parametrize("offset", [1, 20])
def test_a_truncation_without_room_is_not_done_when_it_is_repeated(offset: int) -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append_many([b"x" * 100] * 30)
    disk.faults.fail_always(Operation.WRITE, error_number=errno.ENOSPC, path_part="log-start-offset")
    for _ in range(2):
        with pytest.raises(DiskFullError):
            log.truncate_before(offset)
        assert (log.log_start_offset, len(values(log))) == (0, 30)
    disk.faults.clear()
    assert log.truncate_before(offset) == offset
    assert _start_after_kill(disk, log) == offset


def test_a_truncation_whose_fsync_failed_fails_the_log() -> None:
    disk = SimulatedFileSystem()
    log = open_simulated(disk)
    log.append_many([b"x" * 100] * 30)
    disk.faults.fail_next(Operation.SYNC_DIR, path_part=PATH)
    for _ in range(2):
        with pytest.raises(StorageError):
            log.truncate_before(20)
    assert log.failed
    abandon(log)


def test_whole_segments_go_first_where_a_checkpoint_finds_no_room() -> None:
    disk = SimulatedFileSystem(capacity_bytes=CAPACITY_BYTES)
    log = _open(disk)
    count = fill_disk(log, VALUE)
    log._folder._directory.space.release_reserve()
    disk.capacity_bytes = disk.used_bytes()
    assert log.truncate_before(count - 3) == count - 3
    assert _start_after_kill(disk, log) == count - 3


def test_after_a_kill_on_a_full_disk_truncation_makes_room_without_a_reserve() -> None:
    for has_reserve in (True, False):
        disk = SimulatedFileSystem(capacity_bytes=CAPACITY_BYTES)
        count = _full_and_killed(disk)
        if not has_reserve and disk.exists(f"{PATH}/.reserve"):
            disk.remove(f"{PATH}/.reserve")
            disk.capacity_bytes = disk.used_bytes()
        with _open(disk) as log:
            assert log.truncate_before(count - 3) == count - 3
            assert log.append(VALUE) == count
        assert _start_after_kill(disk, log) == count - 3


def test_a_directory_without_room_for_longer_names_still_loses_its_segments() -> None:
    disk = SimulatedFileSystem()
    log = _open(disk)
    log.append_many([VALUE] * 100)
    disk.faults.fail_always(Operation.RENAME, error_number=errno.ENOSPC, path_part=".deleted")
    assert log.truncate_before(100) == 100
    assert [name for name in disk.list_dir(PARTITION) if name.endswith(".log")] == [f"{100:020d}.log"]
    assert _start_after_kill(disk, log) == 100


def test_on_a_real_disk_truncation_is_the_way_out_after_a_kill(tmp_path: Path) -> None:
    problem = mount_tmpfs(tmp_path, 1 << 20)
    if problem is not None:
        pytest.skip(f"a tmpfs cannot be mounted here: {problem}")
    try:
        command = [sys.executable, "-c", _FILL_AND_DIE, str(tmp_path / "log"), str(tmp_path / "filler")]
        died = subprocess.run(command, env=child_environment(), capture_output=True, timeout=60, check=False)
        assert died.returncode == -signal.SIGKILL, died.stderr
        count = int(died.stdout)
        with replog.open_log(tmp_path / "log", maintenance_interval_ms=0) as log:
            assert log.log_end_offset == count
            assert log.truncate_before(count) == count
            assert log.append(b"x" * 100_000) == count
    finally:
        umount(tmp_path)


_FILL_AND_DIE = """
import contextlib, os, signal, sys
import replog
log = replog.open_log(sys.argv[1], maintenance_interval_ms=0)
with contextlib.suppress(replog.errors.DiskFullError):
    while True:
        log.append(b"x" * 3000)
os.unlink(f"{sys.argv[1]}/.reserve")
with contextlib.suppress(OSError), open(sys.argv[2], "wb", buffering=0) as file:
    while True:
        file.write(bytes(512))
print(log.log_end_offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_at_any_step_of_filling_the_disk_leaves_the_way_out() -> None:
    disk = SimulatedFileSystem(capacity_bytes=CAPACITY_BYTES // 8)
    high_watermarks = [0]
    stopped = stops(disk, lambda: _fill(disk, high_watermarks), lambda: (disk.copied(), high_watermarks[-1]))
    once = Once()
    for step, (copy, acknowledged) in enumerate(stopped):
        copy.kill()
        copy.capacity_bytes = copy.used_bytes()
        is_made = copy.exists(f"{PARTITION}/leader-epoch-checkpoint") and acknowledged > 3
        if is_made and once.is_first(copy, acknowledged):
            with _open(copy) as log:
                assert log.log_end_offset >= acknowledged, f"step {step}"
                assert log.truncate_before(log.high_watermark) >= acknowledged
                assert len(values(log)) == 0
    assert len(stopped) > 100


def _fill(disk: SimulatedFileSystem, high_watermarks: list[int]) -> None:
    """Appends until there is no room any more, and truncates on the way; notes what was acknowledged."""
    with open_simulated(disk, segment_bytes=1 << 14) as log:
        for number in range(75):
            try:
                log.append(VALUE[:2_000])
                high_watermarks.append(log.high_watermark)
            except DiskFullError:
                log.maintain()
            if number == 40:
                log.truncate_before(20)


def test_no_room_at_any_step_of_opening_and_truncating_is_told_and_the_same_works_later() -> None:
    original = SimulatedFileSystem()
    log = open_simulated(original, segment_bytes=1 << 12)
    for _ in range(30):
        log.append(b"x" * 1_000)
    original.kill()
    abandon(log)
    for step in range(1_000):
        disk = original.copied()
        disk.faults.fail_change_after(step, error_number=errno.ENOSPC)
        log = _open_and_truncate(disk, 20)
        is_over = disk.faults.is_failing
        assert _start_after_kill(disk, log) == 20, f"step {step}"
        if is_over:
            break
    assert 20 < step < 999


def _open_and_truncate(disk: SimulatedFileSystem, offset: int) -> LocalLog:
    """Does what a user does, again after an error; what is answered with success holds."""
    log = None
    for _ in range(3):
        try:
            log = log or open_simulated(disk, segment_bytes=1 << 12)
            assert log.truncate_before(offset) == offset
        except DiskFullError:
            continue
        except ReplogError:  # an fsync that found no room is a failed one: opened again
            if log is not None:
                abandon(log)
            log = None
            continue
        break
    assert log is not None
    assert [record.offset for record in log] == list(range(offset, 30))
    return log


def test_a_truncation_that_failed_for_want_of_descriptors_is_durable_once_it_succeeds() -> None:
    fs = SimulatedFileSystem()
    log = open_simulated(fs, segment_bytes=1024, max_batch_bytes=512)
    for _ in range(12):
        log.append(b"x" * 200)
    base_offset = log._log.segment_base_offsets[2]
    fs.faults.fail_next(Operation.CREATE, error_number=errno.EMFILE, path_part="complete-from")
    with pytest.raises(TooManyOpenFilesError):
        log.truncate_before(base_offset)
    assert log.truncate_before(base_offset) == base_offset
    fs.crash(random.Random(1))
    abandon(log)
    with open_simulated(fs, segment_bytes=1024, max_batch_bytes=512) as log:
        assert log.log_start_offset == base_offset
