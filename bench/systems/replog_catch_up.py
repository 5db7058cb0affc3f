"""replog with a broker that was away while much was written."""

from __future__ import annotations

import asyncio
import itertools

from bench.data import values
from bench.model import WrongResultError
from bench.systems.brokers import CatchUpReport, CatchUpSystem
from bench.systems.replog_brokers import TOPIC_CONFIGS
from bench.systems.replog_cluster import FIRST_OFFSET, ReplogCluster, send_at_rate, warm_up
from bench.systems.shared_brokers import NODES
from replog.client import Admin, Consumer, Producer

PARTITIONS = 3
POOL_BYTES = 1024 * 1024
TIMEOUT_MS = 600_000


class ReplogCatchUp(ReplogCluster, CatchUpSystem):
    """The same three processes; the broker that goes away is not the active controller."""

    def catch_up(self, behind_bytes: int, record_bytes: int, rate_per_s: float) -> CatchUpReport:
        return self.run(self._catch_up(behind_bytes, record_bytes, rate_per_s))

    async def _catch_up(self, behind_bytes: int, record_bytes: int, rate_per_s: float) -> CatchUpReport:
        topic = self.new_topic_name()
        pool = values(max(1, min(POOL_BYTES, behind_bytes) // record_bytes), record_bytes)
        rounds = max(1, behind_bytes // (len(pool) * record_bytes))
        async with Admin(self.cluster.bootstrap_servers) as admin, Producer(self.cluster.bootstrap_servers) as producer:
            await admin.create_topic(topic, PARTITIONS, NODES, TOPIC_CONFIGS)
            await admin.wait_until_in_sync(topic)
            await warm_up(producer, topic)
            away = max(set(self.cluster.nodes) - {(await admin.describe_cluster()).controller_id})
            await self.cluster.stop(away)
            for _ in range(rounds):
                await producer.send_many(topic, pool)
            await producer.flush()
            in_sync_s, latencies_s = await self._return(admin, producer, topic, away, pool[0], rate_per_s)
            await self._check(topic, rounds * len(pool) + len(latencies_s))
            await admin.delete_topic(topic)
        return CatchUpReport(rounds * len(pool) * record_bytes, in_sync_s, latencies_s)

    async def _return(
        self, admin: Admin, producer: Producer, topic: str, away: int, value: bytes, rate_per_s: float
    ) -> tuple[float, list[float]]:
        """Starts the node again; seconds until all is in sync, and the latencies of what is sent meanwhile."""
        loop = asyncio.get_running_loop()
        is_back = False
        start_s = loop.time()
        self.cluster.start_node(away)
        numbers = itertools.takewhile(lambda _: not is_back, itertools.count())
        steady = asyncio.create_task(send_at_rate(producer, topic, value, rate_per_s, numbers))
        try:
            await admin.wait_until_in_sync(topic, timeout_ms=TIMEOUT_MS)
        finally:
            is_back = True
        return loop.time() - start_s, await steady

    async def _check(self, topic: str, count: int) -> None:
        async with Consumer(self.cluster.bootstrap_servers) as consumer:
            ends = await consumer.end_offsets([(topic, number) for number in range(PARTITIONS)])
        held = sum(end - FIRST_OFFSET for end in ends.values())
        if held != count:
            raise WrongResultError(f"{self.name} acknowledged {count} records and holds {held}")
