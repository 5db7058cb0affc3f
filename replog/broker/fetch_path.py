"""The leader's side of a fetch: check, read, or wait until there is something to read.

Runs on the replica driver.  A follower reads to the log end, a consumer to the high watermark.  A fetch that finds less
than it asked for waits in the purgatory; appends and high watermarks of the same drain wake it once, after the drain,
so that one answer carries everything that arrived together.

What the page cache holds is read at once.  Other records are read by a few threads while the driver goes on; when they are
there everything is checked again, because the replica may have been cut, deleted or passed to another leader meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from replog.broker.replica import Replica, ReplicaKey
from replog.broker.replica_manager import ReplicaManager
from replog.errors import BrokerClosedError, ErrorCode, OffsetOutOfRangeError, StorageError
from replog.log import ReadJob
from replog.replication.fetch_check import check_fetch
from replog.replication.leader import Leader
from replog.replication.messages import FollowerFetched
from replog.replication.purgatory import Purgatory
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnd,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsPartition,
    ListOffsetsResult,
)

MAX_WAITING_FETCHES = 10_000

MAX_WAIT_MS = 60_000
"""Longest time a fetch is parked, whatever it asks for: its stream may be gone by then."""

MAX_RESPONSE_BYTES = 55 << 20
"""Most records of one answer, whatever is asked for: it must fit into one message (Kafka's fetch.max.bytes)."""

Answer = Callable[[FetchResponse], None]


@dataclass(frozen=True, slots=True)
class _Parked:
    request: FetchRequest
    answer: Answer


class _Slot(NamedTuple):
    """One partition of a fetch; `data` None: it has to be read from the disk, within `max_bytes`."""

    result: FetchResult
    data: bytes | None
    max_bytes: int
    min_one_batch: bool


@dataclass(slots=True)
class _Reading:
    """A fetch some of whose partitions are being read from the disk.

    Attributes:
        slots: one for each partition.
        cold_count: how many of them wait for the disk.
        park_until_ms: how long it may wait for more if it finds too little; None: it has waited.
    """

    request: FetchRequest
    answer: Answer
    slots: list[_Slot]
    cold_count: int
    park_until_ms: int | None

    def response(self) -> FetchResponse:
        results = tuple(slot.result for slot in self.slots)
        return FetchResponse(self.request.correlation_id, results, tuple(slot.data or b"" for slot in self.slots))


class FetchPath:
    """Fetch requests of this broker.

    Args:
        serving: whether this broker may serve now; None, or why not.
    """

    def __init__(self, manager: ReplicaManager, serving: Callable[[], str | None]) -> None:
        self._manager = manager
        self._serving = serving
        self._purgatory: Purgatory[_Parked] = Purgatory(operations_max=MAX_WAITING_FETCHES)
        self._touched: set[ReplicaKey] = set()
        self._next_id = 0
        manager.on_progress = self._touched.add
        manager.after_drain = self._wake_touched
        manager.fetch_deadline_ms = self._purgatory.next_deadline_ms
        manager.expire_fetches = self._expire

    def submit(self, request: FetchRequest, answer: Answer) -> None:
        """Queues a request; `answer` is called once, on the loop."""
        self._manager.driver.submit(lambda: self._fetch(request, answer))

    def _fetch(self, request: FetchRequest, answer: Answer) -> None:
        refused = self._serving()
        if refused is not None:
            answer(_refused(request, refused))
            return
        replicas = self._manager.replicas
        is_known = all((p.topic_id, p.partition_id) in replicas for p in request.partitions)
        if not is_known and self._manager.wait_for_image(lambda: self._fetch(request, answer)):
            return
        wait_ms = min(request.max_wait_ms, MAX_WAIT_MS)
        park_until_ms = self._manager.clock.now_ms() + wait_ms if wait_ms > 0 and request.partitions else None
        self._read_then_answer(request, answer, first=True, park_until_ms=park_until_ms)

    def _answer_or_park(self, reading: _Reading) -> None:
        """All there is has been read."""
        request, response, until_ms = reading.request, reading.response(), reading.park_until_ms
        if (
            until_ms is None
            or _is_worth_sending(request, response)
            or until_ms <= self._manager.clock.now_ms()
            or len(self._purgatory) >= MAX_WAITING_FETCHES  # an empty answer now is better than an unbounded queue
        ):
            reading.answer(response)
            return
        self._next_id += 1
        keys = [(p.topic_id, p.partition_id) for p in request.partitions]
        self._purgatory.add(self._next_id, keys, until_ms, _Parked(request, reading.answer))

    # ---- waiting ------------------------------------------------------------------------------------------------------

    def _wake_touched(self) -> None:
        """Answers the fetches whose partitions moved in the drain that just ended."""
        if not self._touched:
            return
        touched = tuple(self._touched)
        self._touched.clear()
        for key in touched:
            for waiting in self._purgatory.check(key):
                if self._has_something(waiting.payload.request):
                    self._complete(waiting.operation_id)

    def _expire(self) -> None:
        for waiting in self._purgatory.expire(self._manager.clock.now_ms()):
            self._answer(waiting.payload)

    def _complete(self, operation_id: int) -> None:
        waiting = self._purgatory.complete(operation_id)
        if waiting is not None:
            self._answer(waiting.payload)

    def _answer(self, parked: _Parked) -> None:
        refused = self._serving()  # the lease may have ended while it was parked
        if refused is not None:
            parked.answer(_refused(parked.request, refused))
            return
        self._read_then_answer(parked.request, parked.answer, first=False, park_until_ms=None)

    def _has_something(self, request: FetchRequest) -> bool:
        if request.min_bytes > 1:
            slots = self._read_all(request, first=False)
            if any(slot.data is None for slot in slots):
                return True
            return _is_worth_sending(request, _Reading(request, _no_answer, slots, 0, None).response())
        return any(self._partition_has_something(request, partition) for partition in request.partitions)

    def _partition_has_something(self, request: FetchRequest, partition: FetchPartition) -> bool:
        replica = self._manager.replicas.get((partition.topic_id, partition.partition_id))
        if replica is None or not isinstance(replica.role, Leader):
            return True  # not the leader any more: that is news
        if partition.leader_epoch >= 0 and partition.leader_epoch != replica.role.leader_epoch:
            return True
        offset = partition.fetch_offset
        return offset < self._ceiling(request, replica, replica.role) or offset > replica.log.log_end_offset

    # ---- reading --------------------------------------------------------------------------------------------------------

    def _read_then_answer(
        self, request: FetchRequest, answer: Answer, *, first: bool, park_until_ms: int | None
    ) -> None:
        slots = self._read_all(request, first=first)
        cold = [index for index, slot in enumerate(slots) if slot.data is None]
        reading = _Reading(request, answer, slots, len(cold), park_until_ms)
        for index in cold:
            self._read_cold(reading, index)
        if not cold:
            self._answer_or_park(reading)

    def _read_cold(self, reading: _Reading, index: int) -> None:
        """Has the data of one partition read in a thread; it was checked just now."""
        partition, slot = reading.request.partitions[index], reading.slots[index]
        replica = self._manager.replicas.get((partition.topic_id, partition.partition_id))
        if replica is None or not isinstance(replica.role, Leader) or self._manager.cold_reads.is_full:
            self._fill(reading, index, slot._replace(data=b""))  # the client asks again
            return
        try:
            job = replica.log.prepare_read(
                partition.fetch_offset,
                max_bytes=slot.max_bytes,
                end_offset=self._ceiling(reading.request, replica, replica.role),
                min_one_batch=slot.min_one_batch,
            )
        except StorageError as error:
            self._manager.trouble.storage_failed(replica, error)
            self._fill(reading, index, slot._replace(result=self._not_leader(partition), data=b""))
            return
        self._manager.cold_reads.start(replica.log, job, lambda job: self._take_cold(reading, index, replica, job))

    def _take_cold(self, reading: _Reading, index: int, replica: Replica, job: ReadJob) -> None:
        """The disk has answered; what was true when it was asked need not be true now."""
        data: bytes | None = None
        try:
            data = replica.log.complete_read(job)
        except (BrokerClosedError, OffsetOutOfRangeError):
            pass  # deleted or moved on: the checks below say it
        except StorageError as error:
            self._manager.trouble.storage_failed(replica, error)
        partition, slot = reading.request.partitions[index], reading.slots[index]
        refused = self._serving()
        if refused is not None:
            result: FetchResult = _failed(partition, ErrorCode.BROKER_NOT_AVAILABLE, refused)
            self._fill(reading, index, slot._replace(result=result, data=b""))
            return
        result, data = self._read(
            reading.request, partition, slot.max_bytes, first=False, min_one_batch=slot.min_one_batch, found=data
        )
        if data is None:  # the log was cut, and is cold again
            self._read_cold(reading, index)
        else:
            self._fill(reading, index, slot._replace(result=result, data=data))

    def _fill(self, reading: _Reading, index: int, slot: _Slot) -> None:
        reading.slots[index] = slot
        reading.cold_count -= 1
        if reading.cold_count == 0:
            self._answer_or_park(reading)

    def _read_all(self, request: FetchRequest, *, first: bool) -> list[_Slot]:
        """Reads every partition within the request's byte limit, as far as that needs no disk.

        Args:
            request: what is asked.
            first: whether the request has just arrived; only then does it count as a follower's progress.
        """
        left = min(request.max_bytes, MAX_RESPONSE_BYTES)
        empty = True
        slots: list[_Slot] = []
        for partition in request.partitions:
            max_bytes = min(left, partition.max_bytes)
            result, data = self._read(request, partition, max_bytes, first=first, min_one_batch=empty)
            slots.append(_Slot(result, data, max_bytes, empty))
            left = max(0, left - (max_bytes if data is None else len(data)))
            empty = empty and data == b""
        return slots

    def _read(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        max_bytes: int,
        *,
        first: bool,
        min_one_batch: bool,
        found: bytes | None = None,
    ) -> tuple[FetchResult, bytes | None]:
        """Checks one partition and reads it; `found` is what a read from the disk has brought already.

        Returns:
            The data is None where it has to be read from the disk.
        """
        replica = self._manager.replicas.get((partition.topic_id, partition.partition_id))
        if replica is None or not isinstance(replica.role, Leader):
            return self._not_leader(partition), b""
        leader = replica.role
        error = leader.check_fetch_epoch(partition.leader_epoch if partition.leader_epoch >= 0 else None)
        is_follower = request.replica_id != CONSUMER_REPLICA_ID
        if error is ErrorCode.NONE and is_follower:
            error = leader.check_follower(request.replica_id, request.broker_epoch)
        if error is not ErrorCode.NONE:
            return _failed(partition, error, error.name, replica), b""
        check = check_fetch(partition.fetch_offset, partition.last_fetched_epoch, replica.view)
        if check.error is not ErrorCode.NONE:
            return self._out_of_range(partition, replica, leader), b""
        if check.diverging is None and is_follower and first:
            self._count_progress(request, partition, replica)
        data: bytes | None = b""
        if check.diverging is None and max_bytes > 0:
            data = found
        if data is None:
            try:
                data = self._data(request, partition, replica, leader, max_bytes, min_one_batch)
            except StorageError as failure:
                self._manager.trouble.storage_failed(replica, failure)  # raises where the node cannot go on
                return self._not_leader(partition), b""
        diverging = check.diverging
        result = FetchResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            fetch_offset=partition.fetch_offset,
            high_watermark=leader.high_watermark,
            log_start_offset=replica.log.log_start_offset,
            log_end_offset=replica.log.log_end_offset if is_follower else -1,
            diverging=None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
            leader_id=self._manager.config.node_id,
            leader_epoch=leader.leader_epoch,
        )
        return result, data

    def _data(
        self, request: FetchRequest, partition: FetchPartition, replica: Replica, leader: Leader, max_bytes: int,
        min_one_batch: bool,
    ) -> bytes | None:  # fmt: skip
        ceiling = self._ceiling(request, replica, leader)
        if partition.fetch_offset >= ceiling:
            return b""
        try:
            return replica.log.read_cached(
                partition.fetch_offset, max_bytes=max_bytes, end_offset=ceiling, min_one_batch=min_one_batch
            )
        except OffsetOutOfRangeError:
            return b""  # the log start moved between check and read

    def _count_progress(self, request: FetchRequest, partition: FetchPartition, replica: Replica) -> None:
        self._manager.step_leader(
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

    @staticmethod
    def _ceiling(request: FetchRequest, replica: Replica, leader: Leader) -> int:
        is_consumer = request.replica_id == CONSUMER_REPLICA_ID
        return leader.high_watermark if is_consumer else replica.log.log_end_offset

    def _out_of_range(self, partition: FetchPartition, replica: Replica, leader: Leader) -> FetchResult:
        log = replica.log
        return FetchResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.OFFSET_OUT_OF_RANGE,
            fetch_offset=partition.fetch_offset,
            high_watermark=leader.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            leader_id=self._manager.config.node_id,
            leader_epoch=leader.leader_epoch,
            message=f"{replica.name}: offset {partition.fetch_offset} is outside of "
            f"[{log.log_start_offset}, {log.log_end_offset}]",
        )

    def _not_leader(self, partition: FetchPartition | ListOffsetsPartition) -> FetchResult:
        image = self._manager.image
        known = image.partition(partition.topic_id, partition.partition_id)
        offset = partition.fetch_offset if isinstance(partition, FetchPartition) else -1
        unusable = self._manager.unusable((partition.topic_id, partition.partition_id))
        if unusable is not None:
            error, message = unusable
            return FetchResult(partition.topic_id, partition.partition_id, error, offset, message=message)
        if known is None:
            error = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if partition.topic_id in image.topics_by_id
                else ErrorCode.UNKNOWN_TOPIC_ID
            )
            return FetchResult(partition.topic_id, partition.partition_id, error, offset, message=error.name)
        return FetchResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            fetch_offset=offset,
            leader_id=known.leader,
            leader_epoch=known.leader_epoch,
            message=f"broker {self._manager.config.node_id} does not lead this partition, broker {known.leader} does",
        )

    # ---- offsets --------------------------------------------------------------------------------------------------------

    def list_offset(self, partition: ListOffsetsPartition) -> ListOffsetsResult:
        """Start, end or first offset at a time; to be run on the driver."""
        replica = self._manager.replicas.get((partition.topic_id, partition.partition_id))
        refused = self._serving()
        if refused is not None:
            return _offset_failed(partition, ErrorCode.BROKER_NOT_AVAILABLE, refused)
        if replica is None or not isinstance(replica.role, Leader):
            failed = self._not_leader(partition)
            return _offset_failed(partition, failed.error, failed.message, failed.leader_id, failed.leader_epoch)
        leader = replica.role
        error = leader.check_fetch_epoch(partition.leader_epoch if partition.leader_epoch >= 0 else None)
        if error is ErrorCode.NONE and partition.timestamp != EARLIEST_TIMESTAMP:
            # the high watermark bounds both the latest offset and a lookup by time
            error = ErrorCode.NONE if leader.latest_offset_available() else ErrorCode.OFFSET_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            return _offset_failed(partition, error, error.name, self._manager.config.node_id, leader.leader_epoch)
        try:
            offset, timestamp = self._find(replica, leader, partition.timestamp)
        except StorageError as storage_error:
            self._manager.trouble.storage_failed(replica, storage_error)
            failed = self._not_leader(partition)
            return _offset_failed(partition, failed.error, failed.message)
        return ListOffsetsResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=leader.leader_epoch,
            leader_id=self._manager.config.node_id,
        )

    @staticmethod
    def _find(replica: Replica, leader: Leader, timestamp: int) -> tuple[int, int]:
        if timestamp == EARLIEST_TIMESTAMP:
            return replica.log.log_start_offset, -1
        if timestamp == LATEST_TIMESTAMP:
            return leader.high_watermark, -1
        found = replica.log.offset_for_timestamp(timestamp, end_offset=leader.high_watermark)
        return (-1, -1) if found is None else found


def _no_answer(_response: FetchResponse) -> None:
    return


def _refused(request: FetchRequest, reason: str) -> FetchResponse:
    results = tuple(_failed(p, ErrorCode.BROKER_NOT_AVAILABLE, reason) for p in request.partitions)
    return FetchResponse(request.correlation_id, results, (b"",) * len(results))


def _is_worth_sending(request: FetchRequest, response: FetchResponse) -> bool:
    if sum(map(len, response.batches)) >= max(1, request.min_bytes):
        return True
    return any(result.error is not ErrorCode.NONE or result.diverging is not None for result in response.results)


def _failed(partition: FetchPartition, error: ErrorCode, message: str, replica: Replica | None = None) -> FetchResult:
    registration = None if replica is None else replica.registration
    return FetchResult(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        error=error,
        fetch_offset=partition.fetch_offset,
        leader_id=-1 if registration is None else registration.leader,
        leader_epoch=-1 if registration is None else registration.leader_epoch,
        message=message,
    )


def _offset_failed(
    partition: ListOffsetsPartition, error: ErrorCode, message: str, leader_id: int = -1, leader_epoch: int = -1
) -> ListOffsetsResult:
    return ListOffsetsResult(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        error=error,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        message=message,
    )
