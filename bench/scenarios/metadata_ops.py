"""How fast does a real metadata quorum commit changes, and how long is it gone when its leader dies?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario
from bench.scenarios.ack_latency import percentile
from bench.systems.kafka.quorum import KafkaQuorum
from bench.systems.metadata_quorums import MetadataSystem, ReplogQuorum

TOPICS_PER_S = Metric("topics_per_s", "1/s")
CPU_US_PER_TOPIC = Metric("cpu_us_per_topic", "µs")
P50_MS = Metric("p50_ms", "ms")
P99_MS = Metric("p99_ms", "ms")
FAILOVER_MS = Metric("failover_ms", "ms")

RATE_PER_S = 100
HOSTED_SHARE = 0.1


class MetadataOpsScenario(Scenario[MetadataSystem]):
    """Three controllers, every commit fsynced on two of them; topics of one partition and three replicas.

    The brokers of `replog` exist on paper only.  Those of `replog-hosting` and of `kafka` are real and in the same processes,
    and host what is created while more is; they create a tenth of the topics.  `one request per commit` is the naive way: the next request leaves when the one before it is committed.

    Args:
        scale: of the number of topics; 1 for figures, less for a test of the scenario.
        systems: by default all there are.
    """

    name = "metadata-ops"
    question = "How fast does a real metadata quorum commit changes, and how long is it gone when its leader dies?"

    def __init__(self, scale: float = 1.0, systems: Sequence[MetadataSystem] | None = None) -> None:
        self._scale = scale
        self._systems = systems or [
            ReplogQuorum("replog", ["controller"]),
            ReplogQuorum("replog-hosting", ["broker", "controller"], waits_for_leaders=False, share=HOSTED_SHARE),
            KafkaQuorum(HOSTED_SHARE),
        ]
        self._names = (f"topic-{number}" for number in itertools.count())

    def systems(self) -> Sequence[MetadataSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [
            {"work": "one request per commit", "per_request": 1, "in_flight": 1, "topics": 500},
            {"work": "pipelined", "per_request": 1, "in_flight": 64, "topics": 3_000},
            {"work": "batched", "per_request": 500, "in_flight": 4, "topics": 10_000},
            {"work": "at a rate", "rate_per_s": RATE_PER_S, "topics": 500},
            {"work": "active controller killed"},
        ]

    def warm_up(self, system: MetadataSystem, params: Params, meter: Meter) -> None:
        if params["work"] != "active controller killed":  # who comes back is cold
            self.measure(system, params, meter)

    def measure(self, system: MetadataSystem, params: Params, meter: Meter) -> Measured:
        if params["work"] == "active controller killed":
            return {FAILOVER_MS: system.fail_over() * 1000}
        count = max(1, int(int(params["topics"]) * self._scale * system.share))
        names = list(itertools.islice(self._names, count))
        if params["work"] == "at a rate":
            latencies_s = sorted(system.create_at_rate(names, float(params["rate_per_s"])))
            system.discard(names)
            return {P50_MS: percentile(latencies_s, 50) * 1000, P99_MS: percentile(latencies_s, 99) * 1000}
        with meter.timed() as timing:
            took_s = sorted(
                system.create(names, per_request=int(params["per_request"]), in_flight=int(params["in_flight"]))
            )
        system.discard(names)
        return {
            TOPICS_PER_S: count / timing.wall_s,
            CPU_US_PER_TOPIC: timing.cpu_s / count * 1e6,
            P50_MS: percentile(took_s, 50) * 1000,
            P99_MS: percentile(took_s, 99) * 1000,
        }


SCENARIO = MetadataOpsScenario()
