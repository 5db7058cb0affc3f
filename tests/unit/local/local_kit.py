"""What the tests of local logs share."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from replog.errors import DiskFullError, ReplogError
from replog.local import LocalLog, ReadOnlyLog, open_log
from replog.testing import PowerCutError, SimulatedFileSystem
from replog_checkpoints import OpenMode, OsFileSystem
from replog_checkpoints.os_filesystem import OsFile

T0 = 1_700_000_000_000
PATH = "/logs/orders"
PARTITION = f"{PATH}/log-0"


def open_simulated(disk: SimulatedFileSystem, path: str = PATH, **settings: Any) -> LocalLog:
    """A log on a simulated disk, without a thread: maintenance happens where a test calls for it."""
    return open_log(path, file_system=disk, **{"maintenance_interval_ms": 0, **settings})


def values(log: LocalLog | ReadOnlyLog) -> list[bytes | None]:
    """Of all records that can be seen."""
    return [record.value for record in log]


def abandon(log: LocalLog) -> None:
    """What a crash does to a log object: it is gone, and says nothing more."""
    with contextlib.suppress(ReplogError, OSError, PowerCutError):
        log.close()
    log._is_closed = True


class CountingFileSystem(OsFileSystem):
    """The disk of this machine; counts the fsyncs of segment files, and can hold them back."""

    def __init__(self) -> None:
        self.syncs_count = 0
        self.gate = threading.Event()  # fsyncs wait for it
        self.gate.set()
        self.entered = threading.Semaphore(0)  # released by every fsync that begins

    def open(self, path: str, mode: OpenMode) -> OsFile:
        file = super().open(path, mode)
        return _CountingFile(self, path, file.fileno()) if path.endswith(".log") else file

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """fsyncs wait until `gate` is set, or the block ends."""
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()


class _CountingFile(OsFile):
    def __init__(self, fs: CountingFileSystem, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._fs = fs

    def sync(self) -> None:
        self._fs.syncs_count += 1
        self._fs.entered.release()
        if not self._fs.gate.wait(30):
            raise TimeoutError("the test never opened the gate")
        super().sync()


def child_environment() -> dict[str, str]:
    """For a Python child that imports what this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def fill_disk(log: LocalLog, value: bytes = b"x" * 100_000) -> int:
    """Appends until the disk is full; returns how many records went in."""
    for count in range(1000):
        try:
            log.append(value)
        except DiskFullError:
            return count
    raise AssertionError("the disk never filled up")


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the condition never came true")
        time.sleep(0.001)


def mount_tmpfs(path: Path, size_bytes: int) -> str | None:
    """Mounts a small disk of its own; returns why it could not be mounted, None: it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, f"size={size_bytes}".encode()) == 0:
        return None
    return os.strerror(ctypes.get_errno())


def umount(path: Path) -> None:
    """Undoes `mount_tmpfs`."""
    ctypes.CDLL(None).umount(os.fsencode(path))
