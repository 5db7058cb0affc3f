"""Metadata operations on a real quorum: three controller processes with fsync, and what hosts topics on them.

`controllers` have three brokers that exist on paper only: they register and send heartbeats, so that topics can be placed,
and host nothing.  `hosting` are three nodes of both roles, and a topic counts as made when its leaders answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from bench.model import System, WrongResultError
from replog.client.protocol.connection import KafkaTransport
from replog.client.protocol.seam import Connection
from replog.cluster import LocalCluster
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    ConfigOperation,
    ControllerRequest,
    CreateTopics,
    Heartbeat,
    HeartbeatResponse,
    NewTopic,
    RegisterBroker,
    RegisterBrokerResponse,
)
from replog.errors import ErrorCode, ReplogError, RetriableError
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import ResourceType
from replog.rpc.grpc.transport import GrpcTransport
from replog.rpc.messages import LATEST_TIMESTAMP, Hello, ListOffsetsPartition, ListOffsetsRequest
from replog.rpc.metadata_messages import MetadataRequest, WatchRequest
from replog.rpc.node_messages import DescribeQuorumRequest
from replog.rpc.transport import PeerConnection
from replog.waiting.asks import Asks

NODES = 3
HEARTBEAT_S = 1.0
CALL_TIMEOUT_MS = 30_000
PROBE_TIMEOUT_MS = 500
PROBE_PAUSE_S = 0.01
PAPER_SESSION_MS = 3_600_000
ASKED_TOGETHER = 1_000
FAILOVER_TIMEOUT_S = 30.0
DAY_MS = 24 * 3600 * 1000

T = TypeVar("T")


class MetadataSystem(System):
    """Creates topics of one partition with three replicas.

    Attributes:
        share: how many of a case's topics it creates; less than 1 where they cost too much after they are created.
    """

    share: float = 1.0

    def durability(self) -> str:
        said = "a change is on the disks of two of three controllers (fsync)"
        return said if self.share == 1 else f"{said}; {self.share:.0%} of the topics are created"

    @abstractmethod
    def create(self, names: Sequence[str], *, per_request: int, in_flight: int) -> list[float]:
        """Creates topics; returns the seconds each request took.  Returns when all are made."""

    @abstractmethod
    def create_at_rate(self, names: Sequence[str], rate_per_s: float) -> list[float]:
        """One topic a request, request i at second i / rate; seconds from when each was due to its answer."""

    @abstractmethod
    def fail_over(self) -> float:
        """Kills the active controller; returns the seconds until another one has committed a change."""

    def discard(self, names: Sequence[str]) -> None:
        """Deletes topics that are no longer needed."""


class ReplogQuorum(MetadataSystem):
    """Three processes of `LocalCluster`.

    Args:
        name: of the system.
        roles: of each process.
        replication_factor: of the topics.
        waits_for_leaders: whether topics that are hosted count as made only when their leaders answer.
        share: see `MetadataSystem`.
    """

    def __init__(
        self,
        name: str,
        roles: Sequence[str],
        replication_factor: int = NODES,
        *,
        waits_for_leaders: bool = True,
        share: float = 1.0,
    ) -> None:
        self.name = name
        self.share = share
        self._waits_for_leaders = waits_for_leaders
        self._replication_factor = replication_factor
        self._roles = tuple(roles)
        self._runner = asyncio.Runner()
        self._paper_brokers: _PaperBrokers | None = None
        self._number = 0

    @property
    def is_hosting(self) -> bool:
        return "broker" in self._roles

    def start(self, directory: Path) -> None:
        self._run(self._start(directory))

    def stop(self) -> None:
        self._run(self._stop())
        self._runner.close()
        self._runner = asyncio.Runner()

    def process_ids(self) -> Sequence[int]:
        return [spec.process.pid for spec in self._cluster.nodes.values() if spec.process is not None]

    def create(self, names: Sequence[str], *, per_request: int, in_flight: int) -> list[float]:
        return self._run(self._create(names, per_request, in_flight))

    def create_at_rate(self, names: Sequence[str], rate_per_s: float) -> list[float]:
        return self._run(self._create_at_rate(names, rate_per_s))

    def fail_over(self) -> float:
        return self._run(self._fail_over())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _start(self, directory: Path) -> None:
        roles = dict.fromkeys(range(1, NODES + 1), self._roles)
        # brokers on paper say nothing while another system is measured, and are not to be fenced for it
        config = {} if self.is_hosting else {"broker.session.timeout.ms": PAPER_SESSION_MS}
        self._cluster = await LocalCluster.start(directory / "cluster", nodes=NODES, roles=roles, config=config)
        self._transport = KafkaTransport()
        self._connections: dict[int, Connection] = {}
        self._leader_id = -1
        if not self.is_hosting:
            self._paper_brokers = _PaperBrokers(self)
            await self._paper_brokers.start()

    async def _stop(self) -> None:
        if self._paper_brokers is not None:
            await self._paper_brokers.stop()
            self._paper_brokers = None
        for connection in self._connections.values():
            await connection.close()
        await self._cluster.kill_all()

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    # ---- requests -----------------------------------------------------------------------------------------------------

    async def leader(self) -> Connection:
        """A connection to the active controller."""
        leader_id = self._leader_id
        if leader_id < 0:
            leader_id = self._leader_id = await self._find_leader()
        return self.connection(leader_id)

    async def leader_peer_address(self) -> str:
        """Where other nodes reach the active controller."""
        return self._cluster.nodes[await self._find_leader()].peer_address

    def connection(self, node_id: int) -> Connection:
        """A connection to a node."""
        if node_id not in self._connections:
            address = self._cluster.nodes[node_id].address
            self._connections[node_id] = self._transport.connect(address, purpose="bench")
        return self._connections[node_id]

    async def _find_leader(self) -> int:
        """Asked of the nodes directly: an `Admin` would follow the metadata of thousands of topics meanwhile."""
        while True:
            for spec in self._cluster.nodes.values():
                connection = self._transport.connect(spec.address, purpose="bench-find")
                try:
                    answer = await connection.call(DescribeQuorumRequest(), timeout_ms=PROBE_TIMEOUT_MS)
                except ReplogError:
                    continue
                finally:
                    await connection.close()
                return answer.leader_id
            await asyncio.sleep(PROBE_PAUSE_S)

    async def call(self, request: Asks[T]) -> T:
        """The active controller's answer, from whoever is it by then."""
        while True:
            connection = await self.leader()
            try:
                return await connection.call(request, timeout_ms=CALL_TIMEOUT_MS)
            except RetriableError:
                self._leader_id = -1
                await asyncio.sleep(PROBE_PAUSE_S)

    async def create_now(self, names: Sequence[str]) -> None:
        request = CreateTopics(tuple(NewTopic(name, 1, self._replication_factor) for name in names))
        for result in (await self.call(request)).topics:
            if result.error not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:  # made by a lost attempt
                raise WrongResultError(f"{self.name}: {result.name}: {result.message}")

    async def _create(self, names: Sequence[str], per_request: int, in_flight: int) -> list[float]:
        loop = asyncio.get_running_loop()
        chunks = iter([names[start : start + per_request] for start in range(0, len(names), per_request)])
        took_s: list[float] = []

        async def one_after_the_other() -> None:
            for chunk in chunks:
                start_s = loop.time()
                await self.create_now(chunk)
                took_s.append(loop.time() - start_s)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(in_flight):
                tasks.create_task(one_after_the_other())
        if self.is_hosting and self._waits_for_leaders:
            await self._until_all_lead(names)
        return took_s

    async def _until_all_lead(self, names: Sequence[str]) -> None:
        """Every leader has answered for its topics, with their end offsets."""
        wanted = list(names)
        while wanted:
            asked, wanted = wanted[:ASKED_TOGETHER], wanted[ASKED_TOGETHER:]
            missing = set(asked) - await self._topics_that_answer(asked)
            wanted += missing
            if missing:
                await asyncio.sleep(PROBE_PAUSE_S)

    async def _topics_that_answer(self, names: Sequence[str]) -> set[str]:
        found = await (await self.leader()).call(MetadataRequest(tuple(names)), timeout_ms=CALL_TIMEOUT_MS)
        led: dict[int, dict[UUID, str]] = {}
        for topic in found.topics:
            led.setdefault(topic.partitions[0].leader, {})[topic.topic_id] = topic.name
        answered: set[str] = set()
        for node_id in led.keys() & self._cluster.nodes.keys():
            partitions = tuple(
                ListOffsetsPartition(topic_id, 0, LATEST_TIMESTAMP, topic=name)
                for topic_id, name in led[node_id].items()
            )
            offsets = await self.connection(node_id).call(ListOffsetsRequest(partitions), timeout_ms=CALL_TIMEOUT_MS)
            answered |= {led[node_id][result.topic_id] for result in offsets.results if result.error is ErrorCode.NONE}
        return answered

    async def _create_at_rate(self, names: Sequence[str], rate_per_s: float) -> list[float]:
        loop = asyncio.get_running_loop()
        latencies_s: list[float] = []

        async def create(name: str, due_s: float) -> None:
            await self.create_now([name])
            latencies_s.append(loop.time() - due_s)

        start_s = loop.time() + PROBE_PAUSE_S
        async with asyncio.TaskGroup() as tasks:
            for number, name in enumerate(names):
                due_s = start_s + number / rate_per_s
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                tasks.create_task(create(name, due_s))
        return latencies_s

    # ---- failure ------------------------------------------------------------------------------------------------------

    async def _fail_over(self) -> float:
        loop = asyncio.get_running_loop()
        victim = await self._find_leader()
        self._leader_id = -1
        if (gone := self._connections.pop(victim, None)) is not None:
            await gone.close()
        survivors = [spec.address for spec in self._cluster.nodes.values() if spec.node_id != victim]
        connections = [self._transport.connect(address, purpose="bench-failover") for address in survivors]
        await self._cluster.kill(victim)
        killed_s = loop.time()
        try:
            async with asyncio.timeout(FAILOVER_TIMEOUT_S):
                await self._first_change(connections)
        finally:
            took_s = loop.time() - killed_s
            for connection in connections:
                await connection.close()
        self._cluster.start_node(victim)
        await self._until_level()
        return took_s

    async def _until_level(self) -> None:
        """All nodes have replayed everything."""
        behind = list(self._cluster.nodes)
        while behind:
            await asyncio.sleep(PROBE_PAUSE_S)
            with contextlib.suppress(ReplogError, TimeoutError):
                quorum = await (await self.leader()).call(DescribeQuorumRequest(), timeout_ms=PROBE_TIMEOUT_MS)
                async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                    updates = self.connection(behind[0]).watch_metadata(WatchRequest(follow=False))
                    offsets = [update.metadata_offset async for update in updates]
                if offsets and offsets[-1] >= quorum.high_watermark:
                    behind.pop(0)

    async def _first_change(self, connections: Sequence[Connection]) -> None:
        """Returns when one of the controllers has committed a change."""
        self._number += 1
        retention = AlterableConfig("log.retention.ms", ConfigOperation.SET, str(DAY_MS + self._number))
        request = AlterConfigs((AlterConfigsResource(ResourceType.BROKER, "", (retention,)),))
        while True:
            for connection in connections:
                try:
                    await connection.call(request, timeout_ms=PROBE_TIMEOUT_MS)
                except RetriableError:
                    continue
                return
            await asyncio.sleep(PROBE_PAUSE_S)


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


