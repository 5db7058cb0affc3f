"""The leader's side of a produce: check, append, wait for the high watermark, answer.

Runs on the replica driver.  The record bytes are the received message itself: checked by header and CRC, written with
one `writev`, never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from replog.broker.replica import Replica, ReplicaKey
from replog.broker.replica_manager import ReplicaManager
from replog.errors import ErrorCode, InvalidRequestError, InvariantViolationError, ReplogError, RetriableError
from replog.records import validate_produced
from replog.replication.leader import Leader
from replog.replication.messages import Appended, AwaitProduce
from replog.rpc.error_codes import error_code_of
from replog.rpc.messages import ACKS_ALL, Buffer, ProducePartition, ProduceRequest, ProduceResponse, ProduceResult

MAX_WAITING_PRODUCES = 100_000

Answer = Callable[[ProduceResponse], None]


@dataclass(slots=True)
class _Open:
    """A request whose partitions are not all decided."""

    request: ProduceRequest
    answer: Answer
    results: list[ProduceResult | None] = field(default_factory=list)
    undecided: int = 0

    def decide(self, index: int, result: ProduceResult) -> None:
        self.results[index] = result
        self.undecided -= 1
        if self.undecided == 0:
            results = tuple(result for result in self.results if result is not None)
            self.answer(ProduceResponse(self.request.correlation_id, results))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An appended batch whose acknowledgement waits for the high watermark."""

    open: _Open
    index: int
    appended: ProduceResult


class ProducePath:
    """Produce requests of this broker.

    Args:
        serving: whether this broker may serve clients now; None, or why not.
    """

    def __init__(self, manager: ReplicaManager, serving: Callable[[], str | None]) -> None:
        self._manager = manager
        self._serving = serving
        self._waiting: dict[int, _Waiting] = {}
        self._next_id = 0
        manager.on_produce_completed = self._complete

    def submit(self, request: ProduceRequest, answer: Answer) -> None:
        """Queues a request; `answer` is called once, on the loop."""
        self._manager.driver.submit(lambda: self._produce(request, answer))

    def _produce(self, request: ProduceRequest, answer: Answer) -> None:
        count = len(request.partitions)
        state = _Open(request, answer, [None] * count, count)
        if count == 0:
            answer(ProduceResponse(request.correlation_id, ()))
            return
        refused = self._serving()
        for index, (partition, batch) in enumerate(zip(request.partitions, request.batches, strict=True)):
            if refused is not None:
                state.decide(index, _failed(partition, ErrorCode.BROKER_NOT_AVAILABLE, refused))
            else:
                self._append(state, index, partition, batch)

    def _append(self, state: _Open, index: int, partition: ProducePartition, batch: Buffer) -> None:
        key: ReplicaKey = (partition.topic_id, partition.partition_id)
        replica = self._manager.replicas.get(key)
        if replica is None or not isinstance(replica.role, Leader):
            state.decide(index, self._not_leader(partition, replica))
            return
        leader = replica.role
        error = leader.check_produce(state.request.acks)
        if error is ErrorCode.NONE and partition.leader_epoch >= 0:
            error = leader.check_fetch_epoch(partition.leader_epoch)
        if error is ErrorCode.NONE and len(self._waiting) >= MAX_WAITING_PRODUCES:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if error is not ErrorCode.NONE:
            state.decide(index, _failed(partition, error, self._why(replica, error), replica))
            return
        try:
            header = validate_produced(batch, max_batch_bytes=replica.max_message_bytes)
        except ReplogError as failure:  # the client's batch, not our disk, even where it says corrupt
            state.decide(index, _failed(partition, error_code_of(failure), str(failure), replica))
            return
        try:
            info = replica.log.append_as_leader(
                batch, leader_epoch=leader.leader_epoch, now_ms=self._manager.clock.wall_ms(), header=header
            )
        except (InvalidRequestError, RetriableError) as failure:  # a storage failure goes on up and stops the node
            state.decide(index, _failed(partition, error_code_of(failure), str(failure), replica))
            return
        result = ProduceResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            base_offset=info.base_offset,
            log_start_offset=info.log_start_offset,
            leader_id=self._manager.config.node_id,
            leader_epoch=leader.leader_epoch,
        )
        if not info.duplicate:
            self._manager.step_leader(replica, Appended(replica.log.log_end_offset))
            self._manager.on_progress(replica.key)
        if state.request.acks == ACKS_ALL:
            self._await(_Waiting(state, index, result), replica, end_offset=info.last_offset + 1)
        else:
            state.decide(index, result)

    def _await(self, waiting: _Waiting, replica: Replica, *, end_offset: int) -> None:
        self._next_id += 1
        self._waiting[self._next_id] = waiting
        deadline_ms = self._manager.clock.now_ms() + waiting.open.request.timeout_ms
        self._manager.step_leader(replica, AwaitProduce(self._next_id, end_offset, deadline_ms))

    def _complete(self, request_id: int, error: ErrorCode) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is None:
            raise InvariantViolationError(f"produce {request_id} is answered, but nobody waits for it")
        result = waiting.appended
        if error is not ErrorCode.NONE:
            result = replace(result, error=error, message=_AFTER_APPEND.get(error, ""))
        waiting.open.decide(waiting.index, result)

    def _not_leader(self, partition: ProducePartition, replica: Replica | None) -> ProduceResult:
        if replica is None and partition.topic_id not in self._manager.image.topics_by_id:
            return _failed(
                partition, ErrorCode.UNKNOWN_TOPIC_ID, "this broker does not know the topic (yet, or any more)"
            )
        known = self._manager.image.partition(partition.topic_id, partition.partition_id)
        if known is None:
            return _failed(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return ProduceResult(
            partition.topic_id,
            partition.partition_id,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            message=f"broker {self._manager.config.node_id} does not lead this partition, broker {known.leader} does",
            leader_id=known.leader,
            leader_epoch=known.leader_epoch,
        )

    def _why(self, replica: Replica, error: ErrorCode) -> str:
        if error is not ErrorCode.NOT_ENOUGH_REPLICAS or not isinstance(replica.role, Leader):
            return error.name
        isr = replica.role.status().isr
        return (
            f"{replica.name} has {len(isr)} in-sync replicas {list(isr)}, below min.insync.replicas. "
            "`replog topics describe --under-min-isr` shows which brokers are out."
        )


_AFTER_APPEND = {
    ErrorCode.REQUEST_TIMED_OUT: "appended, but not replicated to all in-sync replicas in time; it may still commit",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "appended, but leadership moved before it was committed",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "appended, but the in-sync replicas fell below min.insync.replicas",
}


def _failed(
    partition: ProducePartition, error: ErrorCode, message: str, replica: Replica | None = None
) -> ProduceResult:
    registration = None if replica is None else replica.registration
    return ProduceResult(
        topic_id=partition.topic_id,
        partition_id=partition.partition_id,
        error=error,
        message=message,
        leader_id=-1 if registration is None else registration.leader,
        leader_epoch=-1 if registration is None else registration.leader_epoch,
    )
