"""One replica of one partition on this broker: its log, and whether it leads, follows, or waits."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.log import Log
from replog.metadata.config_keys import FlushPolicy
from replog.metadata.registrations import PartitionRegistration
from replog.records import RecordRules
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import EpochEnd
from replog.rpc.node_messages import ReplicaStatus

ReplicaKey: TypeAlias = tuple[UUID, int]
"""(topic id, partition id): a recreated topic is another partition."""


class ReplicaLog(Struct, frozen=True):
    """The cores' read-only view of a log."""

    log: Log

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self.log.flushed_offset

    @property
    def last_epoch(self) -> int | None:
        return self.log.last_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        end = self.log.end_offset_for_epoch(epoch)
        return None if end is None else EpochEnd(end.epoch, end.end_offset)


class Replica(Struct, eq=False):
    """State of one replica; owned by the replica manager's driver.

    `role` None: the partition has no leader right now, or none is known yet.
    """

    topic: str
    topic_id: UUID
    partition_id: int
    log: Log
    view: ReplicaLog
    checkpointed_high_watermark: int
    registration: PartitionRegistration
    flush_policy: FlushPolicy
    max_message_bytes: int
    record_rules: RecordRules
    role: Leader | Follower | None = None
    truncated_to: int = -1
    last_flush_ms: int = 0  # monotonic

    @property
    def key(self) -> ReplicaKey:
        return self.topic_id, self.partition_id

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition_id}"

    @property
    def high_watermark(self) -> int:
        """The end of the records that this replica knows to be committed, within its log."""
        known = self.checkpointed_high_watermark if self.role is None else self.role.high_watermark
        return max(self.log.log_start_offset, min(known, self.log.log_end_offset))

    def leave_role(self) -> None:
        """Ends the replica's role; the high watermark is kept for the next one."""
        self.checkpointed_high_watermark = self.high_watermark
        self.log.keep_tail(None)
        self.role = None

    def status(self) -> ReplicaStatus:
        state, reason = "waiting for a leader", ""
        leader_epoch = self.registration.leader_epoch
        isr = self.registration.isr
        match self.role:
            case Leader():
                state, isr = "leader", self.role.status().isr
            case Follower():
                follower = self.role.status()
                state, reason = f"follower, {follower.state.value}", follower.failed_reason
            case None:
                pass
        return ReplicaStatus(
            topic=self.topic,
            partition_id=self.partition_id,
            is_leader=isinstance(self.role, Leader),
            leader_epoch=leader_epoch,
            log_start_offset=self.log.log_start_offset,
            log_end_offset=self.log.log_end_offset,
            flushed_offset=self.log.flushed_offset,
            high_watermark=self.high_watermark,
            isr=isr,
            state=state,
            reason=reason,
            truncated_to=self.truncated_to,
        )
