"""Quotas in a cluster of processes: in force at every broker, told to librdkafka, and kept to by our clients."""

from __future__ import annotations

import asyncio

import pytest
from cluster_kit import Cluster, StartCluster, until

from replog import Admin, Producer
from replog.client import NewTopic
from replog.errors import ErrorCode, RequestTimedOutError, ThrottledError
from replog.records import encode_batch
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.kafka.raw_client import raw_client

TOPIC = "flights"
RATE = 20_000


def produced(cluster: Cluster, node_id: int, partition: int) -> tuple[int, int]:
    """Produces some bytes to a partition at its leader; the error and the throttle time."""
    data = ProduceRequest.PartitionProduceData(partition, encode_batch([(1, b"key", b"v" * RATE, ())]))
    request = ProduceRequest(None, -1, 10_000, [ProduceRequest.TopicProduceData(TOPIC, partition_data=[data])])
    with raw_client(cluster.address(node_id)) as client:
        answer = client.ask(request, 10, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code, answer.throttle_time_ms


async def test_a_quota_that_is_set_under_load_is_in_force_at_every_broker_at_once(start_cluster: StartCluster) -> None:
    cluster = await start_cluster()
    await cluster.admin.create_topic(TOPIC, assignments=[[1, 2], [2, 3], [3, 1]])
    async with Producer(cluster.bootstrap_servers, client_id="loader") as producer:
        ends = asyncio.Event()

        async def load() -> int:
            sent = []
            while not ends.is_set():
                sent += [await producer.send(TOPIC, b"x" * 500, partition=number) for number in range(3)]
                await asyncio.sleep(0.01)
            await producer.flush()
            return len({(await each).offset for each in sent[::3]})

        loading = asyncio.create_task(load())
        await cluster.admin.alter_quotas({"client-id": None}, {"producer_byte_rate": RATE})

        async def throttled(node_id: int) -> bool:
            return (await asyncio.to_thread(produced, cluster, node_id, node_id - 1))[1] > 0

        for node_id in cluster.node_ids:
            await until(lambda node_id=node_id: throttled(node_id), f"broker {node_id} throttles")
        await cluster.admin.alter_quotas({"client-id": None}, {"producer_byte_rate": None})

        async def free(node_id: int) -> bool:
            return (await asyncio.to_thread(produced, cluster, node_id, node_id - 1)) == (0, 0)

        for node_id in cluster.node_ids:
            await until(lambda node_id=node_id: free(node_id), f"broker {node_id} throttles no more")
        ends.set()
        assert await loading > 0, "each record once, whatever it waited"


async def test_admin_waits_for_its_quota_of_partitions_and_tells_what_is_left_when_its_time_is_up(
    start_cluster: StartCluster,
) -> None:
    cluster = await start_cluster()
    await cluster.admin.alter_quotas({"client-id": "tenant"}, {"controller_mutation_rate": 1.0})
    controller = await cluster.controller_id()
    other = next(node_id for node_id in cluster.node_ids if node_id != controller)
    async with Admin(cluster.address(other), client_id="tenant") as admin:
        topics = [NewTopic(f"t{number}", 3, 1) for number in range(5)]  # 11 partitions at once, 12 with the one in debt
        results = await admin.create_topics(topics, timeout_ms=20_000)
        assert [one.error for one in results] == [ErrorCode.NONE] * 5, (
            "the last one after the second that the controller told"
        )
        results = await admin.create_topics([NewTopic("large", 40, 1)], timeout_ms=20_000)
        assert results[0].error is ErrorCode.NONE
        with pytest.raises(RequestTimedOutError, match="controller_mutation_rate") as late:
            await admin.delete_topics(["t0"], timeout_ms=1_500)
        assert isinstance(late.value.__cause__, ThrottledError)


async def test_librdkafka_is_told_the_throttle_time(start_cluster: StartCluster) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    cluster = await start_cluster(1)
    await cluster.admin.create_topic(TOPIC, 1, 1)
    await cluster.admin.alter_quotas({"client-id": "rdkafka"}, {"producer_byte_rate": 100_000})
    told: list[float] = []

    def produce() -> int:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "rdkafka",
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
        producer = confluent_kafka.Producer(settings)
        for _ in range(120):
            producer.produce(TOPIC, b"x" * 10_000)
            producer.poll(0)
        return int(producer.flush(60))

    assert await asyncio.to_thread(produce) == 0
    assert max(told) > 0


async def test_an_address_over_its_quota_waits_and_comes_back(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    await cluster.admin.alter_quotas({"ip": "127.0.0.1"}, {"connection_creation_rate": 5})

    def connect() -> bool:
        try:
            with raw_client(cluster.address(1)) as client:
                return bool(client.ask(MetadataRequest([]), 12, MetadataResponse).brokers)
        except (ConnectionError, EOFError):
            return False

    async def refused() -> bool:
        return not await asyncio.to_thread(connect)

    await until(refused, "connections come too often")

    async def taken_in() -> bool:
        return await asyncio.to_thread(connect)

    await until(taken_in, "there is room again")
