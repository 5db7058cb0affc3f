"""All replicas of this broker, and the one driver that steps their leaders and followers.

The broker reconciles declaratively: each new metadata image says which partitions to lead, follow or drop, and the
manager makes it so: deletes first, then leaders, then followers (`image_steps`).  Produces and fetches come in through
``produce_path`` and ``fetch_path``, which run on the same driver.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from typing import assert_never

from replog.broker.clock import Clock
from replog.broker.disk.cold_reads import ColdReads
from replog.broker.disk.flusher import LogFlusher
from replog.broker.driver import Driver
from replog.broker.replicas import partition_events
from replog.broker.replicas.disk_trouble import DiskTrouble
from replog.broker.replicas.election_reasons import election_reason
from replog.broker.replicas.fetchers import Fetchers
from replog.broker.replicas.flushes import ReplicaFlushes
from replog.broker.replicas.image_steps import REPLICAS_TOGETHER, ImageSteps
from replog.broker.replicas.isr_changes import IsrChanges
from replog.broker.replicas.logs import ReplicaLogs
from replog.broker.replicas.moves import ReplicaMoves
from replog.broker.replicas.replica import Replica, ReplicaKey, ReplicaLog
from replog.broker.replicas.replication_throttle import ReplicationThrottle
from replog.broker.replicas.retirements import Retirements
from replog.broker.replicas.topic_settings import TopicSettings
from replog.broker.replicas.views import awaited_ends, log_dirs, partition_state, replica_statuses
from replog.config.server import ServerConfig
from replog.controller.messages import PartitionIsrResult, ReplicaEnd
from replog.deadlines import Deadlines
from replog.errors import CorruptRecordError, DiskFullError, ErrorCode, StorageError
from replog.log import LogManager, TailCache
from replog.metadata.config_keys import FOLLOWER_REPLICATION_THROTTLED_RATE, LEADER_REPLICATION_THROTTLED_RATE
from replog.metadata.delta import LocalChanges, LocalPartition
from replog.metadata.image import MetadataImage
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import (
    AlterPartitionAnswered,
    Appended,
    AppendFetched,
    FetchAnswered,
    FlushPolicyChanged,
    FollowerEffect,
    FollowerMessage,
    HighWatermarkAdvanced,
    IsrChanged,
    LeaderEffect,
    LeaderMessage,
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
from replog.rpc.log_dir_messages import LogDir
from replog.rpc.node_messages import ReplicaStatus

_log = logging.getLogger(__name__)


class ReplicaManager:
    """Replicas by (topic id, partition id).  Everything but construction and `stop` runs on `driver`.

    Args:
        logs: the open log directories; all their logs but the metadata log belong to this manager.
        propose_isr: sends a proposal to the controller.
        executor: threads for the disk.
        on_failure: told about a bug, or a failed disk without which the node cannot go on; the node stops.

    Attributes:
        leader_throttle: of what this broker gives replicas that are being added.
        follower_throttle: of what its own replicas take that are being added.
        trouble: replicas that cannot be used now.
        local_logs: the logs of the replicas on disk.
        isr_changes: counts them.
        image: the metadata in force; some replicas may not have been changed yet to what it says.
        applied_offset: end (exclusive) of the metadata that all of them are as it says.
        retirements: replicas on their way out.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        logs: LogManager,
        clock: Clock,
        flusher: LogFlusher,
        propose_isr: Callable[[ReplicaKey, ProposeIsr], None],
        executor: Executor,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.clock = clock
        self.replicas: dict[ReplicaKey, Replica] = {}
        self.leader_throttle = ReplicationThrottle(LEADER_REPLICATION_THROTTLED_RATE, clock)
        self.follower_throttle = ReplicationThrottle(FOLLOWER_REPLICATION_THROTTLED_RATE, clock)
        self.trouble = DiskTrouble(self, logs)
        self.local_logs = ReplicaLogs(logs, config, clock)
        self.image = MetadataImage()
        self.applied_offset = 0
        self.fetchers: Fetchers | None = None
        self.moves: ReplicaMoves | None = None
        self.isr_changes = IsrChanges()
        self._tails = TailCache()
        self._proposal_ids = itertools.count(1)
        self.on_produce_completed: Callable[[int, ErrorCode], None] = _nobody_waits
        self.on_written_back: Callable[[Replica], None] = _nobody_is_held_back
        self.wait_for_image: Callable[[Callable[[], None]], bool] = _no_image_waits
        self.is_being_created: Callable[[LocalPartition], bool] = _nothing_is_created
        self.on_progress: Callable[[ReplicaKey], None] = _nobody_listens
        self.on_follower_told: Callable[[ReplicaKey], None] = _nobody_listens
        self.after_drain: Callable[[], None] = _nothing_to_do
        self.fetch_deadline_ms: Callable[[], int | None] = _never
        self.expire_fetches: Callable[[], None] = _nothing_to_do
        self._broker_id = config.node_id
        self._logs = logs
        self._propose_isr = propose_isr
        self._deadlines = Deadlines[ReplicaKey]()
        self.driver = Driver(
            "replica-driver",
            clock,
            tick=self._tick,
            next_deadline_ms=self._next_deadline_ms,
            after_drain=lambda: self.after_drain(),  # noqa: PLW0108 -- set after construction
            on_failure=on_failure,
        )

        self.cold_reads = ColdReads(self.driver.submit)
        self.flushes = ReplicaFlushes(self, flusher)
        self.image_steps = ImageSteps(self)
        self.retirements = Retirements(logs, self.driver, executor, self.trouble.directory_failed, on_failure)

    # ---- metadata -----------------------------------------------------------------------------------------------------

    def apply(self, before: MetadataImage, changes: LocalChanges, changed_brokers: Collection[int]) -> Iterator[None]:
        """Makes this broker's replicas what the image in force says, but for deletions; yields after each (`image_steps`).

        Args:
            before: the image before it.
            changes: what differs for this broker.
            changed_brokers: brokers whose registration changed; leaders of their partitions must know.
        """
        steps = self.image_steps
        yield from steps.take_roles(before, changes)
        yield from steps.tell_leaders(changed_brokers, changes)
        yield from steps.refresh_settings(before)
        self.trouble.begin_anew()
        self.applied_offset = self.image.end_offset

    def configure_throttles(self) -> None:
        """Puts the rates of the image in force."""
        self.leader_throttle.configure(self.image, self._broker_id)
        self.follower_throttle.configure(self.image, self._broker_id)
        if self.moves is not None:
            self.moves.throttle.configure(self.image, self._broker_id)

    def take_role(self, local: LocalPartition, *, is_new: bool) -> None:
        """Leads, follows or waits, as the registration says.

        Args:
            local: the replica.
            is_new: no disk can hold it yet.
        """
        if self.moves is not None and self.moves.holds(local, is_new=is_new):
            return
        take = self._lead if local.registration.leader == self._broker_id else self._follow
        self.trouble.guard_role(local, lambda: take(local, is_new))

    def _lead(self, local: LocalPartition, is_new: bool) -> None:
        reason = self._election_reason(local)
        replica = self._open(local, is_new)
        state = partition_state(replica, self.image, self.config)
        if isinstance(replica.role, Leader) and replica.role.leads_on(state.leader_epoch):
            if state.leader_epoch > replica.role.leader_epoch:
                partition_events.leads_on(replica.name, state.leader_epoch, reason)
                replica.log.assign_epoch_start(state.leader_epoch)
                self.on_progress(replica.key)  # fetches of the epoch before are answered now
            self.step_leader(replica, StateChanged(state))
            return
        high_watermark = replica.high_watermark
        self.leave_role(replica)
        replica.log.keep_tail(self._tails)
        replica.log.assign_epoch_start(state.leader_epoch)
        partition_events.leads(replica.name, state, replica.log.log_end_offset, reason)
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
            proposal_ids=self._proposal_ids,
        )
        self.step_leader(replica, Tick())

    def _follow(self, local: LocalPartition, is_new: bool) -> None:
        reason = self._election_reason(local)
        replica = self._open(local, is_new)
        registration = local.registration
        role = replica.role
        if isinstance(role, Follower) and role.leader_epoch == registration.leader_epoch:
            return
        high_watermark = replica.high_watermark
        self.leave_role(replica)
        if registration.leader < 0:
            if role is not None:
                partition_events.has_no_leader(replica.name, registration.leader_epoch, reason)
            return
        partition_events.follows(replica.name, registration, reason)
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

    def _election_reason(self, local: LocalPartition) -> str:
        known = self.replicas.get((local.topic_id, local.partition_id))
        return election_reason(None if known is None else known.registration, local.registration, self.image)

    def _open(self, local: LocalPartition, is_new: bool) -> Replica:
        key = (local.topic_id, local.partition_id)
        replica = self.replicas.get(key)
        if replica is None:
            settings = TopicSettings(local.topic_name, self.image, self.config)
            opened = self.local_logs.open(local, settings.log_config(), is_new=is_new)
            replica = Replica(
                topic=local.topic_name,
                topic_id=local.topic_id,
                partition_id=local.partition_id,
                log=opened,
                view=ReplicaLog(opened),
                checkpointed_high_watermark=self._logs.high_watermark(local.topic_name, local.partition_id),
                registration=local.registration,
                flush_policy=settings.flush_policy,
                max_message_bytes=settings.max_message_bytes,
                record_rules=settings.record_rules(),
            )
            self.replicas[key] = replica
        replica.registration = local.registration
        return replica

    def leave_role(self, replica: Replica) -> None:
        """Answers what waits for this role and stops fetching; the log stays as it is."""
        match replica.role:
            case Leader():
                self.step_leader(replica, Resigned())
            case Follower() if self.fetchers is not None:
                self.fetchers.remove(replica)
            case _:
                pass
        replica.leave_role()
        self.on_progress(replica.key)
        self.on_follower_told(replica.key)

    # ---- stepping the cores ---------------------------------------------------------------------------------------------

    def step_leader(self, replica: Replica, message: LeaderMessage) -> None:
        if not isinstance(replica.role, Leader):
            return  # the answer of something that began in an earlier role
        for effect in replica.role.step(message, self.clock.now_ms()):
            self._perform_leader(replica, effect)
        if isinstance(message, Appended) and not replica.log.failed:
            self.flushes.after_append(replica)
        if isinstance(message, StateChanged):
            self.on_follower_told(replica.key)  # a follower that is not up any more does not hold it up
        self._schedule(replica)

    def _perform_leader(self, replica: Replica, effect: LeaderEffect) -> None:
        match effect:
            case HighWatermarkAdvanced():
                self.on_progress(replica.key)
            case ProduceCompleted():
                self.on_produce_completed(effect.request_id, effect.error)
            case ProposeIsr():
                _log.debug("%s: proposes ISR %s: %s", replica.name, [member for member, _ in effect.isr], effect.reason)
                self._propose_isr(replica.key, effect)
            case IsrChanged():
                self.isr_changes.note(replica.name, effect)
            case RequestFlush():
                self.flushes.request(replica)
            case _ as unreachable:
                assert_never(unreachable)

    def step_follower(self, replica: Replica, message: FollowerMessage, fetched: memoryview | bytes = b"") -> None:
        """`fetched`: the record bytes of the answer in `message`, if it is one."""
        role = replica.role
        if not isinstance(role, Follower):
            return
        try:
            for effect in role.step(message, self.clock.now_ms()):
                if replica.role is not role:
                    return  # its disk failed in the effect before
                self._perform_follower(replica, effect, fetched)
        except DiskFullError as error:
            local = LocalPartition(replica.topic, replica.topic_id, replica.partition_id, replica.registration)
            self.trouble.wait_for_room(local, error)
            return
        except StorageError as error:
            self.trouble.storage_failed(replica, error)
            return
        if self.trouble.beginning_anew and isinstance(message, FetchAnswered) and _has_everything(replica, message):
            self.trouble.caught_up(replica.key)
        self._schedule(replica)

    def _perform_follower(self, replica: Replica, effect: FollowerEffect, fetched: memoryview | bytes) -> None:
        match effect:
            case AppendFetched():
                self._append_fetched(replica, fetched, effect.leader_epoch)
                self.step_follower(replica, Appended(replica.log.log_end_offset))
                self.flushes.after_append(replica)
            case TruncateTo():
                partition_events.truncated(replica.name, replica.log.log_end_offset, effect)
                replica.log.truncate_to(effect.offset)
                replica.truncated_to = effect.offset
            case TruncateFullyAndStartAt():
                log = replica.log
                partition_events.starts_again(replica.name, log.log_start_offset, log.log_end_offset, effect)
                replica.log.truncate_fully_and_start_at(effect.offset)
                replica.truncated_to = effect.offset
            case SetHighWatermark():
                self.on_progress(replica.key)
            case SetLogStartOffset():
                replica.log.set_log_start_offset(effect.log_start_offset)
                self.log_start_moved(replica)
            case RequestFlush():
                self.flushes.request(replica)
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
        except DiskFullError as error:
            self.trouble.disk_full(replica, error)

    def log_start_moved(self, replica: Replica) -> None:
        """A leader tells its followers, a follower its leader."""
        self.on_progress(replica.key)
        if self.fetchers is not None:
            self.fetchers.wake(replica)

    def tell_flush_policy(self, replica: Replica) -> None:
        message = FlushPolicyChanged(replica.flush_policy)
        match replica.role:
            case Leader():
                self.step_leader(replica, message)
            case Follower():
                self.step_follower(replica, message)
                if self.fetchers is not None:  # it may have waited for an fsync that nobody asks for any more
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
        """A tick that comes too early costs less than moving it whenever the deadline moves back."""
        deadline = replica.role.next_deadline_ms() if replica.role is not None else None
        scheduled = self._deadlines.get(replica.key)
        if deadline is None or (scheduled is not None and scheduled <= deadline):
            return
        self._deadlines.discard(replica.key)
        self._deadlines.add(replica.key, deadline)

    def _next_deadline_ms(self) -> int | None:
        fetches, replicas = self.fetch_deadline_ms(), self._deadlines.next_deadline_ms()
        if fetches is None or replicas is None:
            return replicas if fetches is None else fetches
        return min(fetches, replicas)

    def _tick(self) -> None:
        """What is due, of many replicas some: the driver ticks again as long as something is."""
        self.expire_fetches()
        for key in self._deadlines.pop_expired(self.clock.now_ms(), REPLICAS_TOGETHER):
            replica = self.replicas.get(key)
            if replica is None:
                continue
            if isinstance(replica.role, Leader):
                self.step_leader(replica, Tick())
            elif isinstance(replica.role, Follower):
                self.step_follower(replica, Tick())
                if self.fetchers is not None:
                    self.fetchers.wake(replica)

    def unusable(self, key: ReplicaKey) -> tuple[ErrorCode, str] | None:
        """What to answer for a replica that its disk keeps from its role, which may well be leader; None: it does not."""
        reason = self.trouble.reason(key)
        if reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, reason
        if key in self.trouble.waiting_for_room:
            return DiskFullError.code, "this replica waits for room on its disk"
        return None

    # ---- looking in, checkpoints, end ------------------------------------------------------------------------------------

    def statuses(self, names: Collection[tuple[str, int]] | None = None) -> tuple[ReplicaStatus, ...]:
        """All replicas, or the named ones with what their leader knows; see `replica_statuses`."""
        return replica_statuses(self.replicas.values(), self.trouble.offline.values(), names, self.clock.now_ms())

    def describe_log_dirs(self) -> tuple[LogDir, ...]:
        """Every log directory, with what is in it and what moves to it."""
        return log_dirs(self._logs, () if self.moves is None else self.moves.statuses())

    def awaited_ends(self) -> tuple[ReplicaEnd, ...]:
        """How far the replicas reach for which a `recovered` election waits for this broker."""
        return awaited_ends(self.image, self._broker_id, self.replicas)

    def known_high_watermarks(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> high watermark, for the checkpoint."""
        return {(r.topic, r.partition_id): r.high_watermark for r in self.replicas.values()}

    def delete_old_segments(self, replica: Replica) -> None:
        """Applies retention to one log."""
        if replica.log.failed:
            return
        try:
            if replica.log.delete_old_segments(now_ms=self.clock.wall_ms(), high_watermark=replica.high_watermark):
                self.log_start_moved(replica)
        except DiskFullError as error:
            _log.warning("%s: retention goes on later: %s", replica.name, error)
        except StorageError as error:
            self.trouble.storage_failed(replica, error)

    async def stop(self) -> None:
        """Answers what waits, leaves all roles and stops the driver; the logs stay open for their directory to close."""
        for replica in self.replicas.values():
            self.leave_role(replica)
        self.after_drain()
        await self.driver.stop()
        await self.retirements.stop()
        await self.flushes.stop()
        await self.cold_reads.stop()
        self._tails.clear()


def _has_everything(replica: Replica, answer: FetchAnswered) -> bool:
    """Whether the leader had nothing more for the replica as it is now."""
    return (
        answer.error is ErrorCode.NONE
        and answer.diverging is None
        and answer.size_bytes == 0
        and answer.fetch_offset == replica.log.log_end_offset
    )


def _nobody_waits(_request_id: int, _error: ErrorCode) -> None:
    return


def _nothing_is_created(local: LocalPartition) -> bool:  # noqa: ARG001 -- until there is an image queue
    return False


def _no_image_waits(_run: Callable[[], None]) -> bool:
    return False


def _nobody_is_held_back(_replica: Replica) -> None:
    return


def _nobody_listens(_key: ReplicaKey) -> None:
    return


def _nothing_to_do() -> None:
    return


def _never() -> int | None:
    return None
