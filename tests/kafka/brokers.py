"""The two kinds of brokers for tests that run with both: how to make a topic, and how to read it without a client under test."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

import pytest
from kafka_client_kit import TIMEOUT_S, Got
from kafka_install import OLDEST
from kafka_node import KafkaNode
from raw_client import raw_client
from served_cluster import ServedCluster, run

from replog.client import Consumer
from replog.records import decode_batch, scan
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

_numbers = itertools.count(1)
"""Of topics: several fixtures stand for the same brokers."""


@dataclass(slots=True)
class Broker:
    """Brokers of one kind.

    Attributes:
        name: "replog" or "kafka".
        servers: host:port, separated by commas, for Kafka's clients.
        create: The function that creates a topic with a number of partitions and configurations, and returns its id.
        read: The function that reads so many records of partition 0 of a topic.
    """

    name: str
    servers: str
    create: Callable[[str, int, Mapping[str, str]], UUID]
    read: Callable[[str, int], list[Got]]

    def topic(self, partitions: int = 1, **configs: object) -> str:
        """Creates a topic with a name of its own; configurations are given with underscores for dots."""
        name = f"for-clients-{next(_numbers)}"
        self.create(name, partitions, {key.replace("_", "."): str(value) for key, value in configs.items()})
        return name


KAFKA, OLDEST_KAFKA = "kafka", f"kafka-{OLDEST}"
KINDS = [
    "replog",
    pytest.param(KAFKA, marks=pytest.mark.kafka),
    pytest.param(OLDEST_KAFKA, marks=[pytest.mark.kafka, pytest.mark.campaign]),
]
"""Parameters of fixtures for clients of ours, for which Kafka is no proof of the test but what is tested: the newest one runs always."""


def broker_of(request: pytest.FixtureRequest) -> Broker:
    """The brokers of the session of the kind that a fixture's parameter names."""
    if request.param == "replog":
        return of_replog(request.getfixturevalue("replog_broker"))
    return of_kafka(request.getfixturevalue("kafka_broker" if request.param == KAFKA else "oldest_broker"))


def of_kafka(node: KafkaNode) -> Broker:
    """A real Kafka; read by raw requests."""
    address = f"127.0.0.1:{node.port}"

    def create(name: str, partitions: int, configs: Mapping[str, str]) -> UUID:
        pairs = [CreateTopicsRequest.CreatableTopicConfig(*pair) for pair in configs.items()]
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1, configs=pairs)
        with raw_client(address) as client:
            (made,) = client.ask(CreateTopicsRequest([topic]), 7, CreateTopicsResponse).topics
        assert made.error_code == 0, made
        _wait_until_led(address, name, partitions)
        topic_id: UUID = made.topic_id
        return topic_id

    def read(topic: str, count: int) -> list[Got]:
        found: list[Got] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        with raw_client(address) as client:
            while len(found) < count:
                assert time.monotonic() < deadline_s, f"{len(found)} of {count} records came"
                data = _fetched(client.ask(_fetch(topic, len(found)), 12, FetchResponse))
                for header in scan(data):
                    found += [Got(*record) for record in _plain(data, header.position)]
        return found

    return Broker("kafka", address, create, read)


def of_replog(cluster: ServedCluster) -> Broker:
    """A broker of ours; read by our own client."""

    def create(name: str, partitions: int, configs: Mapping[str, str]) -> UUID:
        topic_id = cluster.create_topic(name, partitions, configs)
        if len(cluster.local.nodes) == 1:  # else each partition has another leader, which our clients find
            _wait_until_led(cluster.bootstrap_servers, name, partitions)
        return topic_id

    def read(topic: str, count: int) -> list[Got]:
        async def reading() -> list[Got]:
            found: list[Got] = []
            async with asyncio.timeout(TIMEOUT_S), Consumer(cluster.local.bootstrap_servers) as consumer:
                await consumer.assign([(topic, 0)])
                while len(found) < count:
                    found += [
                        Got(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)
                        for record in await consumer.poll()
                    ]
            return found

        return run(reading())

    return Broker("replog", cluster.bootstrap_servers, create, read)


def _wait_until_led(address: str, topic: str, partitions: int) -> None:
    """Waits until a broker leads a new topic: at first it tells clients to ask again."""
    places = [ListOffsetsRequest.ListOffsetsPartition(number, timestamp=-1) for number in range(partitions)]
    request = ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(topic, places)])
    deadline_s = time.monotonic() + TIMEOUT_S
    with raw_client(address) as client:
        codes = [-1]
        while any(codes):
            assert time.monotonic() < deadline_s, codes
            (answered,) = client.ask(request, 6, ListOffsetsResponse).topics
            codes = [partition.error_code for partition in answered.partitions]


def _fetch(topic: str, offset: int) -> FetchRequest:
    place = FetchRequest.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=500, topics=[FetchRequest.FetchTopic(topic, partitions=[place])])


def _fetched(response: FetchResponse) -> bytes:
    (partition,) = response.responses[0].partitions
    assert partition.error_code == 0, partition
    return bytes(partition.records or b"")


def _plain(
    data: bytes, position: int
) -> list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]]:
    return [
        (record.offset, record.key, record.value, record.headers, record.timestamp)
        for record in decode_batch(data, position)
    ]
