"""How fast does one broker take the records of Kafka's own clients, acknowledged by itself alone?"""

from __future__ import annotations

from bench.scenarios.produce import ProduceScenario
from bench.systems.broker_systems import one_node


class ProduceOneNodeScenario(ProduceScenario):
    """The same as `produce`, with one broker, `acks=1` and no idempotence: what is left is the way to one log."""

    name = "produce-one-node"
    question = "How fast does one broker take the records of Kafka's own clients, acknowledged by itself alone?"


SCENARIO = ProduceOneNodeScenario(systems=one_node())
