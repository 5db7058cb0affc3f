"""How fast does one log take batches for as long as they come?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import CPU_S_PER_GB, MB_PER_S, Measured, Metric, Params, Scenario, WrongResultError
from bench.scenarios.log_append import make_batch
from bench.systems.sustained_logs import SustainedSystem, sustained_logs

LOG_BYTES = 10_000_000_000
RECORD_BYTES = 100
APPENDED_MB_PER_S = Metric("appended_mb_per_s", "MB/s")


class LogSustainedScenario(Scenario[SustainedSystem]):
    """Appends 10 GB of checked, indexed batches to segments of 1 GiB.

    `mb_per_s` is until everything is on stable storage; `appended_mb_per_s` until the last append has returned: what lies
    between the two the kernel still owes.

    Args:
        log_bytes: how much one repetition appends.
    """

    name = "log-sustained"
    question = "How fast does one log take 10 GB, with a dirty window and through the plain page cache?"

    def __init__(self, log_bytes: int = LOG_BYTES) -> None:
        self._log_bytes = log_bytes
        self._systems = sustained_logs()

    def systems(self) -> Sequence[SustainedSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"record_bytes": RECORD_BYTES, "batch_kib": batch_kib} for batch_kib in (64, 1024)]

    def measure(self, system: SustainedSystem, params: Params, meter: Meter) -> Measured:
        batch, _ = make_batch(int(params["record_bytes"]), int(params["batch_kib"]))
        batches = max(1, self._log_bytes // len(batch))
        log = system.open()
        try:
            with meter.timed() as timing:
                with meter.timed() as appending:
                    for _ in range(batches):
                        log.append(batch)
                size_bytes = log.finish()
            if size_bytes != batches * len(batch):
                raise WrongResultError(f"{system.name} holds {size_bytes} bytes, {batches * len(batch)} were appended")
        finally:
            system.drop(log)
        return {
            MB_PER_S: size_bytes / timing.wall_s / 1e6,
            APPENDED_MB_PER_S: size_bytes / appending.wall_s / 1e6,
            CPU_S_PER_GB: timing.cpu_s / size_bytes * 1e9,
        }


SCENARIO = LogSustainedScenario()
