"""How fast does a broker that was away catch up, while the leaders go on serving?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import MB_PER_S, Measured, Params, Scenario
from bench.scenarios.ack_latency import ACK_MAX_MS, ACK_P50_MS, ACK_P99_MS, percentile
from bench.systems.brokers import CatchUpSystem
from bench.systems.replog_catch_up import ReplogCatchUp

BEHIND_BYTES = 5_000_000_000
RECORD_BYTES = 1024
RATE_PER_S = 500.0


class CatchUpScenario(Scenario[CatchUpSystem]):
    """One of three brokers is stopped; the other two take records; it is started again.

    `mb_per_s` is what it was behind by the time from its start as a process to being in sync everywhere.  Single records
    are sent meanwhile at a fixed rate, acknowledged by all who are in sync.

    Args:
        behind_bytes: what is written while it is away.
        rate_per_s: of single records while it catches up.
        systems: by default all there are.
    """

    name = "catch-up"
    question = "How fast does a broker that was away catch up, while the leaders go on serving?"

    def __init__(
        self,
        behind_bytes: int = BEHIND_BYTES,
        rate_per_s: float = RATE_PER_S,
        systems: Sequence[CatchUpSystem] | None = None,
    ) -> None:
        self._behind_bytes = behind_bytes
        self._rate_per_s = rate_per_s
        self._systems = [ReplogCatchUp()] if systems is None else systems

    def systems(self) -> Sequence[CatchUpSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"behind_bytes": self._behind_bytes, "record_bytes": RECORD_BYTES, "served_rate_per_s": self._rate_per_s}
        ]

    def measure(self, system: CatchUpSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- one of its processes begins in between
        report = system.catch_up(int(params["behind_bytes"]), int(params["record_bytes"]), self._rate_per_s)
        latencies_ms = sorted(latency_s * 1000 for latency_s in report.latencies_s)
        return {
            MB_PER_S: report.behind_bytes / report.in_sync_s / 1e6,
            ACK_P50_MS: percentile(latencies_ms, 50),
            ACK_P99_MS: percentile(latencies_ms, 99),
            ACK_MAX_MS: latencies_ms[-1],
        }


SCENARIO = CatchUpScenario()
