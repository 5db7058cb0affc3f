"""replog started from nothing: one node inside this process, and three processes."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.systems.brokers import StartupSystem
from bench.systems.shared_brokers import NODES
from replog.broker.node.node import Node
from replog.client import Admin, Producer
from replog.cluster import LocalCluster
from replog.config.server import Endpoint, NamedEndpoint, ServerConfig
from replog.metadata.records import CLIENT_LISTENER

TOPIC = "first"


class ReplogStartup(StartupSystem):
    """Everything is imported before the clock starts; what importing costs is the interpreter's business."""

    name = "replog"

    def __init__(self) -> None:
        self._directory: Path | None = None

    def start(self, directory: Path) -> None:
        self._directory = directory

    def start_one(self) -> float:
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            return asyncio.run(_start_embedded(Path(directory)))

    def start_cluster(self, settle_s: float) -> tuple[float, Sequence[int]]:
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            return asyncio.run(_start_cluster(Path(directory) / "cluster", settle_s))


async def _start_embedded(directory: Path) -> float:
    config = ServerConfig(
        node_id=1,
        cluster_id="bench",
        log_dirs=(str(directory / "data"),),
        listeners=(NamedEndpoint(CLIENT_LISTENER, Endpoint("127.0.0.1", 0)),),
    )
    started_s = time.perf_counter()
    node = await Node.start(config)
    try:
        await node.wait_until_ready()
        async with Admin(node.address) as admin, Producer(node.address) as producer:
            await admin.create_topic(TOPIC, 1, 1)
            await (await producer.send(TOPIC, b"value"))
            return time.perf_counter() - started_s
    finally:
        await node.stop()


async def _start_cluster(directory: Path, settle_s: float) -> tuple[float, Sequence[int]]:
    started_s = time.perf_counter()
    cluster = await LocalCluster.start(directory, nodes=NODES)
    ready_s = time.perf_counter() - started_s
    try:
        await asyncio.sleep(settle_s)
        pids = [spec.process.pid for spec in cluster.nodes.values() if spec.process is not None]
        return ready_s, [psutil.Process(pid).memory_info().rss for pid in pids]
    finally:
        await cluster.kill_all()
