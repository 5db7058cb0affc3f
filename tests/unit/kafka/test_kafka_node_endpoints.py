"""Which brokers a node names to Kafka's clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from replog.broker.requests.kafka_node import LocalKafkaNode
from replog.kafka.handlers.metadata import reachable
from replog.metadata import MetadataDelta, MetadataImage
from replog.metadata.records import KAFKA_LISTENER, BrokerEndpoint, BrokerRegistrationChangeRecord, RegisterBrokerRecord


def at(port: int) -> BrokerEndpoint:
    return BrokerEndpoint(KAFKA_LISTENER, "127.0.0.1", port)


def image_of(*records: RegisterBrokerRecord | BrokerRegistrationChangeRecord) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(len(records), 1)


def registered(broker_id: int, *endpoints: BrokerEndpoint, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id, UUID(int=broker_id), broker_id, "h", 9, (UUID(int=9),), fenced=fenced, endpoints=endpoints
    )


def node(image: MetadataImage, own_endpoint: BrokerEndpoint | None) -> LocalKafkaNode:
    config = SimpleNamespace(node_id=1, kafka_fetch_sessions=0)
    parts = SimpleNamespace(config=config, publisher=SimpleNamespace(image=image))
    return LocalKafkaNode(cast("Any", parts), cast("Any", None), own_endpoint)


def test_brokers_are_named_that_serve_kafkas_clients_and_are_not_fenced() -> None:
    image = image_of(
        registered(1, at(1)),
        registered(2, BrokerEndpoint("OTHER", "h", 5), at(2)),
        registered(3, at(3), fenced=True),
        registered(4),
        registered(5, at(5)),
        BrokerRegistrationChangeRecord(5, 5, in_controlled_shutdown=True),
    )
    assert reachable(node(image, at(1))) == {1: at(1), 2: at(2), 5: at(5)}, "5 still leads what nobody else can lead"


def test_a_node_names_itself_before_the_metadata_do() -> None:
    assert reachable(node(image_of(registered(1), registered(2)), at(1))) == {1: at(1)}
    assert reachable(node(image_of(registered(1, at(7), fenced=True)), at(1))) == {1: at(1)}
