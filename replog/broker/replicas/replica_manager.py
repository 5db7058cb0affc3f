"""Which replicas this broker has, and the role of each; `ReplicaStepper`, below, then steps them.

Each new metadata image says which partitions to lead, follow or drop.  `ImageSteps` has the manager make it so: deletes
first, then leaders, then followers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final
from uuid import UUID

from replog.broker.replicas import partition_events
from replog.broker.replicas.logs import ReplicaLogs
from replog.broker.replicas.moves import ReplicaMoves
from replog.broker.replicas.replica import Replica, ReplicaKey, ReplicaLog
from replog.broker.replicas.retirements import Place, Retirements
from replog.broker.replicas.stepper import REPLICAS_TOGETHER, ReplicaStepper
from replog.broker.replicas.topic_settings import TopicSettings
from replog.broker.replicas.views import (
    awaited_ends,
    late_transactions,
    log_dir,
    log_dir_replicas,
    log_sizes,
    partition_state,
    replica_statuses,
)
from replog.controller.requests import OfflineReplica, ReplicaEnd
from replog.errors import LateLeaderEpochError, ReplogError
from replog.log import LogManager, TailCache
from replog.metadata.delta import LocalPartition
from replog.metadata.image import MetadataImage
from replog.metadata.records import LeaderRecoveryState
from replog.metadata.registrations import PartitionRegistration
from replog.records import encode_end_transaction_marker
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import (
    Appended,
    StateChanged,
    Tick,
)
from replog.rpc.node_messages import LateTransaction, LogDir, ReplicaStatus
from replog.waiting.sorting import sorted_in_pieces

NOBODY = -1


def election_reason(before: PartitionRegistration | None, now: PartitionRegistration, image: MetadataImage) -> str:
    """Says in a few words why a partition has the leader that it has now.

    The controller writes only the outcome of its decision.  The reason follows from what has happened to the leader before.

    Args:
        before: The registration that this broker acted on until now; None: it has just started, or this is a new one.
        now: The registration that the metadata in force has.
        image: The brokers as they are now.
    """
    if now.leader != NOBODY and now.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        return "elected uncleanly, acknowledged records may be lost"
    if before is None:
        return "as this broker opens its replica"
    if before.leader == NOBODY:
        return "there was no leader"
    if before.leader == now.leader:
        return f"broker {now.leader} was elected again"
    broker = image.brokers.get(before.leader)
    if broker is None:
        return f"broker {before.leader} is not registered any more"
    if broker.fenced:
        return f"broker {before.leader} is fenced"
    if broker.in_controlled_shutdown:
        return f"broker {before.leader} is shutting down"
    if before.leader not in now.isr:
        return f"broker {before.leader} is out of the ISR"
    return f"broker {before.leader} gave it up"


_log = logging.getLogger(__name__)

LATE_EPOCHS_MAX: Final = 100
"""The largest number of leader epochs by which the metadata may lag behind a log: each takes one more election, and a heartbeat."""


SORTED_AT_ONCE: Final = 1_000
"""Statuses up to which an answer is put in order on the loop."""


LATE_TRANSACTIONS_MAX = 20
"""Partitions that a broker names whose transactions nobody may be going to end."""


class ReplicaManager:
    """Gives the replicas of this broker the roles that the metadata say.  All but construction and `stop` runs on the driver.

    Args:
        stepper: The stepper of this broker's replicas.
        logs: The open log directories; all their logs but the metadata log belong to this manager.
        executor: The threads for the disk.
        new_id: Returns ids for the names of folders that are removed.
        on_failure: Told about a bug, or a failed disk without which the node cannot go on; the node stops.

    Attributes:
        stepper: The stepper of this broker's replicas.
        local_logs: The logs of the replicas on disk.
        applied_offset: The end (exclusive) of the metadata that all replicas are as it says.
        retirements: The replicas on their way out.
        moves: The replicas that move between log directories.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        logs: LogManager,
        executor: Executor,
        new_id: Callable[[], UUID],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.stepper = stepper
        self.local_logs = ReplicaLogs(logs, stepper.config, stepper.clock)
        self.applied_offset = 0
        self.retirements = Retirements(logs, stepper.driver, executor, stepper.trouble.directory_failed, on_failure)
        self.moves = ReplicaMoves(stepper, logs, self.retirements, self.take_role, executor, new_id, on_failure)
        self._logs = logs
        self._broker_id = stepper.config.node_id
        self._tails = TailCache()
        self._proposal_ids = itertools.count(1)

    # ---- metadata -----------------------------------------------------------------------------------------------------

    def image_applied(self) -> None:
        """Notes that the replicas are as the image in force says."""
        self._begin_anew()
        self.applied_offset = self.stepper.image.end_offset

    def controller_knows(self, reported: Sequence[OfflineReplica], metadata_offset: int) -> None:
        """Lets replicas begin anew whose old records no election counts on any more.

        Args:
            reported: The replicas that a heartbeat said are offline.
            metadata_offset: The end of the metadata with the controller's changes for it.
        """
        self.stepper.trouble.controller_knows(reported, metadata_offset)
        self._begin_anew()

    def _begin_anew(self) -> None:
        for local in self.stepper.trouble.begin_anew():
            self.take_role(local, is_new=True)

    def retry_roles(self, but_for: Container[Place] = ()) -> None:
        """Lets replicas that wait for room try again to take their roles.

        Args:
            but_for: The replicas that wait for something else.
        """
        for local in self.stepper.trouble.roles_without_room():
            if (local.topic_name, local.partition_id) not in but_for:
                self.take_role(local, is_new=True)

    def configure_throttles(self) -> None:
        """Puts the rates of the image in force."""
        stepper = self.stepper
        for throttle in (stepper.leader_throttle, stepper.follower_throttle, self.moves.throttle):
            throttle.configure(stepper.image, self._broker_id)

    def take_role(self, local: LocalPartition, *, is_new: bool) -> None:
        """Makes a replica lead, follow or wait, as its registration says.

        Args:
            local: The replica.
            is_new: Whether no disk can hold it yet.
        """
        if self.moves.is_swapping(local):
            return
        take = self._lead if local.registration.leader == self._broker_id else self._follow
        self.stepper.trouble.guard_role(local, lambda: take(local, is_new))
        self.stepper.fetches.progressed((local.topic_id, local.partition_id))  # of another epoch, or out of sync now

    def _lead(self, local: LocalPartition, is_new: bool) -> None:
        reason = self._election_reason(local)
        replica = self._open(local, is_new)
        _require_later_epoch(replica)
        state = partition_state(replica, self.stepper.image, self.stepper.config)
        if isinstance(replica.role, Leader) and replica.role.leads_on(state.leader_epoch):
            is_new_epoch = state.leader_epoch > replica.role.leader_epoch
            if is_new_epoch:
                partition_events.leads_on(replica.name, state.leader_epoch, reason)
                replica.log.assign_epoch_start(state.leader_epoch)
            self.stepper.step_leader(replica, StateChanged(state))
            if is_new_epoch:
                self.stepper.leaderships.begun(replica)
            return
        high_watermark = replica.high_watermark
        self.stepper.leave_role(replica)
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
            replica_lag_time_max_ms=self.stepper.config.replica_lag_time_max_ms,
            flush_policy=replica.flush_policy,
            now_ms=self.stepper.clock.now_ms(),
            proposal_ids=self._proposal_ids,
        )
        self.stepper.leaderships.begun(replica)
        self.stepper.step_leader(replica, Tick())
        self._end_forked(replica, state.leader_epoch)

    def _end_forked(self, replica: Replica, leader_epoch: int) -> None:
        """Ends what producers had begun in the source of a fork: aborts open transactions, forgets sequences (see `fork`).

        Each new leader does, since the one before may not have come to it.

        Raises:
            DiskFullError: There is no room for a marker.
            StorageError: The disk failed.
        """
        end_offset, now_ms = replica.registration.forked_end_offset, self.stepper.clock.wall_ms()
        if end_offset == 0:
            return
        producers = replica.log.producers
        markers = [
            encode_end_transaction_marker(
                base_offset=0,
                leader_epoch=-1,
                timestamp_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=producers.producers[producer_id].producer_epoch,
                coordinator_epoch=max(0, producers.producers[producer_id].coordinator_epoch),
                is_commit=False,
            )
            for producer_id, first_offset in producers.open_transactions.items()
            if first_offset < end_offset
        ]
        if markers:
            outcomes = replica.log.append_all_as_leader(markers, leader_epoch=leader_epoch, now_ms=now_ms)
            self.stepper.step_leader(replica, Appended(replica.log.log_end_offset))
            self.stepper.fetches.progressed(replica.key)
            for outcome in outcomes:
                if isinstance(outcome, ReplogError):
                    raise outcome
        producers.forget_batches_below(end_offset)

    def _follow(self, local: LocalPartition, is_new: bool) -> None:
        reason = self._election_reason(local)
        replica = self._open(local, is_new)
        registration = local.registration
        role = replica.role
        if isinstance(role, Follower) and role.leader_epoch == registration.leader_epoch:
            return
        high_watermark = replica.high_watermark
        self.stepper.leave_role(replica)
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
            fetch_backoff_ms=self.stepper.config.replica_fetch_backoff_ms,
            flush_policy=replica.flush_policy,
            now_ms=self.stepper.clock.now_ms(),
        )
        self.stepper.step_follower(replica, Tick())
        if self.stepper.fetchers is not None:
            self.stepper.fetchers.add(replica, registration.leader)

    def _election_reason(self, local: LocalPartition) -> str:
        known = self.stepper.replicas.get((local.topic_id, local.partition_id))
        return election_reason(None if known is None else known.registration, local.registration, self.stepper.image)

    def _open(self, local: LocalPartition, is_new: bool) -> Replica:
        key = (local.topic_id, local.partition_id)
        replica = self.stepper.replicas.get(key)
        if replica is None:
            settings = TopicSettings(local.topic_name, self.stepper.image, self.stepper.config)
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
            self.stepper.replicas[key] = replica
        replica.registration = local.registration
        return replica

    # ---- looking in, checkpoints, end ------------------------------------------------------------------------------------

    def statuses(
        self, names: Collection[tuple[str, int]] | None = None, keys: Iterable[ReplicaKey] | None = None
    ) -> tuple[ReplicaStatus, ...]:
        """Returns all replicas, or the named ones with their leader's view; see `replica_statuses`.

        Args:
            names: The (topic, partition) of the replicas wanted; None: all.
            keys: The replicas that are looked at; None: all that can be used, and those that cannot.
        """
        usable, now_ms = self.stepper.replicas, self.stepper.clock.now_ms()
        if keys is not None:
            return replica_statuses((usable[key] for key in keys if key in usable), (), names, now_ms)
        return replica_statuses(usable.values(), self.stepper.trouble.offline.values(), names, now_ms)

    async def statuses_in_steps(self, names: Collection[tuple[str, int]] | None) -> tuple[ReplicaStatus, ...]:
        """Returns the same, some at a time; what else waits for the driver has its turn in between."""
        call, stepper = self.stepper.driver.call, self.stepper
        keys = tuple(stepper.replicas)
        found: list[ReplicaStatus] = []
        for start in range(0, len(keys), REPLICAS_TOGETHER):
            found += await call(partial(self.statuses, names, keys[start : start + REPLICAS_TOGETHER]))
        now_ms = stepper.clock.now_ms()
        found += await call(lambda: replica_statuses((), stepper.trouble.offline.values(), names, now_ms))
        return _by_name(found) if len(found) <= SORTED_AT_ONCE else await asyncio.to_thread(_by_name, found)

    async def late_transactions(self) -> tuple[LateTransaction, ...]:
        """Returns late transactions of partitions that are led here, at most `LATE_TRANSACTIONS_MAX`."""
        stepper, usable = self.stepper, self.stepper.replicas
        keys, found = tuple(usable), list[LateTransaction]()

        def look(some: Iterable[ReplicaKey]) -> tuple[LateTransaction, ...]:
            here = [usable[key] for key in some if key in usable]
            return late_transactions(here, stepper.config, stepper.clock.wall_ms())

        for start in range(0, len(keys), REPLICAS_TOGETHER):
            found += await stepper.driver.call(partial(look, keys[start : start + REPLICAS_TOGETHER]))
            if len(found) >= LATE_TRANSACTIONS_MAX:
                break
        return tuple(found[:LATE_TRANSACTIONS_MAX])

    async def describe_log_dirs(self) -> tuple[LogDir, ...]:
        """Returns every log directory, also those that could not be opened, with its replicas and those that move to it.

        The replicas are looked at some at a time; what else waits for the driver has its turn in between.
        """
        found: list[LogDir] = []
        for directory in tuple(self._logs.directories.values()):
            keys, sizes = tuple(directory.logs), dict.fromkeys(directory.offline, -1)
            for start in range(0, len(keys), REPLICAS_TOGETHER):
                some = keys[start : start + REPLICAS_TOGETHER]
                sizes |= await self.stepper.driver.call(partial(log_sizes, directory, some))
            is_small = len(sizes) <= SORTED_AT_ONCE
            replicas = log_dir_replicas(sizes) if is_small else await asyncio.to_thread(log_dir_replicas, sizes)
            found.append(log_dir(directory, replicas, self.moves.statuses()))
        return (*found, *(LogDir(path, str(error), -1, (), ()) for path, error in self._logs.unopened.items()))

    def awaited_ends(self) -> tuple[ReplicaEnd, ...]:
        """Returns how far the replicas reach for which a `recovered` election waits for this broker."""
        return awaited_ends(self.stepper.image, self._broker_id, self.stepper.replicas)

    async def stop(self) -> None:
        """Answers waiting requests, leaves all roles and stops the driver.  The log directories close the logs later."""
        await self.stepper.stop()
        await self.retirements.stop()
        self._tails.clear()


def _by_name(statuses: Iterable[ReplicaStatus]) -> tuple[ReplicaStatus, ...]:
    """Returns statuses in the order of `replica_statuses`; of one that went offline meanwhile the last."""
    by_name = {f"{status.topic}-{status.partition_id}": status for status in statuses}
    return tuple(by_name[name] for name in sorted_in_pieces(by_name))


def _require_later_epoch(replica: Replica) -> None:
    """Asks for another election if the metadata are some epochs behind the log.

    A log that is further ahead has a flipped bit in the epoch of its last batch: the log itself refuses to be led then.

    Raises:
        LateLeaderEpochError: The metadata are behind.
    """
    last_epoch, leader_epoch = replica.log.last_epoch, replica.registration.leader_epoch
    if last_epoch is not None and 0 < last_epoch - leader_epoch <= LATE_EPOCHS_MAX:
        raise LateLeaderEpochError(
            f"its leader epoch is {leader_epoch} in the metadata, and its log has records of epoch {last_epoch}: the metadata log "
            "has lost its end, in a repair perhaps. It is elected anew until the epoch is above that"
        )
