"""The order of events: a cluster, a load, one fault after the other, and everything is read back."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from replog.cluster.node_spec import ConfigValue
from replog_chaos.fault import SESSION_MS, Fault, Scene, Target
from replog_chaos.faults import Links, faults_with
from replog_chaos.load import Load
from replog_chaos.outcome import FaultOutcome, Injected, blamed, combined, unavailable_s
from replog_chaos.scenes import prepared

TOPIC = "chaos"
QUIET_S = 2.0
"""Load before each fault and after the last one."""

PATIENCE_S = 180.0
"""For everything that must come by itself after a fault."""


async def run_chaos(
    names: Sequence[str],
    *,
    rounds: int,
    nodes: int,
    partitions: int,
    rate_per_s: float,
    say: Callable[[str], None],
    links: Links = Links.PROXIES,
) -> FaultOutcome:
    """Runs every fault `rounds` times, on a new cluster for each scene, which is gone afterwards.

    A fault for which this machine lacks something is skipped, with the reason in the outcome.

    Args:
        names: The names of faults, see `FAULTS`.
        rounds: The number of times that all of them happen.
        nodes: The number of brokers that are controllers too; replication factor 3, `min.insync.replicas` 2.
        partitions: The number of partitions of the topic under load.
        rate_per_s: The records sent in a second.
        say: The function that is told what happens.
        links: The means by which links are cut.

    Raises:
        TimeoutError: The cluster did not recover.
        ReplogError: The cluster did not come up.
    """
    outcomes: list[FaultOutcome] = []
    faults = {name: fault for name, fault in faults_with(links).items() if name in names}
    skipped = {name: reason for name, fault in faults.items() if (reason := await asyncio.to_thread(fault.missing))}
    for name, reason in skipped.items():
        say(f"{name}: skipped: {reason}")
    for scene in Scene:
        here = {name: faults[name] for name in names if faults[name].scene is scene and name not in skipped}
        if here:
            outcomes.append(await _run_scene(scene, here, rounds, nodes, partitions, rate_per_s, say))
    return combined(outcomes, skipped, links.value)


async def _run_scene(
    scene: Scene,
    faults: Mapping[str, Fault],
    rounds: int,
    nodes: int,
    partitions: int,
    rate_per_s: float,
    say: Callable[[str], None],
) -> FaultOutcome:
    directory = Path(tempfile.mkdtemp(prefix="replog-chaos-"))
    config: dict[str, ConfigValue] = {"broker.session.timeout.ms": SESSION_MS}
    try:
        async with prepared(scene, directory / "cluster", nodes, config, TOPIC) as target:
            await target.admin.create_topic(TOPIC, partitions, 3, {"min.insync.replicas": 2})
            await target.admin.wait_until_in_sync(TOPIC)
            return await _run(target, faults, rounds, partitions, rate_per_s, say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _run(
    target: Target,
    faults: Mapping[str, Fault],
    rounds: int,
    partitions: int,
    rate_per_s: float,
    say: Callable[[str], None],
) -> FaultOutcome:
    loop = asyncio.get_running_loop()
    injected: list[Injected] = []
    load = Load(target.bootstrap_servers, TOPIC, partitions, rate_per_s)
    start_s = loop.time()
    async with load:
        await load.wait_flowing(start_s)
        for _ in range(rounds):
            for name, fault in faults.items():
                await asyncio.sleep(QUIET_S)
                one = await _inject(target, load, name, fault, partitions)
                injected.append(one)
                say(
                    f"{name} (node {', '.join(map(str, one.nodes))}): {one.unavailable_s:.2f} s without acknowledgements, "
                    f"in sync after {one.settled_s - one.began_s:.1f} s"
                )
        await asyncio.sleep(QUIET_S)
    await load.read_back()
    anomalies = (*load.history.check(), *target.anomalies)
    faults_with_losses = blamed(injected, load.acknowledged, anomalies, TOPIC)
    return FaultOutcome(
        start_s, len(load.history.sends), load.acknowledged, load.unknown_count, faults_with_losses, anomalies
    )


async def _inject(target: Target, load: Load, name: str, fault: Fault, partitions: int) -> Injected:
    loop = asyncio.get_running_loop()
    began_s = flowing_s = loop.time()
    async with asyncio.timeout(PATIENCE_S):
        async with fault.happens(target) as nodes:
            if not fault.blocks:
                await load.wait_flowing(loop.time())
                flowing_s = loop.time()
        if fault.blocks:
            await load.wait_flowing(loop.time())
            flowing_s = loop.time()
        await target.cluster.wait_until_ready()
        await target.admin.wait_until_in_sync(TOPIC)
        await target.admin.elect_leaders()
        settled_s = loop.time()
        await load.wait_flowing(settled_s)
    gap_s = unavailable_s(load.acknowledged, partitions, began_s, settled_s)
    return Injected(name, tuple(nodes), began_s, flowing_s, settled_s, gap_s)
