"""A cluster that does what a test says: scripted brokers over an in-memory transport (or a real one).

Each partition is a list of batches with the producer's sequence checked as a broker does, so that a lost, doubled or
reordered batch shows.  `script` replaces the answer to the next produce requests; `cut` breaks every stream of a node.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from replog.client.protocol.questions.group_members import FindCoordinator
from replog.controller.requests import (
    ClientChange,
    ConfigEntry,
    ControllerResponse,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    PartitionResult,
    TopicResult,
)
from replog.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    InconsistentClusterIdError,
    MalformedFrameError,
    ReplogError,
    ThrottledError,
)
from replog.records import parse_header
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import (
    Cut,
    EpochEndPartition,
    EpochEndResult,
    EpochEndsRequest,
    EpochEndsResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    FindCutsPartition,
    FindCutsRequest,
    FindCutsResponse,
    FindCutsResult,
    Hello,
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderEndpoint,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import BrokerInfo, MetadataUpdate, PartitionInfo, TopicInfo, WatchRequest
from replog.rpc.node_messages import (
    ConfigDescription,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeNodeRequest,
    DescribeNodeResponse,
)
from replog.rpc.transport import ConnectionLostError, RequestContext
from tests.unit.client.fake_log import FakeLog
from tests.unit.client.fake_transactions import QUESTIONS, FakeTransactions
from tests.unit.client.memory_transport import MemoryPipe, MemoryTransport

HEARD_AFTER_S = 0.05

CLUSTER_ID = "fake-cluster"
Script = Callable[[ProducePartition, bytes], ErrorCode | str]
"""Answer for one partition of a produce request: a code (nothing is appended), or "lose" (appended, no reply),
"drop" (not appended, no reply), "append" (as usual)."""


class FakeCluster:
    """Brokers 1..n and their shared state; `transport()` or real servers give access."""

    def __init__(self, brokers: int = 1) -> None:
        self.cluster_id = CLUSTER_ID
        self.nodes = {i: FakeNode(self, i) for i in range(1, brokers + 1)}
        self.logs: dict[tuple[str, int], FakeLog] = {}
        self.metadata_offset = 0
        self.changed = asyncio.Event()
        self.producer_ids = itertools.count(1000)
        self.controller_script: deque[ReplogError | str] = deque()
        self.created_count = 0
        self.addresses = {i: f"127.0.0.1:{10_000 + i}" for i in self.nodes}
        self.racks: dict[int, str] = {}
        self.configs: dict[str, dict[str, str]] = {}  # of topics
        self.coordinator_id = 1  # of transactions and groups
        self.transactions = FakeTransactions(self)

    @property
    def bootstrap(self) -> list[str]:
        return list(self.addresses.values())

    def create_topic(self, name: str, partitions: int = 1) -> None:
        topic_id = UUID(int=len(self.logs) + 1 + (self.created_count << 32))
        self.created_count += 1
        ids = sorted(self.nodes)
        for partition in range(partitions):
            self.logs[name, partition] = FakeLog(topic_id, partition, ids[partition % len(ids)])
        self.publish()

    def add_partition(self, name: str) -> None:
        """Gives a topic one partition more, which broker 1 leads."""
        number = sum(topic == name for topic, _ in self.logs)
        self.logs[name, number] = FakeLog(self.logs[name, 0].topic_id, number, 1)
        self.publish()

    def delete_topic(self, name: str) -> None:
        self.logs = {key: log for key, log in self.logs.items() if key[0] != name}
        self.publish()

    def move_leader(self, topic: str, partition: int, leader: int) -> None:
        log = self.logs[topic, partition]
        log.leader, log.leader_epoch = leader, log.leader_epoch + 1
        self.publish()

    def publish(self) -> None:
        self.metadata_offset += 1
        event, self.changed = self.changed, asyncio.Event()
        event.set()
        for node in self.nodes.values():
            node.appended.set()

    def update(self) -> MetadataUpdate:
        brokers = []
        for i in self.nodes:
            host, _, port = self.addresses[i].rpartition(":")
            rack, fenced = self.racks.get(i), self.nodes[i].is_down
            brokers.append(BrokerInfo(i, host, int(port), broker_epoch=1, fenced=fenced, rack=rack))
        topics: dict[str, list[PartitionInfo]] = {}
        ids: dict[str, UUID] = {}
        for (name, partition), log in self.logs.items():
            isr = tuple(self.nodes)
            topics.setdefault(name, []).append(PartitionInfo(partition, log.leader, log.leader_epoch, 0, isr, isr))
            ids[name] = log.topic_id
        configs = {name: tuple(ConfigEntry(*entry) for entry in self.configs.get(name, {}).items()) for name in topics}
        infos = tuple(TopicInfo(name, ids[name], tuple(ps), configs[name]) for name, ps in topics.items())
        return MetadataUpdate(self.cluster_id, self.metadata_offset, 1, 1, tuple(brokers), infos, is_full=True)

    def log_by_id(self, topic_id: UUID, partition_id: int) -> FakeLog | None:
        for log in self.logs.values():
            if (log.topic_id, log.partition_id) == (topic_id, partition_id):
                return log
        return None

    def transport(self) -> MemoryTransport:
        return MemoryTransport(self)


class FakeNode:
    """One broker: a `ReachableNode` with a script."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.is_down = False
        self.script: deque[Script] = deque()
        self.produced: list[ProduceRequest] = []
        self.fetched: list[FetchRequest] = []
        self.list_offsets_script: deque[ErrorCode] = deque()
        self.fetch_script: deque[ErrorCode] = deque()
        self.knows_cuts = True
        self.serves_consumers = False  # as a follower too
        self.hold_replies = False
        self.held: list[tuple[Any, list[ProduceResponse]]] = []
        self.appended = asyncio.Event()
        self.streams: set[MemoryPipe] = set()
        self.is_silent = False
        self.is_mute = False  # of metadata
        self.names_leaders = False  # as it refuses
        self.watchers = 0  # clients that follow its metadata
        self.offset_watches: list[WatchOffsetsRequest] = []
        self.refuses_watches = False
        self._last_heard: MetadataUpdate | None = None

    def cut_off(self, *, knows_it: bool = False, since: MetadataUpdate | None = None) -> None:
        """It hears nothing new of the metadata any more, and tells clients what it knows.

        Args:
            knows_it: it has been for long enough to say that it knows of no controller.
            since: what it has heard last; None: all.
        """
        heard = since or self._last_heard or self.cluster.update()
        self._last_heard = replace(heard, controller_id=-1) if knows_it else heard

    def hear_again(self) -> None:
        """Ends `cut_off`."""
        self._last_heard = None
        self.cluster.publish()

    def cut(self) -> None:
        """Every stream of this node ends."""
        for stream in list(self.streams):
            stream.cut()

    # ---- unary -----------------------------------------------------------------------------------------------------

    async def handle_client_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        if call.cluster_id and call.cluster_id != self.cluster.cluster_id:
            raise InconsistentClusterIdError(f"this is {self.cluster.cluster_id}, not {call.cluster_id}")
        match call.request:
            case FindCoordinator():
                return self.cluster.coordinator_id
            case request if isinstance(request, QUESTIONS):
                return self.cluster.transactions.answer(request, self.node_id)
            case InitProducerIdRequest():
                return InitProducerIdResponse(next(self.cluster.producer_ids), 0)
            case DescribeNodeRequest():
                return DescribeNodeResponse(self.node_id, UUID(int=1), "running", 1, "leader", 1, 1, 1, 1)
            case DescribeConfigsRequest(_, name):
                merged = {"min.insync.replicas": "1", **self.cluster.configs.get(name, {})}
                return DescribeConfigsResponse(tuple(ConfigDescription(*item, "default") for item in merged.items()))
            case ListOffsetsRequest() as request:
                return ListOffsetsResponse(tuple(self._list_offset(p) for p in request.partitions))
            case FindCutsRequest() as request if self.knows_cuts:
                return FindCutsResponse(tuple(self._find_cuts(p, request.target_bytes) for p in request.partitions))
            case FindCutsRequest():
                raise MalformedFrameError("a ClientRequest of a kind this version does not know")
            case EpochEndsRequest() as request:
                return EpochEndsResponse(tuple(self._epoch_end(p) for p in request.partitions))

    def _find_cuts(self, partition: FindCutsPartition, target_bytes: int) -> FindCutsResult:
        """A cut behind each batch with which `target_bytes` have come together."""
        log = self.cluster.log_by_id(partition.topic_id, partition.partition_id)
        key = (partition.topic_id, partition.partition_id)
        if log is None or log.leader != self.node_id:
            return FindCutsResult(*key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        cuts: list[Cut] = []
        size_bytes = 0
        for header, batch in ((parse_header(batch), batch) for batch in log.batches):
            if header.next_offset > partition.start_offset and header.base_offset < partition.end_offset:
                size_bytes += len(batch)
                if size_bytes >= target_bytes or header.next_offset >= partition.end_offset:
                    cuts.append(Cut(min(header.next_offset, partition.end_offset), size_bytes))
                    size_bytes = 0
        return FindCutsResult(*key, ErrorCode.NONE, tuple(cuts))

    def _epoch_end(self, partition: EpochEndPartition) -> EpochEndResult:
        log = self.cluster.log_by_id(partition.topic_id, partition.partition_id)
        key = (partition.topic_id, partition.partition_id)
        if log is None or log.leader != self.node_id:
            return EpochEndResult(*key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return EpochEndResult(*key, ErrorCode.NONE, *log.epoch_end(partition.epoch), log.leader_epoch, self.node_id)

    def _list_offset(self, partition: Any) -> ListOffsetsResult:
        log = self.cluster.log_by_id(partition.topic_id, partition.partition_id)
        key = (partition.topic_id, partition.partition_id)
        if self.list_offsets_script:
            return ListOffsetsResult(*key, self.list_offsets_script.popleft())
        if log is None or log.leader != self.node_id:
            return ListOffsetsResult(*key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        offset, timestamp = log.find(partition.timestamp)
        return ListOffsetsResult(*key, ErrorCode.NONE, offset, timestamp, leader_epoch=log.leader_epoch)

    async def handle_controller_call(
        self, call: IncomingCall[ClientChange], context: RequestContext
    ) -> ControllerResponse:
        lose_reply = False
        if self.cluster.controller_script:
            step = self.cluster.controller_script.popleft()
            if isinstance(step, ReplogError):
                raise step
            lose_reply = step == "lose"
        response = self._control(call.request)
        if lose_reply:
            raise ConnectionLostError("the reply was lost")
        return response

    def _control(self, request: ClientChange) -> ControllerResponse:
        match request:
            case CreateTopics():
                return CreateTopicsResponse(tuple(self._create(topic) for topic in request.topics))
            case DeleteTopics():
                return DeleteTopicsResponse(tuple(self._delete(name) for name in request.names))
            case ElectLeaders(_, places) if places:
                for place in places:  # brokers hear of it after the answer
                    move = self.cluster.move_leader, place.topic, place.partition_id, min(self.cluster.nodes)
                    asyncio.get_running_loop().call_later(HEARD_AFTER_S, *move)
                return ElectLeadersResponse(
                    tuple(PartitionResult(p.topic, p.partition_id, ErrorCode.NONE) for p in places)
                )
            case CreatePartitions((wanted,)):
                asyncio.get_running_loop().call_later(HEARD_AFTER_S, self.cluster.add_partition, wanted.topic)
                return CreatePartitionsResponse((TopicResult(wanted.topic, ErrorCode.NONE),))
            case _:
                raise BrokerNotAvailableError(f"not scripted: {request}")

    def _create(self, topic: Any) -> TopicResult:
        if any(name == topic.name for name, _ in self.cluster.logs):
            return TopicResult(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, f"{topic.name} exists")
        self.cluster.create_topic(topic.name, topic.num_partitions)
        return TopicResult(topic.name, ErrorCode.NONE)

    def _delete(self, name: str) -> TopicResult:
        if not any(topic == name for topic, _ in self.cluster.logs):
            return TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        self.cluster.delete_topic(name)
        return TopicResult(name, ErrorCode.NONE)

    async def watch_metadata(self, request: WatchRequest, context: RequestContext) -> AsyncIterator[MetadataUpdate]:
        if self.is_mute:
            await asyncio.Event().wait()
        self.watchers += request.follow
        try:
            while not self.is_down:
                changed = self.cluster.changed
                yield self._last_heard or self.cluster.update()
                if not request.follow:
                    return
                await changed.wait()
        finally:
            self.watchers -= request.follow

    async def watch_offsets(
        self, request: WatchOffsetsRequest, context: RequestContext
    ) -> AsyncIterator[tuple[FetchResult, ...]]:
        self.offset_watches.append(request)
        told: dict[UUID, dict[int, FetchResult]] = {}
        while not (self.is_down or self.refuses_watches):
            states = [self._watched(partition) for partition in request.partitions]
            news = tuple(each for each in states if told.get(each.topic_id, {}).get(each.partition_id) != each)
            for each in news:
                told.setdefault(each.topic_id, {})[each.partition_id] = each
            if not self.is_silent:
                yield news
            await asyncio.sleep(0.01)
        raise ThrottledError("no watches here") if self.refuses_watches else ConnectionLostError("it is down")

    def _watched(self, partition: FetchPartition) -> FetchResult:
        key = (partition.topic_id, partition.partition_id)
        log = self.cluster.log_by_id(*key)
        if log is None or log.leader != self.node_id or log.leader_epoch != partition.leader_epoch:
            return FetchResult(*key, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        return FetchResult(
            *key, ErrorCode.NONE, -1, log.visible_offset, log.log_start_offset, leader_epoch=log.leader_epoch,
            leader_id=self.node_id, size_bytes=sum(map(len, log.batches)),
        )  # fmt: skip

    def check_hello(self, hello: Hello) -> Hello:
        if hello.cluster_id not in {"", self.cluster.cluster_id}:
            raise InconsistentClusterIdError(f"this is {self.cluster.cluster_id}, not {hello.cluster_id}")
        return Hello(self.cluster.cluster_id, self.node_id, UUID(int=self.node_id))

    # ---- produce ---------------------------------------------------------------------------------------------------

    async def handle_produce_stream(self, hello: Hello, stream: Any, context: RequestContext) -> None:
        while True:
            request: ProduceRequest = await stream.receive()
            self.produced.append(request)
            results = [self._produce(p, bytes(b)) for p, b in zip(request.partitions, request.batches, strict=True)]
            kept = tuple(result for result in results if result is not None)
            if request.acks == 0 or not kept or self.is_silent:
                continue
            response = ProduceResponse(request.correlation_id, kept, self._leaders(kept))
            if self.hold_replies:
                self.held.append((stream, [response]))
            else:
                await stream.send([response])

    async def release_held(self, *, newest_first: bool = False) -> None:
        self.hold_replies = False
        held, self.held = self.held, []
        for stream, responses in reversed(held) if newest_first else held:
            await stream.send(responses)

    def _produce(self, partition: ProducePartition, batch: bytes) -> ProduceResult | None:
        step = self.script.popleft()(partition, batch) if self.script else "append"
        key = (partition.topic_id, partition.partition_id)
        if step == "drop":
            return None
        if isinstance(step, ErrorCode):
            return ProduceResult(*key, step, f"scripted {step.name}")
        log = self.cluster.log_by_id(*key)
        if log is None:
            return ProduceResult(*key, ErrorCode.UNKNOWN_TOPIC_ID)
        if log.leader != self.node_id:
            leader = (log.leader, log.leader_epoch) if self.names_leaders else (-1, -1)
            return ProduceResult(*key, ErrorCode.NOT_LEADER_OR_FOLLOWER, "", -1, -1, -1, *leader)
        if partition.leader_epoch != log.leader_epoch:
            old = partition.leader_epoch < log.leader_epoch
            return ProduceResult(*key, ErrorCode.FENCED_LEADER_EPOCH if old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        refused = self.cluster.transactions.refusal(partition, parse_header(batch))
        if refused is not ErrorCode.NONE:
            return ProduceResult(*key, refused, f"refused: {refused.name}")
        code, base_offset = log.append(batch)
        self.appended.set()
        return None if step == "lose" else ProduceResult(*key, code, base_offset=base_offset)

    # ---- fetch -----------------------------------------------------------------------------------------------------

    async def handle_fetch_stream(self, hello: Hello, stream: Any, context: RequestContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                request: FetchRequest = await stream.receive()
                self.fetched.append(request)
                tasks.create_task(self._answer_fetch(request, stream))

    async def _answer_fetch(self, request: FetchRequest, stream: Any) -> None:
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            self.appended.clear()
            answers = [self._fetch(partition) for partition in request.partitions]
            late = asyncio.get_running_loop().time() >= deadline
            if late or any(data or result.error is not ErrorCode.NONE for result, data in answers):
                break
            try:
                async with asyncio.timeout_at(deadline):
                    await self.appended.wait()
            except TimeoutError:
                pass
        if self.is_silent:
            return
        results, data = tuple(a[0] for a in answers), tuple(a[1] for a in answers)
        await stream.send(FetchResponse(request.correlation_id, results, data, self._leaders(results)))

    def _leaders(self, results: Iterable[ProduceResult | FetchResult]) -> tuple[LeaderEndpoint, ...]:
        """Where those are that results name as leaders."""
        named = ((one.leader_id, self.cluster.addresses[one.leader_id]) for one in results if one.leader_id >= 0)
        return tuple(LeaderEndpoint(node, "127.0.0.1", int(address.split(":")[1])) for node, address in named)

    def _fetch(self, partition: FetchPartition) -> tuple[FetchResult, bytes]:
        log = self.cluster.log_by_id(partition.topic_id, partition.partition_id)
        base = FetchResult(partition.topic_id, partition.partition_id, ErrorCode.NONE, partition.fetch_offset)
        if self.fetch_script:
            return replace(base, error=self.fetch_script.popleft()), b""
        if log is None:
            return replace(base, error=ErrorCode.UNKNOWN_TOPIC_ID), b""
        if log.leader != self.node_id and not self.serves_consumers:
            leader = (log.leader, log.leader_epoch) if self.names_leaders else (-1, -1)
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return replace(base, error=error, leader_id=leader[0], leader_epoch=leader[1]), b""
        if partition.leader_epoch != log.leader_epoch:
            return replace(base, error=ErrorCode.FENCED_LEADER_EPOCH), b""
        if not log.log_start_offset <= partition.fetch_offset <= log.end_offset:
            ends = {"log_start_offset": log.log_start_offset, "log_end_offset": log.end_offset}
            return replace(base, error=ErrorCode.OFFSET_OUT_OF_RANGE, **ends), b""
        parted = log.parted
        if parted is not None and partition.last_fetched_epoch >= 0 and partition.fetch_offset > parted.end_offset:
            return replace(base, diverging=parted), b""
        data = log.read(partition.fetch_offset, partition.max_bytes)
        return replace(base, high_watermark=log.visible_offset, log_start_offset=log.log_start_offset), data
