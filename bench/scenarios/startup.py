"""How long from nothing to a node, and to a cluster, that serves; and what does it weigh?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.systems.brokers import StartupSystem
from bench.systems.kafka.startup import KafkaStartup
from bench.systems.replog_startup import ReplogStartup

SETTLE_S = 1.0
FIRST_ACK_MS = Metric("first_ack_ms", "ms")
CLUSTER_READY_MS = Metric("cluster_ready_ms", "ms")
RSS_MIB = Metric("rss_mib", "MiB")


class StartupScenario(Scenario[StartupSystem]):
    """Starts one node, until a record is acknowledged, and three processes, until all serve.

    The one node of replog runs in this process, as a test has it; Kafka's is a process, as there is no other way.

    `rss_mib` is the resident memory of one idle node of the three, on average.

    Args:
        settle_s: how long the three stay idle before they are weighed.
        systems: by default all there are.
    """

    name = "startup"
    question = "How long from nothing to a node, and to three, that serve; and what does an idle one weigh?"

    def __init__(self, settle_s: float = SETTLE_S, systems: Sequence[StartupSystem] | None = None) -> None:
        self._settle_s = settle_s
        self._systems = [ReplogStartup(), KafkaStartup()] if systems is None else systems

    def systems(self) -> Sequence[StartupSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"nodes": 1}, {"nodes": 3}]

    def measure(self, system: StartupSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- CPU time of processes that do not exist yet cannot be metered
        if params["nodes"] == 1:
            return {FIRST_ACK_MS: system.start_one() * 1000}
        ready_s, resident_bytes = system.start_cluster(self._settle_s)
        return {CLUSTER_READY_MS: ready_s * 1000, RSS_MIB: statistics.mean(resident_bytes) / 2**20}


SCENARIO = StartupScenario()
