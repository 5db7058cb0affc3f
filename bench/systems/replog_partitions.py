"""replog with very many partitions: three fresh processes for each measurement."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.model import WrongResultError
from bench.systems.brokers import HostedPartitions, PartitionsSystem
from bench.systems.replog_brokers import TOPIC_CONFIGS
from bench.systems.shared_brokers import NODES
from replog.client import Admin, Consumer
from replog.cluster import LocalCluster

TOPIC = "many"
TIMEOUT_MS = 300_000


class ReplogPartitions(PartitionsSystem):
    """One topic in an otherwise empty cluster."""

    name = "replog"

    def __init__(self) -> None:
        self._directory: Path | None = None

    def start(self, directory: Path) -> None:
        self._directory = directory

    def host(self, partitions: int, idle_s: float) -> HostedPartitions:
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            return asyncio.run(_host(Path(directory) / "cluster", partitions, idle_s))


async def _host(directory: Path, partitions: int, idle_s: float) -> HostedPartitions:
    loop = asyncio.get_running_loop()
    cluster = await LocalCluster.start(directory, nodes=NODES)
    try:
        brokers = [psutil.Process(node.process.pid) for node in cluster.nodes.values() if node.process is not None]
        before_bytes = _resident_bytes(brokers)
        start_s = loop.time()
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topic(TOPIC, partitions, NODES, TOPIC_CONFIGS)
            await _until_all_answer(cluster.bootstrap_servers, partitions)
            answering_s = loop.time() - start_s
            await admin.wait_until_in_sync(TOPIC, timeout_ms=TIMEOUT_MS)
            in_sync_s = loop.time() - start_s
        cpu_before_s = _cpu_s(brokers)
        await asyncio.sleep(idle_s)
        cpu_s = _cpu_s(brokers) - cpu_before_s
        return HostedPartitions(
            answering_s=answering_s,
            in_sync_s=in_sync_s,
            idle_cpu_share=cpu_s / idle_s / NODES,
            bytes_per_replica=(_resident_bytes(brokers) - before_bytes) / (partitions * NODES),
        )
    finally:
        await cluster.kill_all()


async def _until_all_answer(bootstrap_servers: str, partitions: int) -> None:
    """Each leader has said where each of its partitions ends."""
    async with Consumer(bootstrap_servers) as consumer:
        wanted = [(TOPIC, number) for number in range(partitions)]
        ends = await consumer.end_offsets(wanted, timeout_ms=TIMEOUT_MS)
    if len(ends) != partitions or any(ends.values()):
        raise WrongResultError(
            f"{len(ends)} of {partitions} new partitions answered, with {sum(ends.values())} records"
        )


def _resident_bytes(processes: Sequence[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))
