"""Logs on disk in this process: replog's, and a plain file as the floor that no log can pass."""

from __future__ import annotations

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from bench.model import System
from replog.log import Log, LogConfig
from replog.records import scan
from replog_checkpoints import OsFileSystem

LEADER_EPOCH = 0


class OpenLog(ABC):
    """One log that takes batches and gives them back."""

    @abstractmethod
    def append(self, batch: bytes) -> None:
        """Adds one batch; it is in the page cache afterwards, not on the disk."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes of all batches."""

    @abstractmethod
    def read(self, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Whole batches from `position`, and the position after them.  Positions begin at 0; b"" at the end.

        What a position is, an offset or a byte, is the log's own business.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes and deletes it."""


class LogSystem(System):
    """Makes logs; remembers those that scenarios fill once and read often."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._kept: dict[str, OpenLog] = {}
        self._made = 0

    def start(self, directory: Path) -> None:
        self._directory = directory

    def stop(self) -> None:
        for log in self._kept.values():
            log.close()
        self._kept.clear()

    @abstractmethod
    def open_log(self, directory: Path) -> OpenLog:
        """An empty log in a directory that does not exist yet."""

    def new_log(self) -> OpenLog:
        """An empty log; the caller closes it."""
        if self._directory is None:
            raise RuntimeError(f"{self.name} was not started")
        self._made += 1
        return self.open_log(self._directory / f"bench-{self._made}")

    def kept_log(self, name: str, fill: Callable[[OpenLog], None]) -> OpenLog:
        """The log of that name, made and filled the first time; closed by `stop`."""
        if name not in self._kept:
            self._kept[name] = self.new_log()
            fill(self._kept[name])
        return self._kept[name]


class ReplogLog(OpenLog):
    """`replog.log.Log` as a leader uses it: it stamps offsets and keeps indexes, epochs and producers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = Log.open(
            OsFileSystem(),
            str(directory),
            LogConfig(),
            topic_partition=directory.name,
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=_now_ms(),
        )
        self._log.assign_epoch_start(LEADER_EPOCH)

    def append(self, batch: bytes) -> None:
        self._log.append_as_leader(batch, leader_epoch=LEADER_EPOCH, now_ms=_now_ms())

    def size_bytes(self) -> int:
        return self._log.size_bytes

    def read(self, position: int, max_bytes: int) -> tuple[bytes, int]:
        end_offset = self._log.log_end_offset
        found = self._log.read(position, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True)
        for header in scan(found):
            position = header.next_offset
        return found, position

    def close(self) -> None:
        self._log.close(_now_ms())
        shutil.rmtree(self._directory)


class PlainFile(OpenLog):
    """One write for a batch, one read for a stretch, and nothing else: no offsets, no index, no checks."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._fd = os.open(directory / "data", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._size_bytes = 0
        self._batch_bytes = 1

    def append(self, batch: bytes) -> None:
        self._size_bytes += os.write(self._fd, batch)
        self._batch_bytes = len(batch)

    def size_bytes(self) -> int:
        return self._size_bytes

    def read(self, position: int, max_bytes: int) -> tuple[bytes, int]:
        whole = max(1, max_bytes // self._batch_bytes) * self._batch_bytes  # batches of one file are of one size
        found = os.pread(self._fd, whole, position)
        return found, position + len(found)

    def close(self) -> None:
        os.close(self._fd)
        shutil.rmtree(self._directory)


class ReplogLogs(LogSystem):
    name = "replog"

    def open_log(self, directory: Path) -> OpenLog:
        return ReplogLog(directory)


class PlainFiles(LogSystem):
    name = "plain-file"

    def open_log(self, directory: Path) -> OpenLog:
        return PlainFile(directory)


def logs() -> list[LogSystem]:
    return [ReplogLogs(), PlainFiles()]


def read_all(log: OpenLog, fetch_bytes: int, count_records: Callable[[bytes], int]) -> int:
    """Reads to the end; returns the sum of what `count_records` says of each answer."""
    position, count = 0, 0
    while True:
        found, position = log.read(position, fetch_bytes)
        if not found:
            return count
        count += count_records(found)


def count_headers(batches: bytes) -> int:
    """Records in whole batches, as their headers say."""
    return sum(header.records_count for header in scan(batches))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
