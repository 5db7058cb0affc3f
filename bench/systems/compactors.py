"""Compaction of a log that lies on disk: replog's, and the least that has to be done to the same bytes.

Each pass runs in a process of its own, because the question is also how much memory it takes: a process that has done one
before holds that memory still.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from bench.model import System
from bench.systems.stored_logs import now_ms, open_log
from replog.log import Cleanup, LogConfig

_PIECE_BYTES = 512 * 1024
_RESET_PEAK = "5"

CONFIG = LogConfig(
    cleanup_policy=Cleanup.COMPACT, segment_bytes=256 * 1024 * 1024, retention_ms=-1, file_delete_delay_ms=0
)
"""Of the log."""


class Work(NamedTuple):
    """What one pass read and wrote.  `records_kept` is -1 where records mean nothing."""

    bytes_read: int
    bytes_written: int
    records_kept: int


class Pass(NamedTuple):
    """One pass, what it took, and `peak_bytes` of memory above what the process had before."""

    work: Work
    wall_s: float
    cpu_s: float
    peak_bytes: int


class Compactor(System):
    """Makes one pass over a log."""

    @abstractmethod
    def compact(self, directory: Path) -> Work:
        """Compacts everything but the (empty) active segment of a log that was closed in order, fsync included."""

    def compact_alone(self, directory: Path) -> Pass:
        """`compact` in a new process."""
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            return process.submit(_measured, self, directory).result()


def _measured(compactor: Compactor, directory: Path) -> Pass:
    memory = _PeakMemory()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work = compactor.compact(directory)
    return Pass(work, time.perf_counter() - wall_s, time.process_time() - cpu_s, memory.peak_bytes())


class ReplogCompactor(Compactor):
    name = "replog"

    def compact(self, directory: Path) -> Work:
        log = open_log(directory, CONFIG, clean=True)
        job = log.prepare_compaction(now_ms(), log.log_end_offset)
        if job is None:
            raise RuntimeError("there is nothing to compact")
        job.run()
        stats = log.complete_compaction(job, now_ms())
        if stats is None:
            raise RuntimeError("the log changed while it was compacted")
        log.close(now_ms())
        return Work(stats.bytes_read, stats.bytes_written, stats.records_kept)


class ReadTwiceWriteTenth(Compactor):
    """Reads every byte twice with its checksum and writes every tenth piece: no keys, no decisions."""

    name = "read-twice"

    def compact(self, directory: Path) -> Work:
        buffer = bytearray(_PIECE_BYTES)
        bytes_read = bytes_written = 0
        out = os.open(directory / "copy", os.O_WRONLY | os.O_CREAT)
        try:
            for turn in range(2):
                for number, count in enumerate(_pieces(directory, buffer)):
                    crc32c(memoryview(buffer)[:count])
                    bytes_read += count if turn else 0
                    if turn and number % 10 == 0:
                        bytes_written += os.write(out, memoryview(buffer)[:count])
            os.fsync(out)
        finally:
            os.close(out)
        return Work(bytes_read, bytes_written, -1)


class _PeakMemory:
    """How far this process grows above where it was, at its largest (Linux)."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        self._start_bytes = _status_bytes("VmRSS")

    def peak_bytes(self) -> int:
        return max(0, _status_bytes("VmHWM") - self._start_bytes)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _pieces(directory: Path, buffer: bytearray) -> Iterator[int]:
    for path in sorted(directory.glob("*.log")):
        file = os.open(path, os.O_RDONLY)
        try:
            position = 0
            while count := os.preadv(file, [buffer], position):
                yield count
                position += count
        finally:
            os.close(file)
