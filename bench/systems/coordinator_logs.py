"""Logs of coordinators as their bytes, and the shards that load them: one of transactional ids, one of committed offsets."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from bench.data import SEED
from bench.model import System
from replog.broker.coordinator.log_pieces import log_entries
from replog.coordinator.config import ShardConfig, TransactionsConfig
from replog.coordinator.group_machine import GroupMachine, GroupsConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.messages import OffsetCommitValue
from replog.coordinator.offsets.state import commit_record
from replog.coordinator.records import CoordinatorRecord, RecordCodec
from replog.coordinator.runtime.machine import Moment, StateMachine, Timers
from replog.coordinator.runtime.messages import Lead, LogRead, ReadLog
from replog.coordinator.runtime.shard import Shard, ShardState
from replog.coordinator.transactions.machine import TransactionMachine
from replog.coordinator.transactions.records import (
    TRANSACTION_RECORDS,
    TransactionStatus,
    WrittenTransaction,
    transaction_record,
)
from replog.metadata.features import TRANSACTION_VERSION_BUMPS
from replog.records import encode_batch
from replog_timeline import SnapshotRegistry

WALL_MS = 1_700_000_000_000
BATCH_RECORDS = 500
OFFSETS_PER_GROUP = 100
TOPIC_ID = UUID(int=7)


class CoordinatorLog(System):
    """What a coordinator finds when it begins to lead: one record of each name."""

    codec: RecordCodec

    def start(self, directory: Path) -> None:
        """Starts nothing: the log is in memory."""

    def stop(self) -> None:
        """Stops nothing."""

    @abstractmethod
    def record(self, number: int) -> CoordinatorRecord:
        """Returns the record of a name."""

    @abstractmethod
    def machine(self, registry: SnapshotRegistry, timers: Timers) -> StateMachine:
        """Returns the state that records are replayed into."""

    def batches(self, count: int) -> list[bytes]:
        """Returns a log of so many records, batch by batch."""
        return [
            self._batch(range(first, min(first + BATCH_RECORDS, count))) for first in range(0, count, BATCH_RECORDS)
        ]

    def _batch(self, numbers: range) -> bytes:
        encoded = (self.codec.encode(self.record(number)) for number in numbers)
        return encode_batch([(WALL_MS, key, value, ()) for key, value in encoded], base_offset=numbers.start)

    def load(self, batches: Sequence[bytes], count: int) -> bool:
        """Loads a log as a broker does that begins to lead, batch by batch; returns whether the coordinator serves then."""
        shard = Shard(name=self.name, codec=self.codec, make_machine=self.machine, config=ShardConfig())
        moment = Moment(0, WALL_MS)
        effects = shard.step(Lead(1, 0, count, count), moment)
        for batch in batches:
            asked = next(each for each in effects if isinstance(each, ReadLog))
            entries, next_offset = log_entries(batch, asked.offset, asked.end_offset)
            effects = shard.step(LogRead(asked.epoch, asked.offset, tuple(entries), next_offset), moment)
        return shard.status().state is ShardState.ACTIVE


class TransactionalIds(CoordinatorLog):
    """Transactional ids whose last transaction is complete."""

    name = "transactional ids"
    codec = TRANSACTION_RECORDS

    def record(self, number: int) -> CoordinatorRecord:
        value = WrittenTransaction(
            number,
            producer_epoch=number % 1_000,
            transaction_timeout_ms=60_000,
            transaction_status=TransactionStatus.COMPLETE_COMMIT,
            transaction_last_update_timestamp_ms=WALL_MS,
            transaction_start_timestamp_ms=WALL_MS,
        )
        return transaction_record(f"billing-{number:08d}", value, TRANSACTION_VERSION_BUMPS)

    def machine(self, registry: SnapshotRegistry, timers: Timers) -> StateMachine:
        return TransactionMachine(registry, timers, TransactionsConfig(), lambda: TRANSACTION_VERSION_BUMPS)


class _NoTopics:
    """A cluster without topics: a load asks for none."""

    version = 0
    by_name: Mapping[str, object] = {}

    def find(self, name: str) -> tuple[UUID, int] | None:  # noqa: ARG002 -- there is none
        return None


class CommittedOffsets(CoordinatorLog):
    """Offsets of groups that are nothing but offsets, a hundred of each."""

    name = "offsets"
    codec = GROUP_RECORDS

    def record(self, number: int) -> CoordinatorRecord:
        group, partition = divmod(number, OFFSETS_PER_GROUP)
        value = OffsetCommitValue(1_000_000 + number, leader_epoch=1, commit_timestamp=WALL_MS, topic_id=TOPIC_ID)
        return commit_record(f"billing-{group:06d}", ("rides", partition), value)

    def machine(self, registry: SnapshotRegistry, timers: Timers) -> StateMachine:
        return GroupMachine(registry, timers, GroupsConfig(), _NoTopics(), random.Random(SEED))
