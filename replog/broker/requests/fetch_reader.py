"""Reads the records for a fetch, on the replica driver: checks first, then the log.

A follower reads to the log end.  A consumer reads to the high watermark, or to the last stable offset (`consumer_reads`); from a
follower, to the high watermark that the follower knows.  Records in memory are read at once.  Others are read by a few threads
while the driver goes on.  Then everything is checked again, because the replica may have been cut, deleted or passed to
another leader meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.replication_throttle import UNLIMITED
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.consumer_reads import (
    NO_REPLICA,
    aborted_in,
    ceiling,
    last_stable_offset,
    preferred_replica,
)
from replog.broker.requests.refusals import Refusal, refused, refused_by
from replog.config.server_keys import ReplicaSelector
from replog.errors import BrokerClosedError, DiskFullError, ErrorCode, OffsetOutOfRangeError, StorageError
from replog.log import ReadJob
from replog.replication.fetch_check import FetchCheck, check_fetch
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import EpochEnd, FollowerFetched
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    AbortedTransaction,
    DeleteRecordsPartition,
    DivergingEpoch,
    EpochEndPartition,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FindCutsPartition,
    ListOffsetsPartition,
)
from replog.rpc.node_messages import LocateSegmentsRequest

FETCH_WAIT_MAX_MS = 60_000
"""The longest wait of a fetch, even if it asks for more: its stream may be gone by then."""

MAX_RESPONSE_BYTES = 55 << 20
"""The most bytes of records in one answer, even if more are asked for: it must fit into one message (Kafka's fetch.max.bytes)."""


class ProducersPartition(Struct, frozen=True):
    """A partition whose producers are asked for, in any leader epoch."""

    topic_id: UUID
    partition_id: int
    leader_epoch: int = -1


Asked: TypeAlias = (
    FetchPartition
    | ProducersPartition
    | ListOffsetsPartition
    | DeleteRecordsPartition
    | EpochEndPartition
    | FindCutsPartition
    | LocateSegmentsRequest
)
"""A part of a request that names a partition."""

LOOKED: Final = b"looked"
"""Stands for data of the disk where only the epoch of a batch was looked at."""

BUSY: Final = "the disk has too much to do to look whether the fetch or the log is wrong; ask again"

NOT_FRESH: Collection[ReplicaKey] = ()
"""No partition counts as a follower's progress: it was counted when the request came."""


class Slot(NamedTuple):
    """One partition of a fetch; `data` None: it has to be read from the disk, within `max_bytes`; with 0 of them later."""

    result: FetchResult
    data: bytes | None
    max_bytes: int
    min_one_batch: bool

    @property
    def is_news(self) -> bool:
        """Whether it must be told even if there is nothing else."""
        result = self.result
        return (
            result.error is not ErrorCode.NONE or result.diverging is not None or result.preferred_replica != NO_REPLICA
        )


class FetchReader:
    """Reads partitions that this broker leads.

    Args:
        serving: The function that says why this broker may not serve now; None when it may.
    """

    def __init__(self, stepper: ReplicaStepper, serving: Callable[[], str | None]) -> None:
        self._stepper = stepper
        self._serving = serving

    def read_warm(
        self,
        request: FetchRequest,
        fresh: Collection[ReplicaKey],
        cold_bytes: int | None = None,
        *,
        is_first: bool = True,
    ) -> list[Slot]:
        """Reads every partition within the request's byte limit, as far as that needs no disk.

        Args:
            request: The request, whose byte limit is for records in memory.
            fresh: The partitions whose positions have just arrived: they count as the follower's progress.
            cold_bytes: The room for records that have to be read from the disk; None: it shares the request's limit.
            is_first: Whether nothing else is in the answer, so that a batch of any size may be.

        Returns:
            A slot for each partition; those without data are for `read_cold`.
        """
        left = min(request.max_bytes, MAX_RESPONSE_BYTES)
        empty = is_first
        slots: list[Slot] = []
        for partition in request.partitions:
            if request.offsets_only:
                slots.append(Slot(self.offsets(partition), b"", 0, empty))
                continue
            max_bytes = min(left, partition.max_bytes)
            is_fresh = (partition.topic_id, partition.partition_id) in fresh
            result, data = self._read(request, partition, max_bytes, is_fresh=is_fresh, min_one_batch=empty)
            if data is None and cold_bytes is not None:
                max_bytes = min(partition.max_bytes, max(0, cold_bytes), self._room_bytes(request, partition))
                slots.append(Slot(result, None, max_bytes, min_one_batch=True))
                cold_bytes -= max_bytes
                continue
            slots.append(Slot(result, data, max_bytes, empty))
            left = max(0, left - (max_bytes if data is None else len(data)))
            empty = empty and data == b""
        return slots

    def has_enough(self, request: FetchRequest) -> bool:
        """Whether there are as many bytes as the request wants to wait for, given that one of its partitions has something."""
        if request.min_bytes <= 1 or request.offsets_only:
            return True
        slots = self.read_warm(request, NOT_FRESH)
        return any(slot.data is None for slot in slots) or is_worth_sending(request, slots)

    def has_something(self, request: FetchRequest, partition: FetchPartition) -> bool:
        """Whether there are records for one partition of the request, or news that cannot wait for some."""
        replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
        role = self._serving_role(request, replica)
        if replica is None or role is None:
            return True  # not the leader any more: that is news
        if partition.leader_epoch >= 0 and partition.leader_epoch != role.leader_epoch:
            return True
        if partition.fetch_offset < ceiling(request, replica):
            return True
        return not check_fetch(partition.fetch_offset, partition.last_fetched_epoch, replica.view).ok

    def _serving_role(self, request: FetchRequest, replica: Replica | None) -> Leader | Follower | None:
        """Returns the role in which a replica answers the request; None where another one must be asked.

        A follower that is in sync serves consumers, up to what it knows to be committed, where `replica.selector` says so
        (KIP-392).
        """
        match None if replica is None else replica.role:
            case Leader() as leader:
                return leader
            case Follower() as follower if replica is not None and request.replica_id == CONSUMER_REPLICA_ID:
                config = self._stepper.config
                is_in_sync = config.node_id in replica.registration.isr
                return follower if is_in_sync and config.replica_selector is ReplicaSelector.RACK_AWARE else None
            case _:
                return None

    # ---- from the disk --------------------------------------------------------------------------------------------------

    def read_cold(
        self, request: FetchRequest, partition: FetchPartition, slot: Slot, done: Callable[[bytes | None], None]
    ) -> None:
        """Starts to read the data of one partition in a thread; the partition was checked just now.

        Args:
            request: The request that names the partition.
            partition: The partition of the request to be read.
            slot: The slot of the partition, without data.
            done: The function that is called with the bytes from the disk, for `checked`; now, and with nothing, if
                the disk has too much to do; with None if it could not be read.
        """
        replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
        if replica is None or self._serving_role(request, replica) is None or self._stepper.cold_reads.is_full:
            done(b"")  # the client asks again
            return
        if not check_fetch(partition.fetch_offset, partition.last_fetched_epoch, replica.view).ok:
            self._look_back(replica, partition, done)
            return
        try:
            job = replica.log.prepare_read(
                partition.fetch_offset,
                max_bytes=slot.max_bytes,
                end_offset=ceiling(request, replica),
                min_one_batch=slot.min_one_batch,
            )
        except DiskFullError:  # no descriptor is left
            done(b"")  # the client asks again
            return
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            done(None)
            return
        self._stepper.cold_reads.start(replica.log, job, lambda job: done(self._data_of(replica, job)))

    def _data_of(self, replica: Replica, job: ReadJob) -> bytes | None:
        try:
            return replica.log.complete_read(job)
        except (BrokerClosedError, OffsetOutOfRangeError):
            return None  # deleted or moved on: the checks say it
        except DiskFullError:  # no descriptor was left
            return b""
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            return None

    def checked(self, request: FetchRequest, partition: FetchPartition, slot: Slot, data: bytes | None) -> Slot:
        """Returns the slot with the bytes from the disk, checked again: facts may have changed since the disk was asked.

        Args:
            request: The request that names the partition.
            partition: The partition of the request that was read.
            slot: The slot as `read_cold` got it.
            data: The data as `read_cold` gave it.

        Returns:
            The slot, without data if it has to be read from the disk again.
        """
        reason = self._serving()
        if reason is not None:
            result: FetchResult = refused_fetch(partition, Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason))
            return slot._replace(result=result, data=b"")
        result, data = self._read(
            request, partition, slot.max_bytes, is_fresh=False, min_one_batch=slot.min_one_batch, found=data
        )
        return slot._replace(result=result, data=data)

    # ---- one after the other ----------------------------------------------------------------------------------------------

    def _read(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        max_bytes: int,
        *,
        is_fresh: bool,
        min_one_batch: bool,
        found: bytes | None = None,
    ) -> tuple[FetchResult, bytes | None]:
        """Checks one partition and reads it; `found` has the bytes of a read from the disk, if there was one.

        Returns:
            The result and the data, which is None where it has to be read from the disk.
        """
        replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
        role = self._serving_role(request, replica)
        if replica is None or role is None:
            return refused_fetch(partition, self.not_leader(partition)), b""
        is_follower = request.replica_id != CONSUMER_REPLICA_ID
        error = _check_asker(request, partition, role)
        if error is not ErrorCode.NONE:
            return refused_fetch(partition, refused_by(replica, error, error.name)), b""
        check = check_fetch(partition.fetch_offset, partition.last_fetched_epoch, replica.view)
        found = None if check.ok and found is LOOKED else found  # the log goes on where it did not just now
        refused = None if check.ok else self._misfit(request, partition, check, replica, role, found)
        if refused is not None:
            return refused
        if check.diverging is None and is_follower and is_fresh:
            self._count_progress(request, partition, replica)
        data: bytes | None = b""
        if found is None:
            max_bytes = min(max_bytes, self._room_bytes(request, partition))
        preferred = preferred_replica(request, partition, replica, self._stepper) if check.ok else NO_REPLICA
        if check.diverging is None and preferred == NO_REPLICA and max_bytes > 0:
            data = found
        aborted: tuple[AbortedTransaction, ...] = ()
        try:
            if data is None:
                data = self._data(request, partition, replica, max_bytes, min_one_batch)
            if data and request.read_committed:
                aborted = aborted_in(replica, partition.fetch_offset, data)
        except DiskFullError as failure:  # no descriptor is left
            return refused_fetch(partition, refused_by(replica, failure.code, failure.told)), b""
        except StorageError as failure:
            self._stepper.trouble.storage_failed(replica, failure)  # raises where the node cannot go on
            return refused_fetch(partition, self.not_leader(partition)), b""
        if data and _is_being_filled(request.replica_id, replica, role):
            self._stepper.leader_throttle.count(len(data))
        return _served(request, partition, replica, role, check.diverging, aborted, preferred), data

    def _misfit(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        check: FetchCheck,
        replica: Replica,
        role: Leader | Follower,
        found: bytes | None,
    ) -> tuple[FetchResult, bytes | None] | None:
        """Returns the answer to a fetch that does not fit the log, as `_read`; None: it is told where the two logs part."""
        if found is not LOOKED and _must_look_back(request, partition, replica):
            busy = refused_fetch(partition, refused_by(replica, ErrorCode.OFFSET_NOT_AVAILABLE, BUSY))
            return busy, b"" if found == b"" else None
        refused = self._refused_by_log(request, partition, check, replica, role)
        return None if refused is None else (refused, b"")

    def _look_back(self, replica: Replica, partition: FetchPartition, done: Callable[[bytes | None], None]) -> None:
        """Starts to read the batch before a position in a thread, and looks at its epoch then.

        Args:
            replica: The replica.
            partition: The partition of the request, whose position is within the log.
            done: The function that is called with `LOOKED`; or as that of `read_cold`.
        """
        log, offset = replica.log, partition.fetch_offset
        try:
            job = log.prepare_read(
                offset - 1, max_bytes=1, end_offset=log.log_end_offset, min_one_batch=True, is_checked=False
            )
        except DiskFullError:  # no descriptor is left
            done(b"")
            return
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            done(None)
            return
        self._stepper.cold_reads.start(log, job, lambda job: done(self._looked_back(replica, offset, job)))

    def _looked_back(self, replica: Replica, offset: int, job: ReadJob) -> bytes | None:
        try:
            data = replica.log.complete_read(job)
            if data:
                replica.log.check_epoch_in(data, offset)
        except (BrokerClosedError, OffsetOutOfRangeError):
            return None
        except DiskFullError:  # no descriptor was left
            return b""
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            return None
        return None if data is None else LOOKED

    def _refused_by_log(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        check: FetchCheck,
        replica: Replica,
        role: Leader | Follower,
    ) -> FetchResult | None:
        """Returns the answer to a fetch that does not fit the log; None: it is told where the two logs part.

        The asker may have its epoch from damage here; the replica is offline then.
        """
        try:
            if (
                partition.last_fetched_epoch >= 0 and request.replica_id != CONSUMER_REPLICA_ID
            ):  # else it has been looked
                replica.log.check_epoch_before(partition.fetch_offset)
        except DiskFullError as failure:  # no descriptor is left
            return refused_fetch(partition, refused_by(replica, failure.code, failure.told))
        except StorageError as failure:
            self._stepper.trouble.storage_failed(replica, failure)  # raises where the node cannot go on
            return refused_fetch(partition, self.not_leader(partition))
        return None if check.error is ErrorCode.NONE else self._out_of_range(partition, replica, role)

    def _room_bytes(self, request: FetchRequest, partition: FetchPartition) -> int:
        """Returns the bytes that the throttle leaves for a replica that is being filled; others have no limit."""
        replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
        is_filled = replica is not None and _is_being_filled(request.replica_id, replica, replica.role)
        return self._stepper.leader_throttle.room_bytes() if is_filled else UNLIMITED

    def _data(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        replica: Replica,
        max_bytes: int,
        min_one_batch: bool,
    ) -> bytes | None:
        end_offset = ceiling(request, replica)
        if partition.fetch_offset >= end_offset:
            return b""
        try:
            return replica.log.read_cached(
                partition.fetch_offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=min_one_batch
            )
        except OffsetOutOfRangeError:
            return b""  # the log start moved between check and read

    def _count_progress(self, request: FetchRequest, partition: FetchPartition, replica: Replica) -> None:
        self._stepper.step_leader(
            replica,
            FollowerFetched(
                replica_id=request.replica_id,
                broker_epoch=request.broker_epoch,
                fetch_offset=partition.fetch_offset,
                flushed_offset=partition.flushed_offset,
                log_start_offset=partition.log_start_offset,
                leader_end_offset=replica.log.log_end_offset,
            ),
        )
        self._stepper.deletions.check(replica.key)

    def _out_of_range(self, partition: FetchPartition, replica: Replica, role: Leader | Follower) -> FetchResult:
        log = replica.log
        return FetchResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.OFFSET_OUT_OF_RANGE,
            fetch_offset=partition.fetch_offset,
            high_watermark=role.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            leader_id=replica.registration.leader,
            leader_epoch=role.leader_epoch,
            message=f"{replica.name}: offset {partition.fetch_offset} is outside of "
            f"[{log.log_start_offset}, {log.log_end_offset}]",
        )

    def offsets(self, partition: FetchPartition) -> FetchResult:
        """Returns the ends and the log start of a partition that this broker leads, or why it does not tell."""
        led = self.leader_for(partition)
        if isinstance(led, Refusal):
            return refused_fetch(partition, led)
        replica, leader = led
        is_known = leader.latest_offset_available()
        return FetchResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE if is_known else ErrorCode.OFFSET_NOT_AVAILABLE,
            fetch_offset=partition.fetch_offset,
            high_watermark=leader.high_watermark if is_known else -1,
            log_start_offset=replica.log.log_start_offset,
            leader_id=self._stepper.config.node_id,
            leader_epoch=leader.leader_epoch,
            last_stable_offset=last_stable_offset(replica) if is_known else -1,
            size_bytes=replica.log.size_bytes,
        )

    def leader_for(self, partition: Asked) -> tuple[Replica, Leader] | Refusal:
        """Returns the replica and its leader, if this broker may answer as leader in the epoch that was asked for.

        Otherwise returns a refusal, which says why, and which broker may answer.
        """
        reason = self._serving()
        if reason is not None:
            return Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason)
        replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
        if replica is None or not isinstance(replica.role, Leader):
            return self.not_leader(partition)
        error = replica.role.check_fetch_epoch(partition.leader_epoch if partition.leader_epoch >= 0 else None)
        if error is not ErrorCode.NONE:
            return Refusal(error, error.name, self._stepper.config.node_id, replica.role.leader_epoch)
        return replica, replica.role

    def in_sync_for(self, partition: Asked) -> tuple[Replica, Leader | Follower] | Refusal:
        """Returns the replica, if it leads or is in sync in the epoch that was asked for; else a refusal with the reason."""
        replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
        if replica is None or not isinstance(replica.role, Follower):
            return self.leader_for(partition)
        reason = self._serving()
        if reason is not None:
            return Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason)
        if self._stepper.config.node_id not in replica.registration.isr:
            return self.not_leader(partition)
        error = replica.role.check_fetch_epoch(partition.leader_epoch if partition.leader_epoch >= 0 else None)
        if error is not ErrorCode.NONE:
            return Refusal(error, error.name, replica.registration.leader, replica.role.leader_epoch)
        return replica, replica.role

    def not_leader(self, partition: Asked) -> Refusal:
        """Returns why this broker does not answer for a partition, and which broker may."""
        unusable = self._stepper.unusable((partition.topic_id, partition.partition_id))
        if unusable is not None:
            return Refusal(*unusable)
        image = self._stepper.image
        known = image.partition(partition.topic_id, partition.partition_id)
        if known is None:
            is_known_topic = partition.topic_id in image.topics_by_id
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_known_topic else ErrorCode.UNKNOWN_TOPIC_ID
            return Refusal(error, error.name)
        message = f"broker {self._stepper.config.node_id} does not lead this partition, broker {known.leader} does"
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, message, known.leader, known.leader_epoch)


