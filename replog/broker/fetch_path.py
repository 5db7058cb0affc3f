"""The leader's side of a fetch: check, read, or wait until there is something to read.

Runs on the replica driver.  A follower reads to the log end, a consumer to the high watermark.  A fetch that finds less
than it asked for waits in the purgatory; appends and high watermarks of the same drain wake it once, after the drain,
so that one answer carries everything that arrived together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replog.broker.replica import Replica, ReplicaKey
from replog.broker.replica_manager import ReplicaManager
from replog.errors import ErrorCode, OffsetOutOfRangeError
from replog.replication.fetch_check import check_fetch
from replog.replication.leader import Leader
from replog.replication.messages import FollowerFetched
from replog.replication.purgatory import Purgatory
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Buffer,
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
        response = self._read_all(request, first=True)
        if request.max_wait_ms <= 0 or not request.partitions or _is_worth_sending(request, response):
            answer(response)
            return
        if len(self._purgatory) >= MAX_WAITING_FETCHES:
            answer(response)  # an empty answer now is better than an unbounded queue
            return
        self._next_id += 1
        self._purgatory.add(
            self._next_id,
            [(p.topic_id, p.partition_id) for p in request.partitions],
            self._manager.clock.now_ms() + min(request.max_wait_ms, MAX_WAIT_MS),
            _Parked(request, answer),
        )

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
        parked.answer(
            self._read_all(parked.request, first=False) if refused is None else _refused(parked.request, refused)
        )

    def _has_something(self, request: FetchRequest) -> bool:
        if request.min_bytes > 1:
            return _is_worth_sending(request, self._read_all(request, first=False))
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

    def _read_all(self, request: FetchRequest, *, first: bool) -> FetchResponse:
        """Reads every partition within the request's byte limit.

        Args:
            request: what is asked.
            first: whether the request has just arrived; only then does it count as a follower's progress.
        """
        left = min(request.max_bytes, MAX_RESPONSE_BYTES)
        empty = True
        results: list[FetchResult] = []
        batches: list[Buffer] = []
        for partition in request.partitions:
            result, data = self._read(request, partition, min(left, partition.max_bytes), first, empty)
            left = max(0, left - len(data))
            empty = empty and not data
            results.append(result)
            batches.append(data)
        return FetchResponse(request.correlation_id, tuple(results), tuple(batches))

    def _read(
        self,
        request: FetchRequest,
        partition: FetchPartition,
        max_bytes: int,
        first: bool,
        min_one_batch: bool,
    ) -> tuple[FetchResult, bytes]:
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
        data = b""
        if check.diverging is None and max_bytes > 0:
            data = self._data(request, partition, replica, leader, max_bytes, min_one_batch)
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
    ) -> bytes:  # fmt: skip
        ceiling = self._ceiling(request, replica, leader)
        if partition.fetch_offset >= ceiling:
            return b""
        try:
            return replica.log.read(
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
        offset, timestamp = self._find(replica, leader, partition.timestamp)
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
