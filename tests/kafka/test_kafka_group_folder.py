"""A real Kafka's folders of `__consumer_offsets` and `__transaction_state`, written by its coordinators for its own clients, read by ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_folders import records_of
from kafka_run import GROUP_RECORDS_COUNT, GROUP_TOPIC, GROUPS, KafkaRun

from replog.cli.dump import dump_path
from replog.coordinator.describing.requests import DescribeGroup
from replog.coordinator.group_machine import GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import ConsumerGroupMetadataKey, GroupMetadataKey
from replog.coordinator.offsets.requests import FetchOffsets
from replog.coordinator.transactions.records import TRANSACTION_RECORDS
from tests.unit.coordinator.shard_kit import Topics, group_host


@pytest.fixture
def folder(kafka_run: KafkaRun) -> Path:
    """What Kafka has written for a group of each protocol that has read everything and left."""
    return kafka_run.data("stopped") / "__consumer_offsets-0"


def test_every_record_is_known_and_written_in_the_same_bytes(folder: Path) -> None:
    encoded = records_of(folder)
    found = [GROUP_RECORDS.decode(*each) for each in encoded]
    assert {GroupMetadataKey, ConsumerGroupMetadataKey} <= {type(each.key) for each in found if each is not None}
    assert [None if each is None else GROUP_RECORDS.encode(each) for each in found] == encoded


def test_a_shard_has_the_offsets_and_the_groups(folder: Path) -> None:
    host = group_host(Topics(**{GROUP_TOPIC: 2}), GroupsConfig())
    host.log = records_of(folder)
    host.high_watermark, host.piece = len(host.log), len(host.log)
    host.lead()
    for group in GROUPS:
        (topic,) = host.ask(FetchOffsets(group)).topics
        assert topic.topic == GROUP_TOPIC
        assert {each.partition: each.offset for each in topic.partitions}[1] == GROUP_RECORDS_COUNT
    classic = host.ask(DescribeGroup("classic"))
    assert (classic.state, classic.protocol_type, classic.members) == ("Empty", "consumer", ())
    found = host.machine._groups.find("consumer")
    assert (dict(found.members), dict(found.current), dict(found.holders)) == ({}, {}, {})
    assert found.epoch.get() >= 2


def test_every_record_of_its_transactions_is_known_and_written_in_the_same_bytes(kafka_run: KafkaRun) -> None:
    folders = sorted(kafka_run.data("killed").glob("__transaction_state-*"))
    encoded = [each for folder in folders for each in records_of(folder)]
    found = [TRANSACTION_RECORDS.decode(*each) for each in encoded]
    assert [None if each is None else TRANSACTION_RECORDS.encode(each) for each in found] == encoded
    rows = [row for folder in folders for row in dump_path(folder, deep=True) if row["kind"] == "record"]
    assert {row["record"] for row in rows} == {"TransactionLog"}
    statuses = {row["value"]["transaction_status"] for row in rows}
    assert {"empty", "ongoing", "prepare_commit", "complete_commit"} <= statuses
