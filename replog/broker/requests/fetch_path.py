"""The leader's side of a fetch: read, or wait until there is something to read.

Runs on the replica driver.  A fetch that finds less than it asked for waits in the purgatory; appends and high
watermarks of the same drain wake it once, after the drain, so that one answer carries everything that arrived
together.  A follower's stream keeps what it has asked for (`incremental_fetch`); a consumer's fetch stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from replog.broker.replicas.image_queue import WaitForImage
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.cut_finder import CutFinder
from replog.broker.requests.fetch_reader import (
    FETCH_WAIT_MAX_MS,
    NOT_FRESH,
    FetchReader,
    ProducersPartition,
    Slot,
    is_worth_sending,
    refused_fetch,
)
from replog.broker.requests.incremental_fetch import IncrementalFetch, IncrementalFetches
from replog.broker.requests.offset_watches import OffsetWatches
from replog.broker.requests.pending_fetch import read_wholly
from replog.broker.requests.record_deletions import RecordDeletions
from replog.broker.requests.refusals import Refusal, refused, refused_by
from replog.broker.requests.segment_locations import SegmentLocations
from replog.errors import ErrorCode, StorageError
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.replication.leader import Leader
from replog.replication.purgatory import Purgatory
from replog.rpc.messages import (
    EARLIEST_TIMESTAMP,
    LARGEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEndPartition,
    EpochEndResult,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsResult,
)

MAX_WAITING_FETCHES = 10_000

Answer = Callable[[FetchResponse], None]

Withdraw = Callable[[], None]
"""Gives up a request whose answer nobody waits for any more."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A request on its way; `operation_id` is that in the purgatory, 0 before."""

    request: FetchRequest
    answer: Answer
    operation_id: int = 0
    is_withdrawn: bool = False


