"""Steps the leaders and followers of this broker, and performs their decisions; one driver runs all of it.

`ReplicaManager`, above, says which replicas there are and the role of each.  The parts that serve requests, keep logs in order or
move replicas use the stepper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, assert_never

from replog.broker.clock import Clock
from replog.broker.disk.cold_reads import ColdReads
from replog.broker.disk.flusher import LogFlusher
from replog.broker.driver import Driver
from replog.broker.replicas import partition_events
from replog.broker.replicas.disk_trouble import DiskTrouble
from replog.broker.replicas.fetchers import Fetchers
from replog.broker.replicas.flushes import ReplicaFlushes
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.replication_throttle import ReplicationThrottle
from replog.broker.side_work import SideWork
from replog.config.server import ServerConfig
from replog.controller.requests import PartitionIsrResult
from replog.errors import ContradictedLogError, CorruptRecordError, DiskFullError, ErrorCode, StorageError
from replog.log import LogManager, MisfitRecordsError
from replog.metadata.config_keys import FOLLOWER_REPLICATION_THROTTLED_RATE, LEADER_REPLICATION_THROTTLED_RATE
from replog.metadata.delta import LocalPartition
from replog.metadata.image import MetadataImage
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import (
    AlterPartitionAnswered,
    Appended,
    AppendFetched,
    FetchAnswered,
    FetchedMisfits,
    Flushed,
    FlushPolicyChanged,
    FollowerEffect,
    FollowerMessage,
    HighWatermarkAdvanced,
    IsrChanged,
    LeaderEffect,
    LeaderMessage,
    LogContradicted,
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
from replog.waiting.deadlines import Deadlines

_log = logging.getLogger(__name__)

REPLICAS_TOGETHER = 100
"""Replicas that one step of the driver takes at most, even if more are due."""


SEARCHES_MAX = 2
BATCH_CHECKS_MAX = 2
"""How many threads work for clients at a time: most of a large batch needs no lock of the interpreter."""

DECISIONS_MAX = 1
"""How many threads decide for groups at a time: all of that needs the lock of the interpreter."""


class ProduceWaiters(Protocol):
    """The produces that wait for a replica of this broker."""

    def completed(self, request_id: int, error: ErrorCode) -> None:
        """Answers a produce: a leader has committed or given up its records."""

    def written_back(self, replica: Replica) -> None:
        """Lets produces go on that were held back while the disk was behind."""


class FetchWaiters(Protocol):
    """The fetches that wait for a replica of this broker."""

    def progressed(self, key: ReplicaKey) -> None:
        """Notes that a replica has news: records, a committed offset, another role."""

    def answer_progressed(self) -> None:
        """Answers the fetches that the news since the last call were for."""

    def expire(self) -> None:
        """Answers the fetches whose time is over."""

    def next_deadline_ms(self) -> int | None:
        """Returns when the next one's time is over, on the monotonic clock; None: none waits for a time."""


class DeletionWaiters(Protocol):
    """The deletions of records that wait for the followers of a replica of this broker."""

    def check(self, key: ReplicaKey) -> None:
        """Looks again whether all followers know what a deletion waits for."""


class Leaderships(Protocol):
    """The state that is kept of partitions while this broker leads them, as by coordinators."""

    def begun(self, replica: Replica) -> None:
        """Notes that a replica leads in a new epoch, in which nothing has been appended."""

    def ended(self, replica: Replica) -> None:
        """Notes that a replica that led does not lead any more."""

    def committed(self, replica: Replica) -> None:
        """Notes that the high watermark of a replica that leads has moved."""

    def tick(self) -> None:
        """Lets the coordinators act whose time has come."""

    def next_deadline_ms(self) -> int | None:
        """Returns when something is due next, on the monotonic clock; None: nothing is."""


class _Nobody:
    """Stands for the request paths before they are there: nothing waits."""

    def completed(self, request_id: int, error: ErrorCode) -> None: ...

    def written_back(self, replica: Replica) -> None: ...

    def progressed(self, key: ReplicaKey) -> None: ...

    def check(self, key: ReplicaKey) -> None: ...

    def answer_progressed(self) -> None: ...

    def expire(self) -> None: ...

    def begun(self, replica: Replica) -> None: ...

    def ended(self, replica: Replica) -> None: ...

    def committed(self, replica: Replica) -> None: ...

    def tick(self) -> None: ...

    def next_deadline_ms(self) -> int | None:
        return None


