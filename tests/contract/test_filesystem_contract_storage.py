"""What the storage engine relies on beyond plain files, on both file systems: room, maps, names that last, locks, fsync errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem, OpenMode, OsFileSystem

CHECKPOINTS = str(Path(__file__).parents[2] / "checkpoints")


@pytest.fixture(params=["os", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "os":
        return OsFileSystem(), str(tmp_path)
    disk = SimulatedFileSystem()
    disk.make_dirs("/tmp/test")
    return disk, "/tmp/test"


def put(fs: FileSystem, path: str, data: bytes) -> str:
    file = fs.open(path, OpenMode.REPLACE)
    file.pwrite([data], 0)
    file.close()
    return path


def test_room_is_told_for_files_and_folders(place: tuple[FileSystem, str]) -> None:
    fs, folder = place
    for path in (folder, put(fs, f"{folder}/file", b"x")):
        usage = fs.disk_usage(path)
        assert 0 <= usage.free_bytes <= usage.total_bytes
    with pytest.raises(FileNotFoundError):
        fs.disk_usage(f"{folder}/absent")


def test_allocated_bytes_are_zeros_and_nothing_is_cut(place: tuple[FileSystem, str]) -> None:
    fs, folder = place
    file = fs.open(put(fs, f"{folder}/file", b"abc"), OpenMode.WRITE)
    file.allocate(10_000)
    assert (file.size(), file.pread(5, 0), file.pread(5, 9_990)) == (10_000, b"abc\0\0", bytes(5))
    file.allocate(5)
    assert file.size() == 10_000
    file.close()


def test_a_map_outlives_its_file_and_is_read_only(place: tuple[FileSystem, str]) -> None:
    fs, folder = place
    for data in (b"", b"content" * 1000):
        file = fs.open(put(fs, f"{folder}/file", data), OpenMode.READ)
        content = file.map_read()
        file.close()
        put(fs, f"{folder}/other", b"new")
        fs.rename(f"{folder}/other", f"{folder}/file")
        assert bytes(content) == data
        assert content.readonly


def test_a_hole_between_two_writes_reads_as_zeros_and_counts(place: tuple[FileSystem, str]) -> None:
    fs, folder = place
    file = fs.open(f"{folder}/file", OpenMode.CREATE)
    file.pwrite([b"a"], 0)
    file.pwrite([b"z"], 100_000)
    assert (file.size(), file.pread(3, 0), file.pread(9, 99_998)) == (100_001, b"a\0\0", b"\0\0z")
    file.truncate(50_000)
    file.truncate(100_001)
    assert file.pread(9, 99_998) == bytes(3)  # what was cut does not come back
    file.close()


def test_a_renamed_folder_takes_its_open_files_along(place: tuple[FileSystem, str]) -> None:
    fs, folder = place
    fs.make_dirs(f"{folder}/t-0")
    file = fs.open(put(fs, f"{folder}/t-0/log", b"data"), OpenMode.WRITE)
    fs.rename(f"{folder}/t-0", f"{folder}/t-0-delete")
    file.pwrite([b"more"], 4)
    file.sync()
    assert fs.size(f"{folder}/t-0-delete/log") == 8
    fs.remove_tree(f"{folder}/t-0-delete")
    assert file.pread(8, 0) == b"datamore"
    file.close()


def test_names_are_listed_in_order_whatever_the_order_of_creation(place: tuple[FileSystem, str]) -> None:
    fs, folder = place
    for number in (5, 40, 300, 1, 0):
        put(fs, f"{folder}/{number:020d}.log", b"")
    assert fs.list_dir(folder) == [f"{number:020d}.log" for number in (0, 1, 5, 40, 300)]


def test_a_lock_excludes_other_processes_and_ends_with_its_own(tmp_path: Path) -> None:
    """Only on the real file system: the simulated one has one process at a time."""
    path = str(tmp_path / ".lock")
    lock = OsFileSystem().lock(path)
    program = (
        "import sys; from replog_checkpoints import OsFileSystem; OsFileSystem().lock(sys.argv[1]); print('locked')"
    )

    def lock_elsewhere() -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "PYTHONPATH": CHECKPOINTS}
        return subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=False, env=environment)

    assert b"BlockingIOError" in lock_elsewhere().stderr
    lock.release()
    assert lock_elsewhere().stdout == b"locked\n"
    OsFileSystem().lock(path).release()  # the other process is gone, and its lock with it
