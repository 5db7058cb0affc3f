"""How fast do three brokers take records when more comes than their caches put off?"""

from __future__ import annotations

from bench.meter import Meter
from bench.model import Params
from bench.scenarios.produce import ProduceScenario
from bench.systems.brokers import BrokerSystem

ROUND_BYTES = 2_000_000_000


class ProduceSustainedScenario(ProduceScenario):
    """The same as `produce`, two gigabytes at a time, six of them on the disks: its end is as slow as its middle.

    A round is its own warm-up; what a JVM needs comes before the first.
    """

    name = "produce-sustained"
    question = "How fast do three brokers take records when more comes than their caches put off?"

    def warm_up(self, system: BrokerSystem, params: Params, meter: Meter) -> None:  # noqa: ARG002 -- the same for all cases
        self._warmth.give(system)


SCENARIO = ProduceSustainedScenario(ROUND_BYTES, (100, 1024))
