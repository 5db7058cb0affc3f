"""One node, whole: its server, its quorum of one, its broker; how it starts, ends, and does not go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from broker_kit import batch, wait_until
from node_kit import Running, config, node, stopping

from replog.broker.node.environment import NodeEnvironment, PeerNetwork
from replog.broker.node.node import Node
from replog.broker.replicas.log_keeper import LogKeeper
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.client.protocol.connection import KafkaTransport
from replog.config.server import ServerConfig
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    CreateTopics,
    DeleteTopics,
    NamedPartition,
    NewTopic,
)
from replog.coordinator.describing.requests import ListGroups
from replog.errors import (
    BrokerNotAvailableError,
    ConfigError,
    CoordinatorNotAvailableError,
    CorruptCheckpointError,
    DirectoryLockedError,
    ErrorCode,
    InconsistentClusterIdError,
    NotControllerError,
    ReplogError,
    RequestTimedOutError,
    StorageError,
)
from replog.metadata.records import CLIENT_LISTENER, ResourceType
from replog.rpc.grpc.transport import GrpcServer, GrpcTransport, bind
from replog.rpc.messages import (
    LATEST_TIMESTAMP,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProducePartition,
    ProduceRequest,
    client_hello,
)
from replog.rpc.metadata_messages import MetadataRequest, MetadataUpdate, WatchRequest
from replog.rpc.node_messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeNodeConfigsRequest,
    DescribeNodeRequest,
    MoveReplicaRequest,
)
from replog.rpc.transport import ConnectionLostError
from replog.testing import Operation, SimulatedFileSystem
from replog_checkpoints import CLEAN_SHUTDOWN_FILE, FileSystem, OpenMode, OsFileSystem, read_clean_shutdown
from tests.envelopes import in_envelope


def marker(fs: FileSystem, directory: str = "/data") -> int | None:
    """The broker epoch in the clean-shutdown marker; None without one."""
    found = read_clean_shutdown(fs, f"{directory}/{CLEAN_SHUTDOWN_FILE}")
    return None if found is None else found.broker_epoch


# ---- the whole way -----------------------------------------------------------------------------------------------------


async def test_create_produce_fetch_restart() -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        topic = await it.create()
        assert [(await it.produce(topic)).base_offset for _ in range(3)] == [0, 1, 2]
        assert await it.fetch(topic) == 3 * len(batch())
        epoch = it.node.parts.replicas.lifecycle.broker_epoch
    assert marker(fs) == epoch
    async with node(fs) as it:
        assert marker(fs) is None, "a crash from here on is an unclean stop"
        again = await it.topic()
        assert again.topic_id == topic.topic_id
        assert again.partitions[0].leader_epoch > topic.partitions[0].leader_epoch, "an epoch is never resumed"
        assert (await it.produce(again)).base_offset == 3


async def test_an_abort_is_an_unclean_stop_and_loses_nothing_that_was_acknowledged() -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        topic = await it.create()
        await it.produce(topic)
        await it.node.abort()
        assert marker(fs) is None
    async with node(fs) as it:
        await wait_until(lambda: it.node.parts.replicas.stepper.replicas)
        assert (await it.produce(topic)).base_offset == 1


async def test_all_that_clients_ask() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        await it.produce(topic)
        call = it.connection.call
        asked = ListOffsetsRequest((ListOffsetsPartition(topic.topic_id, 0, LATEST_TIMESTAMP),))
        assert (await call(asked, timeout_ms=5000)).results[0].offset == 1
        ids = [(await call(InitProducerIdRequest(), timeout_ms=5000)).producer_id for _ in range(3)]
        assert len(set(ids)) == 3
        described = await call(DescribeNodeRequest(), timeout_ms=5000)
        assert (described.node_id, described.state, described.quorum_role) == (1, "running", "Leader")
        assert [replica.high_watermark for replica in described.replicas] == [1]
        nothing = await call(DescribeNodeRequest(()), timeout_ms=5000)
        assert (nothing.state, nothing.replicas) == ("running", ())
        named = await call(DescribeNodeRequest((NamedPartition("t", 0), NamedPartition("u", 0))), timeout_ms=5000)
        assert [replica.leader.maximal_isr for replica in named.replicas] == [(1,)]
        retention = AlterableConfig("retention.ms", value="5")
        altered = AlterConfigs((AlterConfigsResource(ResourceType.TOPIC, "t", (retention,)),))
        await it.connection.call(altered, timeout_ms=5000)
        await it.connection.call(DeleteTopics(("t",)), timeout_ms=5000)
        await wait_until(lambda: not it.node.parts.replicas.stepper.replicas)
        assert (await it.produce(topic)).error is ErrorCode.UNKNOWN_TOPIC_ID


async def test_the_watch_tells_a_new_topic() -> None:
    async with node(SimulatedFileSystem()) as it:
        watch = it.connection.watch_metadata(WatchRequest())
        first = await anext(watch)
        assert (first.is_full, first.is_last, first.topics) == (True, True, ())
        await it.create()
        names: list[str] = []
        while not names:
            step = await anext(watch)
            assert not step.is_full
            names = [topic.name for topic in step.topics]
        assert names == ["t"]


async def test_who_has_lost_its_lease_tells_of_no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(SimulatedFileSystem()) as it:
        watch = it.connection.watch_metadata(WatchRequest())
        assert (await anext(watch)).controller_id == 1
        lifecycle = it.node.parts.replicas.lifecycle
        monkeypatch.setattr(type(lifecycle), "refuses_because", lambda _: "cut off")
        lifecycle.hurry()
        assert (await asyncio.wait_for(anext(watch), 60)).controller_id == -1
        monkeypatch.undo()
        lifecycle.hurry()
        assert (await asyncio.wait_for(anext(watch), 60)).controller_id == 1


async def test_a_watch_goes_on_from_what_the_client_knows() -> None:
    async with node(SimulatedFileSystem()) as it:
        await it.create()
        (first,) = await steps_of(it, 0)
        assert ([topic.name for topic in first.topics], first.is_full) == (["t"], True)
        (same,) = await steps_of(it, first.metadata_offset)
        assert (same.topics, same.is_full, same.metadata_offset) == ((), False, first.metadata_offset)
        await it.create("u")
        (next_step,) = await steps_of(it, first.metadata_offset)
        assert ([topic.name for topic in next_step.topics], next_step.is_full) == (["u"], False)
        (behind,) = await steps_of(it, first.metadata_offset + 1000)
        assert (behind.topics, behind.metadata_offset) == ((), next_step.metadata_offset)


async def steps_of(it: Running, known_offset: int) -> list[MetadataUpdate]:
    """The steps of a watch that ends by itself."""
    return [step async for step in it.connection.watch_metadata(WatchRequest(known_offset, follow=False))]


# ---- who may talk to it ------------------------------------------------------------------------------------------------


async def test_another_clusters_client_is_refused() -> None:
    async with node(SimulatedFileSystem()) as it:
        with pytest.raises(InconsistentClusterIdError, match="belongs to cluster c, the caller to cluster other"):
            await it.connection.call(MetadataRequest(), timeout_ms=5000, cluster_id="other")
        with pytest.raises(InconsistentClusterIdError):
            await it.connection.call(DeleteTopics(()), timeout_ms=5000, cluster_id="other")
        with pytest.raises(InconsistentClusterIdError):
            await it.connection.open_produce(client_hello("other", "x"))


# ---- starting ------------------------------------------------------------------------------------------------------------


async def test_a_taken_port_leaves_the_directory_free() -> None:
    async with node(SimulatedFileSystem()) as it:
        fs = SimulatedFileSystem()
        with pytest.raises(ConfigError, match="cannot listen"):
            await Node.start(config(listeners=[it.node.address]), environment=NodeEnvironment(fs=fs))
        async with node(fs):
            pass


async def test_a_taken_port_for_clients_leaves_the_directory_and_the_other_port_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = f"127.0.0.1:{free.getsockname()[1]}"
    fs = SimulatedFileSystem()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for listener in (taken, own):
            with pytest.raises(ConfigError, match=rf"cannot listen at {taken}: .*another port|are both"):
                await Node.start(
                    config(listeners=[listener], inter_broker_listener=own), environment=NodeEnvironment(fs=fs)
                )
    async with node(fs, config(listeners=[taken], inter_broker_listener=own)) as it:
        assert (it.node.address, it.node.peer_address) == (taken, own)
        image = it.node.parts.replicas.publisher.image
        assert image.brokers[1].endpoint(CLIENT_LISTENER) == it.node.parts.requests.kafka_node.endpoint(
            1, CLIENT_LISTENER
        )


async def test_a_directory_is_used_once() -> None:
    fs = SimulatedFileSystem()
    async with node(fs):
        with pytest.raises(DirectoryLockedError):
            await Node.start(config(), environment=NodeEnvironment(fs=fs))


async def test_a_damaged_vote_stops_the_start_and_leaves_the_directory_and_the_port_free() -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        port = it.node.address
    path = "/data/__cluster_metadata-0/quorum-state"
    file = fs.open(path, OpenMode.WRITE)
    content = file.pread(1000, 0)
    file.pwrite((b"#",), 0)
    file.close()
    for _ in range(2):
        with pytest.raises(CorruptCheckpointError):
            await Node.start(config(listeners=[port]), environment=NodeEnvironment(fs=fs))
    file = fs.open(path, OpenMode.WRITE)
    file.pwrite((content,), 0)
    file.close()
    async with node(fs, config(listeners=[port])):
        pass


async def test_a_request_never_meets_half_a_node() -> None:
    """Peers knock as soon as the port is there."""
    knocking: list[asyncio.Task[object]] = []

    def knock_at_once(host: str, port: int) -> GrpcServer:
        server = bind(host, port)
        connection = GrpcTransport().connect(f"127.0.0.1:{server.port}", purpose="test")

        async def knock() -> object:
            try:
                return await connection.call(DescribeNodeRequest(), timeout_ms=5000, cluster_id="c")
            finally:
                await connection.close()

        knocking.append(asyncio.create_task(knock()))
        return server

    started = await Node.start(
        config(),
        environment=NodeEnvironment(
            fs=SimulatedFileSystem(), peers=lambda _kind, _tls: PeerNetwork(GrpcTransport(), knock_at_once)
        ),
    )
    async with stopping(started):
        assert await knocking[0] is not None


# ---- ending ----------------------------------------------------------------------------------------------------------------


async def test_stop_leaves_no_task_and_no_file(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with node(OsFileSystem(), config(str(tmp_path))) as it:
        topic = await it.create()
        await it.produce(topic)
        assert open_files(tmp_path)
    assert open_files(tmp_path) == []
    gc.collect()
    await wait_until(lambda: not asyncio.all_tasks() - before)


def open_files(directory: Path) -> list[str]:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(link.readlink()))
    return [link for link in links if link.startswith(str(directory))]


async def test_stop_may_be_called_by_everybody() -> None:
    async with node(SimulatedFileSystem()) as it:
        await asyncio.gather(it.node.stop(), it.node.stop(), it.node.abort())
        await it.node.wait_closed()
        await it.node.stop()
        with pytest.raises(ReplogError):
            await it.connection.call(MetadataRequest(), timeout_ms=1_000)


async def fail_the_disk(it: Running, fs: SimulatedFileSystem) -> None:
    topic = await it.create()
    fs.faults.fail_next(Operation.SYNC, path_part="t-0/")
    with pytest.raises((ReplogError, TimeoutError)):
        await it.produce(topic, timeout_s=0.5)


async def fail_the_metadata_log(it: Running, fs: SimulatedFileSystem) -> None:
    fs.faults.fail_next(Operation.SYNC, path_part="__cluster_metadata-0/")
    with pytest.raises((ReplogError, TimeoutError)):
        await asyncio.wait_for(it.create(), 0.5)


async def fail_a_checkpoint(it: Running, fs: SimulatedFileSystem) -> None:
    fs.faults.fail_next(Operation.CREATE, path_part="replication-offset-checkpoint")
    with pytest.raises(StorageError):  # its own timer would hand the failure on
        await it.node.parts.replicas.keeper.checkpoint_high_watermarks()


async def break_a_driver(it: Running, fs: SimulatedFileSystem) -> None:
    it.node.parts.replicas.stepper.driver.submit(lambda: {}["bug"])


async def break_a_timer(it: Running, fs: SimulatedFileSystem) -> None:
    it.node._fail(ValueError("bug"))


@pytest.mark.parametrize(
    "fail", [fail_the_disk, fail_the_metadata_log, fail_a_checkpoint, break_a_driver, break_a_timer]
)
async def test_a_failure_ends_the_node_by_itself_and_without_a_marker(
    fail: object, caplog: pytest.LogCaptureFixture
) -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        await fail(it, fs)  # type: ignore[operator]
        with pytest.raises((StorageError, KeyError, ValueError)):
            await it.node.wait_closed()
        assert it.node._ending is not None
        await asyncio.wait([it.node._ending])
        await it.node.stop()  # too late for an orderly one
        assert marker(fs) is None
        assert "the node stops" in caplog.text
        with pytest.raises((StorageError, KeyError, ValueError)):
            await it.node.wait_until_ready()
    fs.faults.clear()
    async with node(fs) as it:  # lock and port are free, what was acknowledged is there
        await it.create("u")


async def test_after_a_failure_nothing_is_acknowledged_any_more() -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        topic = await it.create()
        acknowledged = []
        it.node._fail(ValueError("bug"))
        partition = ProducePartition(topic.topic_id, 0)
        request = ProduceRequest(1, 5000, 1, (partition,), (batch(),))
        it.node.parts.requests.produce_path.submit(request, acknowledged.append)
        with pytest.raises(ValueError, match="bug"):
            await it.node.wait_closed()
        await it.node.stop()
        assert acknowledged == []


async def test_a_log_that_cannot_be_closed_leaves_no_marker_and_says_so() -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        topic = await it.create()
        await it.produce(topic, acks=1)
        fs.faults.fail_next(Operation.CREATE, path_part=".snapshot")
        with pytest.raises(StorageError):
            await it.node.stop()
        with pytest.raises(StorageError):
            await it.node.wait_closed()
        assert marker(fs) is None
    async with node(fs):
        pass


# ---- the marker ------------------------------------------------------------------------------------------------------------


async def test_a_part_that_does_not_stop_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = SimulatedFileSystem()
    started = await Node.start(config(), environment=NodeEnvironment(fs=fs))
    await started.wait_until_ready()
    manager_stop, stopped = ReplicaManager.stop, []

    async def stop(manager: ReplicaManager) -> None:
        await manager_stop(manager)
        stopped.append(True)

    async def fail(_: LogKeeper) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ReplicaManager, "stop", stop)
    monkeypatch.setattr(LogKeeper, "stop", fail)
    with pytest.raises(KeyError, match="a bug"):
        await started.stop()
    assert stopped
    assert marker(fs) is None
    monkeypatch.undo()
    async with node(fs) as it:  # the lock is free
        assert await it.create()


def broker_alone() -> ServerConfig:
    """Its only controller is somewhere else, where nobody listens."""
    return config(
        process_roles=["broker"],
        controller_quorum_voters="2@127.0.0.1:1",
        initial_broker_registration_timeout_ms=60_000,
    )


async def test_a_stop_before_the_registration_keeps_the_promise_of_the_marker() -> None:
    """Nothing was changed: the controller must not take the replicas out of their ISRs for it."""
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        epoch = it.node.parts.replicas.lifecycle.broker_epoch
    for _ in range(2):
        unheard = await Node.start(broker_alone(), environment=NodeEnvironment(fs=fs))
        await unheard.stop()
        assert marker(fs) == epoch


async def test_without_a_marker_there_is_no_promise_to_keep() -> None:
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        await it.node.abort()
    unheard = await Node.start(broker_alone(), environment=NodeEnvironment(fs=fs))
    await unheard.stop()
    assert marker(fs) == -1


async def test_the_controller_elects_by_the_configuration_of_the_node() -> None:
    """It is in the metadata, where every broker and every later controller finds it."""
    fs = SimulatedFileSystem()
    configuration = config(unclean_leader_election_enable=True, flush_policy="always", min_insync_replicas=1)
    async with node(fs, configuration) as it:
        for name, value in (("unclean.leader.election.enable", "true"), ("flush.policy", "always")):
            request = DescribeConfigsRequest(ResourceType.BROKER, "")
            described = await it.connection.call(request, timeout_ms=5_000)
            assert isinstance(described, DescribeConfigsResponse)
            (found,) = [one for one in described.configs if one.name == name]
            assert (found.value, found.source) == (value, "cluster")


async def test_a_broker_that_is_not_the_controller_says_so() -> None:
    unheard = await Node.start(broker_alone(), environment=NodeEnvironment(fs=SimulatedFileSystem()))
    it = Running(unheard)
    try:
        call = it.connection.call
        with pytest.raises(NotControllerError):
            await it.peer(2, UUID(int=2)).controller_call(
                in_envelope(CreateTopics(())), timeout_ms=5000, cluster_id="c"
            )
        with pytest.raises((RequestTimedOutError, ConnectionLostError)):  # whoever notices first
            await call(CreateTopics((NewTopic("t", 1, 1),)), timeout_ms=200)
        with pytest.raises(ReplogError, match="the broker is starting"):
            await it.connection.call(InitProducerIdRequest(), timeout_ms=500)
    finally:
        await it.connection.close()
        await unheard.stop()


async def test_a_node_that_waits_for_the_quorum_tells_nothing_of_what_exists() -> None:
    """Nor that there is nothing: its clients ask again, or another node."""
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        await it.create()
    unheard = await Node.start(broker_alone(), environment=NodeEnvironment(fs=fs))
    it = Running(unheard)
    told_from_metadata: list[Any] = [
        MetadataRequest(),
        MetadataRequest(("t",)),
        DescribeConfigsRequest(ResourceType.TOPIC, "t"),
        DescribeNodeConfigsRequest(),
        MoveReplicaRequest("t", 0, "/other"),
        DescribeLogDirsRequest(),
        ListGroups(),
    ]
    try:
        for request in told_from_metadata:
            errors = (BrokerNotAvailableError, CoordinatorNotAvailableError)
            with pytest.raises(errors, match="node 1 has not read the metadata of the cluster"):
                await it.connection.call(request, timeout_ms=60_000)
        with pytest.raises(BrokerNotAvailableError):
            await anext(it.connection.watch_metadata(WatchRequest()))
        asked = ListOffsetsRequest((ListOffsetsPartition(UUID(int=1), 0, LATEST_TIMESTAMP),))
        answer = await it.connection.call(asked, timeout_ms=60_000)
        assert isinstance(answer, ListOffsetsResponse)
        assert answer.results[0].error is ErrorCode.BROKER_NOT_AVAILABLE
        kafka = await asyncio.to_thread(socket.create_connection, tuple(unheard.address.split(":")), 60)
        with kafka:
            kafka.sendall(bytes.fromhex("0000000a 0003 0001 00000001 ffff"))  # Metadata of all topics
            assert await asyncio.to_thread(kafka.recv, 1) == b"", "Kafka's clients go to another broker"
    finally:
        await it.connection.close()
        await unheard.stop()


async def test_a_controller_alone_is_ready_when_it_has_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    alone = config(
        process_roles=["controller"],
        inter_broker_listener=address,
        controller_quorum_voters=f"1@{address}",
    )
    only = await Node.start(alone, environment=NodeEnvironment(fs=SimulatedFileSystem()))
    connection = KafkaTransport().connect(only.address, purpose="data")
    try:
        await asyncio.wait_for(only.wait_until_ready(), 60)
        update = None
        async with asyncio.timeout(60):  # it elects itself a moment later, and reads its own registration
            while update is None or update.controller_id != 1:
                await asyncio.sleep(0.01)
                with contextlib.suppress(BrokerNotAvailableError):
                    update = await anext(connection.watch_metadata(WatchRequest(follow=False)))
        assert update.brokers == ()
    finally:
        await connection.close()
        await only.stop()