def state_of(result: FetchResult) -> tuple[ErrorCode, int, int, int, int]:
    """Returns the part of an answer that is news only if it is another one than before."""
    return result.error, result.high_watermark, result.log_start_offset, result.leader_id, result.leader_epoch


def is_worth_sending(request: FetchRequest, slots: Sequence[Slot]) -> bool:
    """Whether the records are enough for an answer before the request's time is over."""
    size_bytes = sum(len(slot.data or b"") for slot in slots)
    return size_bytes >= max(1, request.min_bytes) or any(slot.is_news for slot in slots)


def _served(
    request: FetchRequest,
    partition: FetchPartition,
    replica: Replica,
    role: Leader | Follower,
    diverging: EpochEnd | None,
    aborted: tuple[AbortedTransaction, ...],
    preferred: int,
) -> FetchResult:
    """Returns the answer for a partition that is served, without its data."""
    is_follower = request.replica_id != CONSUMER_REPLICA_ID
    return FetchResult(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        error=ErrorCode.NONE,
        fetch_offset=partition.fetch_offset,
        high_watermark=role.high_watermark,
        log_start_offset=replica.log.log_start_offset,
        log_end_offset=replica.log.log_end_offset if is_follower else -1,
        diverging=None if diverging is None else DivergingEpoch(diverging.epoch, diverging.end_offset),
        leader_id=replica.registration.leader,
        leader_epoch=role.leader_epoch,
        last_stable_offset=-1 if is_follower else last_stable_offset(replica),
        aborted=aborted,
        preferred_replica=preferred,
    )