class ReplicaStepper:
    """The replicas of a broker that can be used, by (topic id, partition id).

    Everything but construction and `stop` runs on `driver`.

    Args:
        config: The node's configuration.
        logs: The open log directories.
        clock: The node's clock.
        flusher: The flusher, which runs fsyncs in threads.
        propose_isr: Sends a proposal to the controller.
        on_offline: Told that a replica went offline, or is usable again: the controller should know.
        on_failure: Told about a bug, or a failed disk without which the node cannot go on; the node stops.

    Attributes:
        replicas: The replicas, each with its log and its role.
        image: The metadata in force; some replicas may not have their roles in it yet.
        driver: The task that runs all of this.
        trouble: The replicas that cannot be used now.
        flushes: When logs are flushed.
        cold_reads: The reads that wait for the disk.
        searches: The searches for offsets by time.
        batch_checks: The looks into compressed batches that are produced.
        decisions: What coordinators decide for large groups.
        isr_changes: The changes of in-sync replicas, counted.
        leader_throttle: The rate at which this broker gives records to replicas that are being added.
        follower_throttle: The rate at which its own replicas that are being added take records.
        fetchers: The streams to the leaders that this broker follows; None: it follows none.
        produces: The produces that wait; `ProducePath` enters itself.
        fetches: The fetches that wait; `FetchPath` enters itself.
        deletions: The deletions of records that wait; `RecordDeletions` enters itself.
        on_failure: Told about a bug; the node stops.
        leaderships: The state that is kept of partitions that are led; `Shards` enters itself.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        logs: LogManager,
        clock: Clock,
        flusher: LogFlusher,
        propose_isr: Callable[[ReplicaKey, ProposeIsr], None],
        on_offline: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.clock = clock
        self.replicas: dict[ReplicaKey, Replica] = {}
        self.image = MetadataImage()
        self.fetchers: Fetchers | None = None
        self.produces: ProduceWaiters = _Nobody()
        self.fetches: FetchWaiters = _Nobody()
        self.deletions: DeletionWaiters = _Nobody()
        self.leaderships: Leaderships = _Nobody()
        self.isr_changes = partition_events.IsrChanges()
        self.leader_throttle = ReplicationThrottle(LEADER_REPLICATION_THROTTLED_RATE, clock)
        self.follower_throttle = ReplicationThrottle(FOLLOWER_REPLICATION_THROTTLED_RATE, clock)
        self.on_failure = on_failure
        self._propose_isr = propose_isr
        self._deadlines = Deadlines[ReplicaKey]()
        self.driver = Driver(
            "replica-driver",
            clock,
            tick=self._tick,
            next_deadline_ms=self._next_deadline_ms,
            after_drain=lambda: self.fetches.answer_progressed(),  # noqa: PLW0108 -- the path enters itself later
            on_failure=on_failure,
        )
        self.cold_reads = ColdReads(self.driver.submit)
        self.searches = SideWork("replog-search", SEARCHES_MAX)
        self.batch_checks = SideWork("replog-batch-check", BATCH_CHECKS_MAX)
        self.decisions = SideWork("replog-decision", DECISIONS_MAX)
        self.trouble = DiskTrouble(config.node_id, logs, self.replicas, lambda: self.image, self.leave_role, on_offline)
        self.flushes = ReplicaFlushes(
            config, clock, self.driver, flusher, self.replicas, self.flushed, self.written_back, self.trouble.log_failed
        )

    def leave_role(self, replica: Replica) -> None:
        """Answers the requests that wait for this role, and stops fetching; the log stays as it is."""
        match replica.role:
            case Leader():
                self.step_leader(replica, Resigned())
                self.leaderships.ended(replica)
            case Follower() if self.fetchers is not None:
                self.fetchers.remove(replica)
            case _:
                pass
        replica.leave_role()
        self.fetches.progressed(replica.key)
        self.deletions.check(replica.key)

    # ---- stepping the cores ---------------------------------------------------------------------------------------------

    def step_leader(self, replica: Replica, message: LeaderMessage) -> None:
        """Steps the leader of a replica and performs the effects; does nothing if it does not lead."""
        if not isinstance(replica.role, Leader):
            return  # the answer of something that began in an earlier role
        for effect in replica.role.step(message, self.clock.now_ms()):
            self._perform_leader(replica, effect)
        if isinstance(message, Appended) and not replica.log.failed:
            self.flushes.after_append(replica)
        if isinstance(message, StateChanged):
            self.deletions.check(replica.key)  # a follower that is not up any more does not hold it up
        self._schedule(replica)

    def _perform_leader(self, replica: Replica, effect: LeaderEffect) -> None:
        match effect:
            case HighWatermarkAdvanced():
                self.fetches.progressed(replica.key)
                self.leaderships.committed(replica)
            case ProduceCompleted():
                self.produces.completed(effect.request_id, effect.error)
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
        """Steps the follower of a replica and performs the effects; does nothing if it does not follow.

        Args:
            replica: The replica.
            message: The message to the core.
            fetched: The record bytes of the answer in `message`, if it is one.
        """
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
                appended = self._append_fetched(replica, fetched, effect.leader_epoch)
                self.step_follower(replica, appended)
                if isinstance(appended, Appended):
                    self.flushes.after_append(replica)
            case TruncateTo():
                partition_events.truncated(replica.name, replica.log.log_end_offset, effect)
                replica.log.truncate_to(effect.offset)
                replica.truncated_to = effect.offset
                self.fetches.progressed(replica.key)  # consumers that wait here may be of another history
            case TruncateFullyAndStartAt():
                log = replica.log
                partition_events.starts_again(replica.name, log.log_start_offset, log.log_end_offset, effect)
                replica.log.truncate_fully_and_start_at(effect.offset)
                replica.truncated_to = effect.offset
                self.fetches.progressed(replica.key)
            case LogContradicted():
                self._contradicted(replica, effect.reason)
            case SetHighWatermark():
                self.fetches.progressed(replica.key)
            case SetLogStartOffset():
                replica.log.set_log_start_offset(effect.log_start_offset)
                self.log_start_moved(replica)
            case RequestFlush():
                self.flushes.request(replica)
            case _ as unreachable:
                assert_never(unreachable)

    def _contradicted(self, replica: Replica, reason: str) -> None:
        """Counts a follower as damaged if the leader's log contradicts its log, unless its log came from that leader.

        Such a log would be set aside again and again, and fill the disk with copies.  The follower fetches nothing until the
        next epoch.

        Raises:
            ContradictedLogError: The log was here before.
        """
        folder = replica.log.directory
        if replica.key not in self.trouble.beginning_anew:
            raise ContradictedLogError(
                f"{folder}: {reason}. The folder of another partition may stand there: where it does, stop the broker "
                "and put each in its place"
            )
        _log.error(
            "%s: %s, although all of this one was fetched anew. It waits for another leader: verify the log of the one it has "
            "with `replog log verify`, and let another one lead where that is damaged", folder, reason,
        )  # fmt: skip

    def _append_fetched(
        self, replica: Replica, fetched: memoryview | bytes, leader_epoch: int
    ) -> Appended | FetchedMisfits:
        """Appends the batches that a leader sent; returns the message to the follower about it.

        A follower that appended nothing backs off and fetches again: right for damage on the way, not for our disk.
        """
        try:
            replica.log.append_as_follower(fetched, now_ms=self.clock.wall_ms(), leader_epoch=leader_epoch)
        except MisfitRecordsError as error:
            return FetchedMisfits(error.reason)
        except CorruptRecordError as error:
            if error.path:  # a file of ours, not the bytes from the network
                raise
            _log.warning("%s: what the leader sent is damaged and is fetched again: %s", replica.name, error)
        except DiskFullError as error:
            self.trouble.disk_full(replica, error)
        return Appended(replica.log.log_end_offset)

    def log_start_moved(self, replica: Replica) -> None:
        """Passes on the later start of a log: a leader to its followers, a follower to its leader."""
        self.fetches.progressed(replica.key)
        self._wake_fetcher(replica)

    def tell_flush_policy(self, replica: Replica) -> None:
        """Tells the role that the replica's flush policy has changed."""
        message = FlushPolicyChanged(replica.flush_policy)
        match replica.role:
            case Leader():
                self.step_leader(replica, message)
            case Follower():
                self.step_follower(replica, message)
                self._wake_fetcher(replica)  # it may have waited for an fsync that is not asked for any more
            case None:
                pass

    def handle_isr_answer(self, key: ReplicaKey, proposal_id: int, result: PartitionIsrResult) -> None:
        """Tells a leader the controller's answer to its proposal."""
        replica = self.replicas.get(key)
        if replica is not None:
            self.step_leader(
                replica,
                AlterPartitionAnswered(
                    proposal_id, result.error, result.leader_epoch, result.partition_epoch, result.isr
                ),
            )

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

    # ---- when the disk has answered ---------------------------------------------------------------------------------------

    def flushed(self, replica: Replica) -> None:
        """Tells the role the flushed offset.

        It is read from the log now: a truncation since the fsync may have lowered it.
        """
        flushed_offset = replica.log.flushed_offset
        match replica.role:
            case Leader():
                self.step_leader(replica, Flushed(flushed_offset))
            case Follower():
                self.step_follower(replica, Flushed(flushed_offset))
                self._wake_fetcher(replica)
            case None:
                pass

    def written_back(self, replica: Replica) -> None:
        """Lets producers, or the stream from the leader, go on that waited for the disk to catch up."""
        self.produces.written_back(replica)
        self._wake_fetcher(replica)

    def _wake_fetcher(self, replica: Replica) -> None:
        if self.fetchers is not None:
            self.fetchers.wake(replica)

    # ---- deadlines ----------------------------------------------------------------------------------------------------

    def _schedule(self, replica: Replica) -> None:
        """Notes the role's deadline.  One that moves back is left: a tick that comes too early costs less than moving it."""
        deadline = replica.role.next_deadline_ms() if replica.role is not None else None
        scheduled = self._deadlines.get(replica.key)
        if deadline is None or (scheduled is not None and scheduled <= deadline):
            return
        self._deadlines.discard(replica.key)
        self._deadlines.add(replica.key, deadline)

    def _next_deadline_ms(self) -> int | None:
        parts = (self.fetches, self._deadlines, self.leaderships)
        return min((due for part in parts if (due := part.next_deadline_ms()) is not None), default=None)

    def _tick(self) -> None:
        """Steps replicas that are due, some of them if there are many: the driver ticks again as long as one is due."""
        self.fetches.expire()
        self.leaderships.tick()
        for key in self._deadlines.pop_expired(self.clock.now_ms(), REPLICAS_TOGETHER):
            replica = self.replicas.get(key)
            if replica is None:
                continue
            if isinstance(replica.role, Leader):
                self.step_leader(replica, Tick())
            elif isinstance(replica.role, Follower):
                self.step_follower(replica, Tick())
                self._wake_fetcher(replica)

    def unusable(self, key: ReplicaKey) -> tuple[ErrorCode, str] | None:
        """Returns the error for a replica that its disk keeps from its role, perhaps as leader; else None."""
        reason = self.trouble.reason(key)
        if reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, reason
        if key in self.trouble.waiting_for_room:
            return DiskFullError.code, "this replica waits for room on its disk"
        return None

    async def stop(self) -> None:
        """Answers waiting requests, leaves all roles and stops the driver.  The log directories close the logs later."""
        for replica in self.replicas.values():
            self.leave_role(replica)
        self.fetches.answer_progressed()
        await self.driver.stop()
        await self.flushes.stop()
        await self.searches.stop()
        await self.batch_checks.stop()
        await self.decisions.stop()
        await self.cold_reads.stop()


def _has_everything(replica: Replica, answer: FetchAnswered) -> bool:
    """Whether the leader had nothing more for the replica as it is now."""
    return (
        answer.error is ErrorCode.NONE
        and answer.diverging is None
        and answer.size_bytes == 0
        and answer.fetch_offset == replica.log.log_end_offset
    )
