"""Which systems a scenario with brokers compares: replog and Apache Kafka, each by its own client and by the others that it serves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bench.systems.brokers import BrokerSystem, FailoverSystem
from bench.systems.kafka.brokers import KafkaBrokers
from bench.systems.kafka.client_process import ClientKind
from bench.systems.kafka.clients import KafkaClientSystem
from bench.systems.kafka.failover import KafkaClientFailover
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster
from bench.systems.replog_failover import ReplogFailover
from bench.systems.shared_brokers import SharedBrokers

S = TypeVar("S", bound=KafkaClientSystem)


def beside_kafka() -> list[BrokerSystem]:
    """Our client in both ways of sending, and Kafka's clients at both kinds of brokers.

    `kafka` is Kafka with its Java client; `replog-tcp` has brokers that meet over TCP instead of gRPC.
    """
    ours = ReplogBrokers()
    return [
        ReplogCluster(ours),
        ReplogCluster(ours, one_by_one=True),
        ReplogCluster(ReplogBrokers(config={"inter.broker.transport": "tcp"}), name="replog-tcp"),
        *by_kafka_clients(ours, KafkaBrokers(), KafkaClientSystem),
    ]


def failing_over() -> list[FailoverSystem]:
    """Our client and Kafka's clients with their defaults, at both kinds of brokers."""
    ours = ReplogBrokers()
    return [ReplogFailover(ours), *by_kafka_clients(ours, KafkaBrokers(), KafkaClientFailover)]


def one_node() -> list[KafkaClientSystem]:
    """Kafka's clients at a single broker, which acknowledges alone."""
    return by_kafka_clients(ReplogBrokers(nodes_count=1), KafkaBrokers(1), partial(KafkaClientSystem, acks="1"))


def by_kafka_clients(
    ours: ReplogBrokers, kafka: KafkaBrokers, system: Callable[[str, SharedBrokers, ClientKind], S]
) -> list[S]:
    """Kafka's clients at our brokers and at Kafka's own."""
    return [
        system("replog-java", ours, "java"),
        system("replog-librdkafka", ours, "librdkafka"),
        system("kafka", kafka, "java"),
        system("kafka-librdkafka", kafka, "librdkafka"),
    ]
