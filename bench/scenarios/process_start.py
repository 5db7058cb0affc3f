"""What does the process of a node cost before it serves anybody?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.systems.replog_process import ReplogProcess

TOOK_MS = Metric("took_ms", "ms")
CPU_MS = Metric("cpu_ms", "ms")


class ProcessStartScenario(Scenario[ReplogProcess]):
    """Starts a node as operations do, `python -m replog.broker`, with an empty folder, until it says that it listens.

    `imported` is the part of it until all modules are there; `acknowledged` is a program of its own: `replog.embedded`, a topic, and its
    first record.
    """

    name = "process-start"
    question = "What does the process of a node cost before it serves anybody?"

    def systems(self) -> Sequence[ReplogProcess]:
        return [ReplogProcess()]

    def cases(self) -> Sequence[Params]:
        return [{"until": "imported"}, {"until": "listening"}, {"until": "acknowledged"}]

    def measure(self, system: ReplogProcess, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- its process begins in between
        took = {"imported": system.imported, "listening": system.listening, "acknowledged": system.acknowledged}[
            str(params["until"])
        ]()
        return {TOOK_MS: took.wall_s * 1000, CPU_MS: took.cpu_s * 1000}


SCENARIO = ProcessStartScenario()
