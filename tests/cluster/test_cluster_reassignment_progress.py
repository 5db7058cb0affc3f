"""A reassignment says how far it is: while it is throttled, while its new replica is down, and when it has ended."""

from __future__ import annotations

import pytest
from cluster_kit import Cluster, StartCluster, until

from replog.client import CopyProgress, Producer, Reassignments
from replog.client.admin.operations import CLUSTER
from replog.metadata.config_keys import REPLICATION_THROTTLES

pytestmark = pytest.mark.cluster

TOPIC = "flights"
VALUE = bytes(range(256)) * 40
RECORDS_COUNT = 200
SIZE_BYTES = RECORDS_COUNT * len(VALUE)


async def throttle(cluster: Cluster, bytes_per_s: int | None) -> None:
    await cluster.admin.alter_configs(CLUSTER, {key.name: bytes_per_s for key in REPLICATION_THROTTLES})


async def look(cluster: Cluster, since: Reassignments | None = None) -> tuple[Reassignments, CopyProgress | None]:
    found = await cluster.admin.describe_reassignments(since)
    return found, next(iter(found.copies), None)


async def test_bytes_rate_and_what_is_in_the_way(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    await cluster.admin.create_topic(TOPIC, assignments=[(1,)])
    async with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(RECORDS_COUNT):
            await (await producer.send(TOPIC, VALUE, partition=0))  # a batch each: what a throttle can cut between
    rate = SIZE_BYTES // 20
    await throttle(cluster, rate)
    controller_id = await cluster.controller_id()
    new_id = next(node_id for node_id in cluster.node_ids if node_id not in {1, controller_id})
    await cluster.admin.reassign_partitions({(TOPIC, 0): (1, new_id)})

    async def begun() -> Reassignments | None:
        found, copy = await look(cluster)
        return found if copy is not None and copy.copied_bytes is not None else None

    first = await until(begun, "the leader tells how much is there")

    async def progresses() -> CopyProgress | None:
        _, copy = await look(cluster, first)
        return copy if copy is not None and copy.copied_bytes and copy.bytes_per_s else None

    copy = await until(progresses, "some of it is there")
    assert (copy.broker_id, copy.is_in_sync, copy.throttle_bytes_per_s) == (new_id, False, rate)
    assert copy.needed_bytes is not None
    assert SIZE_BYTES <= copy.needed_bytes <= SIZE_BYTES * 1.05
    assert copy.copied_bytes is not None
    assert 0 < copy.copied_bytes < copy.needed_bytes
    assert copy.eta_s is not None
    assert copy.bytes_per_s is not None
    assert copy.eta_s == pytest.approx((copy.needed_bytes - copy.copied_bytes) / copy.bytes_per_s)

    await cluster.local.kill(new_id)
    before = first

    async def stalls() -> CopyProgress | None:
        nonlocal before
        before, copy = await look(cluster, before)
        return copy if copy is not None and copy.is_stalled and copy.trouble == "its broker is down" else None

    stalled = await until(stalls, "the dead broker is named")
    assert stalled.eta_s is None

    await throttle(cluster, None)
    cluster.local.start_node(new_id)

    async def ended() -> bool:
        return (await look(cluster))[1] is None

    await until(ended, "the reassignment has ended")
    assert set((await cluster.partitions(TOPIC))[0].isr) == {1, new_id}
