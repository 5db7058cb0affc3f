"""Kafka's clients in a cluster of several brokers: each of them names all, and where the leaders are."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from cli_runs import replog
from cluster_kit import Cluster, StartCluster, until

from replog.client import NewTopic
from replog.cluster import LocalCluster, NodePlace
from replog.errors import BrokerNotAvailableError, ErrorCode, FeatureUpdateFailedError
from replog.records import encode_batch
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.kafka.raw_client import raw_client

TOPIC = "flights"
METADATA_VERSION, PRODUCE_VERSION = 12, 10
"""Of the requests: the first versions that have all that is looked at."""

OLD_VERSION = """\
from replog.metadata import features
from replog.metadata.records import SupportedFeature

features.SUPPORTED_FEATURES = (SupportedFeature("metadata.version", 1, 2),)
"""
"""What makes a process one of the version before: it is run before anything else."""


def metadata(cluster: Cluster, node_id: int) -> MetadataResponse:
    with raw_client(cluster.address(node_id)) as client:
        topics = [MetadataRequest.MetadataRequestTopic(name=TOPIC)]
        answer: MetadataResponse = client.ask(MetadataRequest(topics), METADATA_VERSION, MetadataResponse)
        return answer


def named(cluster: Cluster, node_id: int) -> dict[int, str]:
    """The brokers that a node names, and where; none while it does not listen."""
    try:
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in metadata(cluster, node_id).brokers}
    except ConnectionError:
        return {}


async def all_name(cluster: Cluster, asked: list[int], expected: list[int]) -> None:
    """Waits until every node of `asked` names exactly these brokers."""
    addresses = {node_id: cluster.address(node_id) for node_id in expected}

    async def reached() -> bool:
        return all(named(cluster, node_id) == addresses for node_id in asked)

    await until(reached, f"nodes {asked} name brokers {expected}")


def produce(cluster: Cluster, node_id: int) -> ProduceResponse:
    """Produces one record to partition 0, at whichever broker."""
    data = ProduceRequest.PartitionProduceData(0, encode_batch([(1, b"key", b"value", ())]))
    request = ProduceRequest(None, -1, 10_000, [ProduceRequest.TopicProduceData(TOPIC, partition_data=[data])])
    with raw_client(cluster.address(node_id)) as client:
        answer: ProduceResponse = client.ask(request, PRODUCE_VERSION, ProduceResponse)
        return answer


async def test_every_broker_names_all_of_them_until_one_is_gone(start_cluster: StartCluster) -> None:
    cluster = await start_cluster()
    await cluster.admin.create_topics([NewTopic(TOPIC, 3, 3)])
    await all_name(cluster, [1, 2, 3], [1, 2, 3])
    gone = await cluster.leader(TOPIC)
    rest = [node_id for node_id in cluster.node_ids if node_id != gone]
    await cluster.local.kill(gone)
    await all_name(cluster, rest, rest)
    leader = await cluster.leader_other_than(gone, TOPIC)

    async def moved() -> bool:
        (topic,) = metadata(cluster, rest[0]).topics
        partitions = {partition.partition_index: partition for partition in topic.partitions}
        return partitions[0].leader_id == leader and partitions[0].offline_replicas == [gone]

    await until(moved, f"broker {rest[0]} says that {leader} leads and the replica on {gone} is offline")
    cluster.local.start_node(gone)
    await cluster.local.wait_until_ready()
    await all_name(cluster, [1, 2, 3], [1, 2, 3])
    assert cluster.bootstrap_servers == ",".join(named(cluster, gone).values())


async def test_who_does_not_lead_says_who_does_and_where(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(broker_rack="north")
    await cluster.admin.create_topics([NewTopic(TOPIC, 1, 3)])
    await all_name(cluster, [1, 2, 3], [1, 2, 3])
    leader = await cluster.leader(TOPIC)
    other = next(node_id for node_id in cluster.node_ids if node_id != leader)

    async def refused() -> ProduceResponse | None:
        answer = produce(cluster, other)
        code = answer.responses[0].partition_responses[0].error_code
        return answer if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else None

    answer = await until(refused, f"broker {other} knows the topic")
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_message
    assert partition.current_leader is not None
    assert partition.current_leader.leader_id == leader
    assert partition.current_leader.leader_epoch == (await cluster.partitions(TOPIC))[0].leader_epoch
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.rack) == (leader, "north")
    assert f"{endpoint.host}:{endpoint.port}" == cluster.address(leader)

    async def answered() -> Any:
        (written,) = produce(cluster, endpoint.node_id).responses[0].partition_responses
        return written if written.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None

    written = await until(answered, f"broker {leader} knows the topic, too")
    assert (written.error_code, written.base_offset) == (ErrorCode.NONE, 0)


async def test_a_cluster_of_the_version_before_names_all_brokers_once_its_level_is_raised(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    """The endpoints come without a new registration: epochs, leaders and ISRs stay."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text(OLD_VERSION, encoding="utf-8")
    old = NodePlace(environment={"PYTHONPATH": os.pathsep.join([str(tmp_path / "old"), os.environ["PYTHONPATH"]])})
    cluster = await start_cluster(places=dict.fromkeys((1, 2, 3), old))
    await cluster.admin.create_topics([NewTopic(TOPIC, 3, 3)])
    for node_id in cluster.node_ids:
        with pytest.raises(FeatureUpdateFailedError, match="supports 1 to 2"):
            await cluster.admin.update_features({"metadata.version": 3})
        cluster.local.nodes[node_id].place = NodePlace()
        await cluster.local.stop(node_id)
        cluster.local.start_node(node_id)
        await cluster.local.wait_until_ready()
    for node_id in cluster.node_ids:
        await all_name(cluster, [node_id], [node_id])
        await cluster.isr_is([1, 2, 3], TOPIC, node_id - 1)
    before = await cluster.admin.describe_cluster()
    raised = await asyncio.to_thread(replog, "features", "upgrade", "--dir", cluster.local.directory)
    assert raised.status == 0, raised.err
    assert raised.out == "metadata.version is at level 5\ntransaction.version is at level 2\n"
    await all_name(cluster, [1, 2, 3], [1, 2, 3])
    after = await cluster.admin.describe_cluster()
    assert [broker.broker_epoch for broker in after.brokers] == [broker.broker_epoch for broker in before.brokers]
    assert after.topics == before.topics


async def test_a_node_whose_port_for_clients_is_taken_says_so(tmp_path: Path) -> None:
    async with await LocalCluster.start(tmp_path / "c", nodes=1) as cluster:
        await cluster.stop(1)
        port = cluster.nodes[1].port
        with socket.create_server(("127.0.0.1", port)):
            cluster.start_node(1)
            with pytest.raises(BrokerNotAvailableError, match=rf"cannot listen at 127\.0\.0\.1:{port}.*listeners"):
                await cluster.wait_until_ready()
        cluster.start_node(1)
        await cluster.wait_until_ready()
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"
