"""The order of events: a cluster, a load, one fault after the other, and everything is read back."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from replog.cluster.node_spec import ConfigValue
from replog.config.server_keys import InterBrokerTransport
from replog_chaos.fault import SESSION_MS, Fault, Scene, Target
from replog_chaos.faults import Links, faults_with
from replog_chaos.kafka_load import KafkaLoad
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
    transport: InterBrokerTransport = InterBrokerTransport.GRPC,
    kafka: bool = False,
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
        transport: What the nodes meet over.
        kafka: Whether librdkafka's clients write and read the topic too, at the same rate.

    Raises:
        TimeoutError: The cluster did not recover.
        ReplogError: The cluster did not come up.
    """
    outcomes: list[FaultOutcome] = []
    config: dict[str, ConfigValue] = {
        "broker.session.timeout.ms": SESSION_MS,
        "inter.broker.transport": transport.value,
    }
    faults = {name: fault for name, fault in faults_with(links).items() if name in names}
    skipped = {name: reason for name, fault in faults.items() if (reason := await asyncio.to_thread(fault.missing))}
    for name, reason in skipped.items():
        say(f"{name}: skipped: {reason}")
    for scene in Scene:
        here = {name: faults[name] for name in names if faults[name].scene is scene and name not in skipped}
        if here:
            outcomes.append(
                await _run_scene(scene, here, config, rounds, nodes, partitions, rate_per_s, say, kafka=kafka)
            )
    return combined(outcomes, skipped, links.value, transport.value)


async def _run_scene(
    scene: Scene,
    faults: Mapping[str, Fault],
    config: Mapping[str, ConfigValue],
    rounds: int,
    nodes: int,
    partitions: int,
    rate_per_s: float,
    say: Callable[[str], None],
    *,
    kafka: bool,
) -> FaultOutcome:
    directory = Path(tempfile.mkdtemp(prefix="replog-chaos-"))
    try:
        async with prepared(scene, directory / "cluster", nodes, config, TOPIC) as target:
            await target.admin.create_topic(TOPIC, partitions, 3, {"min.insync.replicas": 2})
            await target.admin.wait_until_in_sync(TOPIC)
            loads = _loads(target, partitions, rate_per_s, kafka=kafka)
            return await _run(target, faults, rounds, partitions, loads, say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _loads(target: Target, partitions: int, rate_per_s: float, *, kafka: bool) -> list[Load]:
    """Returns the load of our own client, and that of librdkafka's where it is wanted; they share a history."""
    own = Load(target.bootstrap_servers, TOPIC, partitions, rate_per_s)
    if not kafka:
        return [own]
    return [own, KafkaLoad(target.bootstrap_servers, TOPIC, partitions, rate_per_s, own.history)]


async def _run(
    target: Target,
    faults: Mapping[str, Fault],
    rounds: int,
    partitions: int,
    loads: Sequence[Load],
    say: Callable[[str], None],
) -> FaultOutcome:
    start_s = asyncio.get_running_loop().time()
    injected: list[Injected] = []
    async with AsyncExitStack() as stack:
        for load in loads:
            await stack.enter_async_context(load)
        await _wait_flowing(loads, start_s)
        for _ in range(rounds):
            for name, fault in faults.items():
                await asyncio.sleep(QUIET_S)
                one = await _inject(target, loads, name, fault, partitions)
                injected.append(one)
                say(
                    f"{name} (node {', '.join(map(str, one.nodes))}): {one.unavailable_s:.2f} s without acknowledgements, "
                    f"in sync after {one.settled_s - one.began_s:.1f} s"
                )
        await asyncio.sleep(QUIET_S)
    return await _judged(target, start_s, injected, loads)


async def _judged(target: Target, start_s: float, injected: Sequence[Injected], loads: Sequence[Load]) -> FaultOutcome:
    """Reads everything back, by every client, and compares it with what they were promised."""
    own, kafkas = loads[0], [load for load in loads if isinstance(load, KafkaLoad)]
    ends = await own.read_back()
    missing = [one for load in kafkas for one in await load.read_the_same(ends)]
    anomalies = (*own.history.check(), *missing, *target.anomalies)
    acknowledged = sorted((one for load in loads for one in load.acknowledged), key=lambda one: one.acked_s)
    return FaultOutcome(
        start_s,
        len(own.history.sends),
        acknowledged,
        sum((load.unknown_because for load in loads), Counter[str]()),
        blamed(injected, acknowledged, anomalies, TOPIC),
        anomalies,
        by_client={load.name: len(load.acknowledged) for load in loads},
        stored_count=sum(len(load.stored) for load in kafkas),
    )


async def _wait_flowing(loads: Sequence[Load], since_s: float) -> None:
    await asyncio.gather(*(load.wait_flowing(since_s) for load in loads))


async def _inject(target: Target, loads: Sequence[Load], name: str, fault: Fault, partitions: int) -> Injected:
    loop = asyncio.get_running_loop()
    began_s = flowing_s = loop.time()
    async with asyncio.timeout(PATIENCE_S):
        async with fault.happens(target) as nodes:
            if not fault.blocks:
                await _wait_flowing(loads, loop.time())
                flowing_s = loop.time()
        if fault.blocks:
            await _wait_flowing(loads, loop.time())
            flowing_s = loop.time()
        await target.cluster.wait_until_ready()
        await target.admin.wait_until_in_sync(TOPIC)
        await target.admin.elect_leaders()
        settled_s = loop.time()
        await _wait_flowing(loads, settled_s)
    gap_s = max(unavailable_s(load.acknowledged, partitions, began_s, settled_s) for load in loads)
    return Injected(name, tuple(nodes), began_s, flowing_s, settled_s, gap_s)
