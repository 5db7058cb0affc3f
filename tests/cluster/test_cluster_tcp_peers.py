"""Nodes that meet over TCP (`inter.broker.transport`): what holds over gRPC holds there."""

from __future__ import annotations

import pytest
from cluster_kit import Cluster, StartCluster, check_healed
from cluster_load import Load, Tail

from replog.rpc.grpc.transport import GrpcTransport
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.transport import ConnectionLostError
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"


async def three_nodes(start_cluster: StartCluster) -> Cluster:
    cluster = await start_cluster(3, inter_broker_transport="tcp")
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    return cluster


async def restart(cluster: Cluster, *node_ids: int) -> None:
    for node_id in node_ids:
        cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready(60.0)


async def test_killed_leader_and_controller(start_cluster: StartCluster) -> None:
    cluster, history = await three_nodes(start_cluster), History()
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        leader = await cluster.leader(TOPIC, 0)
        await load.more_acknowledged(100)
        await cluster.local.kill(leader)
        await cluster.leader_other_than(leader, TOPIC, 0)
        await load.more_acknowledged(100)
        await restart(cluster, leader)
        controller = await cluster.controller_id()
        await cluster.local.kill(controller)
        await load.more_acknowledged(100)
        await restart(cluster, controller)
        await load.more_acknowledged(100)
    await check_healed(cluster, TOPIC, history)


async def test_killed_all(start_cluster: StartCluster) -> None:
    cluster, history = await three_nodes(start_cluster), History()
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        await load.more_acknowledged(200)
        await cluster.local.kill_all()
        await restart(cluster, *cluster.node_ids)
        await load.more_acknowledged(200)
    await check_healed(cluster, TOPIC, history)


async def test_who_comes_over_grpc_is_not_heard(start_cluster: StartCluster) -> None:
    cluster = await three_nodes(start_cluster)
    connection = GrpcTransport().connect(cluster.local.nodes[1].peer_address, purpose="test")
    with pytest.raises(ConnectionLostError):
        await connection.call(DescribeNodeRequest(), timeout_ms=1_000)
    await connection.close()
