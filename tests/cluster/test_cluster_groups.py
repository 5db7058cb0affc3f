"""Groups while processes die: a coordinator, a member, a whole cluster."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster_kit import Cluster, StartCluster, until

from replog.client import Consumer, ConsumerRecord, Producer

pytestmark = pytest.mark.cluster

TOPIC, GROUP, PARTITIONS = "flights", "billing", 4
PROGRAM = Path(__file__).parent / "member_program.py"
QUICK_GROUPS = {
    "group_consumer_heartbeat_interval_ms": 100,
    "group_consumer_session_timeout_ms": 3_000,
    "offsets_topic_num_partitions": 1,
}
Place = tuple[int, int]


class Reader:
    """A member in this process, which remembers the place of each record that it got."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.places: set[Place] = set()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self.consumer:
            self.places.add(place(record))


def place(record: ConsumerRecord) -> Place:
    return record.partition, record.offset


@asynccontextmanager
async def reader(cluster: Cluster) -> AsyncIterator[Reader]:
    async with Consumer(cluster.bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([TOPIC])
        found = Reader(consumer)
        try:
            yield found
        finally:
            found.task.cancel()
            await asyncio.wait([found.task])


async def started(start_cluster: StartCluster, nodes: int) -> Cluster:
    cluster = await start_cluster(nodes, **QUICK_GROUPS)
    await cluster.admin.create_topic(TOPIC, PARTITIONS, nodes)
    return cluster


async def fill(cluster: Cluster, count: int = 40) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


def everything(per_partition: int) -> set[Place]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(per_partition)}


async def test_members_go_on_when_their_coordinator_is_killed(start_cluster: StartCluster) -> None:
    """What was committed is kept, nobody is put out for what the broker did, and nothing is read twice."""
    cluster = await started(start_cluster, 3)
    await fill(cluster)
    async with reader(cluster) as first, reader(cluster) as second:
        readers = (first, second)
        await until(lambda: all_read(10, *readers), "everything is read")
        await until(lambda: share(*readers), "both have partitions")
        for each in readers:
            await each.consumer.commit()
        coordinator = await cluster.leader("__consumer_offsets")
        await cluster.local.kill(coordinator)
        before = [each.places.copy() for each in readers]
        await fill(cluster)
        await until(lambda: all_read(20, *readers), "what came after the kill is read")
        new = [each.places - had for each, had in zip(readers, before, strict=True)]
        assert not new[0] & new[1]
        partition = first.consumer.assignment()[0]

        async def committed() -> bool:
            await first.consumer.commit()
            return await first.consumer.committed(partition) == 20

        await until(committed, "the new coordinator keeps offsets")
        cluster.local.start_node(coordinator)


async def all_read(per_partition: int, *readers: Reader) -> bool:
    for each in readers:
        if each.task.done():
            await each.task
    return set().union(*(each.places for each in readers)) == everything(per_partition)


async def share(*readers: Reader) -> bool:
    return all(len(each.consumer.assignment()) == PARTITIONS // len(readers) for each in readers)


async def test_commits_survive_the_kill_of_all_brokers(start_cluster: StartCluster) -> None:
    cluster = await started(start_cluster, 1)
    await fill(cluster)
    async with Consumer(cluster.bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([TOPIC])
        first = {place(await anext(consumer)) for _ in range(25)}
        await consumer.commit()
        await cluster.local.kill_all()
        cluster.local.start_node(1)
        await cluster.local.wait_until_ready(60.0)
    async with reader(cluster) as again:
        await until(lambda: rest_is_read(again, first), "the rest is read")
        assert again.places == everything(10) - first


async def rest_is_read(again: Reader, first: set[Place]) -> bool:
    return len(again.places) >= len(everything(10) - first)


async def test_a_killed_member_is_replaced_and_what_it_had_done_is_not_done_again(start_cluster: StartCluster) -> None:
    cluster = await started(start_cluster, 1)
    await fill(cluster)
    async with program(cluster) as process:
        theirs = [await line_of(process) for _ in range(40)]
        async with reader(cluster) as mine:
            await until(lambda: share_with_a_program(mine), "both have partitions")
            await fill(cluster)
            await until(lambda: read_so_many(mine, 20), "this member has read its part")
            process.send_signal(signal.SIGKILL)
            await until(lambda: has_all(mine), "this member has taken over")
            await fill(cluster)
            await until(lambda: has_read(mine, everything(30) - everything(20)), "what came last is read")
    assert set(theirs) == everything(10)
    assert not mine.places & everything(10)


async def test_ctrl_c_lets_a_member_leave_at_once(start_cluster: StartCluster) -> None:
    """It does not wait for the session, which is longer than the test waits: the next one begins behind what was done."""
    cluster = await start_cluster(1, **(QUICK_GROUPS | {"group_consumer_session_timeout_ms": 600_000}))
    await cluster.admin.create_topic(TOPIC, PARTITIONS, 1)
    await fill(cluster)
    async with program(cluster) as process:
        for _ in range(40):
            await line_of(process)
        process.send_signal(signal.SIGINT)
        assert (await process.communicate())[0] == b"leaves\n"
        assert process.returncode == 0
    await fill(cluster)
    async with reader(cluster) as mine:
        await until(lambda: has_read(mine, everything(20) - everything(10)), "what came later is read")
        assert len(mine.places & everything(10)) <= 1  # what the other one had in hand


async def share_with_a_program(mine: Reader) -> bool:
    return len(mine.consumer.assignment()) == PARTITIONS // 2


async def has_all(mine: Reader) -> bool:
    return len(mine.consumer.assignment()) == PARTITIONS


async def has_read(mine: Reader, places: set[Place]) -> bool:
    return mine.places >= places


async def read_so_many(mine: Reader, count: int) -> bool:
    return len(mine.places) >= count


@asynccontextmanager
async def program(cluster: Cluster) -> AsyncIterator[asyncio.subprocess.Process]:
    """A member in a process of its own, which is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), cluster.bootstrap_servers, GROUP, TOPIC, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> Place:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        partition, offset = (await process.stdout.readline()).split()
    return int(partition), int(offset)