class FetchPath:
    """Fetch requests of this broker.

    Args:
        stepper: What steps the replicas.
        serving: The function that says why this broker may not serve now; None when it may.
        wait_for_image: Has a call made after the next step of an image that is being applied; False: none is.

    Attributes:
        incremental: The incremental fetches: what streams have asked for.
        deletions: The deletions of records from the front of partitions.
        cuts: The look-up of where partitions may be cut.
        watches: The watches of high watermarks and log starts.
        locations: What tells where records stand in files.
    """

    def __init__(
        self, stepper: ReplicaStepper, serving: Callable[[], str | None], wait_for_image: WaitForImage
    ) -> None:
        self._stepper = stepper
        self._serving = serving
        self._reader = FetchReader(stepper, serving)
        self._purgatory: Purgatory[_Asked] = Purgatory(operations_max=MAX_WAITING_FETCHES)
        self.incremental = IncrementalFetches(stepper, self._reader, serving, wait_for_image)
        self.deletions = RecordDeletions(stepper, self._reader)
        self.cuts = CutFinder(stepper, self._reader)
        self.watches = OffsetWatches(stepper, self._reader, serving)
        self.locations = SegmentLocations(stepper, self._reader)
        self._touched: set[ReplicaKey] = set()
        self._next_id = 0
        self._wait_for_image = wait_for_image
        stepper.fetches = self

    @property
    def waiting_count(self) -> int:
        """Fetches that wait for records; incremental ones are counted by themselves."""
        return len(self._purgatory)

    def submit(self, request: FetchRequest, answer: Answer) -> Withdraw:
        """Queues a request; `answer` is called once, on the loop, unless the request is withdrawn before."""
        asked = _Asked(request, answer)
        self._stepper.driver.submit(lambda: self._fetch(asked))
        return partial(self._withdraw, asked)

    def _withdraw(self, asked: _Asked) -> None:
        asked.is_withdrawn = True
        self._stepper.driver.submit(lambda: self._forget(asked))

    def _forget(self, asked: _Asked) -> None:
        self._purgatory.complete(asked.operation_id)

    def submit_incremental(self, fetch: IncrementalFetch, request: FetchRequest) -> None:
        """Queues a request of a stream that keeps what it asks for."""
        self._stepper.driver.submit(lambda: fetch.submit(request))

    def close_incremental(self, fetch: IncrementalFetch) -> None:
        """Ends the incremental fetch of a stream that has ended."""
        self._stepper.driver.submit(fetch.close)

    def _fetch(self, asked: _Asked) -> None:
        request = asked.request
        reason = self._serving()
        if reason is not None:
            asked.answer(_all_refused(request, reason))
            return
        replicas = self._stepper.replicas
        keys = [(p.topic_id, p.partition_id) for p in request.partitions]
        if not all(key in replicas for key in keys) and self._wait_for_image(lambda: self._fetch(asked)):
            return
        wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        until_ms = self._stepper.clock.now_ms() + wait_ms if wait_ms > 0 and request.partitions else None
        read_wholly(self._reader, request, frozenset(keys), lambda slots: self._answer_or_park(asked, slots, until_ms))

    def _answer_or_park(self, asked: _Asked, slots: Sequence[Slot], until_ms: int | None) -> None:
        """Sends what has been read, or lets the fetch wait until `until_ms` for more; with None it is sent at once."""
        if asked.is_withdrawn:
            return
        request = asked.request
        if (
            until_ms is None
            or is_worth_sending(request, slots)
            or until_ms <= self._stepper.clock.now_ms()
            or len(self._purgatory) >= MAX_WAITING_FETCHES  # an empty answer now is better than an unbounded queue
        ):
            results = tuple(slot.result for slot in slots)
            asked.answer(FetchResponse(request.correlation_id, results, tuple(slot.data or b"" for slot in slots)))
            return
        self._next_id += 1
        asked.operation_id = self._next_id
        keys = [(p.topic_id, p.partition_id) for p in request.partitions]
        self._purgatory.add(asked.operation_id, keys, until_ms, asked)

    # ---- waiting ------------------------------------------------------------------------------------------------------

    def progressed(self, key: ReplicaKey) -> None:
        """Notes that a replica has news for those who wait for it."""
        self._touched.add(key)

    def follower_told(self, key: ReplicaKey) -> None:
        """Looks again whether all followers know what a deletion of records waits for."""
        self.deletions.check(key)

    def answer_progressed(self) -> None:
        """Looks again at the fetches whose partitions moved in the drain that just ended."""
        if not self._touched:
            return
        touched = tuple(self._touched)
        self._touched.clear()
        for key in touched:
            for waiting in self._purgatory.check(key):
                if self._reader.would_answer(waiting.payload.request):
                    self._complete(waiting.operation_id)
        self.incremental.wake(touched)
        self.watches.wake(touched)

    def next_deadline_ms(self) -> int | None:
        deadlines_ms = (self._purgatory.next_deadline_ms(), self.incremental.next_deadline_ms())
        return min((deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None), default=None)

    def expire(self) -> None:
        for waiting in self._purgatory.expire(self._stepper.clock.now_ms()):
            self._answer(waiting.payload)
        self.incremental.expire()

    def _complete(self, operation_id: int) -> None:
        waiting = self._purgatory.complete(operation_id)
        if waiting is not None:
            self._answer(waiting.payload)

    def _answer(self, asked: _Asked) -> None:
        reason = self._serving()  # the lease may have ended while it was parked
        if reason is not None:
            asked.answer(_all_refused(asked.request, reason))
            return
        read_wholly(self._reader, asked.request, NOT_FRESH, lambda slots: self._answer_or_park(asked, slots, None))

    # ---- offsets --------------------------------------------------------------------------------------------------------

    def list_offset(self, partition: ListOffsetsPartition) -> ListOffsetsResult:
        """Looks up the start, the end or the first offset at a time; it must run on the driver."""
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return refused(ListOffsetsResult, partition, led)
        replica, leader = led
        if partition.timestamp != EARLIEST_TIMESTAMP and not leader.latest_offset_available():
            # the high watermark bounds both the latest offset and a lookup by time
            error = ErrorCode.OFFSET_NOT_AVAILABLE
            return refused(ListOffsetsResult, partition, refused_by(replica, error, error.name))
        try:
            offset, timestamp = self._find(replica, leader, partition)
        except StorageError as storage_error:
            self._stepper.trouble.storage_failed(replica, storage_error)
            return refused(ListOffsetsResult, partition, self._reader.not_leader(partition))
        return ListOffsetsResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=leader.leader_epoch,
            leader_id=self._stepper.config.node_id,
        )

    def epoch_end(self, partition: EpochEndPartition) -> EpochEndResult:
        """Looks up where a leader epoch ends in the leader's log; it must run on the driver."""
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return refused(EpochEndResult, partition, led)
        replica, leader = led
        end = replica.log.end_offset_for_epoch(partition.epoch)
        return EpochEndResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            epoch=-1 if end is None else end.epoch,
            end_offset=-1 if end is None else end.end_offset,
            leader_epoch=leader.leader_epoch,
            leader_id=self._stepper.config.node_id,
        )

    def producers(self, partition: ProducersPartition) -> Sequence[ProducerSnapshotEntry] | Refusal:
        """Returns the producers of a partition as its leader knows them; it must run on the driver."""
        led = self._reader.leader_for(partition)
        return led if isinstance(led, Refusal) else led[0].log.producers.to_snapshot()

    @staticmethod
    def _find(replica: Replica, leader: Leader, partition: ListOffsetsPartition) -> tuple[int, int]:
        timestamp, end_offset = partition.timestamp, leader.high_watermark
        if timestamp == EARLIEST_TIMESTAMP:
            return replica.log.log_start_offset, -1
        if partition.read_committed:
            end_offset = replica.log.last_stable_offset(end_offset)
        if timestamp == LATEST_TIMESTAMP:
            return end_offset, -1
        wanted_ms = None if timestamp == LARGEST_TIMESTAMP else timestamp
        found = replica.log.offset_for_timestamp(wanted_ms, end_offset=end_offset)
        return (-1, -1) if found is None else found


def _all_refused(request: FetchRequest, reason: str) -> FetchResponse:
    refusal = Refusal(ErrorCode.BROKER_NOT_AVAILABLE, reason)
    results = tuple(refused_fetch(partition, refusal) for partition in request.partitions)
    return FetchResponse(request.correlation_id, results, (b"",) * len(results))
