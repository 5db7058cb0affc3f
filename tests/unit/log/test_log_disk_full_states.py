"""A full disk is a state: it is noticed before an append, told, and left again when there is room."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from log_test_kit import T0, TINY, append, batch, content, open_log, stored

from replog.errors import ConfigError, DiskFullError, RetriableError, StorageError
from replog.log import DiskLimits, DiskSpace, DiskState, LogManager
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode

KIB = 1024
MIB = 1024 * KIB
LIMITS = DiskLimits(warn_free_bytes=100 * KIB, read_only_free_bytes=50 * KIB, reserve_bytes=20 * KIB)
TOPIC = UUID(int=77)


def disk(free_bytes: int, *, capacity_bytes: int = 10 * MIB) -> tuple[SimulatedFileSystem, DiskSpace]:
    fs = SimulatedFileSystem(capacity_bytes=capacity_bytes)
    fs.make_dirs("/data")
    leave(fs, free_bytes)
    return fs, DiskSpace(fs, "/data", LIMITS)


def leave(fs: SimulatedFileSystem, free_bytes: int) -> None:
    """Somebody else's file takes the rest of the disk."""
    file = fs.open("/filler", OpenMode.REPLACE)
    assert fs.capacity_bytes is not None
    file.truncate(fs.capacity_bytes - fs.used_bytes() - free_bytes)
    file.close()


@pytest.mark.parametrize(
    ("free_kib", "state"),
    [(200, DiskState.OK), (121, DiskState.OK), (119, DiskState.WARN), (71, DiskState.WARN), (69, DiskState.READ_ONLY)],
)
def test_states_by_free_bytes_the_reserve_counted_as_used(free_kib: int, state: DiskState) -> None:
    _, space = disk(free_kib * KIB)
    assert space.check() is state
    assert space.check() is state
    assert space.has_reserve is (state is not DiskState.READ_ONLY)


def test_an_append_that_would_use_up_the_room_is_refused_without_waiting_for_a_check() -> None:
    fs, space = disk(200 * KIB)
    space.check()
    for _ in range(10):
        space.admit(10 * KIB)  # nothing is really written: what counts is what the disk says
    leave(fs, 55 * KIB)

    def append_on() -> None:
        for _ in range(100):
            space.admit(10 * KIB)

    with pytest.raises(DiskFullError) as raised:
        append_on()
    assert raised.value.directory == "/data"
    assert raised.value.free_bytes == 55 * KIB
    assert isinstance(raised.value, RetriableError)
    for words in ("/data is read-only", f"{55 * KIB:,} bytes free", "retention.ms", "go on by themselves"):
        assert words in str(raised.value)
    assert space.state is DiskState.READ_ONLY


def test_appends_are_refused_until_a_check_finds_room() -> None:
    fs, space = disk(200 * KIB)
    space.check()
    leave(fs, 10 * KIB)
    assert space.check() is DiskState.READ_ONLY
    leave(fs, 500 * KIB)
    with pytest.raises(DiskFullError):
        space.admit(1)
    assert space.check() is DiskState.OK
    space.admit(1)


def test_looking_at_the_disk_is_rare_while_there_is_room() -> None:
    class Counting(SimulatedFileSystem):
        looks = 0

        def disk_usage(self, path: str):  # type: ignore[no-untyped-def]
            self.looks += 1
            return super().disk_usage(path)

    fs = Counting(capacity_bytes=100 * MIB)
    fs.make_dirs("/data")
    space = DiskSpace(fs, "/data", LIMITS)
    space.check()
    for _ in range(1000):
        space.admit(50 * KIB)
    assert fs.looks <= 3


def test_a_write_that_the_disk_refuses_makes_it_read_only_and_gives_the_reserve_back() -> None:
    fs, space = disk(200 * KIB)
    space.check()
    assert fs.size("/data/.reserve") == 20 * KIB
    leave(fs, 0)
    assert space.make_room()
    assert fs.disk_usage("/data").free_bytes == 20 * KIB
    assert not space.make_room(), "there is one reserve only"
    assert space.check() is DiskState.READ_ONLY
    leave(fs, 200 * KIB)
    assert space.check() is DiskState.OK
    assert fs.size("/data/.reserve") == 20 * KIB


