"""Clients that are left alone for long, or whose brokers give them no rest, go on: in virtual time, on whole nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from replog.client import Admin, Consumer, ConsumerRecord, Producer
from replog.testing import simulate
from replog.testing.simulated_cluster import SimulatedCluster

IDLE_S = 5.0
"""After which a client ends a connection, here; else a minute.  An hour costs half a minute of CPU, and shows the same."""
MOVES = 100
MOVES_S = 60
LAST = b"last"


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += await consumer.poll()
    return found


async def left_alone(_: SimulatedCluster) -> None:
    await asyncio.sleep(6 * IDLE_S)


async def restarted(cluster: SimulatedCluster) -> None:
    for node_id in cluster.nodes:
        await cluster.stop(node_id)
        cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)


@pytest.mark.parametrize("pause", [left_alone, restarted])
def test_idle_clients_go_on(
    pause: Callable[[SimulatedCluster], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their connections were ended meanwhile, or all brokers restarted; the member of a group has kept its partitions."""

    async def test(cluster: SimulatedCluster) -> None:
        servers, connect = cluster.bootstrap_servers, cluster.transport
        async with (
            Admin(servers, transport=connect("admin")) as admin,
            Producer(servers, transport=connect("app")) as producer,
            Consumer(servers, group_id="g", auto_offset_reset="earliest", transport=connect("reader")) as consumer,
        ):
            await admin.create_topic("t", 1, 3)
            await consumer.subscribe(["t"])
            await producer.send_and_wait("t", b"before")
            assert [each.value for each in await read(consumer, 1)] == [b"before"]
            before = consumer.group_metadata()
            waiting = asyncio.create_task(read(consumer, 1))
            await pause(cluster)
            await producer.send_and_wait("t", b"after")
            assert [each.value for each in await waiting] == [b"after"]
            assert consumer.group_metadata() == before
            assert [each.group_id for each in await admin.list_groups()] == ["g"]

    monkeypatch.setattr("replog.client.protocol.connection.IDLE_S", IDLE_S)
    simulate(test, seed=11)


async def write(producer: Producer, sent: list[bytes]) -> None:
    while True:
        value = b"%d" % len(sent)
        await producer.send_and_wait("t", value)
        sent.append(value)
        await asyncio.sleep(0.1)


def test_nothing_is_lost_or_doubled_while_a_leader_moves_a_hundred_times_a_minute() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        servers, connect, time = cluster.bootstrap_servers, cluster.transport, cluster.loop.time
        sent: list[bytes] = []
        async with (
            Admin(servers, transport=connect("admin")) as admin,
            Producer(servers, transport=connect("app")) as producer,
            Consumer(servers, transport=connect("reader")) as consumer,
        ):
            await admin.create_topic("t", assignments=[[1, 2, 3]])
            await consumer.assign([("t", 0)])
            writing, until = asyncio.create_task(write(producer, sent)), time() + MOVES_S
            for number in range(1, MOVES + 1):
                await admin.reassign_partitions(
                    {("t", 0): [1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3]}
                )
                await admin.elect_leaders([("t", 0)])
            assert time() < until
            info = await admin.wait_for_topic("t", lambda topic: topic.partitions[0].leader_epoch >= MOVES)
            assert info.partitions[0].leader == 1 + MOVES % 3
            writing.cancel()
            await asyncio.wait({writing})
            await producer.send_and_wait("t", LAST)
            found: list[bytes | None] = []
            while LAST not in found:
                found += [record.value for record in await consumer.poll()]
            assert len(set(found)) == len(found)
            assert found[: len(sent)] == sent  # and perhaps the one whose sending was cancelled

    simulate(test, seed=12)
