"""What does TLS cost a client and its brokers?"""

from __future__ import annotations

from bench.scenarios.produce import ProduceScenario
from bench.systems.brokers import BrokerSystem
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.clients import KafkaClientSystem
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster


class ClientTlsScenario(ProduceScenario):
    """The same as `produce`, by clients that come in plain text and over TLS to the same brokers, which meet in plain text."""

    name = "client-tls"
    question = "What does TLS cost a client and its brokers?"


def plain_and_secure() -> list[BrokerSystem]:
    """Three brokers of each kind, and their clients by both doors."""
    ours, kafka = ReplogBrokers(over_tls=True), KafkaBrokers(over_tls=True)
    doors = (("", False), ("-tls", True))
    return [
        *(ReplogCluster(ours, name=f"replog{end}", over_tls=over_tls) for end, over_tls in doors),
        *(
            KafkaClientSystem(f"{brokers.name}-librdkafka{end}", brokers, "librdkafka", over_tls=over_tls)
            for brokers in (ours, kafka)
            for end, over_tls in doors
        ),
    ]


SCENARIO = ClientTlsScenario(record_sizes=(100, 1024), systems=plain_and_secure())
