"""What the tests on real processes share: quick settings, waiting, looking into replicas, and the check after healing."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from replog.client import Admin, Consumer, TopicPartition
from replog.cluster import LocalCluster, NodePlace
from replog.cluster.node_spec import ConfigValue
from replog.errors import ReplogError, UnknownTopicOrPartitionError
from replog.records import decode_batch, scan
from replog.rpc.metadata_messages import PartitionInfo
from replog.rpc.node_messages import DescribeNodeResponse, ReplicaStatus
from replog.testing.history import History

QUICK: Mapping[str, ConfigValue] = {
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 1_000,
    "controller.quorum.request.timeout.ms": 1_000,
    "replica.fetch.backoff.ms": 200,
    "replica.high.watermark.checkpoint.interval.ms": 500,
}
"""Failures are noticed within two seconds, so that a test takes some seconds and not some minutes."""

PATIENCE_S = 60.0
"""How long a condition may take on a busy machine before the test fails; on an idle one it takes a second or two."""

POLL_S, POLL_MAX_S, POLL_GROWTH = 0.02, 0.1, 1.5
"""Between two looks, at first and later: each look costs the nodes and this process milliseconds, and an election takes seconds."""

T = TypeVar("T")


class StartCluster(Protocol):
    """The fixture `start_cluster`."""

    async def __call__(
        self,
        nodes: int = 3,
        *,
        wait: bool = True,
        disks: int = 1,
        places: Mapping[int, NodePlace] | None = None,
        **config: ConfigValue,
    ) -> Cluster: ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """Running processes and an admin client on them; `servers`: what clients ask first, where not the nodes themselves."""

    local: LocalCluster
    admin: Admin
    servers: str = ""

    @property
    def bootstrap_servers(self) -> str:
        return self.servers or self.local.bootstrap_servers

    @property
    def node_ids(self) -> list[int]:
        return sorted(self.local.nodes)

    def address(self, node_id: int) -> str:
        return self.local.nodes[node_id].address

    async def controller_id(self) -> int:
        """The active controller."""

        async def known() -> int | None:
            found = (await self.admin.describe_cluster()).controller_id
            return found if found >= 0 else None

        return await until(known, "there is a controller")

    async def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        return (await self.admin.describe_topics([topic]))[topic].partitions

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Who leads, waiting for an election that is under way."""

        async def elected() -> int | None:
            found = (await self.partitions(topic))[partition].leader
            return found if found >= 0 else None

        return await until(elected, f"{topic}-{partition} has a leader")

    async def leader_other_than(self, node_id: int, topic: str, partition: int = 0) -> int:
        async def moved() -> int | None:
            found = (await self.partitions(topic))[partition].leader
            return found if found not in {-1, node_id} else None

        return await until(moved, f"another node than {node_id} leads {topic}-{partition}")

    async def isr_is(self, isr: Sequence[int], topic: str, partition: int = 0) -> None:
        async def reached() -> bool:
            return set((await self.partitions(topic))[partition].isr) == set(isr)

        await until(reached, f"the ISR of {topic}-{partition} is {list(isr)}")

    async def describe(self, node_id: int) -> DescribeNodeResponse:
        return await self.admin.describe_node(self.address(node_id))

    async def replica(self, node_id: int, topic: str, partition: int = 0) -> ReplicaStatus:
        """What a node says of its replica."""
        for status in (await self.describe(node_id)).replicas:
            if (status.topic, status.partition_id) == (topic, partition):
                return status
        raise UnknownTopicOrPartitionError(f"node {node_id} has no replica of {topic}-{partition} (yet)")

    def log_text(self, node_id: int) -> str:
        return self.local.nodes[node_id].log_file.read_text(encoding="utf-8", errors="replace")

    def data_directory(self, node_id: int) -> Path:
        return self.local.nodes[node_id].directory / "data"

    def replica_directory(self, node_id: int, name: str) -> Path:
        """Of a replica such as "flights-0", on whichever disk it is."""
        (found,) = self.local.nodes[node_id].directory.glob(f"data*/{name}")
        return found


def say(text: str) -> None:
    """Shown by pytest when the test fails, and with -s."""
    print(f"{time.strftime('%H:%M:%S')} {text}")


