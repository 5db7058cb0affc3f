"""Records are deleted from the front of a partition on all replicas, and consumers begin behind them."""

from __future__ import annotations

import pytest
from cluster_kit import StartCluster

from replog.client import Consumer, Producer
from replog.errors import OffsetOutOfRangeError, PolicyViolationError

pytestmark = pytest.mark.cluster

TOPIC = "flights"
PARTITION = (TOPIC, 0)


async def test_records_are_deleted_on_all_replicas(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3)
    admin = cluster.admin
    await admin.create_topic(TOPIC, 1, 3)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(10):
            await (await producer.send(TOPIC, b"%d" % number, partition=0))
    assert await admin.delete_records({PARTITION: 4}) == {PARTITION: 4}
    for node_id in cluster.node_ids:
        (replica,) = [r for r in (await admin.describe_node(node_id)).replicas if r.topic == TOPIC]
        assert replica.log_start_offset == 4
    async with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        assert (await consumer.poll())[0].offset == 4
    with pytest.raises(OffsetOutOfRangeError, match="high watermark is 10"):
        await admin.delete_records({PARTITION: 11})
    assert await admin.delete_records({PARTITION: -1}) == {PARTITION: 10}
    end = (await admin.epoch_ends({PARTITION: 0}))[PARTITION]
    assert end is not None
    assert end.end_offset == 10
    await admin.create_topic("table", 1, 3, {"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolationError, match="compact"):
        await admin.delete_records({("table", 0): 0})
