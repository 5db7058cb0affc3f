"""A quorum small enough to see through: one list of batches, some controllers that read it, one of them active.

`controller_scenario` is its command language for the files of `tests/data/controller`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from uuid import UUID

from msgspec.structs import replace

from replog.access.principal import Envelope
from replog.access.rights import Denial
from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import (
    AppendRecords,
    AppendRefused,
    BrokerGone,
    ChangeFailed,
    Claim,
    CommittedRecords,
    Effect,
    LoadSnapshot,
    Renounce,
    Reply,
    ReplyError,
    Skip,
    Submit,
    Tick,
    WatchBrokers,
    WatchedBroker,
)
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    AlterPartition,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    AlterPartitionResponse,
    ClientChange,
    ConfigEntry,
    ConfigOperation,
    ControllerResponse,
    CreateTopics,
    CreateTopicsResponse,
    DrainBroker,
    DrainBrokerResponse,
    ElectLeaders,
    ElectLeadersResponse,
    Heartbeat,
    HeartbeatResponse,
    IsrMember,
    NamedPartition,
    NewTopic,
    NodeWish,
    PartitionIsrChange,
    Reassignment,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaEnd,
    ReportReplicas,
    TopicResult,
)
from replog.errors import ErrorCode, PolicyViolationError
from replog.metadata import MetadataDelta, MetadataImage, PartitionRegistration, image_records
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import ElectionType, ResourceType
from tests.envelopes import in_envelope

CLUSTER_ID = "cluster-1"
FAR_MS = 10**9
WALL_MS = 1_700_000_000_000


def directory(broker_id: int, number: int = 0) -> UUID:
    return UUID(int=broker_id * 1000 + number + 1)


def alterable(name: str, value: str | None) -> AlterableConfig:
    return AlterableConfig(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)


class Quorum:
    """Controllers over one log.  Every committed batch goes to all of them; the image follows the committed log."""

    def __init__(self, *node_ids: int, config: ControllerConfig | None = None) -> None:
        self.config = replace(config or ControllerConfig(), metadata_max_idle_interval_ms=0)
        self.nodes = {node_id: self._new_node(node_id) for node_id in node_ids or (1,)}
        self.log: list[CommittedRecords] = []
        self.committed_count = 0  # batches
        self.active: int | None = None
        self.epoch = 0
        self.now_ms = 0
        self.image = MetadataImage()
        self.replies: dict[int, ControllerResponse | Exception] = {}
        self.resigned: list[str] = []
        self.denials: list[Denial] = []
        self.failed: list[tuple[str, type[Exception]]] = []
        self.watched: tuple[WatchedBroker, ...] = ()
        self._request_ids = 0

    def _new_node(self, node_id: int) -> Controller:
        rng = random.Random(node_id)
        return Controller(
            node_id=node_id, cluster_id=CLUSTER_ID, config=self.config, rng=rng, wall_ms=lambda: WALL_MS + self.now_ms
        )

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    @property
    def leader(self) -> Controller:
        assert self.active is not None
        return self.nodes[self.active]

    def step(self, node_id: int, message: object) -> None:
        for effect in self.nodes[node_id].step(message, self.now_ms):  # type: ignore[arg-type]
            self._perform(node_id, effect)

    def _perform(self, node_id: int, effect: Effect) -> None:
        match effect:
            case AppendRecords():
                assert (node_id, effect.epoch, effect.base_offset) == (self.active, self.epoch, self.end_offset)
                end_offset = effect.base_offset + len(effect.records)
                self.log.append(CommittedRecords(effect.base_offset, end_offset, effect.epoch, effect.records))
            case Reply() | ReplyError():
                assert effect.request_id not in self.replies, "answered twice"
                self.replies[effect.request_id] = effect.response if isinstance(effect, Reply) else effect.error
            case WatchBrokers():
                self.watched = effect.brokers
            case Denial():
                self.denials.append(effect)
            case ChangeFailed():
                self.failed.append((effect.name, type(effect.bug)))
            case _:
                self.resigned.append(effect.reason)

    def restart(self, node_id: int, *, from_snapshot: bool = False) -> None:
        """The node's process begins anew: from the log, or from a snapshot of the committed image."""
        assert node_id != self.active
        node = self.nodes[node_id] = self._new_node(node_id)
        batches = self.log[: self.committed_count]
        if from_snapshot:
            image = self.image
            node.step(LoadSnapshot(image.end_offset, tuple(image_records(image))), self.now_ms)
            batches = []
        for batch in batches:
            assert node.step(batch, self.now_ms) == ()

    def skip(self, count: int) -> None:
        """The quorum appends control records of its own while a node leads."""
        assert self.active is not None
        self.log.append(CommittedRecords(self.end_offset, self.end_offset + count, self.epoch))
        self.step(self.active, Skip(self.end_offset))

    def gone(self, broker_id: int, present: Iterable[int] | None = None) -> None:
        """The driver finds that a broker it watches does not run any more; of the others, `present` do (None: all)."""
        assert self.active is not None
        present = [broker.broker_id for broker in self.watched] if present is None else present
        (broker,) = [broker for broker in self.watched if broker.broker_id == broker_id]
        self.step(self.active, BrokerGone(broker_id, broker.broker_epoch, "refused", frozenset(present)))

    def claim(self, node_id: int) -> None:
        """The node leads: its leader-change batch is in the log, nothing more has committed yet."""
        self.epoch += 1
        self.active = node_id
        self.log.append(CommittedRecords(self.end_offset, self.end_offset + 1, self.epoch))
        self.step(node_id, Claim(self.epoch, self.end_offset))

    def renounce(self, *, lost_batches: int = 0) -> None:
        """The active node is deposed; the newest `lost_batches` uncommitted batches never commit."""
        assert self.active is not None
        keep = max(self.committed_count, len(self.log) - lost_batches)
        del self.log[keep:]
        node_id, self.active = self.active, None
        self.step(node_id, Renounce())

    def commit(self, batches: int | None = None) -> None:
        """The next `batches` (all, when None; those that follow from them too) commit."""
        while self.committed_count < len(self.log) and batches != 0:
            batch = self.log[self.committed_count]
            self.committed_count += 1
            batches = None if batches is None else batches - 1
            delta = MetadataDelta(self.image)
            for record in batch.records:
                delta.replay(record)
            self.image = delta.apply(batch.end_offset, batch.epoch)
            for node_id in self.nodes:
                self.step(node_id, batch)

    def submit(self, request: NodeWish | ClientChange | Envelope[ClientChange], *, timeout_ms: int = FAR_MS) -> int:
        assert self.active is not None
        self._request_ids += 1
        self.step(self.active, Submit(self._request_ids, in_envelope(request), self.now_ms + timeout_ms))
        self._go_on()
        return self._request_ids

    def _go_on(self) -> None:
        """Ticks while a large change is being appended."""
        end_offset = -1
        while self._is_due() and (self.leader.status().next_write_offset != end_offset or self.leader.is_changing):
            end_offset = self.leader.status().next_write_offset
            self.tick()

    def _is_due(self) -> bool:
        deadline_ms = self.leader.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= self.now_ms

    def ask(self, request: NodeWish | ClientChange | Envelope[ClientChange]) -> ControllerResponse:
        """Submit, commit everything, return the answer or raise the error."""
        request_id = self.submit(request)
        self.commit()
        answer = self.replies[request_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tick(self) -> None:
        assert self.active is not None
        self.step(self.active, Tick())

    # ---- brokers ----------------------------------------------------------------------------------------------------

    def register_request(
        self,
        broker_id: int,
        incarnation: int = 1,
        *,
        previous: int = -1,
        directory_number: int = 0,
        rack: str | None = None,
    ) -> RegisterBroker:
        return RegisterBroker(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=broker_id * 10**6 + incarnation),
            host="localhost",
            port=9000 + broker_id,
            log_dirs=(directory(broker_id, directory_number),),
            rack=rack,
            previous_broker_epoch=previous,
            supported_features=SUPPORTED_FEATURES,
        )

    def register(self, broker_id: int, incarnation: int = 1, *, previous: int = -1, rack: str | None = None) -> int:
        response = self.ask(self.register_request(broker_id, incarnation, previous=previous, rack=rack))
        assert isinstance(response, RegisterBrokerResponse)
        return response.broker_epoch

    def broker_epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].broker_epoch

    def heartbeat(
        self, broker_id: int, *, want_fence: bool = False, want_shut_down: bool = False, offset: int | None = None
    ) -> HeartbeatResponse:
        applied = self.image.end_offset if offset is None else offset
        response = self.ask(Heartbeat(broker_id, self.broker_epoch(broker_id), applied, want_fence, want_shut_down))
        assert isinstance(response, HeartbeatResponse)
        return response

    def start(self, *broker_ids: int) -> None:
        """Registered and unfenced."""
        for broker_id in broker_ids:
            self.register(broker_id)
            assert not self.heartbeat(broker_id).is_fenced

    # ---- topics -----------------------------------------------------------------------------------------------------

    def create(self, name: str, *replicas: int, partitions: int = 1, **configs: str) -> None:
        entries = tuple(ConfigEntry(key.replace("_", "."), value) for key, value in configs.items())
        topic = NewTopic(name, assignments=(replicas,) * partitions, configs=entries)
        response = self.ask(CreateTopics((topic,)))
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error is ErrorCode.NONE, response.topics[0].message

    def ask_create(self, topic: NewTopic) -> TopicResult:
        response = self.ask(CreateTopics((topic,)))
        assert isinstance(response, CreateTopicsResponse)
        return response.topics[0]

    def configure(self, resource_type: ResourceType, name: str, **configs: str | None) -> None:
        """None as a value deletes."""
        entries = tuple(alterable(key, value) for key, value in configs.items())
        response = self.ask(AlterConfigs((AlterConfigsResource(resource_type, name, entries),)))
        assert isinstance(response, AlterConfigsResponse)
        assert response.resources[0].error is ErrorCode.NONE, response.resources[0].message

    def partition(self, name: str, partition_id: int = 0) -> PartitionRegistration:
        return self.image.topics_by_name[name].partitions[partition_id]

    def isr_change(self, name: str, isr: tuple[int, ...], partition_id: int = 0) -> PartitionIsrChange:
        partition = self.partition(name, partition_id)
        members = tuple(IsrMember(member, self.broker_epoch(member)) for member in isr)
        topic_id = self.image.topics_by_name[name].topic_id
        return PartitionIsrChange(topic_id, partition_id, partition.leader_epoch, partition.partition_epoch, members)

    def reassign(self, name: str, replicas: tuple[int, ...] | None, **options: bool) -> ErrorCode:
        """None cancels."""
        response = self.ask(AlterPartitionReassignments((Reassignment(name, 0, replicas),), **options))
        assert isinstance(response, AlterPartitionReassignmentsResponse)
        return response.partitions[0].error

    def elect(self, election_type: ElectionType, *names: str) -> dict[str, ErrorCode]:
        """Partition 0 of each; without names, all partitions."""
        partitions = tuple(NamedPartition(name, 0) for name in names) if names else None
        response = self.ask(ElectLeaders(election_type, partitions))
        assert isinstance(response, ElectLeadersResponse)
        return {result.topic: result.error for result in response.partitions}

    def drain(self, broker_id: int, *, drained: bool = True) -> int:
        response = self.ask(DrainBroker(broker_id, drained))
        assert isinstance(response, DrainBrokerResponse)
        return response.replicas_count

    def alter_isr(self, name: str, isr: tuple[int, ...], partition_id: int = 0) -> ErrorCode:
        leader = self.partition(name, partition_id).leader
        request = AlterPartition(leader, self.broker_epoch(leader), (self.isr_change(name, isr, partition_id),))
        response = self.ask(request)
        assert isinstance(response, AlterPartitionResponse)
        return response.partitions[0].error

    def report(self, broker_id: int, name: str, last_epoch: int, end: int) -> None:
        end_of_replica = ReplicaEnd(self.image.topics_by_name[name].topic_id, 0, last_epoch, end)
        self.ask(ReportReplicas(broker_id, self.broker_epoch(broker_id), (end_of_replica,)))


