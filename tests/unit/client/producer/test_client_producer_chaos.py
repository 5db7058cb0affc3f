"""Many seeds of everything at once: refused, lost and dropped batches, cut streams, moving leaders.

Checked: every acknowledged record is in the log at its offset, each record at most once, each partition in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from fake_cluster import FakeCluster

from replog.client import Producer
from replog.errors import ErrorCode, ReplogError
from replog.rpc.messages import ProducePartition

REFUSALS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.REQUEST_TIMED_OUT,
]


@pytest.mark.parametrize("seed", range(8))
async def test_chaos(seed: int) -> None:
    rng = random.Random(seed)
    cluster = FakeCluster(3)
    cluster.create_topic("t", 3)

    def misbehave(_partition: ProducePartition, _batch: bytes) -> ErrorCode | str:
        kind = rng.random()
        if kind < 0.1:
            return rng.choice(REFUSALS)
        return rng.choice(["lose", "drop"]) if kind < 0.2 else "append"

    async def disturb() -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.001, 0.02))
            if rng.random() < 0.5:
                cluster.move_leader("t", rng.randrange(3), rng.choice([1, 2, 3]))
            else:
                cluster.nodes[rng.randint(1, 3)].cut()

    for node in cluster.nodes.values():
        node.script.extend([misbehave] * 40)
    disturbing = asyncio.create_task(disturb())
    producer = Producer(cluster.bootstrap, transport=cluster.transport(), batch_size_bytes=400)
    producer._view.rng = rng
    async with producer:
        deliveries = []
        for i in range(600):
            deliveries.append(await producer.send("t", b"%06d" % i, partition=i % 3))
            if i % 20 == 0:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.15)
        disturbing.cancel()
        for node in cluster.nodes.values():
            node.script.clear()
            node.cut()
        with contextlib.suppress(ReplogError):
            async with asyncio.timeout(60):
                await producer.flush()
        acknowledged = failed = 0
        for i, delivery in enumerate(deliveries):
            try:
                metadata = delivery.result()
            except ReplogError:
                failed += 1
                continue
            acknowledged += 1
            record = cluster.logs["t", i % 3].records()[metadata.offset]
            assert record.value == b"%06d" % i
    for partition in range(3):
        values = cluster.logs["t", partition].values()
        assert values == sorted(set(values)), f"seed {seed}: doubled or reordered"
        assert len(values) <= 200
    assert acknowledged + failed == 600
    assert acknowledged > 300
