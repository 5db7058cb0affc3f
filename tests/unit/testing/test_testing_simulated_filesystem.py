"""The simulated disk does what a disk may do at its worst, and nothing worse."""

from __future__ import annotations

import errno
import random
from collections import Counter
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode, make_durable_dirs, replace_file


def disk_with(name: str = "file", data: bytes = b"") -> SimulatedFileSystem:
    """A disk with one durable file."""
    disk = SimulatedFileSystem()
    file = disk.open(name, OpenMode.CREATE)
    file.pwrite([data], 0)
    file.sync()
    file.close()
    disk.sync_dir("/")
    return disk


def content(disk: SimulatedFileSystem, name: str = "file") -> bytes:
    file = disk.open(name, OpenMode.READ)
    data = file.pread(file.size(), 0)
    file.close()
    return data


@given(st.lists(st.integers(1, 1500), max_size=6), st.integers(0, 6), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_of_an_appended_file_a_crash_leaves_a_part_that_holds_all_that_was_synced(
    lengths: list[int], synced_count: int, rng: random.Random
) -> None:
    disk = disk_with()
    file = disk.open("file", OpenMode.WRITE)
    written, synced = b"", b""
    for index, length in enumerate(lengths):
        file.pwrite([bytes([index + 1]) * length], len(written))
        written += bytes([index + 1]) * length
        if index + 1 == synced_count:
            file.sync()
            synced = written
    disk.crash(rng)
    found = content(disk)
    assert len(found) <= len(written)
    assert all(byte in (0, written[position]) for position, byte in enumerate(found))  # 0: a hole
    assert found.startswith(synced)


def test_crashes_differ_and_a_seed_repeats_one() -> None:
    def crash(seed: int) -> bytes:
        disk = disk_with(data=b"durable")
        file = disk.open("file", OpenMode.WRITE)
        for index in range(4):
            file.pwrite([bytes([index]) * 1024], 7 + 1024 * index)
        disk.crash(random.Random(seed))
        return content(disk)

    def has_holes(data: bytes) -> bool:
        return any(data[7 + 1024 * index :][:1024] not in (bytes([index]) * 1024, b"") for index in range(4))

    found = [crash(seed) for seed in range(200)]
    outcomes = Counter(len(data) for data in found)
    assert outcomes[7] > 0  # nothing of it
    assert outcomes[7 + 4096] > 0  # all of it
    assert any(has_holes(data) for data in found)  # a later write is there, an earlier one is not
    torn = [length for length in outcomes if (length - 7) % 1024]
    assert torn
    assert all(length % 512 == 0 for length in torn)
    assert [crash(seed) for seed in range(20)] == [crash(seed) for seed in range(20)]


def test_names_need_a_sync_of_their_folder() -> None:
    outcomes = set()
    for seed in range(100):
        disk = disk_with("old", b"old")
        disk.open("new", OpenMode.CREATE).sync()
        disk.rename("old", "renamed")
        disk.remove("renamed")
        disk.crash(random.Random(seed))
        outcomes.add(tuple(disk.list_dir("/")))
    assert outcomes == {("old",), ("new", "old"), ("new", "renamed"), ("new",)}


def test_a_rename_between_folders_is_all_or_nothing() -> None:
    for synced in (None, "/a", "/b"):
        outcomes = set()
        for seed in range(60):
            disk = SimulatedFileSystem()
            for folder in ("/a", "/b"):
                disk.make_dirs(folder)
            disk.open("/a/file", OpenMode.CREATE).sync()
            disk.sync_dir("/")
            disk.sync_dir("/a")
            disk.rename("/a/file", "/b/file")
            if synced:
                disk.sync_dir(synced)
            disk.crash(random.Random(seed))
            outcomes.add((tuple(disk.list_dir("/a")), tuple(disk.list_dir("/b"))))
        moved, kept = ((), ("file",)), (("file",), ())
        assert outcomes == ({moved} if synced else {moved, kept})


def test_a_crash_ends_open_files_and_locks_and_a_kill_keeps_every_byte() -> None:
    disk = disk_with(data=b"durable")
    file = disk.open("file", OpenMode.WRITE)
    file.pwrite([b" and more"], 7)
    disk.lock("lock")
    disk.kill()
    with pytest.raises(OSError) as caught:
        file.pread(1, 0)
    assert caught.value.errno == errno.EBADF
    assert content(disk) == b"durable and more"
    disk.lock("lock")
    disk.crash(random.Random(0))
    assert content(disk) in (b"durable", b"durable and more")
    disk.lock("lock").release()


def test_after_a_failed_sync_the_bytes_are_lost_although_the_next_one_succeeds() -> None:
    disk = disk_with(data=b"durable")
    file = disk.open("file", OpenMode.WRITE)
    file.pwrite([b"lost"], 7)
    disk.faults.fail_next(Operation.SYNC)
    with pytest.raises(OSError) as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    assert content(disk) == b"durable\0\0\0\0"  # the cache is dropped, the size in memory stays
    file.pwrite([b"kept"], 11)
    file.sync()
    disk.crash(random.Random(1))
    assert content(disk) == b"durable\0\0\0\0kept"


def test_of_two_disks_one_is_replaced_by_an_empty_one() -> None:
    disk = SimulatedFileSystem()
    for directory in ("/data", "/disk2"):
        make_durable_dirs(disk, f"{directory}/folder")
        replace_file(disk, f"{directory}/folder/file", b"kept")
    disk.wipe("/disk2")
    disk.crash(random.Random(1))
    assert disk.image() == {"/data/": b"", "/data/folder/": b"", "/data/folder/file": b"kept", "/disk2/": b""}


def test_lying_syncs_lose_data_in_a_crash() -> None:
    disk = disk_with(data=b"durable")
    disk.faults.syncs_lie = True
    file = disk.open("file", OpenMode.WRITE)
    file.pwrite([b"lost"], 7)
    file.sync()
    lost = next(seed for seed in range(50) if _crash_length(seed) == 7)
    disk.crash(random.Random(lost))
    assert content(disk) == b"durable"


def _crash_length(seed: int) -> int:
    disk = disk_with(data=b"durable")
    disk.open("file", OpenMode.WRITE).pwrite([b"lost"], 7)
    disk.crash(random.Random(seed))
    return disk.size("file")


def test_a_full_disk_takes_what_fits_and_then_says_so() -> None:
    disk = disk_with(data=b"1234")
    disk.capacity_bytes = 10
    file = disk.open("file", OpenMode.WRITE)
    with pytest.raises(OSError) as caught:
        file.pwrite([b"567890123"], 4)
    assert caught.value.errno == errno.ENOSPC
    assert content(disk) == b"1234567890"
    assert disk.used_bytes() == 10
    file.pwrite([b"X"], 0)  # overwriting needs no room
    disk.remove("file")
    assert disk.used_bytes() == 10  # still open
    file.close()
    assert disk.used_bytes() == 0


@pytest.mark.parametrize("operation", list(Operation))
def test_the_nth_operation_fails_once(operation: Operation) -> None:
    disk = disk_with("file-a", b"data")
    disk.faults.fail_next(operation, nth=2, error_number=errno.EIO, path_part="")

    def act(path: str) -> None:
        match operation:
            case Operation.OPEN:
                disk.open("file-a", OpenMode.READ)
            case Operation.CREATE:
                disk.open(path, OpenMode.CREATE)
            case Operation.READ:
                disk.open("file-a", OpenMode.READ).pread(1, 0)
            case Operation.WRITE:
                disk.open("file-a", OpenMode.WRITE).pwrite([b"x"], 0)
            case Operation.TRUNCATE:
                disk.open("file-a", OpenMode.WRITE).truncate(9)
            case Operation.SYNC:
                disk.open("file-a", OpenMode.READ).sync()
            case Operation.SYNC_DIR:
                disk.sync_dir("/")
            case Operation.RENAME:
                disk.rename("file-a", "file-a")
            case Operation.REMOVE:
                disk.open(path, OpenMode.CREATE)
                disk.remove(path)
            case Operation.WRITE_BACK:
                disk.open("file-a", OpenMode.WRITE).wait_write_back(0, 4)
            case Operation.LIST:
                disk.list_dir("/")
            case Operation.STAT:
                disk.size("file-a")

    act("file-1")
    with pytest.raises(OSError) as caught:
        act("file-2")
    assert caught.value.errno == errno.EIO
    act("file-3")


def test_faults_can_name_a_path() -> None:
    disk = disk_with("flights.log", b"data")
    disk.faults.fail_next(Operation.WRITE, error_number=errno.ENOSPC, path_part=".index")
    disk.open("flights.log", OpenMode.WRITE).pwrite([b"x"], 0)
    index = disk.open("flights.index", OpenMode.CREATE)
    with pytest.raises(OSError, match="simulated"):
        index.pwrite([b"x"], 0)


def test_after_a_power_cut_nothing_works_until_the_crash() -> None:
    disk = disk_with(data=b"durable")
    disk.faults.cut_power_after(1)
    file = disk.open("file", OpenMode.WRITE)
    file.pwrite([b"D"], 0)
    for use in (file.sync, lambda: file.pread(1, 0), lambda: disk.open("file", OpenMode.READ)):
        with pytest.raises(PowerCutError):
            use()
    file.close()
    disk.crash(random.Random(2))
    assert content(disk) in (b"durable", b"Durable")


def test_bit_rot_is_there_before_and_after_a_crash() -> None:
    disk = disk_with(data=b"abc")
    disk.flip_bit("file", 1, bit=0)
    assert content(disk) == b"acc"
    disk.crash(random.Random(3))
    assert content(disk) == b"acc"


def test_what_is_durable_is_what_every_crash_leaves() -> None:
    """Two files; a third whose name was not synced; the second has got more since."""
    disk = SimulatedFileSystem()
    disk.make_dirs("/logs")
    for name in ("a", "b"):
        file = disk.open(f"/logs/{name}", OpenMode.CREATE)
        file.pwrite([b"old"], 0)
        file.sync()
    disk.sync_dir("/")
    disk.sync_dir("/logs")
    file.pwrite([b"newer"], 0)
    disk.open("/logs/c", OpenMode.CREATE).sync()
    assert [disk.durable_content(f"/logs/{name}") for name in "abc"] == [b"old", b"old", None]
    assert (disk.durable_content("/logs"), disk.durable_content("/logs/a/b")) == (None, None)
    disk.flip_bit("/logs/a", 0)
    assert disk.durable_content("/logs/a") == b"nld"
    file.sync()
    assert disk.durable_content("/logs/b") == b"newer"


def test_removing_a_tree_is_one_step_per_name() -> None:
    disk = SimulatedFileSystem()
    disk.make_dirs("/a/b")
    disk.open("/a/b/file", OpenMode.CREATE)
    before = disk.faults.operation_count
    disk.remove_tree("/a")
    assert disk.faults.operation_count - before == 3
    assert disk.list_dir("/") == []


def test_every_change_and_every_look_can_be_made_to_fail() -> None:
    disk = disk_with("file", b"data")

    def change_twice_and_look() -> None:
        with closing(disk.open("file", OpenMode.WRITE)) as file:
            file.pwrite([b"more"], 4)
            file.truncate(5)
            file.pread(9, 0)

    changes, looks = disk.faults.operation_count, disk.faults.read_count
    change_twice_and_look()
    assert (disk.faults.operation_count - changes, disk.faults.read_count - looks) == (2, 2)
    for fail in (disk.faults.fail_change_after, disk.faults.fail_read_after):
        for count in range(2):
            fail(count)
            with pytest.raises(OSError, match="simulated"):
                change_twice_and_look()
            change_twice_and_look()


def test_a_part_of_the_disk_can_be_dead_until_it_is_repaired() -> None:
    disk = disk_with("file", b"data")
    disk.faults.fail_always(Operation.OPEN, path_part="file")
    for _ in range(3):
        with pytest.raises(OSError, match="simulated"):
            disk.open("file", OpenMode.READ)
    disk.faults.clear()
    disk.open("file", OpenMode.READ).close()


def test_a_copied_disk_crashes_alone() -> None:
    disk = disk_with("file", b"data")
    with closing(disk.open("file", OpenMode.WRITE)) as file:
        file.pwrite([b"more"], 4)
        other = disk.copied()
        assert other.image() == {"/file": b"datamore"}
        for seed in range(20):
            other.crash(random.Random(seed))
        assert (file.pread(9, 0), other.image()["/file"][:4]) == (b"datamore", b"data")
        file.sync()
    assert disk.image() == {"/file": b"datamore"}


def test_a_copied_disk_has_everything_that_decides_what_a_crash_leaves() -> None:
    """Goal: changes of files and names that wait, and one node behind several names, before and after the next changes."""

    def changed(disk: SimulatedFileSystem) -> SimulatedFileSystem:
        disk.rename("/a/old", "/b/new")
        replace_file(disk, "/b/other", b"y" * 700)
        with closing(disk.open("/b/new", OpenMode.WRITE)) as file:
            file.pwrite([b"z" * 2_000], 100)
        disk.sync_dir("/a")
        disk.remove("/b/new")
        return disk

    def worked() -> SimulatedFileSystem:
        disk = SimulatedFileSystem()
        for folder in ("/a", "/b"):
            make_durable_dirs(disk, folder)
        replace_file(disk, "/a/old", b"x" * 700)
        with closing(disk.open("/a/old", OpenMode.WRITE)) as file:
            file.pwrite([b"more"], 3_000)
            file.truncate(1_000)
        with closing(disk.open("/b/fresh", OpenMode.CREATE)) as file:
            file.pwrite([b"fresh"], 0)
        disk.rename("/b/fresh", "/a/fresh")
        return disk

    outcomes = set()
    for seed in range(60):
        disks = [worked(), worked().copied(), changed(worked()), changed(worked().copied()), changed(worked()).copied()]
        for disk in disks:
            disk.crash(random.Random(seed))
        here, there, *later = [disk.image() for disk in disks]
        assert here == there
        assert later == [later[0]] * 3
        outcomes.add(str(here) + str(later[0]))
    assert len(outcomes) > 20
