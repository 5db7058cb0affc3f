"""How soon do very many partitions have leaders that answer, and what do they cost while nothing happens?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.systems.brokers import PartitionsSystem
from bench.systems.replog_partitions import ReplogPartitions

IDLE_S = 20.0
ANSWERING_S = Metric("answering_s", "s")
IN_SYNC_S = Metric("in_sync_s", "s")
IDLE_CPU_PERCENT = Metric("idle_cpu_percent", "%")
KIB_PER_REPLICA = Metric("kib_per_replica", "KiB")


class PartitionsScenario(Scenario[PartitionsSystem]):
    """Three empty nodes get one topic with replication factor 3.

    `answering_s` ends when every leader has said where its partition ends, `in_sync_s` when every replica is in sync;
    `idle_cpu_percent` is of one core, one broker on average, afterwards; `kib_per_replica` is resident memory.

    Args:
        counts: how many partitions.
        idle_s: how long nothing happens.
        systems: by default all there are.
    """

    name = "partitions"
    question = "How soon do very many partitions have leaders that answer, and what do idle ones cost?"

    def __init__(
        self,
        counts: Sequence[int] = (1_000, 5_000),
        idle_s: float = IDLE_S,
        systems: Sequence[PartitionsSystem] | None = None,
    ) -> None:
        self._counts = counts
        self._idle_s = idle_s
        self._systems = [ReplogPartitions()] if systems is None else systems

    def systems(self) -> Sequence[PartitionsSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"partitions": count, "replicas": 3} for count in self._counts]

    def measure(self, system: PartitionsSystem, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- its processes do not exist yet
        hosted = system.host(int(params["partitions"]), self._idle_s)
        return {
            ANSWERING_S: hosted.answering_s,
            IN_SYNC_S: hosted.in_sync_s,
            IDLE_CPU_PERCENT: hosted.idle_cpu_share * 100,
            KIB_PER_REPLICA: hosted.bytes_per_replica / 1024,
        }


SCENARIO = PartitionsScenario()
