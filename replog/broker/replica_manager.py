"""All replicas of this broker, and the one driver that steps their leaders and followers.

The broker reconciles declaratively: each new metadata image says which partitions to lead, follow or drop, and the
manager makes it so: deletes first, then leaders, then followers.  Produces and fetches come in through
``produce_path`` and ``fetch_path``, which run on the same driver.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from typing import assert_never
from uuid import UUID

from replog.broker.clock import Clock
from replog.broker.config import ServerConfig
from replog.broker.driver import Driver
from replog.broker.fetchers import Fetchers
from replog.broker.flusher import LogFlusher
from replog.broker.replica import Replica, ReplicaKey, ReplicaLog
from replog.broker.topic_settings import TopicSettings
from replog.controller.messages import PartitionIsrResult, ReplicaEnd
from replog.errors import CorruptRecordError, ErrorCode
from replog.log import Log, LogDirectory
from replog.metadata.delta import LocalChanges, LocalPartition
from replog.metadata.image import MetadataImage, awaiting_report
from replog.metadata.records import LeaderRecoveryState
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import (
    AlterPartitionAnswered,
    Appended,
    AppendFetched,
    Flushed,
    FollowerEffect,
    FollowerMessage,
    HighWatermarkAdvanced,
    LeaderEffect,
    LeaderMessage,
    PartitionState,
    ProduceCompleted,
    ProposeIsr,
    RequestFlush,
    Resigned,
    SetHighWatermark,
    SetLogStartOffset,
    StateChanged,
    Tick,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from replog.rpc.messages import ReplicaStatus

METADATA_TOPIC_ID = UUID(int=1)

_log = logging.getLogger(__name__)


class ReplicaManager:
    """Replicas by (topic id, partition id).  Everything but construction and `stop` runs on `driver`.

    Args:
        directory: the open log directory; all its logs belong to this manager.
        propose_isr: sends a proposal to the controller.
        on_failure: told about a bug or a failed disk; the node stops.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        directory: LogDirectory,
        clock: Clock,
        flusher: LogFlusher,
        propose_isr: Callable[[ReplicaKey, ProposeIsr], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.clock = clock
        self.replicas: dict[ReplicaKey, Replica] = {}
        self.image = MetadataImage()
        self.fetchers: Fetchers | None = None
        self.on_produce_completed: Callable[[int, ErrorCode], None] = _nobody_waits
        self.on_progress: Callable[[ReplicaKey], None] = _nobody_listens
        self.after_drain: Callable[[], None] = _nothing_to_do
        self.fetch_deadline_ms: Callable[[], int | None] = _never
        self.expire_fetches: Callable[[], None] = _nothing_to_do
        self._broker_id = config.node_id
        self._directory = directory
        self._flusher = flusher
        self._propose_isr = propose_isr
        self._deadlines: list[tuple[int, int, Replica]] = []
        self._schedule_count = 0
        self.driver = Driver(
            "replica-driver",
            clock,
            tick=self._tick,
            next_deadline_ms=self._next_deadline_ms,
            after_drain=lambda: self.after_drain(),  # noqa: PLW0108 -- set after construction
            on_failure=on_failure,
        )

    # ---- metadata -----------------------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage, changes: LocalChanges, changed_brokers: Sequence[int]) -> None:
        """Makes this broker's replicas what `image` says.

        Args:
            image: the new image.
            changes: what differs for this broker.
            changed_brokers: brokers whose registration changed; leaders of their partitions must know.
        """
        configs_changed = image.configs is not self.image.configs
        self.image = image
        for local in changes.deletes:
            self._delete(local)
        for local in changes.leaders:
            self._lead(local)
        for local in changes.followers:
            self._follow(local)
        if changed_brokers:
            self._tell_leaders(set(changed_brokers), {(c.topic_id, c.partition_id) for c in changes.leaders})
        if configs_changed:
            self._refresh_settings()

    def _refresh_settings(self) -> None:
        """Puts changed topic settings in force; `flush.policy` with the next role of the replica."""
        for replica in self.replicas.values():
            settings = TopicSettings(replica.topic, self.image, self.config)
            replica.flush_policy = settings.flush_policy
            replica.max_message_bytes = settings.max_message_bytes
            replica.log.set_config(settings.log_config())
            if isinstance(replica.role, Leader):
                self.step_leader(replica, StateChanged(self._state_of(replica)))

    def _delete(self, local: LocalPartition) -> None:
        replica = self.replicas.pop((local.topic_id, local.partition_id), None)
        if replica is not None:
            self._leave_role(replica)
            _log.info("%s: deleted", replica.name)
            self._directory.delete_log(local.topic_name, local.partition_id)

    def _lead(self, local: LocalPartition) -> None:
        replica = self._open(local)
        state = self._state_of(replica)
        if isinstance(replica.role, Leader):
            if state.leader_epoch > replica.role.leader_epoch:
                replica.log.assign_epoch_start(state.leader_epoch)
                self.on_progress(replica.key)  # fetches of the epoch before are answered now
            self.step_leader(replica, StateChanged(state))
            return
        high_watermark = replica.high_watermark
        self._leave_role(replica)
        replica.log.assign_epoch_start(state.leader_epoch)
        _log.info(
            "%s: leads in epoch %d from offset %d, ISR %s",
            replica.name, state.leader_epoch, replica.log.log_end_offset, list(state.isr),
        )  # fmt: skip
        replica.role = Leader(
            topic_partition=replica.name,
            broker_id=self._broker_id,
            state=state,
            log_end_offset=replica.log.log_end_offset,
            flushed_offset=replica.log.flushed_offset,
            high_watermark=high_watermark,
            replica_lag_time_max_ms=self.config.replica_lag_time_max_ms,
            flush_policy=replica.flush_policy,
            now_ms=self.clock.now_ms(),
        )
        self.step_leader(replica, Tick())

    def _follow(self, local: LocalPartition) -> None:
        replica = self._open(local)
        registration = local.registration
        role = replica.role
        if isinstance(role, Follower) and role.leader_epoch == registration.leader_epoch:
            return
        high_watermark = replica.high_watermark
        self._leave_role(replica)
        if registration.leader < 0:
            return
        _log.info("%s: follows broker %d in epoch %d", replica.name, registration.leader, registration.leader_epoch)
        replica.role = Follower(
            topic_partition=replica.name,
            broker_id=self._broker_id,
            leader_id=registration.leader,
            leader_epoch=registration.leader_epoch,
            log=replica.view,
            high_watermark=high_watermark,
            fetch_backoff_ms=self.config.replica_fetch_backoff_ms,
            flush_policy=replica.flush_policy,
            now_ms=self.clock.now_ms(),
        )
        self.step_follower(replica, Tick())
        if self.fetchers is not None:
            self.fetchers.add(replica, registration.leader)

    def _open(self, local: LocalPartition) -> Replica:
        key = (local.topic_id, local.partition_id)
        replica = self.replicas.get(key)
        if replica is None:
            settings = TopicSettings(local.topic_name, self.image, self.config)
            opened = self._open_log(local, settings)
            replica = Replica(
                topic=local.topic_name,
                topic_id=local.topic_id,
                partition_id=local.partition_id,
                log=opened,
                view=ReplicaLog(opened),
                checkpointed_high_watermark=self._directory.high_watermarks.get(
                    (local.topic_name, local.partition_id), 0
                ),
                registration=local.registration,
                flush_policy=settings.flush_policy,
                max_message_bytes=settings.max_message_bytes,
            )
            self.replicas[key] = replica
        replica.registration = local.registration
        return replica

    def _open_log(self, local: LocalPartition, settings: TopicSettings) -> Log:
        """The replica's log; one left over from an earlier topic of the same name makes way first."""
        name, partition_id = local.topic_name, local.partition_id
        found = self._directory.topic_id(name, partition_id)
        if found is not None and found != local.topic_id:
            self._set_aside(name, partition_id)
        return self._directory.open_log(
            name, partition_id, local.topic_id, settings.log_config(), now_ms=self.clock.wall_ms()
        )

    def set_strays_aside(self, image: MetadataImage) -> None:
        """Takes replicas out of the way that this broker no longer has: deleted, or moved, while it was down.

        They are renamed, not deleted: a broker whose metadata log was lost would otherwise delete everything it has.
        Call it with an image that holds this broker's own registration: everything older is in it.
        """
        for topic, partition_id in list(self._directory.logs):
            topic_id = self._directory.topic_id(topic, partition_id)
            if topic_id is None or topic_id == METADATA_TOPIC_ID:
                continue
            known = image.partition(topic_id, partition_id)
            if known is None or self._broker_id not in known.replicas:
                self._set_aside(topic, partition_id)

    def _set_aside(self, topic: str, partition_id: int) -> None:
        path = self._directory.set_aside_log(topic, partition_id)
        _log.warning(
            "%s-%d: this broker has no such replica any more; its data is kept in %s, remove it if it is not needed",
            topic, partition_id, path,
        )  # fmt: skip

    def _leave_role(self, replica: Replica) -> None:
        match replica.role:
            case Leader():
                self.step_leader(replica, Resigned())
            case Follower() if self.fetchers is not None:
                self.fetchers.remove(replica)
            case _:
                pass
        replica.leave_role()
        self.on_progress(replica.key)

    def _tell_leaders(self, brokers: set[int], told: set[ReplicaKey]) -> None:
        for replica in self.replicas.values():
            concerned = not brokers.isdisjoint(replica.registration.replicas)
            if concerned and isinstance(replica.role, Leader) and replica.key not in told:
                self.step_leader(replica, StateChanged(self._state_of(replica)))

    def _state_of(self, replica: Replica) -> PartitionState:
        registration = replica.registration
        brokers = self.image.brokers
        eligible = {
            broker_id: brokers[broker_id].broker_epoch
            for broker_id in registration.replicas
            if broker_id in brokers and brokers[broker_id].is_active
        }
        return PartitionState(
            leader=registration.leader,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=registration.isr,
            elr=registration.elr,
            min_insync_replicas=TopicSettings(replica.topic, self.image, self.config).min_insync_replicas,
            eligible=eligible,
            recovering=registration.leader_recovery_state is LeaderRecoveryState.RECOVERING,
        )

    # ---- stepping the cores ---------------------------------------------------------------------------------------------

    def step_leader(self, replica: Replica, message: LeaderMessage) -> None:
        if not isinstance(replica.role, Leader):
            return  # the answer of something that began in an earlier role
        for effect in replica.role.step(message, self.clock.now_ms()):
            self._perform_leader(replica, effect)
        if isinstance(message, Appended):
            self._maybe_flush(replica)
        self._schedule(replica)

    def _perform_leader(self, replica: Replica, effect: LeaderEffect) -> None:
        match effect:
            case HighWatermarkAdvanced():
                self.on_progress(replica.key)
            case ProduceCompleted():
                self.on_produce_completed(effect.request_id, effect.error)
            case ProposeIsr():
                _log.info("%s: proposes ISR %s: %s", replica.name, [member for member, _ in effect.isr], effect.reason)
                self._propose_isr(replica.key, effect)
            case RequestFlush():
                self._request_flush(replica)
            case _ as unreachable:
                assert_never(unreachable)

    def step_follower(self, replica: Replica, message: FollowerMessage, fetched: memoryview | bytes = b"") -> None:
        """`fetched`: the record bytes of the answer in `message`, if it is one."""
        if not isinstance(replica.role, Follower):
            return
        for effect in replica.role.step(message, self.clock.now_ms()):
            self._perform_follower(replica, effect, fetched)
        self._schedule(replica)

    def _perform_follower(self, replica: Replica, effect: FollowerEffect, fetched: memoryview | bytes) -> None:
        match effect:
            case AppendFetched():
                self._append_fetched(replica, fetched, effect.leader_epoch)
                self.step_follower(replica, Appended(replica.log.log_end_offset))
                self._maybe_flush(replica)
            case TruncateTo():
                _log.info("%s: truncated from %d to %d: %s", replica.name, replica.log.log_end_offset, effect.offset,
                          effect.reason)  # fmt: skip
                replica.log.truncate_to(effect.offset)
                replica.truncated_to = effect.offset
            case TruncateFullyAndStartAt():
                _log.warning("%s: restarted at offset %d: %s", replica.name, effect.offset, effect.reason)
                replica.log.truncate_fully_and_start_at(effect.offset)
                replica.truncated_to = effect.offset
            case SetHighWatermark():
                self.on_progress(replica.key)
            case SetLogStartOffset():
                replica.log.set_log_start_offset(effect.log_start_offset)
            case RequestFlush():
                self._request_flush(replica)
            case _ as unreachable:
                assert_never(unreachable)

    def _append_fetched(self, replica: Replica, fetched: memoryview | bytes, leader_epoch: int) -> None:
        """A follower that appended nothing backs off and fetches again: right for damage on the way, not for our disk."""
        try:
            replica.log.append_as_follower(fetched, now_ms=self.clock.wall_ms(), leader_epoch=leader_epoch)
        except CorruptRecordError as error:
            if error.path:  # a file of ours, not what came over the network
                raise
            _log.warning("%s: what the leader sent is damaged and is fetched again: %s", replica.name, error)

    def _maybe_flush(self, replica: Replica) -> None:
        """Beside the way of an acknowledgement: segments that are full, and log.flush.interval.messages."""
        log = replica.log
        unflushed = log.log_end_offset - log.recovery_point
        is_due = log.has_unflushed_segment or unflushed >= self.config.log_flush_interval_messages
        if is_due and not self._flusher.is_flushing(log):
            self._request_flush(replica)

    def flush_all(self) -> None:
        """Asks for an fsync of every log with unflushed records (log.flush.interval.ms)."""
        for replica in self.replicas.values():
            if replica.log.recovery_point < replica.log.log_end_offset:
                self._request_flush(replica)

    def _request_flush(self, replica: Replica) -> None:
        self._flusher.request(replica.log, lambda _: self.driver.submit(lambda: self._flushed(replica)))

    def _flushed(self, replica: Replica) -> None:
        """What is flushed is asked of the log now: a truncation since the fsync may have lowered it."""
        flushed_offset = replica.log.flushed_offset
        match replica.role:
            case Leader():
                self.step_leader(replica, Flushed(flushed_offset))
            case Follower():
                self.step_follower(replica, Flushed(flushed_offset))
                if self.fetchers is not None:
                    self.fetchers.wake(replica)
            case None:
                pass

    def handle_isr_answer(self, key: ReplicaKey, proposal_id: int, result: PartitionIsrResult) -> None:
        replica = self.replicas.get(key)
        if replica is not None:
            self.step_leader(
                replica,
                AlterPartitionAnswered(
                    proposal_id, result.error, result.leader_epoch, result.partition_epoch, result.isr
                ),
            )

    # ---- deadlines ----------------------------------------------------------------------------------------------------

    def _schedule(self, replica: Replica) -> None:
        """Keeps one live entry per replica in the heap; entries that are no longer the replica's are skipped."""
        deadline = replica.role.next_deadline_ms() if replica.role is not None else None
        if deadline is None or (replica.scheduled_ms is not None and replica.scheduled_ms <= deadline):
            return
        replica.scheduled_ms = deadline
        self._schedule_count += 1
        heapq.heappush(self._deadlines, (deadline, self._schedule_count, replica))

    def _next_deadline_ms(self) -> int | None:
        fetches = self.fetch_deadline_ms()
        replicas = self._deadlines[0][0] if self._deadlines else None
        if fetches is None or replicas is None:
            return replicas if fetches is None else fetches
        return min(fetches, replicas)

    def _tick(self) -> None:
        self.expire_fetches()
        now = self.clock.now_ms()
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, replica = heapq.heappop(self._deadlines)
            if replica.scheduled_ms != deadline:
                continue
            replica.scheduled_ms = None
            if isinstance(replica.role, Leader):
                self.step_leader(replica, Tick())
            elif isinstance(replica.role, Follower):
                self.step_follower(replica, Tick())
                if self.fetchers is not None:
                    self.fetchers.wake(replica)

    # ---- looking in, checkpoints, end ------------------------------------------------------------------------------------

    def statuses(self) -> tuple[ReplicaStatus, ...]:
        return tuple(replica.status() for replica in sorted(self.replicas.values(), key=lambda r: r.name))

    def awaited_ends(self) -> tuple[ReplicaEnd, ...]:
        """How far the replicas reach for which a `recovered` election waits for this broker."""
        ends = []
        for awaited in awaiting_report(self.image, self._broker_id):
            replica = self.replicas.get((awaited.topic_id, awaited.partition_id))
            if replica is not None:
                last_epoch = replica.log.last_epoch
                ends.append(
                    ReplicaEnd(
                        awaited.topic_id,
                        awaited.partition_id,
                        -1 if last_epoch is None else last_epoch,
                        replica.log.log_end_offset,
                    )
                )
        return tuple(ends)

    def checkpoint_high_watermarks(self) -> None:
        marks = {(r.topic, r.partition_id): r.high_watermark for r in self.replicas.values()}
        self._directory.checkpoint_high_watermarks(marks)

    def checkpoint_recovery_points(self) -> None:
        self._directory.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        self._directory.checkpoint_log_start_offsets()

    def delete_old_segments(self) -> None:
        """Applies retention to every log."""
        now_ms = self.clock.wall_ms()
        for replica in self.replicas.values():
            replica.log.delete_old_segments(now_ms=now_ms, high_watermark=replica.high_watermark)

    async def stop(self) -> None:
        """Answers what waits, leaves all roles and stops the driver; the logs stay open for their directory to close."""
        for replica in self.replicas.values():
            self._leave_role(replica)
        self.after_drain()
        await self.driver.stop()


def _nobody_waits(_request_id: int, _error: ErrorCode) -> None:
    return


def _nobody_listens(_key: ReplicaKey) -> None:
    return


def _nothing_to_do() -> None:
    return


def _never() -> int | None:
    return None
