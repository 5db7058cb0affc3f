"""What do many idle partitions cost: time to open them, memory, descriptors?"""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.systems.stored_logs import (
    CLUSTER_ID,
    LEADER_EPOCH,
    PartitionsSystem,
    PlainFolders,
    ReplogPartitions,
    now_ms,
    open_descriptors,
)
from replog.log import LogConfig, LogDirectory
from replog.records import encode_batch
from replog_checkpoints import OsFileSystem

PARTITIONS = 1000
OPEN_MS = Metric("open_ms", "ms")
MEMORY_KIB = Metric("memory_kib_per_partition", "KiB")
DESCRIPTORS = Metric("descriptors", "")


class LogPartitionsScenario(Scenario[PartitionsSystem]):
    """Opens a directory of partitions that each hold a few batches, after a clean stop.

    Args:
        partitions: how many.
    """

    name = "log-partitions"
    question = "What do 1,000 idle partitions cost: time to open after a clean stop, memory, descriptors?"

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self._partitions = partitions
        self._systems: list[PartitionsSystem] = [ReplogPartitions(), PlainFolders()]

    def systems(self) -> Sequence[PartitionsSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"partitions": self._partitions}]

    def measure(self, system: PartitionsSystem, params: Params, meter: Meter) -> Measured:
        with tempfile.TemporaryDirectory(prefix="replog-bench-") as parent:
            directory = Path(parent)
            self._fill(directory)
            descriptors_before = open_descriptors()
            with meter.timed() as timing:
                count = system.open(directory)
            descriptors = open_descriptors() - descriptors_before
            system.close()
            memory = self._held_bytes(system, directory)
        if count != self._partitions:
            raise WrongResultError(f"{system.name} found {count} partitions of {self._partitions}")
        return {
            OPEN_MS: timing.wall_s * 1e3,
            MEMORY_KIB: memory / 1024 / int(params["partitions"]),
            DESCRIPTORS: descriptors,
        }

    @staticmethod
    def _held_bytes(system: PartitionsSystem, directory: Path) -> int:
        """What objects take while everything is open.  Not resident memory: the allocator gives pages of before again."""
        gc.collect()
        tracemalloc.start()
        try:
            system.open(directory)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            system.close()

    def _fill(self, directory: Path) -> None:
        batch = encode_batch([(now_ms(), b"key", bytes(100), ())] * 10)
        logs = LogDirectory.open(OsFileSystem(), str(directory), cluster_id=CLUSTER_ID, node_id=1, now_ms=now_ms())
        for number in range(self._partitions):
            log = logs.open_log("idle", number, uuid.UUID(int=2**100 + 1), LogConfig(), now_ms=now_ms())
            for _ in range(5):
                log.append_as_leader(batch, leader_epoch=LEADER_EPOCH, now_ms=now_ms())
        logs.close(now_ms=now_ms(), broker_epoch=1)


SCENARIO = LogPartitionsScenario()
