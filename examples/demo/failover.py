"""Step 4: the process that leads most is killed in the middle of the writing, and comes back later."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from replog.errors import BrokerNotAvailableError, ReplogError

if TYPE_CHECKING:
    from examples.demo.display import Display
    from replog.client import Admin
    from replog.cluster import LocalCluster
    from replog.rpc.metadata_messages import PartitionInfo, TopicInfo
    from replog.rpc.node_messages import DescribeNodeResponse

_Predicate: TypeAlias = "Callable[[TopicInfo], bool]"

POLL_S = 0.05
REJOIN_TIMEOUT_S = 120.0


@dataclass(slots=True)
class Failover:
    """What the kill did.

    Attributes:
        victim: The id of the killed node.
        partitions: The partitions that it led.
        recovered_s: The time from the kill to the first acknowledgement by a new leader of one of them.
        rejoined_s: The time from the restart until it was in every ISR again.
        truncated: The offset that the node cut a partition back to, by partition.
        moved: The partitions of these that have a new leader.
    """

    victim: int = -1
    partitions: frozenset[int] = frozenset()
    killed_at_s: float = 0.0
    recovered_s: float | None = None
    rejoined_s: float | None = None
    truncated: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)

    def note_acknowledged(self, partition: int) -> None:
        """Notes that a record of `partition` was acknowledged just now."""
        if self.recovered_s is None and partition in self.moved:
            self.recovered_s = time.monotonic() - self.killed_at_s


def leading_most(topic: TopicInfo) -> int:
    """Returns the id of the node that leads most partitions; the lowest id among equals."""
    leads = Counter(partition.leader for partition in topic.partitions)
    return min(leads, key=lambda node_id: (-leads[node_id], node_id))


async def kill_leader(cluster: LocalCluster, admin: Admin, topic: str, failover: Failover, display: Display) -> None:
    """Ends a process with SIGKILL and returns when all its partitions have other leaders."""
    before = (await admin.describe_topics([topic]))[topic]
    failover.victim = leading_most(before)
    failover.partitions = frozenset(p.partition_id for p in before.partitions if p.leader == failover.victim)
    process = cluster.nodes[failover.victim].process
    pid = process.pid if process is not None else "gone"
    await cluster.kill(failover.victim)
    failover.killed_at_s = time.monotonic()
    display.event(
        f"kill -9 node {failover.victim} (pid {pid}), leader of {_listed(failover.partitions)}; producing goes on",
        style="bold red",
    )
    await _show_changes(admin, before, failover, display, until=lambda topic: _has_moved(topic, failover))


async def bring_back(cluster: LocalCluster, admin: Admin, topic: str, failover: Failover, display: Display) -> None:
    """Starts the killed node again and returns when it is in every ISR."""
    cluster.start_node(failover.victim)
    started_s = time.monotonic()
    spec = cluster.nodes[failover.victim]
    pid = spec.process.pid if spec.process is not None else "gone"
    display.event(f"node {failover.victim} started again (pid {pid})", style="bold")
    watch = asyncio.create_task(_watch_node(admin, spec.address, topic, failover, display))
    try:
        before = (await admin.describe_topics([topic]))[topic]
        await _show_changes(admin, before, failover, display, until=lambda topic: _is_back(topic, failover.victim))
        failover.rejoined_s = time.monotonic() - started_s
        await watch
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    if not failover.truncated:
        display.event(f"node {failover.victim} had nothing to cut: all it had written was replicated")
    display.event(
        f"node {failover.victim} is in every ISR again, {failover.rejoined_s:.1f} s after its start", style="green"
    )


async def _show_changes(
    admin: Admin, before: TopicInfo, failover: Failover, display: Display, *, until: _Predicate
) -> None:
    """Tells every change of leaders and ISRs until the condition holds."""
    known = before
    while not until(known):
        seen = known

        def is_news(topic: TopicInfo, seen: TopicInfo = seen) -> bool:
            return topic.partitions != seen.partitions

        known = await admin.wait_for_topic(
            before.name, is_news, timeout_ms=int(REJOIN_TIMEOUT_S * 1000), what=f"see {before.name} change"
        )
        for text in describe_changes(seen, known):
            display.event(f"{_since(failover)}{text}")
        failover.moved.update(p.partition_id for p in known.partitions if _moved(p, failover))


def describe_changes(before: TopicInfo, after: TopicInfo) -> list[str]:
    """Describes what changed, partitions with the same change on one line."""
    lines: dict[str, list[int]] = {}
    earlier = {partition.partition_id: partition for partition in before.partitions}
    for now in after.partitions:
        was = earlier[now.partition_id]
        parts = []
        if now.leader != was.leader:
            name = f"node {now.leader}" if now.leader >= 0 else "none"
            parts.append(f"new leader {name}, epoch {now.leader_epoch}")
        if set(now.isr) != set(was.isr):
            parts.append(f"ISR {list(was.isr)} -> {list(now.isr)}")
        if parts:
            lines.setdefault("; ".join(parts), []).append(now.partition_id)
    return [f"{_listed(partitions)}: {text}" for text, partitions in lines.items()]


async def until_running(admin: Admin, address: str) -> DescribeNodeResponse:
    """Waits until the node serves, as long as it takes (the caller watches the process), and returns what it says."""
    while True:
        node = await _describe(admin, address)
        if node is not None and node.state == "running":
            return node
        await asyncio.sleep(POLL_S)


async def _watch_node(admin: Admin, address: str, topic: str, failover: Failover, display: Display) -> None:
    """Tells the states of a starting node and what it cuts from its logs; returns when it runs and follows."""
    state = ""
    deadline = time.monotonic() + REJOIN_TIMEOUT_S
    while time.monotonic() < deadline:
        node = await _describe(admin, address)
        if node is not None:
            if node.state != state:
                state = node.state
                display.event(f"node {node.node_id} is {state}{_behind(node, topic)}")
            _tell_truncated(node, topic, failover, display)
            if failover.rejoined_s is not None:
                return
        await asyncio.sleep(POLL_S)
    raise BrokerNotAvailableError(f"node {failover.victim} did not come back; see its server.log")


def _tell_truncated(node: DescribeNodeResponse, topic: str, failover: Failover, display: Display) -> None:
    for replica in node.replicas:
        if replica.topic != topic or replica.truncated_to < 0 or replica.partition_id in failover.truncated:
            continue
        failover.truncated[replica.partition_id] = replica.truncated_to
        display.event(
            f"node {node.node_id} cut partition {replica.partition_id} back to offset {replica.truncated_to:,}: "
            "what it had beyond that was never acknowledged",
            style="yellow",
        )


async def _describe(admin: Admin, address: str) -> DescribeNodeResponse | None:
    try:
        return await admin.describe_node(address, timeout_ms=1_000)
    except ReplogError:
        return None


def _behind(node: DescribeNodeResponse, topic: str) -> str:
    ends = [replica.log_end_offset for replica in node.replicas if replica.topic == topic]
    return f", its logs hold {sum(ends):,} records" if ends else ""


def _has_moved(topic: TopicInfo, failover: Failover) -> bool:
    return all(_moved(p, failover) for p in topic.partitions if p.partition_id in failover.partitions)


def _moved(partition: PartitionInfo, failover: Failover) -> bool:
    return partition.partition_id in failover.partitions and partition.leader not in {-1, failover.victim}


def _is_back(topic: TopicInfo, node_id: int) -> bool:
    return all(node_id in p.isr and p.leader >= 0 for p in topic.partitions if node_id in p.replicas)


def _since(failover: Failover) -> str:
    return f"+{time.monotonic() - failover.killed_at_s:.1f} s  "


def _listed(partitions: Iterable[int]) -> str:
    numbers = sorted(partitions)
    return f"partition{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
