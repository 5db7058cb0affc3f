"""Compaction of a log that lies on disk: replog's, and the least that has to be done to the same bytes."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from bench.model import System
from bench.systems.stored_logs import now_ms
from replog.log import Log

_PIECE_BYTES = 512 * 1024
_RESET_PEAK = "5"


class Pass(NamedTuple):
    """What one pass did.  `records_kept` is -1 where records mean nothing; `peak_bytes` is memory above the start."""

    bytes_read: int
    bytes_written: int
    records_kept: int
    peak_bytes: int


class Compactor(System):
    """Makes one pass over a log."""

    @abstractmethod
    def compact(self, log: Log) -> Pass:
        """Compacts everything but the (empty) active segment of an open log, fsync included."""


class ReplogCompactor(Compactor):
    name = "replog"

    def compact(self, log: Log) -> Pass:
        memory = _PeakMemory()
        job = log.prepare_compaction(now_ms(), log.log_end_offset)
        if job is None:
            raise RuntimeError("there is nothing to compact")
        job.run()
        stats = log.complete_compaction(job, now_ms())
        if stats is None:
            raise RuntimeError("the log changed while it was compacted")
        return Pass(stats.bytes_read, stats.bytes_written, stats.records_kept, memory.peak_bytes())


class ReadTwiceWriteTenth(Compactor):
    """Reads every byte twice with its checksum and writes every tenth piece: no keys, no decisions."""

    name = "read-twice"

    def compact(self, log: Log) -> Pass:
        memory = _PeakMemory()
        directory = Path(log.directory)
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
        return Pass(bytes_read, bytes_written, -1, memory.peak_bytes())


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
