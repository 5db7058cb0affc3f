"""How fast is a log checked after a crash?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.meter import Meter
from bench.model import CPU_S_PER_GB, MB_PER_S, Measured, Params, Scenario, WrongResultError
from bench.scenarios.log_append import make_batch
from bench.systems.stored_logs import (
    LEADER_EPOCH,
    ChecksumOnly,
    RecoverySystem,
    ReplogRecovery,
    now_ms,
    open_log,
)

LOG_BYTES = 512 * 1024 * 1024


class LogRecoveryScenario(Scenario[RecoverySystem]):
    """Opens a log as after a crash, from the page cache: every byte is checked, what is derived is made again.

    Args:
        log_bytes: size of the log.
    """

    name = "log-recovery"
    question = "How fast is a log checked after a crash, on one core, from the page cache?"

    def __init__(self, log_bytes: int = LOG_BYTES) -> None:
        self._log_bytes = log_bytes
        self._systems: list[RecoverySystem] = [ReplogRecovery(), ChecksumOnly()]

    def systems(self) -> Sequence[RecoverySystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": 100, "batch_kib": size} for size in (1, 16, 64, 1024)]

    def measure(self, system: RecoverySystem, params: Params, meter: Meter) -> Measured:
        with tempfile.TemporaryDirectory(prefix="replog-bench-") as parent:
            directory = Path(parent) / "recovery-0"
            size_bytes = self._fill(directory, int(params["record_bytes"]), int(params["batch_kib"]))
            with meter.timed() as timing:
                seen_bytes = system.recover(directory)
        if seen_bytes != size_bytes:
            raise WrongResultError(f"{system.name} checked {seen_bytes} bytes of {size_bytes}")
        return {MB_PER_S: size_bytes / timing.wall_s / 1e6, CPU_S_PER_GB: timing.cpu_s / size_bytes * 1e9}

    def _fill(self, directory: Path, record_bytes: int, batch_kib: int) -> int:
        """A log that was closed in order: the page cache holds it, and recovery has nothing to cut."""
        batch, _ = make_batch(record_bytes, batch_kib)
        log = open_log(directory, clean=True)
        for _ in range(max(1, self._log_bytes // len(batch))):
            log.append_as_leader(batch, leader_epoch=LEADER_EPOCH, now_ms=now_ms())
        size_bytes = log.size_bytes
        log.close(now_ms())
        return size_bytes


SCENARIO = LogRecoveryScenario()
