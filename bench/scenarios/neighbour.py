"""How long does an acknowledgement take beside a tenant that floods the same brokers?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.data import values
from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.scenarios.ack_latency import ACK_MAX_MS, ACK_P50_MS, ACK_P99_MS, percentile
from bench.scenarios.produce import PARTITIONS, Warmth
from bench.systems.neighbours import NeighbourSystem, neighbours
from replog.metadata.quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

DURATION_S = 10.0
SETTLE_S = 5.0
RECORD_BYTES = 1024
RATE_PER_S = 200
LIMITS = {PRODUCER_BYTE_RATE: 1_000_000.0, REQUEST_PERCENTAGE: 5.0}
"""Of the tenant at each broker; ten seconds' worth is taken while it settles."""

ABSENT, UNLIMITED, LIMITED = "absent", "unlimited", "limited"
TENANT_MB_PER_S = Metric("tenant_mb_per_s", "MB/s")


class NeighbourScenario(Scenario[NeighbourSystem]):
    """One idempotent producer sends single records at a fixed rate (open loop) while a tenant produces and asks all it can.

    Args:
        duration_s: how long one repetition sends.
        settle_s: how long the tenant floods before.
        tenants: what the tenant does: nothing, all it can, or all that its quotas let it.
        systems: by default all there are.
        warm_up_share: how much of what makes a system warm is sent; less for a test.
    """

    name = "neighbour"
    question = "How long does an acknowledgement take beside a tenant that floods the same brokers?"

    def __init__(
        self,
        duration_s: float = DURATION_S,
        settle_s: float = SETTLE_S,
        tenants: Sequence[str] = (ABSENT, UNLIMITED, LIMITED),
        systems: Sequence[NeighbourSystem] | None = None,
        *,
        warm_up_share: float = 1.0,
    ) -> None:
        self._duration_s = duration_s
        self._settle_s = settle_s
        self._tenants = tenants
        self._systems = neighbours() if systems is None else systems
        self._warmth = Warmth(warm_up_share)

    def systems(self) -> Sequence[NeighbourSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"tenant": tenant, "rate_per_s": RATE_PER_S, "partitions": PARTITIONS} for tenant in self._tenants]

    def warm_up(self, system: NeighbourSystem, params: Params, meter: Meter) -> None:
        self._warmth.give(system)
        self.measure(system, params, meter)

    def measure(self, system: NeighbourSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- it takes times alone
        tenant = str(params["tenant"])
        own, flooded = system.create_topic(int(params["partitions"])), system.create_topic(int(params["partitions"]))
        system.set_quotas(LIMITS if tenant == LIMITED else dict.fromkeys(LIMITS))
        try:
            if tenant == ABSENT:
                latencies_s, tenant_bytes = self._sent(system, own), 0
            else:
                with system.flooded(flooded) as flood:
                    time.sleep(self._settle_s)
                    latencies_s = self._sent(system, own)
                tenant_bytes = flood.acknowledged_bytes
        finally:
            system.set_quotas(dict.fromkeys(LIMITS))
        for topic in (own, flooded):
            system.delete_topic(topic)
        return {
            ACK_P50_MS: percentile(latencies_s, 50) * 1000,
            ACK_P99_MS: percentile(latencies_s, 99) * 1000,
            ACK_MAX_MS: latencies_s[-1] * 1000,
            TENANT_MB_PER_S: tenant_bytes / (self._settle_s + self._duration_s) / 1e6,
        }

    def _sent(self, system: NeighbourSystem, topic: str) -> list[float]:
        """The sorted latencies of the steady tenant."""
        (value,) = values(1, RECORD_BYTES)
        count = max(1, round(self._duration_s * RATE_PER_S))
        with system.producer(topic, "single") as producer:
            latencies_s = sorted(producer.send_at_rate(value, RATE_PER_S, count))
        if len(latencies_s) != count:
            raise WrongResultError(f"{system.name} acknowledged {len(latencies_s)} records of {count}")
        return latencies_s


SCENARIO = NeighbourScenario()
