"""A real Kafka's folder of `__consumer_offsets`, written by its coordinator for its own consumers, read by ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_folders import records_of
from kafka_install import KafkaInstall
from kafka_node import KafkaNode, clients_of

from replog.coordinator.describing.requests import DescribeGroup
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages.consumer_group_metadata import ConsumerGroupMetadataKey
from replog.coordinator.messages.group_metadata import GroupMetadataKey
from replog.coordinator.offsets.requests import FetchOffsets
from tests.unit.coordinator.shard_kit import Topics, group_host

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS = 7


@pytest.fixture(scope="module")
def folder(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the node has written for a group of each protocol that has read everything and left."""
    node = KafkaNode(kafka, tmp_path_factory.mktemp("groups") / "node")
    try:
        node.start()
        with clients_of(node) as clients:
            clients.create("flights", partitions=2)
            clients.produce("flights", 1, [(1, None, b"x", ())] * RECORDS)
        for protocol in ("classic", "consumer"):
            given = ("--bootstrap-server", f"127.0.0.1:{node.port}", "--topic", "flights", "--group", protocol)
            ways = (
                "--consumer-property",
                f"group.protocol={protocol}",
                "--consumer-property",
                "auto.offset.reset=earliest",
            )
            kafka.run(CONSUMER, *given, *ways, "--max-messages", str(RECORDS), "--timeout-ms", "60000")
        node.stop()
    finally:
        node.give_up()
    return node.partition("__consumer_offsets", 0)


def test_every_record_is_known_and_written_in_the_same_bytes(folder: Path) -> None:
    encoded = records_of(folder)
    found = [GROUP_RECORDS.decode(*each) for each in encoded]
    assert {GroupMetadataKey, ConsumerGroupMetadataKey} <= {type(each.key) for each in found if each is not None}
    assert [None if each is None else GROUP_RECORDS.encode(each) for each in found] == encoded


def test_a_shard_has_the_offsets_and_the_groups(folder: Path) -> None:
    host = group_host(Topics(flights=2), GroupsConfig())
    host.log = records_of(folder)
    host.high_watermark, host.piece = len(host.log), len(host.log)
    host.lead()
    for group in ("classic", "consumer"):
        (topic,) = host.ask(FetchOffsets(group)).topics
        assert topic.topic == "flights"
        assert {each.partition: each.offset for each in topic.partitions}[1] == RECORDS
    classic = host.ask(DescribeGroup("classic"))
    assert (classic.state, classic.protocol_type, classic.members) == ("Empty", "consumer", ())
    found = host.machine._groups.find("consumer")
    assert (dict(found.members), dict(found.current), dict(found.holders)) == ({}, {}, {})
    assert found.epoch.get() >= 2
