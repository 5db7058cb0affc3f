"""The clusters that faults happen to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from replog.client import Admin
from replog.cluster import LocalCluster, NodePlace
from replog.cluster.node_spec import ConfigValue
from replog.testing.machines.disks import SmallDisk
from replog.testing.machines.network import Network
from replog.testing.machines.proxies import Proxies
from replog_chaos.clocks import Clocks
from replog_chaos.cuttable_disk import CuttableDisk, Disk
from replog_chaos.disk_faults import DISK_NODE
from replog_chaos.fault import Scene, Target
from replog_chaos.namespaces import Namespaces

LEADER_TIME: Mapping[str, ConfigValue] = {"log.message.timestamp.type": "LogAppendTime"}


@asynccontextmanager
async def prepared(
    scene: Scene, directory: Path, nodes: int, config: Mapping[str, ConfigValue], topic: str
) -> AsyncIterator[Target]:
    """Brings up a cluster for the length of a block; its processes are gone afterwards.

    Args:
        scene: The kind of cluster.
        directory: The directory of the cluster, which does not exist yet.
        nodes: The number of brokers that are controllers too.
        config: The configuration of all nodes.
        topic: The topic that will be under load.
    """
    async with AsyncExitStack() as stack:
        node_ids = range(1, nodes + 1)
        network = _network(scene, node_ids)
        if network:
            await stack.enter_async_context(network)
        disk = _disk(scene, directory.with_name("disk"))
        own = network.node_config() if network else {}
        if disk:
            stack.enter_context(disk)
            own[DISK_NODE] = {"log.dirs": [str(disk.folder / "data")]}
        clocks = Clocks(directory.with_name("clocks"), node_ids) if scene is Scene.CLOCKS else None
        places = network.places() if network else {}
        if clocks:
            places = {node_id: NodePlace(environment=clocks.environment(node_id)) for node_id in node_ids}
        config = {**config, **LEADER_TIME} if clocks else config
        cluster = await LocalCluster.start(
            directory, nodes=nodes, config=config, node_config=own, places=places, wait=False
        )
        stack.push_async_callback(cluster.kill_all)
        servers = network.connect(cluster) if network else cluster.bootstrap_servers
        await cluster.wait_until_ready()
        admin = await stack.enter_async_context(Admin(servers))
        yield Target(cluster, admin, topic, servers, network, disk, clocks)


def _network(scene: Scene, node_ids: Iterable[int]) -> Network | None:
    if scene is Scene.PROXIED:
        return Proxies(node_ids)
    return Namespaces(node_ids) if scene is Scene.NAMESPACES else None


def _disk(scene: Scene, folder: Path) -> Disk | None:
    if scene is Scene.SMALL_DISK:
        return SmallDisk(folder)
    return CuttableDisk(folder) if scene is Scene.CUTTABLE_DISK else None