def _check_asker(request: FetchRequest, partition: FetchPartition, role: Leader | Follower) -> ErrorCode:
    """Checks that the sender knows this leader epoch, and that a follower is a replica in its latest incarnation."""
    error = role.check_fetch_epoch(partition.leader_epoch if partition.leader_epoch >= 0 else None)
    if error is ErrorCode.NONE and request.replica_id != CONSUMER_REPLICA_ID and isinstance(role, Leader):
        return role.check_follower(request.replica_id, request.broker_epoch)
    return error


def _is_being_filled(follower_id: int, replica: Replica, role: Leader | Follower | None) -> bool:
    """Whether a reassignment adds the follower, and no acknowledgement waits for it yet."""
    is_added = follower_id in replica.registration.adding_replicas
    return is_added and isinstance(role, Leader) and follower_id not in role.maximal_isr


def refused_fetch(partition: FetchPartition, refusal: Refusal) -> FetchResult:
    """Makes the answer of a partition that cannot be served."""
    return refused(partial(FetchResult, fetch_offset=partition.fetch_offset), partition, refusal)


def _must_look_back(request: FetchRequest, partition: FetchPartition, replica: Replica) -> bool:
    """Whether a consumer does not fit the log perhaps because of damage here: then the disk is asked before it is told so.

    What a consumer asks may wait for the disk in a thread.  A follower asks seldom, and its progress must not wait.
    """
    offset, log = partition.fetch_offset, replica.log
    is_consumer = request.replica_id == CONSUMER_REPLICA_ID
    return is_consumer and partition.last_fetched_epoch >= 0 and log.log_start_offset < offset <= log.log_end_offset
