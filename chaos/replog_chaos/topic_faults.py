"""A topic that is deleted and made anew under load while a broker that has replicas of it is down."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from replog.errors import InvariantViolationError
from replog_chaos.fault import Fault, FaultMissedError, Target
from replog_chaos.load import Load

PARTITIONS_COUNT = 3
RATE_PER_S = 50.0
CONFIGS: Mapping[str, object] = {"min.insync.replicas": 2}

_numbers = itertools.count(1)


@asynccontextmanager
async def _recreate_topic(target: Target) -> AsyncIterator[list[int]]:
    """Deletes a topic and creates it anew; a broker comes back with folders of the old one, named as the new one's."""
    loop = asyncio.get_running_loop()
    name = f"recreated-{next(_numbers)}"
    node_id = await target.leader()
    old = await target.admin.create_topic(name, PARTITIONS_COUNT, 3, CONFIGS)
    async with Load(target.bootstrap_servers, name, PARTITIONS_COUNT, RATE_PER_S) as load:
        await load.wait_flowing(loop.time())
        await target.cluster.kill(node_id)
        await load.wait_flowing(loop.time())
        await target.admin.delete_topic(name)
        if load.bury(f"{name} (deleted)") == 0:
            raise FaultMissedError(f"nothing was acknowledged in {name} before it was deleted")
        new = await target.admin.create_topic(name, PARTITIONS_COUNT, 3, CONFIGS)
        if new.topic_id == old.topic_id:
            raise InvariantViolationError(f"{name} was created anew with the topic id of the deleted one")
        await load.wait_flowing(loop.time())
        yield [node_id]
        target.cluster.start_node(node_id)
        await target.admin.wait_until_in_sync(name)
        await load.wait_flowing(loop.time())
    await load.read_back()
    target.anomalies.extend(load.history.check())
    await target.admin.delete_topic(name)


TOPIC_FAULTS: Mapping[str, Fault] = {
    "recreate-topic": Fault(
        "a second topic deleted and created anew under its own load, while one of its brokers is dead", _recreate_topic
    ),
}
