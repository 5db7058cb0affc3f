"""The leader's side of a produce: check, append, wait for the high watermark, answer.

Runs on the replica driver.  Only looks into compressed batches, where a topic's rules ask for them, run in threads; later
batches of the same partition wait behind them.  The first batch of a transaction waits for its coordinator, and with it later ones of
its producer (`transaction_joins`).  The record bytes are those of the received message.  Header, CRC and, in plain
records, the lengths are checked; the bytes are written with one `writev` and never decoded.  Batches that came in while the
driver was busy are one write for each partition.  Clients have their turns, one after the other, so that one which names
thousands of partitions does not keep others waiting, neither here nor for the disk.  While the disk is several dirty windows behind, batches are held back here
and their producers wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from replog.broker.replicas.image_queue import WaitForImage
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.open_produces import Answer, AppendedBatch, OpenProduce, ProduceStep, ReadyBatch, share_time
from replog.broker.requests.refusals import refused, refused_by
from replog.broker.requests.transaction_joins import JoinsTransactions, TransactionJoins
from replog.errors import (
    BrokerClosedError,
    DiskFullError,
    ErrorCode,
    InvariantViolationError,
    ReplogError,
    StorageError,
)
from replog.errors.from_code import error_code_of
from replog.log import AppendInfo, AppendOutcome, TransactionGuard
from replog.log.producers.files import parse_marker
from replog.metadata.topic_names import INTERNAL_TOPICS
from replog.records import (
    BatchHeader,
    KeylessRecordsError,
    TimestampType,
    must_decompress,
    parse_header,
    validate_produced,
)
from replog.replication.leader import Leader
from replog.replication.messages import Appended, AwaitProduce
from replog.rpc.messages import ACKS_ALL, Buffer, ProducePartition, ProduceRequest, ProduceResponse, ProduceResult

MAX_WAITING_PRODUCES = 100_000
"""Batches that are held back, or appended and not replicated."""


class ProducePath:
    """Produce requests of this broker.

    Args:
        stepper: The stepper of this broker's replicas.
        serving: The function that says why this broker may not serve clients now; None when it may.
        wait_for_image: Has a call made after the next step of an image that is being applied; False: none is.
        verifier: What asks coordinators whether batches belong to transactions; None: no batch of a transaction is taken.

    Attributes:
        on_begin: The function that is told the answers of requests that are taken up together; None if nothing is
            measured.
        on_appended: The function that is told the same answers once all that can be done at once is done; None
            likewise.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        serving: Callable[[], str | None],
        wait_for_image: WaitForImage,
        verifier: JoinsTransactions | None = None,
    ) -> None:
        self._stepper = stepper
        self._serving = serving
        self._waiting: dict[int, AppendedBatch] = {}
        self._next_id = 0
        self._queues: dict[object, deque[OpenProduce]] = {}  # of each client; the first one may be taken up in part
        self._turns: deque[object] = deque()  # the clients that have one
        self._held: dict[ReplicaKey, list[ReadyBatch]] = {}
        self._reading: dict[ReplicaKey, asyncio.Task[None]] = {}  # looks into batches that are held
        self.on_begin: Callable[[Sequence[Answer]], None] | None = None
        self.on_appended: Callable[[Sequence[Answer]], None] | None = None
        self._ready_count = 0  # checked, not appended: held back, or next in this run
        self._wait_for_image = wait_for_image
        self._joins = None if verifier is None else TransactionJoins(stepper, verifier, self._refuse, self._check_all)
        stepper.produces = self

    @property
    def waiting_count(self) -> int:
        """Batches that are appended and wait for the high watermark."""
        return len(self._waiting)

    def submit(
        self,
        request: ProduceRequest,
        answer: Answer,
        caller: object = None,
        add_time: Callable[[float], None] | None = None,
    ) -> None:
        """Queues a request.

        Args:
            request: The request.
            answer: The function that is called once, on the loop.
            caller: The client, an object for each; the requests of one are taken up in order, those of several in turns.
            add_time: The function that is told the seconds of the loop that it takes, before the answer; None: nobody asks.
        """
        count = len(request.partitions)
        state = OpenProduce(request, answer, [None] * count, count, add_time=add_time)
        if queue := self._queues.get(caller):
            queue.append(state)
            return
        self._queues[caller] = deque((state,))
        self._turns.append(caller)
        if len(self._turns) == 1:
            self._stepper.driver.submit(self._produce_queued)

    def _produce_queued(self) -> None:
        """Takes up the batches that came in while the driver was busy: those of one partition are appended together.

        Batches beyond the size of one step are left to the next ones, which begin with other clients, and come when few
        logs wait for an fsync.
        """
        began_s = time.perf_counter()
        taken = self._take_up()
        if self.on_begin is not None:
            self.on_begin([state.answer for state, indexes in taken if indexes.start == 0])
        ready: dict[Replica, list[ReadyBatch]] = {}
        for state, indexes in taken:
            for index in indexes:
                self._check(state, index, state.request.partitions[index], state.request.batches[index], ready)
            if not state.results:
                state.answer(ProduceResponse(state.request.correlation_id, ()))
        self._append_all(ready)
        if any(state.add_time is not None for state, _ in taken):
            share_time(taken, time.perf_counter() - began_s)
        if self.on_appended is not None:
            self.on_appended([state.answer for state, indexes in taken if indexes.stop == len(state.results)])
        if self._turns:
            self._stepper.flushes.when_few_wait(partial(self._stepper.driver.submit, self._produce_queued))

    def _take_up(self) -> list[tuple[OpenProduce, range]]:
        """Takes the partitions of one step out of the queues.  A client with more than fits has its next turn behind others."""
        taken, step = list[tuple[OpenProduce, range]](), ProduceStep()
        while self._turns:
            queue = self._queues[self._turns[0]]
            while queue:
                state = queue[0]
                indexes = state.take(step)
                if indexes or not state.results:
                    taken.append((state, indexes))
                if state.taken < len(state.results):
                    self._turns.rotate(-1)
                    return taken
                queue.popleft()
            del self._queues[self._turns.popleft()]
        return taken

    def _check(
        self,
        state: OpenProduce,
        index: int,
        partition: ProducePartition,
        batch: Buffer,
        ready: dict[Replica, list[ReadyBatch]],
        *,
        was_read: bool = False,
        guard: TransactionGuard | None = None,
    ) -> None:
        """Refuses a batch, or makes it ready to be appended.  A batch for a log that is being created waits for the log.

        Checks everything again, including the lease, which may have expired while the batch was held back.
        """
        refused = self._serving()
        if refused is not None:
            state.decide(index, _failed(partition, ErrorCode.BROKER_NOT_AVAILABLE, refused))
            return
        key: ReplicaKey = (partition.topic_id, partition.partition_id)
        replica = self._stepper.replicas.get(key)
        if replica is None and self._wait_for_image(lambda: self._check_again(state, index, partition, batch)):
            return
        if replica is None or not isinstance(replica.role, Leader):
            state.decide(index, self._not_leader(partition, replica))
            return
        if replica.topic in INTERNAL_TOPICS:
            text = f"{replica.topic} is written by its coordinators alone"
            state.decide(index, _failed(partition, ErrorCode.INVALID_TOPIC_EXCEPTION, text, replica))
            return
        leader = replica.role
        error = leader.check_produce(state.request.acks)
        if error is ErrorCode.NONE and partition.leader_epoch >= 0:
            error = leader.check_fetch_epoch(partition.leader_epoch)
        if error is ErrorCode.NONE and len(self._waiting) + self._ready_count >= MAX_WAITING_PRODUCES:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if error is not ErrorCode.NONE:
            state.decide(index, _failed(partition, error, self._why(replica, error), replica))
            return
        try:
            header = validate_produced(
                batch,
                max_batch_bytes=replica.max_message_bytes,
                rules=replica.record_rules,
                now_ms=self._stepper.clock.wall_ms(),
                decompresses=False,
            )
        except ReplogError as failure:  # the client's batch, not our disk, even where it says corrupt
            state.decide(index, _invalid(partition, failure, replica))
            return
        must_be_read = not was_read and must_decompress(header, replica.record_rules)
        one = ReadyBatch(state, index, partition, batch, header, must_be_read, guard)
        self._ready_count += 1
        if header.is_transactional and self._waits_for_coordinator(replica, one):
            return
        ready.setdefault(replica, []).append(one)

    def _waits_for_coordinator(self, replica: Replica, one: ReadyBatch) -> bool:
        """Whether a batch of a transaction has to wait, or is answered already."""
        transaction = one.open.request.transaction
        if transaction is None or self._joins is None:
            self._refuse(one, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTION)
            return True
        return self._joins.take(replica, one, transaction)

    def _refuse(self, one: ReadyBatch, error: ErrorCode, message: str) -> None:
        """Answers a batch that has passed its checks, and is not appended all the same."""
        self._ready_count -= 1
        replica = self._stepper.replicas.get((one.partition.topic_id, one.partition.partition_id))
        one.open.decide(one.index, _failed(one.partition, error, message, replica))

    def _check_all(self, batches: Sequence[ReadyBatch]) -> None:
        """Checks batches again that have waited, since their partition may have moved meanwhile, and appends them."""
        self._ready_count -= len(batches)
        ready: dict[Replica, list[ReadyBatch]] = {}
        for one in batches:
            self._check(
                one.open,
                one.index,
                one.partition,
                one.batch,
                ready,
                was_read=not one.must_be_read,
                guard=one.guard,
            )
        self._append_all(ready)

    def _check_again(self, state: OpenProduce, index: int, partition: ProducePartition, batch: Buffer) -> None:
        ready: dict[Replica, list[ReadyBatch]] = {}
        self._check(state, index, partition, batch, ready)
        self._append_all(ready)

    def _append_all(self, ready: dict[Replica, list[ReadyBatch]]) -> None:
        for replica, batches in ready.items():
            must_read = any(one.must_be_read for one in batches)
            if must_read or replica.key in self._held or replica.log.is_behind_write_back:
                self._held.setdefault(replica.key, []).extend(batches)
                if must_read:
                    self._read_held(replica)
            else:
                self._ready_count -= len(batches)
                self._append(replica, batches)
        if self._joins is not None:
            self._joins.ask()

    async def stop(self) -> None:
        """Asks coordinators nothing any more."""
        if self._joins is not None:
            await self._joins.stop()

    def written_back(self, replica: Replica) -> None:
        """Checks the held batches again, since the disk has caught up: their partition may have moved meanwhile."""
        if any(one.must_be_read for one in self._held.get(replica.key, ())):
            return  # `_was_read` calls this again
        self._check_all(self._held.pop(replica.key, []))

    # ---- looking into compressed batches -----------------------------------------------------------------------------------

    def _read_held(self, replica: Replica) -> None:
        """Begins to look into the batches of a partition that wait for it, all together; one look at a time."""
        key = replica.key
        if key not in self._reading:
            unread = [one for one in self._held[key] if one.must_be_read]
            self._reading[key] = asyncio.create_task(self._look_into(replica, unread), name="batch-check")

    async def _look_into(self, replica: Replica, unread: Sequence[ReadyBatch]) -> None:
        check = partial(
            validate_produced,
            max_batch_bytes=replica.max_message_bytes,
            rules=replica.record_rules,
            now_ms=self._stepper.clock.wall_ms(),
        )
        run = self._stepper.batch_checks.run
        with contextlib.suppress(BrokerClosedError):  # a node that is stopping does not answer
            failures = [await run(partial(_failure_of, check, one.batch)) for one in unread]
            self._stepper.driver.submit(partial(self._was_read, replica, unread, failures))

    def _was_read(
        self, replica: Replica, batches: Sequence[ReadyBatch], failures: Sequence[ReplogError | None]
    ) -> None:
        """Refuses batches that break a rule, and goes on with the others."""
        del self._reading[replica.key]
        for one, failure in zip(batches, failures, strict=True):
            one.must_be_read = False
            if failure is not None:
                self._ready_count -= 1
                one.open.decide(one.index, _invalid(one.partition, failure, replica))
        refused = {id(one) for one, failure in zip(batches, failures, strict=True) if failure is not None}
        held = self._held[replica.key] = [one for one in self._held[replica.key] if id(one) not in refused]
        if any(one.must_be_read for one in held):
            self._read_held(replica)
        elif not replica.log.is_behind_write_back:
            self.written_back(replica)

    # ---- markers -----------------------------------------------------------------------------------------------------------

    def submit_markers(self, request: ProduceRequest, bumps_epochs: Sequence[bool], answer: Answer) -> None:
        """Appends the ends of transactions, in order; they wait for no client's batches.

        A refusal says whether the coordinator that decided the transactions should ask again.

        Args:
            request: The markers, a control batch for each partition.
            bumps_epochs: Whether each has a higher epoch than the records of its transaction.
            answer: The function that is called once, on the loop, when all have committed or are refused.
        """
        count = len(request.partitions)
        state = OpenProduce(request, answer, [None] * count, count)
        self._stepper.driver.submit(partial(self._append_markers, state, bumps_epochs))

    def _append_markers(self, state: OpenProduce, bumps_epochs: Sequence[bool]) -> None:
        ready: dict[Replica, list[ReadyBatch]] = {}
        for index, (partition, batch) in enumerate(zip(state.request.partitions, state.request.batches, strict=True)):
            header = parse_header(batch)
            replica = self._stepper.replicas.get((partition.topic_id, partition.partition_id))
            before = [] if replica is None else ready.get(replica, [])
            if replica is not None and any(one.header.producer_id == header.producer_id for one in before):
                self._append(replica, ready.pop(replica))  # what it leaves decides about this one
            refusal = self._marker_refusal(partition, replica, header, batch, bumps_epochs=bumps_epochs[index])
            if refusal is not None:
                state.decide(index, refusal)
            elif replica is not None:
                one = ReadyBatch(state, index, partition, batch, header, must_be_read=False)
                ready.setdefault(replica, []).append(one)
        for replica, batches in ready.items():
            self._append(replica, batches)

    def _marker_refusal(
        self,
        partition: ProducePartition,
        replica: Replica | None,
        header: BatchHeader,
        batch: Buffer,
        *,
        bumps_epochs: bool,
    ) -> ProduceResult | None:
        """Returns why a marker is not appended; None: it is, unless the log refuses it."""
        refused = self._serving()
        if refused is not None:
            return _failed(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, refused)
        if replica is None or not isinstance(replica.role, Leader):
            return self._not_leader(partition, replica)
        error = replica.role.check_produce(ACKS_ALL)
        if error is not ErrorCode.NONE:
            return _failed(partition, error, self._why(replica, error), replica)
        if len(self._waiting) + self._ready_count >= MAX_WAITING_PRODUCES:
            text = "too many batches wait on this broker; ask again a little later"
            return _failed(partition, ErrorCode.REQUEST_TIMED_OUT, text, replica)
        marker = parse_marker(header, batch, header.base_offset)
        if bumps_epochs and marker is not None:
            try:
                replica.log.producers.check_marker(marker, bumps_epochs=True)
            except ReplogError as failure:
                return _failed(partition, error_code_of(failure), failure.told, replica)
        return None

    def _append(self, replica: Replica, batches: list[ReadyBatch]) -> None:
        leader = replica.role
        if not isinstance(leader, Leader):  # its disk failed in the append of a partition before it
            for one in batches:
                one.open.decide(one.index, self._not_leader(one.partition, None))
            return
        try:
            outcomes = replica.log.append_all_as_leader(
                [one.batch for one in batches],
                leader_epoch=leader.leader_epoch,
                now_ms=self._stepper.clock.wall_ms(),
                headers=[one.header for one in batches],
            )
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            for one in batches:
                one.open.decide(one.index, _failed(one.partition, ErrorCode.KAFKA_STORAGE_ERROR, error.told, replica))
            return
        full = next((outcome for outcome in outcomes if isinstance(outcome, DiskFullError)), None)
        if full is not None:
            self._stepper.trouble.disk_full(replica, full)
        awaited = [
            self._answer_or_await(replica, leader.leader_epoch, one, outcome)
            for one, outcome in zip(batches, outcomes, strict=True)
        ]
        waiting = tuple(one for one in awaited if one is not None)
        has_appended = any(isinstance(outcome, AppendInfo) and not outcome.duplicate for outcome in outcomes)
        if has_appended or waiting:
            self._stepper.step_leader(replica, Appended(replica.log.log_end_offset, waiting))
        if has_appended:
            self._stepper.fetches.progressed(replica.key)

    def _answer_or_await(
        self, replica: Replica, leader_epoch: int, one: ReadyBatch, outcome: AppendOutcome
    ) -> AwaitProduce | None:
        if isinstance(outcome, ReplogError):
            one.open.decide(one.index, _failed(one.partition, error_code_of(outcome), outcome.told, replica))
            return None
        has_append_time = replica.record_rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        result = ProduceResult(
            topic_id=one.partition.topic_id,
            partition_id=one.partition.partition_id,
            error=ErrorCode.NONE,
            base_offset=outcome.base_offset,
            log_start_offset=outcome.log_start_offset,
            append_time_ms=outcome.max_timestamp if has_append_time else -1,
            leader_id=self._stepper.config.node_id,
            leader_epoch=leader_epoch,
        )
        if one.open.request.acks == ACKS_ALL:
            return self._await(AppendedBatch(one.open, one.index, result), end_offset=outcome.last_offset + 1)
        one.open.decide(one.index, result)
        return None

    def _await(self, waiting: AppendedBatch, *, end_offset: int) -> AwaitProduce:
        self._next_id += 1
        self._waiting[self._next_id] = waiting
        deadline_ms = self._stepper.clock.now_ms() + waiting.open.request.timeout_ms
        return AwaitProduce(self._next_id, end_offset, deadline_ms)

    def completed(self, request_id: int, error: ErrorCode) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is None:
            raise InvariantViolationError(f"produce {request_id} is answered, but nobody waits for it")
        result = waiting.appended
        if error is not ErrorCode.NONE:
            result = replace(result, error=error, message=_AFTER_APPEND.get(error, ""))
        waiting.open.decide(waiting.index, result)

    def _not_leader(self, partition: ProducePartition, replica: Replica | None) -> ProduceResult:
        unusable = self._stepper.unusable((partition.topic_id, partition.partition_id))
        if unusable is not None:
            return _failed(partition, *unusable, replica)
        if replica is None and partition.topic_id not in self._stepper.image.topics_by_id:
            return _failed(
                partition, ErrorCode.UNKNOWN_TOPIC_ID, "this broker does not know the topic (yet, or any more)"
            )
        known = self._stepper.image.partition(partition.topic_id, partition.partition_id)
        if known is None:
            return _failed(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return ProduceResult(
            partition.topic_id,
            partition.partition_id,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            message=f"broker {self._stepper.config.node_id} does not lead this partition, broker {known.leader} does",
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


_NO_TRANSACTION = "nobody can be asked whether the batch is part of a transaction: send it with a transactional id"

_AFTER_APPEND = {
    ErrorCode.REQUEST_TIMED_OUT: "appended, but not replicated to all in-sync replicas in time; it may still commit",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "appended, but leadership moved before it was committed",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "appended, but the in-sync replicas fell below min.insync.replicas",
}


def _failure_of(check: Callable[[Buffer], BatchHeader], batch: Buffer) -> ReplogError | None:
    """Returns the error of a check; None: it passes."""
    try:
        check(batch)
    except ReplogError as error:
        return error
    return None


def _failed(
    partition: ProducePartition, error: ErrorCode, message: str, replica: Replica | None = None
) -> ProduceResult:
    return refused(ProduceResult, partition, refused_by(replica, error, message))


def _invalid(partition: ProducePartition, failure: ReplogError, replica: Replica) -> ProduceResult:
    result = _failed(partition, error_code_of(failure), failure.told, replica)
    return replace(result, keyless=failure.places) if isinstance(failure, KeylessRecordsError) else result
