"""What must hold of transactions in the simulation: looked at while it runs, and once more at the end.

===== ==============================================================================================================
X1    a transaction has one end: its markers say what its coordinator has decided, and with `transaction.version` 2 it
      has decided once
X2    in a partition the epochs of a producer never fall
X3    once a producer has been told its epoch, nothing that an earlier one of its transactional id sends is appended
X4    the last stable offset never falls as more is committed, and nothing counts as stable before it is
X5    who has been fenced is not told that a transaction is committed that it asks for afterwards
X6    when the faults are over every producer gets on, whatever became of the ones before it, and each transaction ends
      within its time-out
X7    all replicas have the same committed records, and the same transactions open: none
X8    what readers saw of transactions is what their ends made of them, and offsets are committed with the records or not
      at all: the anomalies of `replog_chaos.transaction_history`, by their names
X9    whoever has prepared a transaction decides about it, however late, as long as nobody else takes the transactional id over
===== ==============================================================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple
from uuid import UUID

from replog.broker.replicas.replica import Replica
from replog.coordinator.transactions.messages import TransactionLogKey
from replog.coordinator.transactions.records import TRANSACTION_RECORDS, TransactionStatus, WrittenTransaction
from replog.coordinator.transactions.transitions import bumps_epochs, is_commit, status_of
from replog.log.append_group import AppendInfo
from replog.log.producers.files import parse_marker
from replog.metadata.topic_names import TRANSACTIONS_TOPIC
from replog.records import BatchHeader
from replog.testing.history import Partition
from replog.testing.simulated_node import ObservedNode
from tests.sim.event_log import EventLog
from tests.sim.group_log import logged_batches, logged_records

SHOWN_MAX = 300


class Producer(NamedTuple):
    """Whoever has an epoch of a producer id."""

    producer_id: int
    epoch: int


class Takeover(NamedTuple):
    """A producer has been told its id and epoch: when, and by which of the clients' lives it was asked for."""

    at_s: float
    producer: Producer
    life: str


class Appended(NamedTuple):
    """A batch in the log of a leader; whether it counts is known when it commits."""

    base_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> Appended:
        """Returns the batch of a log that has this header."""
        return cls(header.base_offset, header.partition_leader_epoch, header.crc)


