"""A broker that may open no more files for a while: it says so, keeps running, and no acknowledged record is lost."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from cluster_kit import Cluster, StartCluster, check_healed, say, until
from cluster_load import Load, Tail

from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"
TOLD = "oo many open files"


def limit_descriptors(cluster: Cluster, node_id: int, count: int | None) -> None:
    """Lets a running node have no more than `count` descriptors more than now; None: as many as before."""
    process = cluster.local.nodes[node_id].process
    assert process is not None
    _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    limit = most if count is None else len(list(Path(f"/proc/{process.pid}/fd").iterdir())) + count
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, most))


@pytest.mark.parametrize("flush_policy", ["auto", "always"])
async def test_a_leader_and_a_follower_go_on_when_there_are_descriptors_again(
    start_cluster: StartCluster, flush_policy: str
) -> None:
    cluster, history = await start_cluster(3, **{"log.segment.bytes": 16_384, "message.max.bytes": 8_192}), History()
    config = {"min.insync.replicas": 2, "flush.policy": flush_policy}
    await cluster.admin.create_topic(TOPIC, 6, 3, config)
    first = await cluster.leader(TOPIC)
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        for node_id in (first, *(other for other in cluster.node_ids if other != first)):
            limit_descriptors(cluster, node_id, 0)
            say(f"node {node_id} may open nothing more")
            await until(lambda node_id=node_id: says_so(cluster, node_id), f"node {node_id} says so")
            limit_descriptors(cluster, node_id, None)
            await load.more_acknowledged(100)
            assert cluster.local.nodes[node_id].is_alive
    await check_healed(cluster, TOPIC, history)


async def says_so(cluster: Cluster, node_id: int) -> bool:
    return TOLD in cluster.log_text(node_id)
