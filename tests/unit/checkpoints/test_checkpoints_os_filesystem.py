"""What only the real file system does: locks between processes, writes that the kernel ends early."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from replog_checkpoints import FileSystem, OpenMode, OsFileSystem

LOCK_LIKE_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "r+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(7)
print("held", flush=True)
sys.stdin.read()
"""


def test_it_is_a_file_system() -> None:
    fs: FileSystem = OsFileSystem()
    assert fs.exists("/")


def test_a_lock_excludes_processes_that_lock_as_java_does(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = OsFileSystem().lock(path)
    command = [sys.executable, "-c", LOCK_LIKE_JAVA, path]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 7
    with pytest.raises(BlockingIOError):
        OsFileSystem().lock(path)
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 7
    lock.release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    command = [sys.executable, "-c", LOCK_LIKE_JAVA, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            OsFileSystem().lock(str(path))
        holder.kill()
        holder.wait()
    OsFileSystem().lock(str(path)).release()


FORK_BESIDE_A_LOCK = """
import os, sys
from replog_checkpoints import OsFileSystem
path, is_killed = sys.argv[1], sys.argv[2] == "killed"
lock = OsFileSystem().lock(path)
ready, tell_ready = os.pipe()
told, tell = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(tell)
    os.write(tell_ready, b"x")
    os.read(told, 1)  # lives until the parent says so, or is gone
    os._exit(0)
os.close(tell_ready)
assert os.read(ready, 1) == b"x"
try:
    OsFileSystem().lock(path)
except BlockingIOError:
    print("held")  # the child closed its copy, not the parent's lock
lock.close() if is_killed else lock.release()
OsFileSystem().lock(path).release()
os.close(tell)
assert os.waitpid(pid, 0)[1] == 0
print("free")
"""


@pytest.mark.parametrize("end", ["released", "killed"])  # killed: only the last descriptor's end unlocks
def test_a_forked_child_has_no_part_in_a_lock(tmp_path: Path, end: str) -> None:
    """In a process of its own: a child of this one may die of the threads that libraries of other tests have started."""
    command = [sys.executable, "-c", FORK_BESIDE_A_LOCK, str(tmp_path / ".lock"), end]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["held", "free"]), done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_an_fsync_without_room_is_a_failed_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A write that found no room may be tried again; what an fsync could not write is lost."""

    def refuse(_fd: int) -> None:
        raise OSError(number, os.strerror(number))

    fs = OsFileSystem()
    file = fs.open(str(tmp_path / "a"), OpenMode.CREATE)
    monkeypatch.setattr(os, "fdatasync", refuse)
    monkeypatch.setattr(os, "fsync", refuse)
    for sync in (file.sync, lambda: fs.sync_dir(str(tmp_path))):
        with pytest.raises(OSError, match="fsync failed") as caught:
            sync()
        assert caught.value.errno == errno.EIO
    file.close()


def test_writes_that_end_early_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.pwritev

    def three_bytes(fd: int, buffers: Sequence[Any], position: int) -> int:
        return whole_write(fd, [b"".join(buffers)[:3]], position)

    file = OsFileSystem().open(str(tmp_path / "file"), OpenMode.CREATE)
    monkeypatch.setattr(os, "pwritev", three_bytes)
    assert file.pwrite([b"ab", b"", b"cdefg", b"hijk"], 5) == 11
    assert file.pread(100, 5) == b"abcdefghijk"
    file.close()


def test_reads_that_end_early_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abcdefghijk")
    whole_read, whole_read_into = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, position: whole_read(fd, min(3, length), position))
    monkeypatch.setattr(os, "preadv", lambda fd, views, position: whole_read_into(fd, [views[0][:3]], position))
    file = OsFileSystem().open(str(path), OpenMode.READ)
    assert file.pread(8, 1) == b"bcdefghi"
    assert file.pread(100, 1) == b"bcdefghijk"
    buffer = bytearray(20)
    assert file.pread_into(buffer, 0) == 11
    assert buffer[:11] == b"abcdefghijk"
    file.close()


def test_a_full_disk_reaches_the_caller(tmp_path: Path) -> None:
    full = OsFileSystem().open("/dev/full", OpenMode.WRITE)
    with pytest.raises(OSError) as caught:
        full.pwrite([b"x"], 0)
    assert caught.value.errno == 28
    full.close()
