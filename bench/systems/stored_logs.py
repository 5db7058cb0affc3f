"""Logs that lie on disk before the clock starts: what is measured is opening them and finding things in them.

Beside replog stands the same work through plain files: the least that has to be done to the same bytes.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from pathlib import Path

import psutil
from crc32c import crc32c

from bench.model import System
from replog.log import Log, LogConfig, LogDirectory
from replog_checkpoints import OsFileSystem

LEADER_EPOCH = 0
CLUSTER_ID = "benchbenchbenchbenchbc"
CHUNK_BYTES = 1024 * 1024
PLAIN_READ_BYTES = 4096


def now_ms() -> int:
    """Wall time, ms."""
    return time.time_ns() // 1_000_000


def open_log(directory: Path, config: LogConfig | None = None, *, clean: bool) -> Log:
    """One log without a log directory around it; with `clean` nothing is scanned, else everything is."""
    return Log.open(
        OsFileSystem(),
        str(directory),
        config or LogConfig(),
        topic_partition=directory.name,
        recovery_point=0,
        log_start_offset=0,
        clean=clean,
        now_ms=now_ms(),
    )


class RecoverySystem(System):
    """Reads a log as after a crash."""

    @abstractmethod
    def recover(self, directory: Path) -> int:
        """Checks every byte; returns how many there were."""


class ReplogRecovery(RecoverySystem):
    """An unclean start: every batch checked, indexes, epochs and producers rebuilt."""

    name = "replog"

    def recover(self, directory: Path) -> int:
        log = open_log(directory, clean=False)
        return log.recovery.bytes_scanned


class ChecksumOnly(RecoverySystem):
    """CRC-32C over all bytes, read in the same pieces: what no recovery can be faster than."""

    name = "checksum-only"

    def recover(self, directory: Path) -> int:
        total = 0
        buffer = bytearray(CHUNK_BYTES)
        for file in sorted(directory.glob("*.log")):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                while count := os.preadv(descriptor, [buffer], total):
                    crc32c(memoryview(buffer)[:count])
                    total += count
            finally:
                os.close(descriptor)
        return total


class LookupSystem(System):
    """Finds places in a log of many segments."""

    @abstractmethod
    def open(self, directory: Path) -> None:
        """Opens the log, once for all look-ups."""

    @abstractmethod
    def by_offset(self, offset: int) -> int:
        """Reads the batch that holds `offset`; returns its size in bytes."""

    @abstractmethod
    def by_time(self, timestamp_ms: int) -> int:
        """The offset of the first record with at least this timestamp."""

    @abstractmethod
    def close(self) -> None:
        """Closes it."""


class ReplogLookup(LookupSystem):
    """Indexes of sealed segments, searched where they lie."""

    name = "replog"

    def open(self, directory: Path) -> None:
        self._log = open_log(directory, clean=True)

    def by_offset(self, offset: int) -> int:
        end_offset = self._log.log_end_offset
        return len(self._log.read(offset, max_bytes=1, end_offset=end_offset, min_one_batch=True))

    def by_time(self, timestamp_ms: int) -> int:
        found = self._log.offset_for_timestamp(timestamp_ms, end_offset=self._log.log_end_offset)
        return -1 if found is None else found[0]

    def close(self) -> None:
        self._log.close(now_ms())


class PlainReads(LookupSystem):
    """One 4 KiB read at a known place of a known file: what a look-up costs when there is nothing to look up."""

    name = "plain-read"

    def open(self, directory: Path) -> None:
        self._descriptors = [os.open(file, os.O_RDONLY) for file in sorted(directory.glob("*.log"))[:500]]

    def by_offset(self, offset: int) -> int:
        return len(os.pread(self._descriptors[offset % len(self._descriptors)], PLAIN_READ_BYTES, 0))

    def by_time(self, timestamp_ms: int) -> int:
        os.pread(self._descriptors[timestamp_ms % len(self._descriptors)], PLAIN_READ_BYTES, 0)
        return -1

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


class PartitionsSystem(System):
    """Opens a directory of many partitions after a clean stop."""

    @abstractmethod
    def open(self, directory: Path) -> int:
        """Opens everything in it; returns the number of partitions."""

    @abstractmethod
    def close(self) -> None:
        """Closes it, leaving it as it was."""


class ReplogPartitions(PartitionsSystem):
    """A log directory."""

    name = "replog"

    def open(self, directory: Path) -> int:
        self._directory = LogDirectory.open(
            OsFileSystem(), str(directory), cluster_id=CLUSTER_ID, node_id=1, now_ms=now_ms()
        )
        return len(self._directory.logs)

    def close(self) -> None:
        self._directory.close(now_ms=now_ms(), broker_epoch=1)


class PlainFolders(PartitionsSystem):
    """Lists each folder and asks each file for its size."""

    name = "plain-stat"

    def open(self, directory: Path) -> int:
        folders = [child for child in directory.iterdir() if child.is_dir()]
        self._sizes = [[file.stat().st_size for file in folder.iterdir()] for folder in folders]
        return len(folders)

    def close(self) -> None:
        self._sizes.clear()


def open_descriptors() -> int:
    """Of this process."""
    return int(psutil.Process().num_fds())