def test_a_refused_append_keeps_the_reserve_for_checkpoints() -> None:
    fs, space = disk(500 * KIB)
    space.check()
    space.refuse()
    assert fs.size("/data/.reserve") == 20 * KIB
    with pytest.raises(DiskFullError):
        space.admit(1)
    fs.faults.fail_next(Operation.WRITE, path_part=".reserve", error_number=errno.ENOSPC)
    assert space.check() is DiskState.READ_ONLY, "the disk refuses still"
    assert space.check() is DiskState.OK


def test_free_bytes_alone_do_not_end_it_where_the_disk_takes_no_writes() -> None:
    """A quota, or no inodes left: the reserve cannot be made, so nothing else could be written either."""
    fs, space = disk(500 * KIB)
    space.check()
    space.make_room()
    fs.faults.fail_next(Operation.CREATE, path_part=".reserve", error_number=errno.EDQUOT)
    assert space.check() is DiskState.READ_ONLY
    fs.faults.fail_next(Operation.WRITE, path_part=".reserve", error_number=errno.ENOSPC)
    assert space.check() is DiskState.READ_ONLY
    assert not fs.exists("/data/.reserve"), "no half of it is left"
    assert space.check() is DiskState.OK


def test_a_disk_that_does_not_answer_has_failed() -> None:
    fs, space = disk(500 * KIB)
    fs.faults.fail_next(Operation.WRITE, path_part=".reserve", error_number=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        space.check()


def test_limits_follow_the_size_of_the_disk() -> None:
    limits = DiskLimits()
    assert limits.on(1 << 50) == limits
    assert limits.on(MIB) == DiskLimits(MIB // 10, MIB // 20, 20 * KIB)
    assert DiskLimits(0, 0, 0).on(MIB) == DiskLimits(0, 0, 0)
    with pytest.raises(ConfigError):
        DiskLimits(reserve_bytes=-1)


# ---- logs on a full disk -----------------------------------------------------------------------------------------------


def full_manager(free_bytes: int = 300 * KIB) -> tuple[SimulatedFileSystem, LogManager]:
    fs = SimulatedFileSystem(capacity_bytes=MIB)
    logs = LogManager.open(fs, ["/data"], cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=LIMITS)
    append(logs.open_log("t", 0, TOPIC, now_ms=T0), 20)
    logs.open_log("__cluster_metadata", 0, UUID(int=1), now_ms=T0)
    leave(fs, free_bytes)
    logs.check_disks()
    return fs, logs


def test_read_only_refuses_appends_and_nothing_else() -> None:
    fs, logs = full_manager(40 * KIB)
    log = logs.logs["t", 0]
    before = fs.size(f"{log.directory}/{log.segment_base_offsets[-1]:020d}.log")
    with pytest.raises(DiskFullError):
        log.append_as_leader(batch(), leader_epoch=0, now_ms=T0)
    assert fs.size(f"{log.directory}/{log.segment_base_offsets[-1]:020d}.log") == before
    assert len(content(log)) == 20
    log.set_log_start_offset(17)
    assert log.delete_old_segments(T0, high_watermark=20) == 2
    log.flush()
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks({("t", 0): 18})
    log.truncate_to(18)
    assert not log.failed
    append(logs.logs["__cluster_metadata", 0], 1)  # without it nothing could be deleted
    leave(fs, 500 * KIB)
    logs.check_disks()
    append(log, 2)
    assert log.log_end_offset == 20
    logs.close(now_ms=T0, broker_epoch=1)


@pytest.mark.parametrize("write", [
    lambda logs: logs.checkpoint_recovery_points(),
    lambda logs: logs.checkpoint_high_watermarks({("t", 0): 9}),
    lambda logs: logs.logs["t", 0].truncate_to(7),
    lambda logs: logs.delete_log("t", 0),
])  # fmt: skip
def test_checkpoints_find_room_in_the_reserve(write: Callable[[LogManager], None]) -> None:
    fs, logs = full_manager()
    logs.logs["t", 0].flush()
    logs.checkpoint_recovery_points()
    append(logs.logs["t", 0], 1)
    logs.logs["t", 0].flush()
    leave(fs, 0)
    write(logs)
    assert not fs.exists("/data/.reserve")
    assert logs.directories["/data"].space.state is DiskState.READ_ONLY


@pytest.mark.parametrize("size_bytes", [0, 10, 40, 60, 100])
def test_checkpoints_without_any_room_leave_the_old_ones(size_bytes: int) -> None:
    """At every byte at which the disk may be full."""
    fs, logs = full_manager()
    logs.checkpoint_high_watermarks({("t", 0): 9})
    logs.logs["t", 0].flush()
    logs.checkpoint_recovery_points()
    before = {name: fs.image()[f"/data/{name}-offset-checkpoint"] for name in ("replication", "recovery-point")}
    append(logs.logs["t", 0], 2)
    logs.logs["t", 0].flush()
    logs.directories["/data"].space.release_reserve()
    leave(fs, size_bytes)
    written = []
    for write in (lambda: logs.checkpoint_high_watermarks({("t", 0): 10}), logs.checkpoint_recovery_points):
        try:
            write()
            written.append(True)
        except DiskFullError:
            written.append(False)
        leave(fs, size_bytes)
    after = {name: fs.image()[f"/data/{name}-offset-checkpoint"] for name in before}
    assert [after[name] != before[name] for name in before] == written
    assert size_bytes >= 40 or not any(written)
    leave(fs, 500 * KIB)
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks({("t", 0): 10})
    assert b"t 0 22" in fs.image()["/data/recovery-point-offset-checkpoint"]
    assert b"t 0 10" in fs.image()["/data/replication-offset-checkpoint"]


def test_a_log_lives_through_a_disk_that_is_full_at_every_step_of_its_work() -> None:
    """Appends, rolls, epochs, truncation: refused or done, never half, and it goes on where it was."""
    refused = 0
    for step in range(60):
        fs, logs = full_manager()
        log = logs.logs["t", 0]
        fs.faults.fail_change_after(step, error_number=errno.ENOSPC)
        end = log.log_end_offset
        try:
            for epoch in (1, 1, 1, 2, 2, 2):
                append(log, 1, leader_epoch=epoch)
                end += 1
            log.truncate_to(end - 2)
            end -= 2
        except DiskFullError:
            refused += 1
        except StorageError:  # an fsync: that one is a failure whatever it says
            assert log.failed
            continue
        assert not log.failed
        assert log.log_end_offset == end
        fs.faults.clear()
        logs.check_disks()
        append(log, 12, leader_epoch=2)
        expected = content(log)
        assert len(expected) == end + 12
        log.flush()
        logs.checkpoint_recovery_points()
        fs.kill()
        again = LogManager.open(fs, ["/data"], cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=LIMITS)
        assert content(again.logs["t", 0]) == expected
    assert refused > 10


STRADDLING = stored(batch(*(b"%d" % number for number in range(10))), 0, 0)
"""It begins below 5, where the log of a follower starts: records were deleted up to there."""

NEXT = stored(batch(bytes(400)), 10, 0)
"""What follows it, in a segment of its own."""


def test_a_straddling_batch_that_is_not_admitted_leaves_the_log_as_it_was() -> None:
    """Else the log would end below what the follower knows to be committed, as long as the disk is full."""
    fs, logs = full_manager()
    log = logs.logs["t", 0]
    log.truncate_fully_and_start_at(5)
    leave(fs, 10 * KIB)
    logs.check_disks()
    before = fs.faults.operation_count
    with pytest.raises(DiskFullError):
        log.append_as_follower(STRADDLING, now_ms=T0)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert fs.faults.operation_count == before
    leave(fs, 500 * KIB)
    logs.check_disks()
    assert log.append_as_follower(STRADDLING, now_ms=T0) is not None
    assert (log.log_start_offset, log.log_end_offset) == (5, 10)


def test_a_straddling_batch_on_a_disk_that_is_full_at_every_step_is_there_or_the_log_as_it_was() -> None:
    ends: set[int] = set()
    for step in range(60):
        fs = SimulatedFileSystem()
        log = open_log(fs)
        log.truncate_fully_and_start_at(5)
        fs.faults.fail_change_after(step, error_number=errno.ENOSPC)
        try:
            log.append_as_follower(STRADDLING + NEXT, now_ms=T0)
        except DiskFullError:
            ends.add(log.log_end_offset)
        except StorageError:  # an fsync: that one is a failure whatever it says
            assert log.failed
            continue
        assert not log.failed
        assert log.log_start_offset == 5
        if log.log_end_offset < 11:
            log.append_as_follower(NEXT if log.log_end_offset == 10 else STRADDLING + NEXT, now_ms=T0)
        assert (log.log_start_offset, log.log_end_offset) == (5, 11)
        assert content(log) == [STRADDLING, NEXT]
    assert ends == {5, 10}


def test_closing_gives_the_reserve_to_the_last_indexes_and_checkpoints() -> None:
    fs, logs = full_manager()
    append(logs.logs["t", 0], 3)
    leave(fs, 0)
    logs.close(now_ms=T0, broker_epoch=5)
    assert fs.exists("/data/.kafka_cleanshutdown")


def test_closing_without_any_room_is_an_unclean_stop() -> None:
    fs, logs = full_manager()
    append(logs.logs["t", 0], 3)
    logs.directories["/data"].space.release_reserve()
    leave(fs, 0)
    with pytest.raises(StorageError):
        logs.close(now_ms=T0, broker_epoch=5)
    assert not fs.exists("/data/.kafka_cleanshutdown")
    leave(fs, 500 * KIB)
    logs = LogManager.open(fs, ["/data"], cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=LIMITS)
    assert logs.logs["t", 0].log_end_offset == 23


def test_opening_on_a_full_disk_keeps_what_needs_no_room_and_creates_nothing() -> None:
    fs, logs = full_manager()
    logs.close(now_ms=T0, broker_epoch=5)
    fs.remove("/data/.reserve") if fs.exists("/data/.reserve") else None
    leave(fs, 0)
    logs = LogManager.open(fs, ["/data"], cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=LIMITS)
    assert len(content(logs.logs["t", 0])) == 20
    assert logs.directories["/data"].space.state is DiskState.READ_ONLY
    with pytest.raises(DiskFullError):
        logs.open_log("new", 0, TOPIC, now_ms=T0)
    leave(fs, 500 * KIB)
    logs.check_disks()
    append(logs.open_log("new", 0, TOPIC, now_ms=T0), 1)


def without_room_to_recover() -> tuple[SimulatedFileSystem, LogManager]:
    """A log with two epochs, the second of which is only in its batches, opened where its epochs cannot be written."""
    fs = SimulatedFileSystem()
    logs = LogManager.open(fs, ["/data"], cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=LIMITS)
    log = logs.open_log("t", 0, TOPIC, now_ms=T0)
    append(log, 20, leader_epoch=0)
    log.flush()
    logs.checkpoint_recovery_points()
    fs.kill()
    fs.remove("/data/t-0/leader-epoch-checkpoint")
    fs.faults.fail_always(Operation.WRITE, path_part="leader-epoch", error_number=errno.ENOSPC)
    return fs, LogManager.open(fs, ["/data"], cluster_id="c", node_id=1, now_ms=T0, config=TINY, limits=LIMITS)


def test_a_replica_that_found_no_room_at_the_start_is_opened_when_there_is_some() -> None:
    fs, logs = without_room_to_recover()
    assert ("t", 0) not in logs.logs
    for _ in range(2):
        with pytest.raises(DiskFullError, match="leader-epoch checkpoint cannot be written"):
            logs.open_log("t", 0, TOPIC, now_ms=T0)
    fs.faults.clear()
    log = logs.open_log("t", 0, TOPIC, now_ms=T0)
    assert len(content(log)) == 20
    assert logs.open_log("t", 0, TOPIC, now_ms=T0) is log


def test_a_replica_without_room_is_not_opened_for_another_topic_of_its_name() -> None:
    fs, logs = without_room_to_recover()
    fs.faults.clear()
    with pytest.raises(DiskFullError):
        logs.open_log("t", 0, UUID(int=78), now_ms=T0)
    logs.delete_log("t", 0)
    assert logs.open_log("t", 0, UUID(int=78), now_ms=T0).log_end_offset == 0


def test_new_replicas_avoid_a_full_disk() -> None:
    fs = SimulatedFileSystem()
    logs = LogManager.open(fs, ["/a", "/b"], cluster_id="c", node_id=1, now_ms=T0, limits=LIMITS)
    logs.directories["/a"].space.make_room()
    for partition in range(3):
        logs.open_log("t", partition, TOPIC, now_ms=T0)
    assert {path: len(found.logs) for path, found in logs.directories.items()} == {"/a": 0, "/b": 3}


# ---- a real one --------------------------------------------------------------------------------------------------------

_MOUNTED = """
import sys
sys.path[:0] = sys.argv[2:]
from log_test_kit import T0, append, batch, content
from replog.errors import DiskFullError
from replog.log import DiskState, LogConfig, LogManager
from replog_checkpoints import OsFileSystem
from pathlib import Path
from uuid import UUID
path = sys.argv[1]

def open_logs():
    config = LogConfig(segment_bytes=64 << 10)
    return LogManager.open(OsFileSystem(), [path + "/d"], cluster_id="c", node_id=1, now_ms=T0, config=config)

logs = open_logs()
log = logs.open_log("t", 0, UUID(int=5), now_ms=T0)
for round_ in range(3):
    try:
        for _ in range(20000):
            append(log, 1)
        raise SystemExit("1 MiB took everything")
    except DiskFullError as error:
        refused = str(error)
    assert logs.directories[path + "/d"].space.state is DiskState.READ_ONLY, refused
    end = log.log_end_offset
    filler = Path(path, "filler")
    with filler.open("wb", buffering=0) as file:  # the rest too
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    log.flush()
    logs.checkpoint_recovery_points()
    logs.checkpoint_high_watermarks({("t", 0): end})
    assert len(content(log)) == end - log.log_start_offset
    log.set_log_start_offset(end - 5)
    assert log.delete_old_segments(T0, high_watermark=end) > 0
    log.remove_deleted_files(1 << 61)
    filler.unlink()
    assert logs.check_disks()[path + "/d"] is not DiskState.READ_ONLY
    append(log, 3)
    assert log.log_end_offset == end + 3
end, start = log.log_end_offset, log.log_start_offset
logs.close(now_ms=T0, broker_epoch=1)
logs = open_logs()
assert (logs.logs["t", 0].log_end_offset, logs.logs["t", 0].log_start_offset) == (end, start)
print("done")
"""


def mount_tmpfs(path: Path, size_bytes: int) -> str | None:
    """Why it could not be mounted; None: it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, f"size={size_bytes}".encode()) == 0:
        return None
    return os.strerror(ctypes.get_errno())


def test_on_a_real_disk_of_a_megabyte(tmp_path: Path) -> None:
    problem = mount_tmpfs(tmp_path, MIB)
    if problem is not None:
        pytest.skip(f"a tmpfs cannot be mounted here: {problem}")
    try:
        folders = [entry for entry in sys.path if entry]
        command = [sys.executable, "-c", _MOUNTED, str(tmp_path), *folders]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    finally:
        ctypes.CDLL(None).umount(os.fsencode(tmp_path))
