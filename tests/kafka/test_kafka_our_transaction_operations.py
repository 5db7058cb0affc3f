"""`replog transactions` with brokers of ours and Kafka's: lists, descriptions, what hangs, and what ends it (KIP-664)."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from brokers import Broker, of_kafka
from kafka_node import KafkaNode

from replog.client import Admin, Consumer, Producer
from replog.client.admin.operations import CLUSTER
from replog.errors import ProducerFencedError, ReplogError, TransactionalIdNotFoundError
from replog.records import encode_batch
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.cluster.cli_runs import Done, replog
from tests.kafka.raw_client import raw_client

PATIENCE_S = 60
BEFORE_JOINING = 11
"""The last version of Produce whose producers have added their partitions themselves."""

_names = itertools.count(1)


def a_name() -> str:
    return f"operated-{time.time_ns():x}-{next(_names)}"


async def run(broker: Broker, *arguments: object) -> Done:
    return await asyncio.to_thread(replog, "transactions", *arguments, "--bootstrap-servers", broker.servers)


async def told(broker: Broker, *arguments: object) -> list[Any]:
    done = await run(broker, *arguments, "--json")
    assert (done.status, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


async def operate(broker: Broker, topic: str, name: str) -> None:
    """Looks at an open transaction with one record in partition 1, and aborts it."""
    (listed,) = await told(broker, "list", "--state", "ongoing", "--pattern", f"{name[:-1]}.")
    assert (listed["transactional_id"], listed["state"], listed["coordinator_id"]) == (name, "Ongoing", 1)
    assert await told(broker, "list", "--open-for", "1h", "--pattern", name) == []
    assert listed in await told(broker, "list", "--producer-id", listed["producer_id"])
    (described,) = await told(broker, "describe", name)
    assert described["partitions"] == [{"topic": topic, "partition": 1}]
    assert (described["timeout_ms"], described["coordinator_id"]) == (60_000, 1)
    assert abs(described["start_ms"] - time.time() * 1000) < PATIENCE_S * 1000
    assert await told(broker, "find-hanging", topic, "--silent-for", "0s") == []
    refused = await run(broker, "abort", "--partition", f"{topic}-1", "--start-offset", "0")
    assert refused.status == 1
    assert f"transactional id {name!r} has it open" in refused.err
    done = await run(broker, "abort", name)
    assert done.status == 0, done
    assert "in 1 partition is aborted; its producer is fenced" in done.out


async def test_an_open_transaction_is_listed_described_and_aborted(serving: Broker) -> None:
    topic, name = await asyncio.to_thread(serving.topic, 2), a_name()
    async with Producer(serving.servers, transactional_id=name) as producer:

        async def interrupted() -> None:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"gone", partition=1)
                await operate(serving, topic, name)

        with pytest.raises(ProducerFencedError):
            await interrupted()
    async with Consumer(serving.servers) as consumer:
        assert await consumer.end_offsets([(topic, 1)]) == {(topic, 1): 2}
    again = await run(serving, "abort", name)
    assert again.status == 1
    assert "has no transaction open" in again.err


async def test_what_there_is_not(serving: Broker) -> None:
    topic, name = await asyncio.to_thread(serving.topic), a_name()
    async with Admin(serving.servers) as admin:
        with pytest.raises(TransactionalIdNotFoundError, match="replog transactions list"):
            await admin.describe_transactions([name])
        with pytest.raises(TransactionalIdNotFoundError):
            await admin.abort_transaction(name)
        assert await admin.list_transactions(pattern=name) == ()
        with pytest.raises(ReplogError, match="no open transaction that begins at offset 0"):
            await admin.abort_hanging_transaction((topic, 0), 0)
        with pytest.raises(ReplogError):
            await admin.list_transactions(pattern="(")


@asynccontextmanager
async def believing(servers: str) -> AsyncIterator[None]:
    """Has Kafka's brokers take batches of transactions that their coordinators do not know of, as those before KIP-890 did."""
    key = "transaction.partition.verification.enable"
    async with Admin(servers) as admin:
        await admin.alter_configs(CLUSTER, {key: False})
        try:
            yield
        finally:
            await admin.alter_configs(CLUSTER, {key: None})


def hang(broker: Broker, topic: str, name: str) -> int:
    """Opens a transaction in a partition, and does not say so to its coordinator.  Returns the producer."""
    with raw_client(broker.servers) as client:
        asked = InitProducerIdRequest(name, 60_000)
        deadline_s = time.monotonic() + PATIENCE_S
        while (producer := client.ask(asked, 4, InitProducerIdResponse)).error_code:
            assert time.monotonic() < deadline_s, producer
        batch = encode_batch(
            [(1, None, b"hangs", ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = ProduceRequest.TopicProduceData(topic, partition_data=[ProduceRequest.PartitionProduceData(0, batch)])
        request = ProduceRequest(name, acks=-1, timeout_ms=5000, topic_data=[data])
        (answer,) = client.ask(request, BEFORE_JOINING, ProduceResponse).responses[0].partition_responses
    assert answer.error_code == 0, answer
    return int(producer.producer_id)


async def test_a_transaction_that_hangs_with_kafka_is_found_and_ended(kafka_broker: KafkaNode) -> None:
    broker = of_kafka(kafka_broker)
    topic, name = await asyncio.to_thread(broker.topic), a_name()
    async with Admin(broker.servers) as admin:  # with the first look for one there are coordinators
        with pytest.raises(TransactionalIdNotFoundError):
            await admin.describe_transactions([name])
    async with believing(broker.servers), Consumer(broker.servers) as consumer:
        assert await consumer.end_offsets([(topic, 0)]) == {(topic, 0): 0}  # somebody leads it
        producer_id = await asyncio.to_thread(hang, broker, topic, name)
        assert await consumer.end_offsets([(topic, 0)]) == {(topic, 0): 0}
        (found,) = await told(broker, "find-hanging", topic)
        assert (found["producer_id"], found["first_offset"], found["transactional_id"]) == (producer_id, 0, name)
        shown = await run(broker, "find-hanging", topic)
        assert f"`replog transactions abort --partition {topic}-0 --start-offset 0` ends the first" in shown.out
        done = await run(broker, "abort", "--partition", f"{topic}-0", "--start-offset", 0)
        assert done.status == 0, done
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.end_offsets([(topic, 0)]) != {(topic, 0): 2}:
                await asyncio.sleep(0.05)
        assert await told(broker, "find-hanging", topic) == []
