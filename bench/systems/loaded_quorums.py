"""A metadata quorum whose machine is busy: brokers in the same processes or in others, and a producer at full speed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.data import values
from bench.model import WrongResultError
from bench.systems.replog_brokers import ReplogBrokers
from bench.systems.replog_cluster import ReplogCluster
from bench.systems.shared_brokers import NODES
from replog.client import Admin, Producer

RECORD_BYTES = 1024
RECORDS_COUNT = 2_000
PARTITIONS = 6
LOAD_TIMEOUT_S = 60.0
BEGUN = "begun\n"


@dataclass(frozen=True, slots=True)
class ChangesBesideLoad:
    """What was seen while records were produced.

    Attributes:
        latencies_s: of each change, from when it was due.
        mb_per_s: of acknowledged records.
        elections_count: leaders that the quorum had beside the first one.
    """

    latencies_s: Sequence[float]
    mb_per_s: float
    elections_count: int


class LoadedQuorum(ReplogCluster):
    """Three controllers and three brokers.

    Args:
        name: of the system.
        roles: of each node; None: three nodes that are both.
    """

    def __init__(self, name: str, roles: Mapping[int, Sequence[str]] | None) -> None:
        super().__init__(ReplogBrokers(nodes_count=NODES if roles is None else len(roles), roles=roles))
        self.name = name

    def change_beside_load(self, rate_per_s: float, count: int) -> ChangesBesideLoad:
        """Changes one topic's configuration at a fixed rate while another process produces to a second topic."""
        quiet, busy = self.create_topic(1), self.create_topic(PARTITIONS)
        command = [sys.executable, "-m", __name__, self.cluster.bootstrap_servers, busy]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
            try:
                if load.stdout is None or load.stdout.readline() != BEGUN:
                    raise WrongResultError("the producer did not begin")
                latencies_s, elections_count = self.run(self._change(quiet, rate_per_s, count))
                told, _ = load.communicate("stop\n", timeout=LOAD_TIMEOUT_S)
            finally:
                load.kill()
        return ChangesBesideLoad(latencies_s, float(told), elections_count)

    async def _change(self, topic: str, rate_per_s: float, count: int) -> tuple[list[float], int]:
        loop = asyncio.get_running_loop()
        latencies_s: list[float] = []
        async with Admin(self.cluster.bootstrap_servers) as admin:

            async def change(number: int, due_s: float) -> None:
                await admin.alter_topic_configs(topic, {"retention.ms": 1_000_000 + number})
                latencies_s.append(loop.time() - due_s)

            await change(-1, loop.time())
            latencies_s.clear()
            epoch = (await admin.describe_quorum()).leader_epoch
            start_s = loop.time()
            async with asyncio.TaskGroup() as tasks:
                for number in range(count):
                    due_s = start_s + number / rate_per_s
                    await asyncio.sleep(max(0.0, due_s - loop.time()))
                    tasks.create_task(change(number, due_s))
            return latencies_s, (await admin.describe_quorum()).leader_epoch - epoch


async def produce_until_told(bootstrap_servers: str, topic: str) -> None:
    """In another process: produces until a line comes in, then writes the rate out."""
    loop = asyncio.get_running_loop()
    records = values(RECORDS_COUNT, RECORD_BYTES)
    async with Producer(bootstrap_servers) as producer:
        await producer.send_many(topic, records)
        await producer.flush()
        sys.stdout.write(BEGUN)
        sys.stdout.flush()
        told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        start_s, rounds = loop.time(), 0
        while not told.done():
            await producer.send_many(topic, records)
            rounds += 1
        await producer.flush()
        sys.stdout.write(f"{rounds * RECORDS_COUNT * RECORD_BYTES / 1e6 / (loop.time() - start_s)}\n")


if __name__ == "__main__":
    asyncio.run(produce_until_told(*sys.argv[1:]))