class TransactionChecks:
    """Notes what it finds.

    Args:
        report: told each violation.
        time: virtual, in seconds.
        events: told what is taken over and decided.

    Attributes:
        records: of the coordinators, so far.
    """

    def __init__(self, report: Callable[[str], None], time: Callable[[], float], events: EventLog) -> None:
        self.records = 0
        self._report = report
        self._time = time
        self._events = events
        self._takeovers: dict[str, list[Takeover]] = defaultdict(list)
        self._current: dict[int, int] = {}  # producer id -> the epoch of whoever has taken it over last
        self._late: dict[Partition, dict[Appended, str]] = defaultdict(dict)
        self._decisions: dict[Producer, set[bool]] = defaultdict(set)
        self._statuses: dict[str, TransactionStatus] = {}
        self._markers: dict[Producer, dict[bool, str]] = defaultdict(dict)
        self._epochs: dict[tuple[Partition, int], int] = {}
        self._ends: dict[Partition, int] = {}
        self._stable: dict[Partition, StableOffsets] = defaultdict(StableOffsets)
        self._opened: dict[tuple[UUID, Partition], int] = {}  # where logs ended: what had ended there counts at once

    # ---- told by clients -------------------------------------------------------------------------------------------------

    def taken_over(self, transactional_id: str, producer: Producer, life: str) -> None:
        """A producer has been told its id and epoch."""
        self._events.note("producer", f"{life} has taken over {transactional_id} as {producer}")
        self._takeovers[transactional_id].append(Takeover(self._time(), producer, life))
        self._current[producer.producer_id] = max(producer.epoch, self._current.get(producer.producer_id, -1))

    def committed(self, transactional_id: str, producer: Producer, life: str, asked_at_s: float) -> None:
        """A producer has been told that its transaction is committed."""
        for after in self._takeovers[transactional_id]:
            if after.life != life and after.at_s < asked_at_s and after.producer > producer:
                self._report(
                    f"X5 {life} is told that what it wrote as {producer} is committed; {after.life} had taken over as"
                    f" {after.producer} before it asked"
                )

    # ---- told by nodes ---------------------------------------------------------------------------------------------------

    def appended(self, partition: Partition, info: AppendInfo, leader_epoch: int, header: BatchHeader) -> None:
        """A leader has appended a batch."""
        if header.is_control or not header.is_transactional:
            return
        current = self._current.get(header.producer_id, -1)
        if header.producer_epoch < current:
            self._late[partition][Appended(info.base_offset, leader_epoch, header.crc)] = (
                f"producer {header.producer_id} appends to {partition} at {info.base_offset} with epoch"
                f" {header.producer_epoch}, and {current} has been told"
            )

    def decided(self, replica: Replica) -> None:
        """Reads on in the log of a coordinator, up to its high watermark."""
        partition = (TRANSACTIONS_TOPIC, replica.key[1])
        begin, end = self._ends.get(partition, 0), replica.high_watermark
        if end <= begin:
            return
        self._ends[partition] = end
        for key, value in logged_records(replica.log, begin, end):
            record = TRANSACTION_RECORDS.decode(key, value)
            if record is None or record.value is None or not isinstance(record.key, TransactionLogKey):
                continue
            self.records += 1
            self._statuses[record.key.transactional_id] = status_of(record.value)
            if status_of(record.value).is_decided:
                self._decide(record.key.transactional_id, record.value)

    def _decide(self, transactional_id: str, value: WrittenTransaction) -> None:
        producer = Producer(value.producer_id, value.producer_epoch)
        decided = self._decisions[producer]
        self._events.note("decided", f"{transactional_id} {producer} {_named(is_commit(value))}")
        if bumps_epochs(value) and decided - {is_commit(value)}:
            self._report(f"X1 {transactional_id} {producer} is {_named(is_commit(value))}, and was decided otherwise")
        decided.add(is_commit(value))

    def look(self, nodes: Iterable[ObservedNode], topics: Collection[str]) -> None:
        """Looks at all replicas that run of some topics."""
        for node in nodes:
            for replica in node.parts.replicas.stepper.replicas.values():
                if replica.topic in topics:
                    self._look_at(node, replica)

    def _look_at(self, node: ObservedNode, replica: Replica) -> None:
        partition, end = (replica.topic, replica.partition_id), replica.high_watermark
        if end >= self._opened.setdefault((node.incarnation_id, partition), replica.log.log_end_offset):
            stable = replica.log.last_stable_offset(end)
            self._stable[partition].take(end, stable, f"{replica.name} on node {node.config.node_id}", self._report)
        begin = self._ends.get(partition, 0)
        if end > begin:
            self._ends[partition] = end
            for header, batch in logged_batches(replica.log, begin, end):
                self._take(partition, header, batch)

    def _take(self, partition: Partition, header: BatchHeader, batch: memoryview) -> None:
        """A batch has committed."""
        if header.producer_id < 0:
            return
        if header.is_control:
            marker = parse_marker(header, batch, header.base_offset)
            if marker is not None:
                producer = Producer(marker.producer_id, marker.producer_epoch)
                self._markers[producer][marker.is_commit] = f"{partition} offset {marker.offset}"
            return
        place = partition, header.producer_id
        if header.producer_epoch < self._epochs.get(place, -1):
            self._report(
                f"X2 producer {header.producer_id} writes with epoch {header.producer_epoch} to {partition} at"
                f" {header.base_offset}, behind epoch {self._epochs[place]}"
            )
        self._epochs[place] = header.producer_epoch
        late = self._late[partition].get(Appended.of(header))
        if late is not None:
            self._report(f"X3 {late}")

    # ---- at the end ------------------------------------------------------------------------------------------------------

    def check_ends(self) -> None:
        """Compares the markers with what the coordinators have decided."""
        for producer, markers in self._markers.items():
            decided = self._decisions.get(producer, set())
            for committed, where in markers.items():
                if committed not in decided:
                    self._report(
                        f"X1 {where} says that a transaction of {producer} is {_named(committed)}; decided:"
                        f" {sorted(map(_named, decided))}"
                    )

    def open_places(self, nodes: Iterable[ObservedNode], topics: Collection[str]) -> list[str]:
        """Returns where transactions are open: in which replicas, and for which coordinators."""
        places: list[str] = []
        for node in nodes:
            for replica in node.parts.replicas.stepper.replicas.values():
                if replica.topic in topics:
                    producers = replica.log.producers.open_transactions
                    places += [f"{replica.name} on node {node.config.node_id}: producer {each}" for each in producers]
        return places + [f"{name} is {status.name}" for name, status in self._statuses.items() if not status.is_at_rest]

    def compare(self, nodes: Iterable[ObservedNode], topics: Collection[str]) -> str:
        """Returns in what the replicas of a partition differ; empty: in nothing.  Nobody writes any more."""
        contents: dict[Partition, tuple[object, ...]] = {}
        for node in nodes:
            for replica in node.parts.replicas.stepper.replicas.values():
                if replica.topic not in topics:
                    continue
                log, end = replica.log, replica.high_watermark
                content = (
                    end,
                    log.last_stable_offset(end),
                    [(header.base_offset, header.crc) for header, _ in logged_batches(log, 0, end)],
                    log.aborted_transactions(0, end),
                )
                first = contents.setdefault((replica.topic, replica.partition_id), content)
                if first != content:
                    where = f"{replica.name} on node {node.config.node_id}"
                    return f"{where} has {_shown(content, first)}, another replica {_shown(first, content)}"
        return ""


class StableOffsets:
    """What replicas of one partition say is stable: by more committed records no less, and never more than by the most.

    A replica that knew more before, such as a former leader, may say more than others do by the same high watermark.
    """

    def __init__(self) -> None:
        self._high_watermark = 0
        self._stable = 0

    def take(self, high_watermark: int, stable: int, where: str, report: Callable[[str], None]) -> None:
        """Takes in what a replica says."""
        said = f"X4 {where} says that {stable} is stable of {high_watermark} committed; of {self._high_watermark} it is {self._stable}"
        if stable > self._stable and high_watermark <= self._high_watermark:
            report(said)
        elif high_watermark >= self._high_watermark:
            if stable < self._stable:
                report(said)
            self._high_watermark, self._stable = high_watermark, stable


def _named(is_commit: bool) -> str:
    return "committed" if is_commit else "aborted"


def _shown(content: tuple[object, ...], other: tuple[object, ...]) -> str:
    """Returns the first part of a content in which it is another one."""
    return next(repr(one)[-SHOWN_MAX:] for one, another in zip(content, other, strict=True) if one != another)
