"""Orderly stops: nothing is lost, nothing is truncated, and the others hardly notice.  And one replica that is killed."""

from __future__ import annotations

import time
from functools import partial

import pytest
from cluster_kit import Cluster, StartCluster, check_healed, read_to_the_end, say, until, wait_until_whole
from cluster_load import LatestWatch, Load, Tail

from replog.client import Producer
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"


@pytest.mark.parametrize("who", ["leader", "controller"])
async def test_one_clean_restart(start_cluster: StartCluster, who: str) -> None:
    """A stopped node hands its leaderships over, and comes back as it was: no truncation, in the ISR at once."""
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    async with Load(cluster, TOPIC, history) as load:
        await load.more_acknowledged(100)
    await wait_until_whole(cluster, TOPIC)
    node_id = await cluster.leader(TOPIC) if who == "leader" else await cluster.controller_id()
    before = {n: (await cluster.replica(node_id, TOPIC, n)).log_end_offset for n in range(2)}

    await cluster.local.stop(node_id)
    assert (cluster.data_directory(node_id) / ".kafka_cleanshutdown").exists()
    for partition in await cluster.partitions(TOPIC):
        assert partition.leader not in {-1, node_id}
        assert node_id not in partition.isr
    started_s = time.monotonic()
    cluster.local.start_node(node_id)
    await cluster.admin.wait_until_in_sync(TOPIC, timeout_ms=60_000)
    say(f"in sync {time.monotonic() - started_s:.2f} s after its start")

    for number, log_end_offset in before.items():
        replica = await cluster.replica(node_id, TOPIC, number)
        assert (replica.truncated_to, replica.log_end_offset) == (-1, log_end_offset)
    assert "truncated from" not in cluster.log_text(node_id)
    await check_healed(cluster, TOPIC, history)


async def test_rolling_restart(start_cluster: StartCluster) -> None:
    """Every node once, under load: each waits until the one before is in sync again."""
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 3, 3, {"min.insync.replicas": 2})
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history), LatestWatch(cluster, TOPIC, load):
        for node_id in cluster.node_ids:
            await cluster.local.stop(node_id)
            await load.more_acknowledged(20)
            cluster.local.start_node(node_id)
            await cluster.admin.wait_until_in_sync(TOPIC, timeout_ms=60_000)
            await load.more_acknowledged(20)
    await check_healed(cluster, TOPIC, history)
    for node_id in cluster.node_ids:
        assert "Traceback" not in cluster.log_text(node_id)


async def test_all_stopped_and_started(start_cluster: StartCluster) -> None:
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 2, 3, {"min.insync.replicas": 2})
    async with Load(cluster, TOPIC, history) as load:
        await load.more_acknowledged(100)
    await cluster.local.stop_all()
    for node_id in cluster.node_ids:
        cluster.local.start_node(node_id)
    await check_healed(cluster, TOPIC, history)


async def test_nodes_are_not_ready_because_their_processes_before_were(start_cluster: StartCluster) -> None:
    """Without a controller nobody is fenced: metadata of the one that is left say that the others serve."""
    cluster = await start_cluster(3)
    controller_id = await cluster.controller_id()
    killed = (controller_id, controller_id % 3 + 1)
    for node_id in killed:
        await cluster.local.kill(node_id)
    for node_id in killed:
        cluster.local.start_node(node_id)
    await cluster.local.wait_until_ready()
    for node_id in cluster.node_ids:
        assert (await cluster.admin.describe_node(node_id, timeout_ms=1_000)).state == "running"


async def test_all_stopped_and_the_last_copy_damaged(start_cluster: StartCluster) -> None:
    """With min.insync.replicas=1, too, the last but one that stopped has everything, and leads when the last one cannot."""
    cluster, history = await start_cluster(3), History()
    await cluster.admin.create_topic(TOPIC, 1, 3)
    async with Load(cluster, TOPIC, history) as load:
        await load.more_acknowledged(100)
    await wait_until_whole(cluster, TOPIC)
    for node_id in cluster.node_ids:
        await cluster.local.stop(node_id)
    *_, last_but_one, last = cluster.node_ids
    segment = cluster.replica_directory(last, f"{TOPIC}-0") / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:1_000])

    for node_id in cluster.node_ids:
        cluster.local.start_node(node_id)
    # until the last one registers, it is said to lead
    assert await cluster.leader_other_than(last, TOPIC) == last_but_one
    await check_healed(cluster, TOPIC, history)
    assert "is offline" in cluster.log_text(last)


async def test_one_replica_killed_again_and_again(start_cluster: StartCluster) -> None:
    """Replication factor 1, `flush.policy` auto: what is acknowledged is on disk, on the only one there is."""
    cluster, history = await start_cluster(1), History()
    await cluster.admin.create_topic(TOPIC, 2, 1)
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        for _ in range(3):
            await load.more_acknowledged(50)
            await cluster.local.kill(1)
            cluster.local.start_node(1)
        await load.more_acknowledged(50)
        assert (await cluster.describe(1)).broker_epoch > 0
    await check_healed(cluster, TOPIC, history)


async def test_one_replica_acknowledges_what_is_flushed(start_cluster: StartCluster) -> None:
    """The high watermark of a lone replica never passes what its fsync has covered."""
    cluster, history = await start_cluster(1), History()
    await cluster.admin.create_topic(TOPIC, 1, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(50):
            send = history.send("p", b"%d" % number)
            place = await (await producer.send(TOPIC, send.value, partition=0))
            send.acknowledged((place.topic, place.partition), place.offset)
            replica = await cluster.replica(1, TOPIC)
            assert replica.flushed_offset >= replica.high_watermark > place.offset
    await read_to_the_end(cluster, TOPIC, history)
    history.check_or_raise()


async def test_one_flipped_bit_after_kill_9_takes_the_only_replica_offline(start_cluster: StartCluster) -> None:
    """What was acknowledged since the last checkpoint is never cut: the replica says where it is damaged, and the ways out."""
    cluster = await start_cluster(1)
    await cluster.admin.create_topic(TOPIC, 1, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(50):
            await (await producer.send(TOPIC, b"%d" % number, partition=0))
    await cluster.local.kill(1)
    segment = cluster.replica_directory(1, f"{TOPIC}-0") / f"{0:020d}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[800] ^= 1
    segment.write_bytes(damaged)

    cluster.local.start_node(1)
    await until(partial(_is_offline, cluster), "the replica is offline")
    replica = await cluster.replica(1, TOPIC)
    assert str(segment) in replica.reason
    assert "below offset 50 was flushed" in replica.reason
    assert "--accept-loss" in replica.reason
    assert segment.read_bytes() == damaged


async def _is_offline(cluster: Cluster) -> bool | None:
    replicas = (await cluster.describe(1)).replicas
    return any((one.topic, one.state) == (TOPIC, "offline") for one in replicas) or None
