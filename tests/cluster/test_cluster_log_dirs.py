"""Replicas move between the disks of their broker under load, and a kill -9 in the middle loses nothing."""

from __future__ import annotations

import pytest
from cluster_kit import Cluster, StartCluster, check_healed, until
from cluster_load import Load, Tail

from replog.client.admin.operations import CLUSTER
from replog.errors import InvalidRequestError, LogDirNotFoundError, UnknownTopicOrPartitionError
from replog.metadata.config_keys import REPLICA_ALTER_LOG_DIRS_RATE
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"


def disk(cluster: Cluster, node_id: int, number: int) -> str:
    return str(cluster.local.nodes[node_id].directory / ("data" if number == 1 else f"data-{number}"))


async def place(cluster: Cluster, node_id: int, partition: int) -> str:
    """The disk that a replica is on, in which no swap is under way."""

    async def found() -> str | None:
        directories = await cluster.admin.describe_log_dirs(cluster.address(node_id))
        paths = [
            directory.path
            for directory in directories
            for replica in directory.replicas
            if (replica.topic, replica.partition_id, replica.size_bytes >= 0) == (TOPIC, partition, True)
        ]
        assert len(paths) <= 1, paths
        return paths[0] if paths else None

    return await until(found, f"broker {node_id} has {TOPIC}-{partition}")


async def elsewhere(cluster: Cluster, node_id: int, partition: int) -> str:
    """The other disk."""
    now = await place(cluster, node_id, partition)
    return next(path for path in (disk(cluster, node_id, 1), disk(cluster, node_id, 2)) if path != now)


async def moved(cluster: Cluster, node_id: int, partition: int, path: str) -> None:
    async def there() -> bool:
        directories = await cluster.admin.describe_log_dirs(cluster.address(node_id))
        return (
            not any(directory.moves for directory in directories) and await place(cluster, node_id, partition) == path
        )

    await until(there, f"{TOPIC}-{partition} of broker {node_id} is in {path}")


async def test_replicas_move_between_disks_under_load(start_cluster: StartCluster) -> None:
    cluster, history = await start_cluster(3, disks=2), History()
    admin = cluster.admin
    await admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        await load.more_acknowledged(100)
        leader = await cluster.leader(TOPIC, 0)
        to = await elsewhere(cluster, leader, 0)
        await admin.move_replica(TOPIC, 0, broker=leader, path=to)
        await moved(cluster, leader, 0, to)
        await load.more_acknowledged(100)

        await admin.alter_configs(CLUSTER, {REPLICA_ALTER_LOG_DIRS_RATE.name: 2_000})
        leads = await cluster.leader(TOPIC, 1)
        follower = next(node_id for node_id in cluster.node_ids if node_id != leads)
        before, to_follower = await place(cluster, follower, 1), await elsewhere(cluster, follower, 1)

        async def begun() -> bool:
            directories = await admin.describe_log_dirs(cluster.address(follower))
            return any(move.copied_bytes for directory in directories for move in directory.moves)

        await admin.move_replica(TOPIC, 1, broker=follower, path=to_follower)
        await until(begun, "some of it is copied")
        with pytest.raises(InvalidRequestError, match="already"):
            await admin.move_replica(TOPIC, 1, broker=follower, path=to_follower)
        await cluster.local.kill(follower)
        await load.more_acknowledged(100)
        cluster.local.start_node(follower)
        await cluster.local.wait_until_ready(60.0)
        assert f"{TOPIC}-1: its move to {to_follower} was interrupted" in cluster.log_text(follower)
        assert await place(cluster, follower, 1) == before
        await admin.alter_configs(CLUSTER, {REPLICA_ALTER_LOG_DIRS_RATE.name: None})
        await admin.move_replica(TOPIC, 1, broker=follower, path=to_follower)
        await moved(cluster, follower, 1, to_follower)
        await load.more_acknowledged(100)

        for node_id in {leader, follower}:
            await cluster.local.kill(node_id)
            cluster.local.start_node(node_id)
            await cluster.local.wait_until_ready(60.0)
        assert await place(cluster, leader, 0) == to
        assert await place(cluster, follower, 1) == to_follower
        await load.more_acknowledged(50)
    await check_healed(cluster, TOPIC, history)


async def test_moves_that_are_refused_and_one_that_its_topic_ends(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1, disks=2)
    admin = cluster.admin
    await admin.create_topic(TOPIC, 1, 1)
    now, to = await place(cluster, 1, 0), await elsewhere(cluster, 1, 0)
    for error, topic, path in (
        (UnknownTopicOrPartitionError, "nowhere", to),
        (LogDirNotFoundError, TOPIC, "/nowhere"),
        (InvalidRequestError, TOPIC, now),
    ):
        with pytest.raises(error):
            await admin.move_replica(topic, 0, broker=1, path=path)
    await admin.alter_configs(CLUSTER, {REPLICA_ALTER_LOG_DIRS_RATE.name: 1})
    await admin.move_replica(TOPIC, 0, broker=1, path=to)
    await admin.delete_topic(TOPIC)

    async def gone() -> bool:
        directories = await admin.describe_log_dirs(1)
        names = [path.name for path in cluster.local.nodes[1].directory.glob(f"data*/{TOPIC}*")]
        return not any(directory.moves for directory in directories) and not names

    await until(gone, "neither the replica nor its copy is left")
