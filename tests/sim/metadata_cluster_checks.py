"""What must hold in a simulated metadata cluster: looked at whenever a node learns something, and once more at the end.

================ =========================================================================================================
M1               one leader per epoch, whoever is asked
M4               a committed record is the same on every node, in every life of it, and comes exactly once and in order
M7               a log that starts above 0 starts where a snapshot ends
M8               all nodes have the same voters at the end
T1, T2           controllers with the same committed end offset have the same state, a snapshot's or a replayed one
acknowledged     what a client was told is done is in the image of every node
definite failure what a client was told is not done is in none
once             no topic was made twice
================ =========================================================================================================
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from replog.controller.messages import CommittedRecords
from replog.errors import StorageError
from replog.metadata.image import MetadataImage
from replog.metadata.records import ResourceType, TopicRecord
from replog.testing.simulated_node import ClusterObserver, ObservedNode, SimulatedNode
from tests.sim.event_log import EventLog

HASH_EVERY_OFFSETS = 3


class Violation(AssertionError):  # noqa: N818 - named like what the testing guide speaks of
    """Something that must hold does not; the message starts with its name."""


class Outcome(Enum):
    """How a change ended for the client that asked for it."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class TopicHistory:
    """One topic of one client, which changes it step by step and leaves it alone after an outcome that it does not know.

    Attributes:
        may_be: the states that its last answers allow.
        values: of the one setting that the client changes, likewise.
    """

    name: str
    may_be: set[str] = field(default_factory=lambda: {"absent"})
    values: set[str | None] = field(default_factory=lambda: {None})

    def changed(self, state: str, outcome: Outcome) -> None:
        """A creation ("present") or a deletion ("absent") was answered."""
        match outcome:
            case Outcome.DONE:
                self.may_be = {state}
            case Outcome.UNKNOWN:
                self.may_be.add(state)
            case Outcome.NOT_DONE:
                pass

    def set_value(self, value: str, outcome: Outcome) -> None:
        match outcome:
            case Outcome.DONE:
                self.values = {value}
            case Outcome.UNKNOWN:
                self.values.add(value)
            case Outcome.NOT_DONE:
                pass

    @property
    def is_certain(self) -> bool:
        return len(self.may_be) == 1 and len(self.values) == 1


