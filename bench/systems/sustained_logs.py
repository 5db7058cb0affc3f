"""One log that is filled for longer than the page cache has room: with a dirty window, without one, and plain files.

The sustained rate is the disk's or the memory's, not the log's: so every system writes the same bytes to files of the same
size, and the clock runs until all of it is on stable storage.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from bench.model import System
from bench.systems.stored_logs import LEADER_EPOCH, now_ms
from replog.errors import StorageError
from replog.log import Log, LogConfig
from replog.records import check_crc, parse_header
from replog_checkpoints import OsFileSystem

SEGMENT_BYTES: Final = 1024 * 1024 * 1024
WINDOW_BYTES: Final = 8 * 1024 * 1024
_GO_ON, _STOP = "go on", "stop"


class Filling(ABC):
    """One log that is being filled."""

    @abstractmethod
    def append(self, batch: bytes) -> None:
        """Adds one batch."""

    @abstractmethod
    def finish(self) -> int:
        """Makes all of it durable and returns the bytes of all batches."""

    @abstractmethod
    def close(self) -> None:
        """Ends it, also in the middle."""


class SustainedSystem(System):
    """Makes such logs in the given directory, which it removes."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def start(self, directory: Path) -> None:
        self._directory = directory / "sustained-0"

    @property
    def directory(self) -> Path:
        """Of the log."""
        if self._directory is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._directory

    @abstractmethod
    def open(self) -> Filling:
        """An empty log."""

    def drop(self, log: Filling) -> None:
        """Closes it and removes its files."""
        log.close()
        shutil.rmtree(self.directory)


class ReplogFilling(Filling):
    """A `Log` and, with a window, the thread that its host must have for it."""

    def __init__(self, directory: Path, window_bytes: int) -> None:
        self._log = Log.open(
            OsFileSystem(),
            str(directory),
            LogConfig(segment_bytes=SEGMENT_BYTES, dirty_window_bytes=window_bytes, retention_ms=-1),
            topic_partition=directory.name,
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=now_ms(),
        )
        self._log.assign_epoch_start(LEADER_EPOCH)
        self._mutex = threading.Lock()
        self._due: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._has_progressed = threading.Event()
        self._thread: threading.Thread | None = None
        if window_bytes:
            self._thread = threading.Thread(target=self._write_back, name="write-back")
            self._thread.start()
        self._looked_at = 0
        self._look_every = max(1, window_bytes // 4)

    def append(self, batch: bytes) -> None:
        header = parse_header(batch)
        check_crc(batch, header)  # as a broker does with what a producer sends
        with self._mutex:
            self._log.append_as_leader(batch, leader_epoch=LEADER_EPOCH, now_ms=now_ms(), header=header)
        if self._thread is not None and self._log.size_bytes - self._looked_at >= self._look_every:
            self._looked_at = self._log.size_bytes
            self._due.put(_GO_ON)
            while self._log.is_behind_write_back and not self._log.failed:
                self._has_progressed.clear()
                self._due.put(_GO_ON)
                self._has_progressed.wait()

    def finish(self) -> int:
        self._stop()
        self._log.flush()
        return self._log.size_bytes

    def close(self) -> None:
        self._stop()
        self._log.close(now_ms())

    def _stop(self) -> None:
        if self._thread is not None:
            self._due.put(_STOP)
            self._thread.join()
            self._thread = None

    def _write_back(self) -> None:
        while self._due.get() == _GO_ON:
            with self._mutex:
                job = self._log.prepare_write_back()
            if job is not None:
                with contextlib.suppress(OSError):  # the log has noted it: the next append raises
                    job.run()
                with self._mutex, contextlib.suppress(StorageError):
                    self._log.complete_write_back(job)
            self._has_progressed.set()


class PlainFilling(Filling):
    """Files of the same size, one `write` for a batch, fsync at the end."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._descriptors: list[int] = []
        self._room_bytes = 0
        self._size_bytes = 0

    def append(self, batch: bytes) -> None:
        if self._room_bytes < len(batch):
            path = self._directory / f"{len(self._descriptors)}"
            self._descriptors.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            self._room_bytes = SEGMENT_BYTES
        written = os.write(self._descriptors[-1], batch)
        self._room_bytes -= written
        self._size_bytes += written

    def finish(self) -> int:
        for descriptor in self._descriptors:
            os.fsync(descriptor)
        return self._size_bytes

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


class ReplogWithWindow(SustainedSystem):
    name = "replog"

    def open(self) -> Filling:
        return ReplogFilling(self.directory, WINDOW_BYTES)


class ReplogWithoutWindow(SustainedSystem):
    """The kernel decides when dirty pages are written."""

    name = "replog-no-window"

    def open(self) -> Filling:
        return ReplogFilling(self.directory, 0)


class PlainFiles(SustainedSystem):
    name = "plain-file"

    def open(self) -> Filling:
        return PlainFilling(self.directory)


def sustained_logs() -> list[SustainedSystem]:
    """All, ours first."""
    return [ReplogWithWindow(), ReplogWithoutWindow(), PlainFiles()]
