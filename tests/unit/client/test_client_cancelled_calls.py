"""A call of a client that is cancelled at any of its waits leaves nothing running, nothing half done, and a usable client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from fake_cluster import FakeCluster

from replog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from replog.client.admin.health import cluster_health
from replog.errors import TopicExistsError, UnknownTopicOrPartitionError
from replog.metadata.records import ResourceType
from tests.cancelling import WAITS_MAX, cancelled_at_wait
from tests.unit.client.memory_transport import MemoryTransport

Call: TypeAlias = Callable[[Any], Awaitable[object]]

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]

ADMIN_CALLS: dict[str, Call] = {
    "create_topics": lambda admin: admin.create_topics([NewTopic("new", 2, 1)]),
    "create_topic": lambda admin: admin.create_topic("new", 2, 1),
    "delete_topic": lambda admin: admin.delete_topic("old"),
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topics": lambda admin: admin.describe_topics(["t"]),
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "describe_node": lambda admin: admin.describe_node("127.0.0.1:10001"),
    "describe_configs": lambda admin: admin.describe_configs((ResourceType.TOPIC, "t")),
    "describe_partition": lambda admin: admin.describe_partition("t", 0),
    "elect_leaders": lambda admin: admin.elect_leaders([("t", 1)]),
    "list_offsets": lambda admin: admin.list_offsets(dict.fromkeys(PARTITIONS, -1)),
    "wait_for_topic": lambda admin: admin.wait_for_topic("t", lambda topic: bool(topic.partitions), timeout_ms=1_000),
    "wait_until_in_sync": lambda admin: admin.wait_until_in_sync("t"),
    "wait_until_ready": lambda admin: admin.wait_until_ready(brokers=2),
    "cluster_health": cluster_health,
}


async def bulk_send(producer: Producer) -> None:
    delivery = await producer.send_many("t", [b"x"] * 100, partition=0)
    await delivery


async def sent(producer: Producer) -> None:
    await (await producer.send("t", b"x", partition=0))


PRODUCER_CALLS: dict[str, Call] = {
    "start": lambda producer: producer.start(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "message_bytes_max": lambda producer: producer.message_bytes_max("t"),
    "send": lambda producer: producer.send("t", b"x", partition=0),
    "send and wait": sent,
    "send_many": bulk_send,
    "flush": lambda producer: producer.flush(),
}

CONSUMER_CALLS: dict[str, Call] = {
    "start": lambda consumer: consumer.start(),
    "assign": lambda consumer: consumer.assign(PARTITIONS),
    "assign_topic": lambda consumer: consumer.assign_topic("t"),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets(PARTITIONS),
    "end_offsets": lambda consumer: consumer.end_offsets(PARTITIONS),
}


async def new_client(kind: type[Any], transport: MemoryTransport, cluster: FakeCluster) -> Any:
    client = kind(cluster.bootstrap, transport=transport)
    await client.__aenter__()
    return client


def filled_cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    cluster.create_topic("old", 1)
    return cluster


async def cancel_at(number: int, kind: type[Any], call: Call) -> bool:
    """Cancels one call of a new client, then makes the call again and closes; whether there was a wait to cancel at."""
    cluster, before = filled_cluster(), asyncio.all_tasks()
    transport = cluster.transport()
    client = await new_client(kind, transport, cluster)

    async def run() -> None:
        await call(client)

    was_cancelled = await cancelled_at_wait(number, run())
    try:
        async with asyncio.timeout(60):
            await call(client)
    except (TopicExistsError, UnknownTopicOrPartitionError):
        pass  # the first call took effect all the same
    await client.close()
    assert asyncio.all_tasks() == before
    assert not transport.open_connections
    return was_cancelled


CALLS = [
    pytest.param(kind, call, id=f"{kind.__name__}: {name}")
    for kind, calls in ((Admin, ADMIN_CALLS), (Producer, PRODUCER_CALLS), (Consumer, CONSUMER_CALLS))
    for name, call in calls.items()
]


@pytest.mark.parametrize(("kind", "call"), CALLS)
async def test_a_call_that_is_cancelled_leaves_a_usable_client(kind: type[Any], call: Call) -> None:
    for number in range(1, WAITS_MAX):
        if not await cancel_at(number, kind, call):
            return
    pytest.fail("it never ends")


async def test_a_call_of_an_admin_that_is_cancelled_leaves_no_task() -> None:
    """Goal: what the call started ends with it, not with the client."""
    for call in ADMIN_CALLS.values():
        for number in range(1, WAITS_MAX):
            cluster = filled_cluster()
            async with Admin(cluster.bootstrap, transport=cluster.transport()) as admin:
                await admin.describe_cluster()
                before = asyncio.all_tasks()

                async def run(call: Call = call, admin: Admin = admin) -> None:
                    await call(admin)

                was_cancelled = await cancelled_at_wait(number, run())
                await asyncio.sleep(0)
                assert asyncio.all_tasks() <= before
            if not was_cancelled:
                break


@pytest.mark.parametrize("call", [PRODUCER_CALLS["send"], PRODUCER_CALLS["flush"], PRODUCER_CALLS["send and wait"]])
async def test_a_producer_that_is_cancelled_sends_each_record_at_most_once(call: Call) -> None:
    for number in range(1, WAITS_MAX):
        cluster = filled_cluster()
        async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
            first = await producer.send("t", b"first", partition=0)

            async def run(producer: Producer = producer) -> None:
                await call(producer)

            was_cancelled = await cancelled_at_wait(number, run())
            last = await producer.send("t", b"last", partition=0)
            await asyncio.gather(first, last)
        values = cluster.logs["t", 0].values()
        assert values in ([b"first", b"last"], [b"first", b"x", b"last"])
        if not was_cancelled:
            return
    pytest.fail("it never ends")


async def test_a_consumer_whose_assignment_is_cancelled_reads_from_it_or_not_at_all() -> None:
    """Goal: an assignment is whole or not made, and what it fetches is not lost by making it again."""
    for number in range(1, WAITS_MAX):
        cluster = filled_cluster()
        async with Producer(cluster.bootstrap, transport=cluster.transport()) as producer:
            for partition in range(2):
                await (await producer.send_many("t", [b"%d" % n for n in range(50)], partition=partition))
        async with Consumer(cluster.bootstrap, transport=cluster.transport()) as consumer:
            was_cancelled = await cancelled_at_wait(number, consumer.assign(PARTITIONS))
            assert len(consumer.assignment()) in {0, 2}
            await consumer.assign(PARTITIONS)
            found: dict[int, list[int]] = {0: [], 1: []}
            async with asyncio.timeout(60):
                while sum(map(len, found.values())) < 100:
                    for record in await consumer.poll():
                        found[record.partition].append(record.offset)
        assert found == {0: list(range(50)), 1: list(range(50))}
        if not was_cancelled:
            return
    pytest.fail("it never ends")
