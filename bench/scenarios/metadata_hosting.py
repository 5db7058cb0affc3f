"""How soon do topics that are created in batches have leaders that answer?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Params, Scenario
from bench.scenarios.metadata_ops import CPU_US_PER_TOPIC, TOPICS_PER_S
from bench.systems.metadata_quorums import MetadataSystem, ReplogQuorum


class MetadataHostingScenario(Scenario[MetadataSystem]):
    """Three nodes that are controllers and brokers create and host topics of one partition, with one or three replicas.

    The time ends when every leader has answered for each of its topics.

    Args:
        topics_count: how many one repetition creates.
        systems: by default all there are.
    """

    name = "metadata-hosting"
    question = "How soon do topics that are created in batches have leaders that answer?"

    def __init__(self, topics_count: int = 2_000, systems: Sequence[MetadataSystem] | None = None) -> None:
        self._topics_count = topics_count
        self._systems = systems or [
            ReplogQuorum(f"replog-rf{factor}", ["broker", "controller"], factor) for factor in (1, 3)
        ]
        self._names = (f"topic-{number}" for number in itertools.count())

    def systems(self) -> Sequence[MetadataSystem]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"per_request": 100, "in_flight": 4, "topics": self._topics_count}]

    def measure(self, system: MetadataSystem, params: Params, meter: Meter) -> Measured:
        names = list(itertools.islice(self._names, self._topics_count))
        with meter.timed() as timing:
            system.create(names, per_request=int(params["per_request"]), in_flight=int(params["in_flight"]))
        return {
            TOPICS_PER_S: self._topics_count / timing.wall_s,
            CPU_US_PER_TOPIC: timing.cpu_s / self._topics_count * 1e6,
        }


SCENARIO = MetadataHostingScenario()
