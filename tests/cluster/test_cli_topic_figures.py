"""Sizes, rates and offsets of topics, as `replog topics` tells them of a cluster of three brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from cli_runs import replog_here
from test_cli_cluster import until

import replog
from replog.cli.checks.topic_figures import rates
from replog.cli.commands import topics
from replog.client import OffsetAndTimestamp, SyncAdmin, SyncProducer, TopicPartition
from replog.rpc.metadata_messages import PartitionInfo, TopicInfo

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with replog.embedded(brokers=3) as cluster:
        with SyncAdmin(cluster.bootstrap_servers) as admin, SyncProducer(cluster.bootstrap_servers) as producer:
            admin.create_topic("small", 1, 1)
            admin.create_topic("large", 2, 3)
            for number in range(100):
                producer.send("large", bytes(1_000), partition=number % 2)
            producer.flush()
            admin.delete_records({("large", 1): 20})
        yield cluster.bootstrap_servers


def lines(*arguments: object) -> list[str]:
    done = replog_here(*arguments)
    assert (done.status, done.err) == (0, "")
    return done.out.splitlines()


def test_the_largest_topic_is_first_with_its_bytes(servers: str) -> None:
    first, second = map(json.loads, lines("topics", "list", "--sizes", "--json", "-b", servers))
    assert (first["name"], second["name"], second["disk_bytes"]) == ("large", "small", 0)
    assert 100_000 < first["size_bytes"] < 110_000
    assert first["disk_bytes"] == 3 * first["size_bytes"]
    shown = lines("topics", "list", "--sizes", "-b", servers)
    assert [line.split()[0] for line in shown] == ["topic", "large", "small"]


def test_rates_stand_beside_sizes(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "RATES_S", 0.1)
    found = {
        line["name"]: line
        for line in map(json.loads, lines("topics", "list", "--sizes", "--rates", "--json", "-b", servers))
    }
    assert {name: line["records_per_s"] for name, line in found.items()} == {"large": 0, "small": 0}
    assert lines("topics", "list", "--rates", "-b", servers)[0].split() == ["topic", "records/s"]


async def test_a_rate_is_what_came_between_two_looks_at_partitions_that_are_led() -> None:
    class Growing:
        looks = 0

        async def list_offsets(self, wanted: dict[tuple[str, int], int]) -> dict[TopicPartition, OffsetAndTimestamp]:
            self.looks += 1
            return {TopicPartition(*each): OffsetAndTimestamp(1_000 * self.looks, -1) for each in wanted}

    partitions = [PartitionInfo(number, leader, 0, 0, (1,), (1,)) for number, leader in enumerate((1, 2, -1))]
    topic = TopicInfo("t", UUID(int=1), tuple(partitions), ())
    admin: Any = Growing()
    found = await rates(admin, [topic], 0.01)
    assert 0 < found["t"] <= 2_000 / 0.01


def test_where_logs_begin_and_end_is_told_and_where_the_leader_epoch_before_did(servers: str) -> None:
    def told() -> list[tuple[object, ...]]:
        (found,) = map(json.loads, lines("topics", "describe", "large", "--offsets", "--json", "-b", servers))
        return [tuple(each.values()) for each in found["offsets"]]

    assert told() == [(0, 50, None, None), (20, 50, None, None)]
    with SyncAdmin(servers) as admin:
        admin.drain_broker(admin.describe_topics(["large"])["large"].partitions[0].leader)
        until(lambda: told()[0] == (0, 50, 0, 50))
    shown = lines("topics", "describe", "large", "--offsets", "-b", servers)
    assert "0, to 50" in shown[2]
