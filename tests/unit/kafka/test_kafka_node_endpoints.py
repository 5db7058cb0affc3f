"""Which brokers a node names to Kafka's clients."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from replog.access.principal import ANONYMOUS
from replog.broker.requests.kafka_node import LocalKafkaNode
from replog.errors import ErrorCode
from replog.metadata import MetadataDelta, MetadataImage
from replog.metadata.records import (
    CLIENT_LISTENER,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from replog.protocol.handlers.cluster import describe_cluster
from replog.protocol.handlers.metadata import metadata, reachable
from replog.protocol.handlers.partitions import endpoints
from replog.tcp.connection import Caller
from replog.wire.messages.describe_cluster import DescribeClusterRequest
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka.rights_kit import a_call

OUTSIDER = Caller(ANONYMOUS, listener="OUTSIDE")


def at(port: int) -> BrokerEndpoint:
    return BrokerEndpoint(CLIENT_LISTENER, "127.0.0.1", port)


def image_of(*records: MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(len(records), 1)


def registered(broker_id: int, *endpoints: BrokerEndpoint, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id, UUID(int=broker_id), broker_id, "h", 9, (UUID(int=9),), fenced=fenced, endpoints=endpoints
    )


def node(image: MetadataImage, *own_endpoints: BrokerEndpoint) -> LocalKafkaNode:
    config = SimpleNamespace(node_id=1, kafka_fetch_sessions=0, auto_create_topics_enable=False)
    parts = SimpleNamespace(
        config=config,
        hello=SimpleNamespace(cluster_id="c"),
        publisher=SimpleNamespace(image_or_raise=lambda: image),
        fetch_path=SimpleNamespace(movements=None),
        coordinators=None,
        joins=None,
    )
    handlers = SimpleNamespace(controller=lambda: (1, "h:9"))
    return LocalKafkaNode(cast("Any", parts), cast("Any", handlers), own_endpoints, random.Random(1))


def test_brokers_are_named_that_serve_kafkas_clients_and_are_not_fenced() -> None:
    image = image_of(
        registered(1, at(1)),
        registered(2, BrokerEndpoint("OTHER", "h", 5), at(2)),
        registered(3, at(3), fenced=True),
        registered(4),
        registered(5, at(5)),
        BrokerRegistrationChangeRecord(5, 5, in_controlled_shutdown=True),
    )
    assert reachable(node(image, at(1)), CLIENT_LISTENER) == {1: at(1), 2: at(2), 5: at(5)}, (
        "5 still leads what nobody else can lead"
    )


def test_a_node_names_itself_before_the_metadata_do() -> None:
    assert reachable(node(image_of(registered(1), registered(2)), at(1)), CLIENT_LISTENER) == {1: at(1)}
    assert reachable(node(image_of(registered(1, at(7), fenced=True)), at(1)), CLIENT_LISTENER) == {1: at(1)}


def test_each_listener_has_the_brokers_that_have_it() -> None:
    outside = BrokerEndpoint("OUTSIDE", "b2.example", 19)
    it = node(image_of(registered(1, at(1)), registered(2, at(2), outside), registered(3, outside, fenced=True)), at(1))
    assert reachable(it, "OUTSIDE") == {2: outside}, "1 has none, 3 is fenced"
    assert list(endpoints(it, [1, 2, 3], "OUTSIDE")) == [(2, "b2.example", 19, None)], "the leaders beside a refusal"
    asked = describe_cluster(it, DescribeClusterRequest(include_fenced_brokers=True), a_call(2, caller=OUTSIDER))
    assert [(broker.broker_id, broker.host) for broker in asyncio.run(asked).brokers] == [
        (2, "b2.example"),
        (3, "b2.example"),
    ]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_who_leads_without_a_port_for_kafkas_clients_is_told_by_a_code_that_the_client_knows(
    version: int, code: ErrorCode
) -> None:
    topic_id = UUID(int=7)
    image = image_of(
        registered(1, at(1)),
        registered(2),
        TopicRecord("t", topic_id),
        PartitionRecord(0, topic_id, replicas=(2, 1), isr=(2, 1), leader=2, leader_epoch=0, partition_epoch=0),
    )
    asked = metadata(node(image, at(1)), MetadataRequest(topics=None), a_call(version))
    writer = Writer()
    asyncio.run(asked).write(writer, version)
    (told,) = MetadataResponse.read(Reader(memoryview(writer.joined())), version).topics[0].partitions
    assert (told.error_code, told.leader_id, told.offline_replicas) == (code, -1, [2])