async def until(condition: Callable[[], Awaitable[T | None]], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Asks until the answer is true, and returns it.  Our errors count as "not yet": the cluster may be healing."""
    deadline_s, pause_s = time.monotonic() + timeout_s, POLL_S
    problem = ""
    while time.monotonic() < deadline_s:
        try:
            answer = await condition()
            if answer:
                return answer
            problem = f"the last answer was {answer!r}"
        except ReplogError as error:
            problem = f"the last problem was {type(error).__name__}: {error}"
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * POLL_GROWTH, POLL_MAX_S)
    raise AssertionError(f"not within {timeout_s:g} s: {what}; {problem}")


async def run_node(config_file: Path, *options: str, timeout_s: float = PATIENCE_S) -> tuple[int, str]:
    """Runs a node that is expected to end by itself; its exit status and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replog.broker", "--config", str(config_file), "--parent-pid", str(os.getpid()), *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
        raise AssertionError(f"the node did not end within {timeout_s:g} s:\n{output.decode()}") from None
    return process.returncode or 0, output.decode()


# ---- replicas on disk ----------------------------------------------------------------------------------------------


def stored_batches(directory: Path, end_offset: int) -> list[tuple[int, bytes]]:
    """(base offset, bytes) of the batches of one replica that end at or below `end_offset`."""
    data = b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
    return [
        (header.base_offset, data[header.position : header.end_position])
        for header in scan(data)
        if header.next_offset <= end_offset
    ]


def stored_records(directory: Path) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything in one replica."""
    data = b"".join(segment.read_bytes() for segment in sorted(directory.glob("*.log")))
    return [
        (record.offset, record.value)
        for header in scan(data)
        if not header.is_control
        for record in decode_batch(data, header.position)
    ]


# ---- the check after healing ------------------------------------------------------------------------------------------


async def check_healed(cluster: Cluster, topic: str, history: History) -> None:
    """The cluster is whole again: all replicas in sync and byte-identical, and the history keeps every promise."""
    await wait_until_whole(cluster, topic)
    await read_to_the_end(cluster, topic, history)
    await check_replicas_identical(cluster, topic)
    say(f"{len(history.sends)} sends, {history.acknowledged_count} acknowledged")
    history.check_or_raise()


async def wait_until_whole(cluster: Cluster, topic: str) -> None:
    """ISR = replicas everywhere, every replica ends at the same offset, and that is the high watermark."""
    started_s = time.monotonic()
    await cluster.admin.wait_until_in_sync(topic, timeout_ms=int(PATIENCE_S * 1000))

    async def settled() -> bool:
        for partition in await cluster.partitions(topic):
            statuses = [await cluster.replica(n, topic, partition.partition_id) for n in partition.replicas]
            if len({(s.log_end_offset, s.high_watermark) for s in statuses}) > 1:
                return False
            if set(partition.isr) != set(partition.replicas):
                return False
            if statuses[0].log_end_offset != statuses[0].high_watermark:
                return False
        return True

    await until(settled, f"all replicas of {topic} agree on their ends and high watermarks")
    say(f"whole again after {time.monotonic() - started_s:.2f} s")


async def read_to_the_end(cluster: Cluster, topic: str, history: History) -> None:
    """The final read of `history`: everything below the high watermark, by a new consumer."""
    async with Consumer(cluster.bootstrap_servers, client_id="final-read") as consumer:
        partitions = await consumer.assign_topic(topic)
        starts = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        found: dict[TopicPartition, list[tuple[int, bytes]]] = {partition: [] for partition in partitions}

        async def read() -> bool:
            for record in await consumer.poll(timeout_ms=500):
                found[TopicPartition(record.topic, record.partition)].append((record.offset, record.value or b""))
            return all(consumer.position(partition) >= ends[partition] for partition in partitions)

        await until(read, f"{topic} is read up to {ends}")
    for partition, records in found.items():
        history.final_read(partition, starts[partition], ends[partition], records)


async def check_replicas_identical(cluster: Cluster, topic: str) -> None:
    """Below the high watermark every replica holds the same bytes."""
    for partition in await cluster.partitions(topic):
        name = f"{topic}-{partition.partition_id}"
        statuses = [await cluster.replica(n, topic, partition.partition_id) for n in partition.replicas]
        end_offset = min(status.high_watermark for status in statuses)
        contents = {n: stored_batches(cluster.replica_directory(n, name), end_offset) for n in partition.replicas}
        first, *others = contents.items()
        for node_id, batches in others:
            assert batches == first[1], f"{name} below {end_offset}: {_difference(first, (node_id, batches))}"


def _difference(one: tuple[int, list[tuple[int, bytes]]], other: tuple[int, list[tuple[int, bytes]]]) -> str:
    for (offset, data), (other_offset, other_data) in zip(one[1], other[1], strict=False):
        if (offset, data) != (other_offset, other_data):
            return f"node {one[0]} has a batch at {offset} that differs from node {other[0]}'s at {other_offset}"
    return f"node {one[0]} has {len(one[1])} batches, node {other[0]} has {len(other[1])}"