class _PaperBrokers:
    """Brokers that register and send heartbeats, and host nothing; somebody listens, so that none is taken for dead."""

    def __init__(self, system: ReplogQuorum) -> None:
        self._system = system
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        self._epochs: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._listener = await asyncio.start_server(_say_nothing, "127.0.0.1", 0)
        for broker_id in range(101, 101 + NODES):
            request = RegisterBroker(
                broker_id=broker_id,
                cluster_id=self._system.cluster_id,
                incarnation_id=UUID(int=broker_id),
                host="127.0.0.1",
                port=self._listener.sockets[0].getsockname()[1],
                log_dirs=(UUID(int=broker_id),),
                supported_features=SUPPORTED_FEATURES,
            )
            response = await self._ask(broker_id, request, RegisterBrokerResponse)
            self._epochs[broker_id] = response.broker_epoch
        await self._beat()
        self._task = asyncio.create_task(self._run(), name="paper-brokers")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._listener.close()
        for connection in self._connections.values():
            await connection.close()

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(ReplogError):  # a new controller is being elected
                await self._beat()
            await asyncio.sleep(HEARTBEAT_S)

    async def _beat(self) -> None:
        for broker_id, broker_epoch in self._epochs.items():
            request = Heartbeat(broker_id=broker_id, broker_epoch=broker_epoch, metadata_offset=2**62)
            await self._ask(broker_id, request, HeartbeatResponse)

    async def _ask(self, broker_id: int, request: ControllerRequest, answer: type[T]) -> T:
        """The active controller's answer to one of the brokers, which ask where nodes meet."""
        while True:
            address = await self._system.leader_peer_address()
            connection = self._connections.get((broker_id, address))
            if connection is None:
                hello = Hello(self._system.cluster_id, broker_id, UUID(int=broker_id))
                connection = GrpcTransport().connect(address, purpose="bench-broker", hello=hello)
                self._connections[broker_id, address] = connection
            try:
                response = await connection.controller_call(
                    request, timeout_ms=CALL_TIMEOUT_MS, cluster_id=self._system.cluster_id
                )
            except RetriableError:
                await asyncio.sleep(PROBE_PAUSE_S)
                continue
            if not isinstance(response, answer):
                raise WrongResultError(f"the controller answered {type(request).__name__} with {response}")
            return response
