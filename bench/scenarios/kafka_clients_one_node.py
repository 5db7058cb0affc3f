"""How fast does one broker take the records of Kafka's own clients, acknowledged by itself alone?"""

from __future__ import annotations

from bench.scenarios.kafka_clients import KafkaClientsScenario

SCENARIO = KafkaClientsScenario("1", 1)
