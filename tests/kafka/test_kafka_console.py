"""The console shows a cluster of Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest
from brokers import of_kafka
from kafka_node import KafkaNode

from replog.client import Admin, Producer
from tests.cluster.console_kit import console_of

pytestmark = pytest.mark.kafka


async def test_every_page_has_what_kafka_tells(kafka_broker: KafkaNode) -> None:
    broker = of_kafka(kafka_broker)
    topic = await asyncio.to_thread(broker.topic, 2)
    async with Producer(broker.servers) as producer, Admin(broker.servers) as admin:
        for number in range(20):
            await producer.send(topic, b"value %d" % number, b"key", partition=number % 2)
        await producer.flush()
        await admin.alter_group_offsets("console", {(topic, 0): 4})
    async with console_of(broker.servers, allow_changes=True) as asked:
        health = await asked.get("health")
        assert health["is_healthy"]
        assert "of Apache Kafka" in dict(health["facts"])["cluster"]
        (row,) = (await asked.get("topics", search=topic))["topics"]
        assert (row["end"], row["partitions_count"]) == (20, 2)
        assert row["size_bytes"] > 0
        shown = await asked.get("topic", topic=topic)
        assert [(each["start"], each["end"]) for each in shown["partitions"]] == [(0, 10), (0, 10)]
        assert [(each["group_id"], each["lag"]) for each in shown["groups"]] == [("console", 6)]
        assert len((await asked.get("messages", topic=topic))["rows"]) == 20
        whole = await asked.get("message", topic=topic, partition=1, offset=3)
        assert whole["value"]["text"] == "value 7"
        lines = await asked.lines("search", topic=topic, word="VALUE 1")
        assert lines[-1]["end"]["matches"] == 11
        changes = (await asked.get("reset-preview", group="console", to="shift:2"))["changes"]
        assert [(each["partition"], each["current"], each["new"]) for each in changes] == [(0, 4, 6)]
        await asked.post("reset", {"group": "console", "offsets": [{"topic": topic, "partition": 0, "offset": 6}]})
        assert (await asked.get("group", group="console"))["lag"] == 4
        assert (await asked.get("letters", topic=topic))["strange_count"] == 20
        assert (await asked.get("quorum"))["members"][0]["is_voter"]
