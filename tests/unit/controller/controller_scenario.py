"""The command language of the worked examples in `tests/data/controller`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

from controller_kit import Quorum
from msgspec.structs import asdict

from replog.controller.config import ControllerConfig
from replog.controller.requests import CreateTopics, DeleteTopics, NewTopic, UnregisterBroker
from replog.errors import ErrorCode
from replog.metadata import PartitionRegistration, awaiting_report
from replog.metadata.records import ElectionType, PartitionChangeRecord, PartitionRecord, ResourceType


class Scenario:
    """The commands of the scenario files; see each method.  Times are `<n>ms`, lists `1,2`, options `name=value`."""

    def __init__(self) -> None:
        self.quorum = Quorum(1)
        self._incarnations: dict[int, int] = {}
        self._heard: set[int] = set()
        self._logged = 0  # batches that `log` has been through

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
        self._heard.clear()
        self._incarnations.clear()
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
        """`advance 9001ms`: brokers that live send heartbeats each second; prints who is fenced, and when."""
        quorum = self.quorum
        start_ms, end_ms = quorum.now_ms, quorum.now_ms + int(time.removesuffix("ms"))
        while quorum.now_ms < end_ms:
            before = set(quorum.leader.status().unfenced_brokers)
            next_heartbeat_ms = quorum.now_ms + 1000 - (quorum.now_ms - start_ms) % 1000
            deadline_ms = quorum.leader.next_deadline_ms() or end_ms
            quorum.now_ms = min(next_heartbeat_ms, end_ms, max(deadline_ms, quorum.now_ms + 1))
            if quorum.now_ms in {next_heartbeat_ms, end_ms}:
                for broker_id in sorted(self._heard):
                    quorum.heartbeat(broker_id, offset=quorum.image.end_offset)
            quorum.tick()
            quorum.commit()
            if gone := sorted(before - set(quorum.leader.status().unfenced_brokers)):
                yield f"tick at {quorum.now_ms}ms fences {','.join(map(str, gone))}"

    def _create(self, name: str, *, replicas: str, **configs: str) -> None:
        """`create flights replicas=1,2,3 min.insync.replicas=2`."""
        self.quorum.create(name, *_numbers(replicas), **configs)

    def _submit_create(self, name: str, *, replicas: str, partitions: str = "1") -> Iterator[str]:
        """`submit_create flights replicas=1 partitions=2`: without committing; prints the number of the request."""
        topic = NewTopic(name, assignments=(_numbers(replicas),) * int(partitions))
        yield f"request {self.quorum.submit(CreateTopics((topic,)))}"

    def _reassign(self, name: str, replicas: str) -> Iterator[str]:
        """`reassign flights 2,3`, `reassign flights cancel`: prints the error, if any."""
        error = self.quorum.reassign(name, None if replicas == "cancel" else _numbers(replicas))
        if error is not ErrorCode.NONE:
            yield error.name

    def _elect(self, election_type: str, *names: str) -> Iterator[str]:
        """`elect preferred flights`: prints the errors, if any."""
        for name, error in self.quorum.elect(ElectionType[election_type.upper()], *names).items():
            if error is not ErrorCode.NONE:
                yield f"{name}: {error.name}"

    def _drain(self, broker_id: str, wish: str = "on") -> Iterator[str]:
        """`drain 1`, `drain 1 off`: prints how many replicas are left."""
        yield f"{self.quorum.drain(int(broker_id), drained=wish == 'on')} replicas left"

    def _restart_controller(self, node_id: str, *, start: str = "log") -> None:
        """`restart_controller 1 start=snapshot`: a standby's process begins anew."""
        self.quorum.restart(int(node_id), from_snapshot=start == "snapshot")

    def _unregister(self, broker_id: str) -> None:
        self.quorum.ask(UnregisterBroker(int(broker_id)))

    def _gone(self, broker_id: str, *, present: str | None = None) -> None:
        """`gone 1 present=2`: the driver sees that it does not run any more, and that 2 does (without: all others do)."""
        self.quorum.gone(int(broker_id), None if present is None else map(int, filter(None, present.split(","))))
        self.quorum.commit()

    def _log(self, name: str) -> Iterator[str]:
        """`log flights`: the records about its partitions that have been committed since the last `log`."""
        quorum = self.quorum
        for batch in quorum.log[self._logged : quorum.committed_count]:
            for record in batch.records:
                if isinstance(record, PartitionRecord | PartitionChangeRecord) and record.topic_id in self._ids(name):
                    yield _shown(record)
        self._logged = quorum.committed_count

    def _ids(self, name: str) -> set[UUID]:
        topics = self.quorum.image.topics_by_name
        return {topics[name].topic_id} if name in topics else set()

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
        self.quorum.configure(resource_type, name, **configs)

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


def _shown(record: PartitionRecord | PartitionChangeRecord) -> str:
    """Its fields, without those that say nothing."""
    values = {name: value for name, value in asdict(record).items() if name != "topic_id"}
    if isinstance(record, PartitionRecord):
        values = {name: value for name, value in values.items() if value}
    shown = " ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else getattr(value, 'name', value)}"
        for name, value in values.items()
        if value is not None
    )
    return f"{type(record).__name__} {shown}"


def _line(partition: PartitionRegistration) -> str:
    members = {
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known": partition.last_known_elr,
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
    }
    lists = " ".join(f"{name}={','.join(map(str, ids))}" for name, ids in members.items() if ids or name == "isr")
    epochs = f"leader_epoch={partition.leader_epoch} partition_epoch={partition.partition_epoch}"
    recovering = " RECOVERING" if partition.leader_recovery_state else ""
    return f"leader={partition.leader} {epochs} {lists}{recovering}"