class Checker(ClusterObserver):
    """Notes what it finds; `check` raises it.

    Attributes:
        seen: how often what happened.
        topics: of all clients.
        votes: controller -> whether it may be a voter, for those whose vote was changed.
        troubled: (node, life) of the processes that may end by themselves, because their disks have failed.
    """

    def __init__(self, events: EventLog) -> None:
        self.events = events
        self.troubled: set[tuple[int, int]] = set()
        self.seen: Counter[str] = Counter()
        self.topics: list[TopicHistory] = []
        self.votes: dict[int, set[bool]] = {}
        self._violations: list[str] = []
        self._leaders: dict[int, int] = {}
        self._records: dict[int, str] = {}
        self._ends: dict[ObservedNode, int] = {}
        self._hashes: dict[int, str] = {}
        self._made: Counter[str] = Counter()

    def check(self) -> None:
        if self._violations:
            raise Violation(self._violations[0])

    def check_unheard(self, problems: list[str]) -> None:
        """Exceptions that reached nobody."""
        self.check()
        if problems:
            raise Violation(f"unheard: {problems[0]}")

    # ---- told by the nodes -------------------------------------------------------------------------------------------

    def committed(self, node: ObservedNode, batch: CommittedRecords) -> None:
        node_id = node.config.node_id
        expected = self._ends.get(node, batch.base_offset)
        if batch.base_offset != expected:
            self._violations.append(f"M4 node {node_id} is handed offset {batch.base_offset} after {expected}")
        self._ends[node] = batch.end_offset
        records = batch.records or (None,) * (batch.end_offset - batch.base_offset)  # control records
        for offset, record in enumerate(records, batch.base_offset):
            if offset not in self._records:
                self.events.note_record(offset, record)
            if isinstance(record, TopicRecord) and offset not in self._records:
                self._made[record.name] += 1
            content = f"{record!r} of epoch {batch.epoch}"
            first = self._records.setdefault(offset, content)
            if first != content:
                self._violations.append(f"M4 offset {offset} on node {node_id} is {content}, before it was {first}")
        if batch.end_offset % HASH_EVERY_OFFSETS == 0:
            self._compare_state(node, batch.end_offset)

    def snapshot_loaded(self, node: ObservedNode, end_offset: int) -> None:
        self.seen["snapshot fetched" if node in self._ends else "snapshot loaded"] += 1
        self._ends[node] = end_offset
        self._compare_state(node, end_offset)

    def leader_changed(self, node: ObservedNode, leader_id: int | None, epoch: int) -> None:
        if leader_id is not None and self._leaders.setdefault(epoch, leader_id) != leader_id:
            self._violations.append(
                f"M1 epoch {epoch} is led by {self._leaders[epoch]}, and by {leader_id} for node {node.config.node_id}"
            )

    def became_leader(self, node: ObservedNode, epoch: int) -> None:
        self.seen["controller elected"] += 1
        self.events.note("quorum", f"node {node.config.node_id} leads epoch {epoch}")
        if self._leaders.setdefault(epoch, node.config.node_id) != node.config.node_id:
            self._violations.append(f"M1 node {node.config.node_id} leads epoch {epoch} of {self._leaders[epoch]}")

    def failed(self, node: SimulatedNode, error: BaseException) -> None:
        text = f"node {node.node_id} ended by itself: {type(error).__name__}: {error}"
        self.events.note("node", text)
        if isinstance(error, StorageError | OSError) and (node.node_id, node.lives) in self.troubled:
            self.seen["ended by a failed disk"] += 1
        else:
            self._violations.append(text)

    def _compare_state(self, node: ObservedNode, end_offset: int) -> None:
        found = node.controller_state_hash
        if found is not None and self._hashes.setdefault(end_offset, found) != found:
            self._violations.append(
                f"T1 node {node.config.node_id} has another state at {end_offset} than a node before"
            )

    # ---- at the end --------------------------------------------------------------------------------------------------

    def check_images(self, nodes: list[ObservedNode]) -> None:
        """Every node has the same metadata now; is it what the clients were told?"""
        for node in nodes:
            for topic in self.topics:
                self._check_topic(node, topic)
            self._compare_state(node, node.image.end_offset)
            self._check_votes(node)
            self._check_snapshots(node)
        if len({node.quorum_status.voter_set for node in nodes}) > 1:
            self._violations.append(f"M8 voters differ: {[node.quorum_status.voters for node in nodes]}")
        if len({repr(_content(node.image)) for node in nodes}) > 1:
            self._violations.append("T1 images differ at one offset")
        self._check_once()
        self.check()

    def _check_topic(self, node: ObservedNode, topic: TopicHistory) -> None:
        image = node.image
        state = "present" if topic.name in image.topics_by_name else "absent"
        if state not in topic.may_be:
            self._violations.append(
                f"acknowledged: {topic.name} is {state} on node {node.config.node_id}, it must be {sorted(topic.may_be)}"
            )
        value = image.configs.get((ResourceType.TOPIC, topic.name), {}).get("retention.ms")
        if state == "present" and value not in topic.values:
            self._violations.append(
                f"acknowledged: retention.ms of {topic.name} is {value} on node {node.config.node_id},"
                f" it must be one of {topic.values}"
            )

    def _check_snapshots(self, node: ObservedNode) -> None:
        start_offset, ends = node.metadata_log_start_offset, node.snapshot_ends
        if start_offset > 0 and start_offset not in ends:
            self._violations.append(
                f"M7 node {node.config.node_id} starts at {start_offset}, its snapshots end at {ends}"
            )

    def _check_votes(self, node: ObservedNode) -> None:
        voters = node.quorum_status.voters
        for voter_id, may_be in self.votes.items():
            if (voter_id in voters) not in may_be:
                self._violations.append(
                    f"acknowledged: the voters are {voters} for node {node.config.node_id}; {voter_id} is one: {may_be}"
                )

    def _check_once(self) -> None:
        twice = sorted(name for name, count in self._made.items() if count > 1)
        if twice:
            self._violations.append(f"once: made twice: {twice}")


def _content(image: MetadataImage) -> tuple[object, ...]:
    return (
        sorted(image.brokers.items()),
        sorted(
            (name, topic.topic_id, sorted(topic.partitions.items())) for name, topic in image.topics_by_name.items()
        ),
        sorted((key[0].name, key[1], sorted(values.items())) for key, values in image.configs.items()),
        sorted(image.features.items()),
        image.next_producer_id,
    )
