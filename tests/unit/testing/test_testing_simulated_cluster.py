"""Whole nodes in virtual time: they start, elect, serve, die with their machine and come back with what its disk kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from replog.client import Admin, Consumer, Producer
from replog.controller.requests import CreateTopics, CreateTopicsResponse, NewTopic
from replog.errors import ErrorCode, StorageError
from replog.testing import Operation, simulate
from replog.testing.simulated_clock import WALL_START_MS
from replog.testing.simulated_cluster import LOG_DIRECTORY, SimulatedClient, SimulatedCluster
from replog.testing.simulated_node import ClusterObserver, ObservedNode, SimulatedNode
from replog.testing.virtual_loop import VirtualLoop
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog_checkpoints import CLEAN_SHUTDOWN_FILE
from tests.sim.kafka_connection import KafkaConnection, KafkaConnectionLostError, read

SETTINGS = {"log.dir.reserve.bytes": 0}


class Observer(ClusterObserver):
    def __init__(self) -> None:
        self.leaders: list[tuple[int, int]] = []
        self.failures: list[tuple[int, BaseException]] = []

    def became_leader(self, node: ObservedNode, epoch: int) -> None:
        self.leaders.append((node.config.node_id, epoch))

    def failed(self, node: SimulatedNode, error: BaseException) -> None:
        self.failures.append((node.node_id, error))


def run(
    test: Callable[[SimulatedCluster, Observer], Awaitable[None]],
    *,
    controllers: tuple[int, ...] = (1, 2, 3),
    brokers: tuple[int, ...] = (4,),
) -> int:
    """Starts a cluster, runs `test` once it is settled, returns the trace."""
    loop = VirtualLoop(random.Random(1), steps_max=1_000_000)
    observer = Observer()
    cluster = SimulatedCluster(
        loop, random.Random(2), controllers=controllers, brokers=brokers, settings=SETTINGS, observer=observer
    )

    async def main() -> None:
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        await test(cluster, observer)

    loop.run(main())
    assert loop.problems == []
    return loop.trace


async def create(client: SimulatedClient, node_id: int, name: str) -> ErrorCode:
    response = await client.ask(node_id, CreateTopics((NewTopic(name, 1, 1),)), timeout_ms=30_000)
    assert isinstance(response, CreateTopicsResponse)
    return response.topics[0].error


async def leader_id(cluster: SimulatedCluster) -> int:
    await cluster.wait_until(cluster.leader)
    leader = cluster.leader()
    assert leader is not None
    return leader.config.node_id


def test_a_cluster_starts_and_takes_changes_through_any_node() -> None:
    async def test(cluster: SimulatedCluster, observer: Observer) -> None:
        client = cluster.client("client")
        for node_id in cluster.nodes:
            assert await create(client, node_id, f"t{node_id}") is ErrorCode.NONE
        await cluster.wait_until(cluster.is_settled)
        assert [sorted(node.image.topics_by_name) for node in cluster.running] == [["t1", "t2", "t3", "t4"]] * 4
        hashes = [node.controller_state_hash for node in cluster.running]
        assert len(set(hashes[:3])) == 1
        assert hashes[3] is None
        assert observer.leaders == [(await leader_id(cluster), 1)]

    run(test)


def test_a_power_cut_of_all_machines_keeps_what_was_acknowledged() -> None:
    async def test(cluster: SimulatedCluster, observer: Observer) -> None:
        client = cluster.client("client")
        assert await create(client, 1, "kept") is ErrorCode.NONE
        for node in cluster.nodes.values():
            node.crash()
            assert node.host.is_off
            assert not node.is_running
        assert cluster.running == []
        for node_id in cluster.nodes:
            cluster.start(node_id)
        await cluster.wait_until(cluster.is_settled)
        assert all("kept" in node.image.topics_by_name for node in cluster.running)
        assert observer.failures == []

    run(test)


def test_a_new_leader_when_the_leader_is_killed_or_cut_off_or_paused() -> None:
    async def test(cluster: SimulatedCluster, _: Observer) -> None:
        async def replaced(trouble: Callable[[int], object], end: Callable[[int], object]) -> None:
            old_id = await leader_id(cluster)
            trouble(old_id)
            others = [node for node in cluster.running if node.config.node_id != old_id]
            await cluster.wait_until(lambda: all(node.quorum_status.leader_id not in (None, old_id) for node in others))
            end(old_id)
            await cluster.wait_until(cluster.is_settled)

        await replaced(lambda node_id: cluster.crash(node_id, power_cut=False), cluster.start)
        await replaced(cluster.isolate, lambda _: cluster.mend_all())
        await replaced(cluster.pause, cluster.resume)

    run(test)


def test_an_orderly_stop_leaves_the_marker_a_crash_does_not() -> None:
    async def test(cluster: SimulatedCluster, observer: Observer) -> None:
        node = cluster.nodes[4]
        marker = f"{LOG_DIRECTORY}/{CLEAN_SHUTDOWN_FILE}"
        process: Any = node.process
        await cluster.stop(4)
        assert node.fs.exists(marker)
        assert process.is_dead
        assert not node.host.is_off
        cluster.start(4)
        await cluster.wait_until(cluster.is_settled)
        assert node.lives == 2
        cluster.crash(4, power_cut=False)
        assert not node.fs.exists(marker)
        assert observer.failures == []

    run(test)


def test_an_orderly_stop_that_fails_is_told_and_ends_the_process() -> None:
    async def test(cluster: SimulatedCluster, observer: Observer) -> None:
        node = cluster.nodes[4]
        node.fs.faults.fail_next(Operation.WRITE, path_part="recovery-point")
        await cluster.stop(4)
        assert not node.is_running
        assert not node.fs.exists(f"{LOG_DIRECTORY}/{CLEAN_SHUTDOWN_FILE}")
        ((failed_id, error),) = observer.failures
        assert (failed_id, type(error)) == (4, StorageError)

    run(test)


def test_a_broker_without_metadata_keeps_its_session_and_hears_of_nothing() -> None:
    async def test(cluster: SimulatedCluster, _: Observer) -> None:
        cluster.cut_metadata(4)
        assert await create(cluster.client("me"), 1, "flights") is ErrorCode.NONE
        await asyncio.sleep(2)
        broker = cluster.nodes[4].node
        assert broker is not None
        assert "flights" not in broker.image.topics_by_name
        (running,) = (node for node in cluster.running if node.config.node_id == 1)
        assert running.image.brokers[4].is_active
        cluster.mend_all()
        await cluster.wait_until(lambda: "flights" in broker.image.topics_by_name)

    run(test)


def test_a_power_cut_in_the_middle_of_a_write_ends_the_process_there() -> None:
    async def test(cluster: SimulatedCluster, observer: Observer) -> None:
        client = cluster.client("client")
        for count in range(12):
            node = cluster.nodes[1 + count % 3]
            node.fs.faults.cut_power_after(count)
            for attempt in range(10):
                if node.is_running:
                    await create(client, 4, f"t{count}-{attempt}")
            assert not node.is_running
            cluster.start(node.node_id)
            await cluster.wait_until(cluster.is_settled)
        assert observer.failures == []

    run(test)


def test_a_node_that_ends_by_itself_is_told() -> None:
    async def test(cluster: SimulatedCluster, observer: Observer) -> None:
        cluster.nodes[4].fs.faults.fail_always(Operation.SYNC)
        await create(cluster.client("client"), 1, "t")
        await cluster.wait_until(lambda: observer.failures)
        ((node_id, error),) = observer.failures
        assert node_id == 4
        assert isinstance(error, StorageError | OSError)
        await cluster.wait_until(lambda: not cluster.nodes[4].is_running)

    run(test)


def test_a_node_runs_once() -> None:
    async def test(cluster: SimulatedCluster, _: Observer) -> None:
        with pytest.raises(RuntimeError, match="runs already"):
            cluster.start(4)

    run(test)


def test_records_get_the_time_of_the_simulation() -> None:
    async def send(cluster: SimulatedCluster) -> tuple[int, int]:
        async with Admin(cluster.bootstrap_servers, transport=cluster.transport("admin")) as admin:
            await admin.create_topic("x", 1, 3)
        async with Producer(cluster.bootstrap_servers, transport=cluster.transport("app")) as producer:
            one = await (await producer.send("x", b"1"))
            await asyncio.sleep(60)
            await (await producer.send_many("x", [b"2"]))
        async with Consumer(cluster.bootstrap_servers, transport=cluster.transport("reader")) as consumer:
            await consumer.assign([("x", 0)])
            records = [record for _ in range(2) for record in await consumer.poll(max_records=1)]
        assert records[0].timestamp == one.timestamp
        return one.timestamp, records[1].timestamp

    first, second = simulate(send, seed=7)
    assert 0 <= first - WALL_START_MS < 60_000 <= second - first < 70_000
    assert simulate(send, seed=7) == (first, second)


def test_an_idle_cluster_rests() -> None:
    async def test(cluster: SimulatedCluster, _: Observer) -> None:
        before = cluster.loop.steps
        until = cluster.loop.time() + 10
        await cluster.wait_until(lambda: cluster.loop.time() > until)
        assert cluster.loop.steps - before < 10_000

    run(test)


def test_one_seed_is_one_run() -> None:
    async def test(cluster: SimulatedCluster, _: Observer) -> None:
        await create(cluster.client("client"), 2, "t")
        cluster.crash(await leader_id(cluster))
        await create(cluster.client("client"), 4, "t2")

    assert run(test) == run(test)


def test_kafka_clients_are_served_over_simulated_tcp() -> None:
    """By the brokers, as long as their processes run."""

    async def scenario(cluster: SimulatedCluster) -> None:
        tcp, node = cluster.internet.host("app").tcp, cluster.nodes[4]
        connection = await KafkaConnection.open(tcp, "127.0.0.1", 9_004)
        told = read(await connection.ask(MetadataRequest(topics=None), 9), MetadataResponse, 9)
        assert [(broker.node_id, broker.port) for broker in told.brokers] == [(4, 9_004)]
        cluster.crash(4, power_cut=False)
        await cluster.wait_until(lambda: connection.is_lost)
        with pytest.raises(KafkaConnectionLostError):
            await KafkaConnection.open(tcp, "127.0.0.1", 9_004)
        node.start()
        await cluster.wait_until(cluster.is_settled)
        (await KafkaConnection.open(tcp, "127.0.0.1", 9_004)).close()

    simulate(scenario, seed=1, brokers=(4,))
