"""A shard of transactions, and short words for what it is asked."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from shard_kit import Host

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.records import EncodedRecord
from replog.coordinator.runtime.messages import Tick
from replog.coordinator.transactions.machine import TransactionMachine
from replog.coordinator.transactions.records import (
    TRANSACTION_RECORDS,
    TransactionStatus,
    WrittenTransaction,
    transaction_record,
)
from replog.coordinator.transactions.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    Incarnation,
    InitProducer,
    MarkedEnd,
    MarkersWritten,
    TransactionDescription,
    TransactionEnd,
    TransactionPartition,
    WaitForEnds,
)

TIMEOUT_MS = 60_000
SPARE = 7
"""The first producer id that is handed out, unless a test says another one."""
A0, A1, B0 = TransactionPartition("a", 0), TransactionPartition("a", 1), TransactionPartition("b", 0)


class Cluster(Struct):
    """What a coordinator knows of its cluster.

    Attributes:
        transaction_version: The feature's level.
    """

    transaction_version: int = 2


class TransactionHost(Host):
    """A shard of transactions.

    Attributes:
        cluster: The cluster, which a test may change.
    """

    def __init__(self, config: TransactionsConfig | None = None, **shard: int) -> None:
        self.cluster = Cluster()
        known = config or TransactionsConfig()

        def make(registry: Any, timers: Any) -> TransactionMachine:
            return TransactionMachine(registry, timers, known, lambda: self.cluster.transaction_version)

        super().__init__(make, TRANSACTION_RECORDS, **shard)
        self.piece = 100

    def written(self, transactional_id: str = "etl") -> list[WrittenTransaction | None]:
        """What the log says of a transactional id, oldest first."""
        return [value for name, value in decoded(self.log) if name == transactional_id]

    def newest(self, transactional_id: str = "etl") -> WrittenTransaction:
        """What the log says last."""
        value = self.written(transactional_id)[-1]
        assert value is not None
        return value

    def status(self, transactional_id: str = "etl") -> TransactionStatus:
        """Where a transactional id is."""
        return self.describe(transactional_id).status

    def describe(self, transactional_id: str = "etl") -> TransactionDescription:
        found: TransactionDescription = self.ask(DescribeTransaction(transactional_id))
        return found

    def error_of(self, request: Any) -> type:
        """The class of the error that a request is answered with; `None`'s where it is not."""
        request_id = self.submit(request)
        self.commit()
        return type(getattr(self.answers[request_id], "error", None))

    def pass_time(self, delay_ms: int) -> None:
        """Lets time pass, timers run, and everything commit."""
        end_ms = self.now_ms + delay_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(Tick())
            self.commit()
        self.now_ms = end_ms

    def write_markers(self) -> list[TransactionEnd]:
        """Takes over the ends that there are, and says that all of their markers are written."""
        waiting = self.submit(WaitForEnds())
        self.commit()
        if waiting not in self.answers:
            return []
        ends: list[TransactionEnd] = list(self.response(waiting).ends)
        for end in ends:
            self.ask(marked(end, *end.partitions))
        return ends

    def change_leader(self) -> None:
        """Another leader has what has committed, and nothing else."""
        del self.log[self.high_watermark :]
        self.lead()


def decoded(log: list[EncodedRecord]) -> list[tuple[str, WrittenTransaction | None]]:
    found: list[tuple[str, Any]] = []
    for encoded in log:
        record: Any = TRANSACTION_RECORDS.decode(*encoded)
        found.append((record.key.transactional_id, record.value))
    return found


def marked(end: TransactionEnd, *partitions: TransactionPartition) -> MarkersWritten:
    """Says that partitions of an end have their markers."""
    return MarkersWritten((MarkedEnd(end, partitions),))


def compacted(log: list[EncodedRecord]) -> list[EncodedRecord]:
    """The newest record of each key."""
    newest = {key: (offset, (key, value)) for offset, (key, value) in enumerate(log)}
    return [encoded for _, encoded in sorted(newest.values())]


class Producer(Struct):
    """One incarnation of a producer, and what it asks.

    Attributes:
        bumps: Whether it is of `transaction.version` 2.
        at: What it writes with.
        spare: The producer id that its next request may use.
    """

    bumps: bool = True
    name: str = "etl"
    at: Incarnation = field(default_factory=lambda: Incarnation(-1, -1))
    spare: int = SPARE

    def init(self, *, knows: bool = False, timeout_ms: int = TIMEOUT_MS) -> InitProducer:
        return InitProducer(self.name, timeout_ms, self.at if knows else None, self.spare)

    def add(self, *partitions: TransactionPartition) -> AddPartitions:
        return AddPartitions(self.name, self.at, partitions or (A0,), bumps_epochs=self.bumps)

    def verify(self, *partitions: TransactionPartition) -> AddPartitions:
        return AddPartitions(self.name, self.at, partitions or (A0,), only_verifies=True)

    def commit(self) -> EndTransaction:
        return EndTransaction(self.name, self.at, is_commit=True, bumps_epochs=self.bumps, spare_producer_id=self.spare)

    def abort(self) -> EndTransaction:
        return EndTransaction(
            self.name, self.at, is_commit=False, bumps_epochs=self.bumps, spare_producer_id=self.spare
        )


def begun(host: TransactionHost, *, bumps: bool = True, name: str = "etl", epoch: int = 0) -> Producer:
    """A producer that has taken over a transactional id; with a higher epoch, what was there before is given."""
    producer = Producer(bumps, name)
    if epoch:
        host.log.append(
            TRANSACTION_RECORDS.encode(
                transaction_record(
                    name, WrittenTransaction(SPARE, producer_epoch=epoch - 1, transaction_timeout_ms=TIMEOUT_MS), 2
                )
            )
        )
        host.high_watermark = len(host.log)
        host.lead()
        producer.spare = SPARE + 1
    producer.at = host.ask(producer.init()).producer
    return producer
