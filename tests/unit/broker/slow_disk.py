"""A disk whose records come when a test says so."""

from __future__ import annotations

import threading

from broker_kit import Rig, registered, topic

from replog.log import Log
from replog.testing import SimulatedFileSystem
from replog_checkpoints import OpenMode


class SlowDisk(SimulatedFileSystem):
    """Reads of record files outside the loop's thread wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.waiting_max = 0
        self.loop_thread = threading.get_ident()
        self.loop_reads = 0

    def read_file_bytes(self, file: object, length: int, position: int) -> bytes:
        if ".log" in file.path:  # type: ignore[attr-defined]
            if threading.get_ident() == self.loop_thread:
                self.loop_reads += 1
            else:
                self.waiting += 1
                self.waiting_max = max(self.waiting_max, self.waiting)
                self.gate.wait(5)
                self.waiting -= 1
        return super().read_file_bytes(file, length, position)  # type: ignore[arg-type]


def make_cold(fs: SimulatedFileSystem, log: Log) -> None:
    log.keep_tail(None)
    log.flush()
    for name in fs.list_dir(log.directory):
        if name.endswith(".log"):
            file = fs.open(f"{log.directory}/{name}", OpenMode.READ)
            file.drop_cache(0, 1 << 30)
            file.close()


async def lead(it: Rig, count: int) -> SlowDisk:
    """Leads a partition with `count` committed records, none of them in the page cache."""
    fs = it.fs
    assert isinstance(fs, SlowDisk)
    await it.apply(registered(1), registered(2), *topic((1,)))
    await it.committed(count)
    make_cold(fs, it.replica.log)
    fs.loop_reads = 0
    return fs