REFUSAL = PolicyViolationError("too large")


class Refusing(Quorum):
    """Its log takes batches of at most `records_max` records, and none with a record of a class in `refused`."""

    records_max = 100
    refused: tuple[type, ...] = ()

    def step(self, node_id: int, message: object) -> None:
        first: AppendRefused | None = None
        for effect in self.nodes[node_id].step(message, self.now_ms):  # type: ignore[arg-type]
            if first is not None and isinstance(effect, AppendRecords):
                continue
            if self._is_refused(effect):
                first = AppendRefused(effect.base_offset, REFUSAL)  # type: ignore[union-attr]
            else:
                self._perform(node_id, effect)
        if first is not None:
            self.step(node_id, first)

    def _is_refused(self, effect: Effect) -> bool:
        if not isinstance(effect, AppendRecords):
            return False
        too_many = len(effect.records) > self.records_max
        return too_many or any(isinstance(record, self.refused) for record in effect.records)

    def check_equal(self) -> None:
        """The nodes agree with each other and with their log, and none gave up."""
        self.commit()
        assert self.nodes[1].committed_state_hash() == self.nodes[2].committed_state_hash()
        assert self.nodes[1].status().next_write_offset == self.end_offset
        assert self.resigned == []


def refusing(**settings: int) -> Refusing:
    quorum = Refusing(1, 2, config=ControllerConfig(**settings))
    quorum.claim(1)
    quorum.commit()
    quorum.start(1, 2, 3)
    return quorum
