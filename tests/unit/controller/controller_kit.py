"""A quorum small enough to see through: one list of batches, some controllers that read it, one of them active.

`Quorum` moves batches between the controllers; `Scenario` is its command language for the files of
`tests/data/controller`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from uuid import UUID

from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import (
    AlterConfigs,
    AlterPartition,
    AlterPartitionResponse,
    AppendRecords,
    Claim,
    CommittedRecords,
    ConfigEntry,
    ControllerRequest,
    ControllerResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    Effect,
    Heartbeat,
    HeartbeatResponse,
    IsrMember,
    NewTopic,
    PartitionIsrChange,
    RegisterBroker,
    RegisterBrokerResponse,
    Renounce,
    ReplicaEnd,
    Reply,
    ReplyError,
    ReportReplicas,
    Submit,
    Tick,
)
from replog.errors import ErrorCode
from replog.metadata import MetadataDelta, MetadataImage, PartitionRegistration, awaiting_report
from replog.metadata.records import ResourceType

CLUSTER_ID = "cluster-1"
FAR_MS = 10**9


def directory(broker_id: int, number: int = 0) -> UUID:
    return UUID(int=broker_id * 1000 + number + 1)


class Quorum:
    """Controllers over one log.  Every committed batch goes to all of them; the image follows the committed log."""

    def __init__(self, *node_ids: int, config: ControllerConfig | None = None) -> None:
        self.config = config or ControllerConfig()
        self.nodes = {node_id: self._new_node(node_id) for node_id in node_ids or (1,)}
        self.log: list[CommittedRecords] = []
        self.committed_count = 0  # batches
        self.active: int | None = None
        self.epoch = 0
        self.now_ms = 0
        self.image = MetadataImage()
        self.replies: dict[int, ControllerResponse | Exception] = {}
        self.resigned: list[str] = []
        self._request_ids = 0

    def _new_node(self, node_id: int) -> Controller:
        return Controller(node_id=node_id, cluster_id=CLUSTER_ID, config=self.config, rng=random.Random(node_id))

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
            case _:
                self.resigned.append(effect.reason)

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

    def submit(self, request: ControllerRequest, *, timeout_ms: int = FAR_MS) -> int:
        assert self.active is not None
        self._request_ids += 1
        self.step(self.active, Submit(self._request_ids, request, self.now_ms + timeout_ms))
        return self._request_ids

    def ask(self, request: ControllerRequest) -> ControllerResponse:
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

    def partition(self, name: str, partition_id: int = 0) -> PartitionRegistration:
        return self.image.topics_by_name[name].partitions[partition_id]

    def isr_change(self, name: str, isr: tuple[int, ...], partition_id: int = 0) -> PartitionIsrChange:
        partition = self.partition(name, partition_id)
        members = tuple(IsrMember(member, self.broker_epoch(member)) for member in isr)
        topic_id = self.image.topics_by_name[name].topic_id
        return PartitionIsrChange(topic_id, partition_id, partition.leader_epoch, partition.partition_epoch, members)

    def alter_isr(self, name: str, isr: tuple[int, ...]) -> ErrorCode:
        leader = self.partition(name).leader
        request = AlterPartition(leader, self.broker_epoch(leader), (self.isr_change(name, isr),))
        response = self.ask(request)
        assert isinstance(response, AlterPartitionResponse)
        return response.partitions[0].error

    def report(self, broker_id: int, name: str, last_epoch: int, end: int) -> None:
        end_of_replica = ReplicaEnd(self.image.topics_by_name[name].topic_id, 0, last_epoch, end)
        self.ask(ReportReplicas(broker_id, self.broker_epoch(broker_id), (end_of_replica,)))


class Scenario:
    """The commands of the scenario files; see each method.  Times are `<n>ms`, lists `1,2`, options `name=value`."""

    def __init__(self) -> None:
        self.quorum = Quorum(1)
        self._incarnations: dict[int, int] = {}
        self._heard: set[int] = set()

    def execute(self, command: str) -> Iterator[str]:
        name, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        try:
            yield from getattr(self, f"_{name}")(*arguments, **options) or ()
        except Exception as error:
            if not isinstance(error, AssertionError) and hasattr(error, "code"):
                yield f"{type(error).__name__}"
            else:
                raise

    def _controllers(self, *node_ids: str, **config: str) -> None:
        """`controllers 1 2 min_insync_replicas=2`: a new quorum, the first one active."""
        numbers = {key: int(value) for key, value in config.items()}
        self.quorum = Quorum(*map(int, node_ids), config=ControllerConfig(**numbers))
        self.quorum.claim(int(node_ids[0]))
        self.quorum.commit()

    def _start(self, *broker_ids: str) -> None:
        """`start 1 2 3`: registered for the first time and unfenced."""
        self.quorum.start(*map(int, broker_ids))
        self._heard |= set(map(int, broker_ids))

    def _restart(self, broker: str, how: str) -> None:
        """`restart 1 clean|unclean|wiped`: a new incarnation registers."""
        broker_id = int(broker)
        incarnation = self._incarnations[broker_id] = self._incarnations.get(broker_id, 1) + 1
        previous = self.quorum.broker_epoch(broker_id) if how == "clean" else -1
        directory_number = incarnation if how == "wiped" else 0
        request = self.quorum.register_request(
            broker_id, incarnation, previous=previous, directory_number=directory_number
        )
        self.quorum.ask(request)
        self._heard.add(broker_id)

    def _heartbeat(self, *broker_ids: str, want: str = "", applied: str = "") -> Iterator[str]:
        """`heartbeat 1 2 want=shut_down applied=5`: prints the state each is given."""
        for broker_id in map(int, broker_ids):
            answer = self.quorum.heartbeat(
                broker_id,
                want_fence="fence" in want,
                want_shut_down="shut_down" in want,
                offset=int(applied) if applied else None,
            )
            state = "shut down now" if answer.should_shut_down else "fenced" if answer.is_fenced else "unfenced"
            yield f"{broker_id} {state}"

    def _kill(self, *broker_ids: str) -> None:
        """`kill 1`: sends no heartbeats from now on."""
        self._heard -= set(map(int, broker_ids))

    def _advance(self, time: str) -> Iterator[str]:
        """`advance 9001ms`: brokers that live send heartbeats each second; prints who is fenced, tick by tick."""
        quorum = self.quorum
        end_ms = quorum.now_ms + int(time.removesuffix("ms"))
        while quorum.now_ms < end_ms:
            quorum.now_ms = min(quorum.now_ms + 1000, end_ms)
            for broker_id in sorted(self._heard):
                quorum.heartbeat(broker_id, offset=quorum.image.end_offset)
            while (deadline_ms := quorum.leader.next_deadline_ms()) is not None and deadline_ms <= quorum.now_ms:
                before = quorum.leader.status().unfenced_brokers
                quorum.tick()
                quorum.commit()
                gone = sorted(set(before) - set(quorum.leader.status().unfenced_brokers))
                yield f"tick at {quorum.now_ms}ms fences {','.join(map(str, gone))}"

    def _create(self, name: str, *, replicas: str, **configs: str) -> None:
        """`create flights replicas=1,2,3 min.insync.replicas=2`."""
        self.quorum.create(name, *_numbers(replicas), **configs)

    def _submit_create(self, name: str, *, replicas: str) -> Iterator[str]:
        """`submit_create flights replicas=1`: without committing; prints the number of the request."""
        yield f"request {self.quorum.submit(CreateTopics((NewTopic(name, assignments=(_numbers(replicas),)),)))}"

    def _delete(self, name: str) -> None:
        self.quorum.ask(DeleteTopics((name,)))

    def _isr(self, name: str, members: str) -> Iterator[str]:
        """`isr flights 1,2`: the leader proposes an ISR; prints the error, if any."""
        error = self.quorum.alter_isr(name, _numbers(members))
        if error is not ErrorCode.NONE:
            yield error.name

    def _report(self, broker_id: str, name: str, *, epoch: str, end: str) -> None:
        """`report 1 flights epoch=5 end=100`: how far a replica reaches."""
        self.quorum.report(int(broker_id), name, int(epoch), int(end))

    def _config(self, resource: str, **configs: str) -> None:
        """`config topic/flights min.insync.replicas=1`, `config cluster ...`."""
        kind, _, name = resource.partition("/")
        resource_type = ResourceType.TOPIC if kind == "topic" else ResourceType.BROKER
        self.quorum.ask(AlterConfigs(resource_type, name, tuple(ConfigEntry(*item) for item in configs.items())))

    def _commit(self, batches: str = "") -> Iterator[str]:
        """`commit [n]`: prints the requests that are answered."""
        return self._answers(lambda: self.quorum.commit(int(batches) if batches else None))

    def _depose(self, *, lost: str = "0") -> Iterator[str]:
        """`depose lost=1`: the active controller loses the newest batches and its leadership."""
        return self._answers(lambda: self.quorum.renounce(lost_batches=int(lost)))

    def _claim(self, node_id: str) -> None:
        self.quorum.claim(int(node_id))

    def _answers(self, act: object) -> Iterator[str]:
        known = set(self.quorum.replies)
        act()  # type: ignore[operator]
        for request_id, answer in self.quorum.replies.items():
            if request_id not in known:
                yield f"request {request_id}: {type(answer).__name__}"

    def _show(self, *names: str) -> Iterator[str]:
        """`show flights`: partition 0 as the committed image has it."""
        for name in names:
            topic = self.quorum.image.topics_by_name.get(name)
            yield f"{name} {_line(topic.partitions[0]) if topic else 'does not exist'}"

    def _awaited(self, *broker_ids: str) -> Iterator[str]:
        """`awaited 1 2`: whose report the image asks for."""
        for broker_id in map(int, broker_ids):
            names = [awaited.topic_name for awaited in awaiting_report(self.quorum.image, broker_id)]
            yield f"{broker_id}: {','.join(names) or '-'}"

    def _elections(self) -> Iterator[str]:
        counts = self.quorum.leader.status().elections
        yield " ".join(f"{kind.name.lower()}={count}" for kind, count in counts.items() if count)

    def _hashes(self) -> Iterator[str]:
        """`hashes`: whether all controllers hold the same committed state."""
        hashes = {node.committed_state_hash() for node in self.quorum.nodes.values()}
        yield "equal" if len(hashes) == 1 else "different"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _line(partition: PartitionRegistration) -> str:
    members = {"isr": partition.isr, "elr": partition.elr, "last_known": partition.last_known_elr}
    lists = " ".join(f"{name}={','.join(map(str, ids))}" for name, ids in members.items() if ids or name == "isr")
    epochs = f"leader_epoch={partition.leader_epoch} partition_epoch={partition.partition_epoch}"
    recovering = " RECOVERING" if partition.leader_recovery_state else ""
    return f"leader={partition.leader} {epochs} {lists}{recovering}"
