"""Does the metadata quorum need processes of its own beside busy brokers?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import MB_PER_S, Measured, Metric, Params, Scenario, WrongResultError
from bench.scenarios.ack_latency import percentile
from bench.systems.loaded_quorums import LoadedQuorum
from bench.systems.shared_brokers import NODES

RATE_PER_S = 20
DURATION_S = 10.0
P50_MS = Metric("p50_ms", "ms")
P99_MS = Metric("p99_ms", "ms")
MAX_MS = Metric("max_ms", "ms")
ELECTIONS = Metric("elections", "")
SEPARATE_ROLES = {n: ("controller",) if n <= NODES else ("broker",) for n in range(1, 2 * NODES + 1)}


class MetadataBesideLoadScenario(Scenario[LoadedQuorum]):
    """One configuration is changed at a fixed rate while a producer in another process sends as fast as it can.

    Once three nodes are brokers and controllers in one process each, once three brokers and three controllers have a
    process each; the machine is the same.

    Args:
        duration_s: how long one repetition lasts.
        systems: by default both.
    """

    name = "metadata-beside-load"
    question = "How long does a change of the metadata take beside a busy broker, in its process and in another one?"

    def __init__(self, duration_s: float = DURATION_S, systems: Sequence[LoadedQuorum] | None = None) -> None:
        self._duration_s = duration_s
        self._systems = systems or [
            LoadedQuorum("replog-combined", None),
            LoadedQuorum("replog-separate", SEPARATE_ROLES),
        ]

    def systems(self) -> Sequence[LoadedQuorum]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"changes_per_s": RATE_PER_S, "record_bytes": 1024}]

    def measure(self, system: LoadedQuorum, params: Params, meter: Meter) -> Measured:
        rate_per_s = int(params["changes_per_s"])
        count = max(1, round(self._duration_s * rate_per_s))
        with meter.timed():
            seen = system.change_beside_load(rate_per_s, count)
        if len(seen.latencies_s) != count or seen.mb_per_s <= 0:
            raise WrongResultError(f"{system.name}: {len(seen.latencies_s)} changes of {count}, {seen.mb_per_s} MB/s")
        latencies_s = sorted(seen.latencies_s)
        return {
            P50_MS: percentile(latencies_s, 50) * 1000,
            P99_MS: percentile(latencies_s, 99) * 1000,
            MAX_MS: latencies_s[-1] * 1000,
            ELECTIONS: float(seen.elections_count),
            MB_PER_S: seen.mb_per_s,
        }


SCENARIO = MetadataBesideLoadScenario()
