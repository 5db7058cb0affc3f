"""Looks up what clients ask of partitions beside their records: offsets, ends of epochs, producers, cuts, places in files.

A look-up of many partitions goes in steps of the replica driver, so that others have their turn in between.  A search by
time reads batches: its steps run beside the driver, and each begins with another look at who leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_reader import FetchReader, ProducersPartition
from replog.broker.requests.refusals import Refusal, refused, refused_by
from replog.broker.requests.segment_locations import SegmentLocations
from replog.errors import ErrorCode, OffsetOutOfRangeError, StorageError
from replog.log import SearchJob
from replog.log.producers.snapshot import ProducerSnapshotEntry
from replog.replication.leader import Leader
from replog.rpc.messages import (
    EARLIEST_TIMESTAMP,
    FROM_OFFSET_TIMESTAMP,
    LARGEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Cut,
    EpochEndPartition,
    EpochEndResult,
    EpochEndsRequest,
    EpochEndsResponse,
    FindCutsPartition,
    FindCutsRequest,
    FindCutsResponse,
    FindCutsResult,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from replog.rpc.node_messages import LocateSegmentsRequest, LocateSegmentsResponse
from replog.rpc.request_limits import check_partitions

P = TypeVar("P")
R = TypeVar("R")

LOOK_UPS_AT_ONCE = 100
"""How many offsets are looked up in one step of the driver: by time, each reads and decodes a batch."""

CUTS_MAX = 10_000
"""Of one answer: about 150 KB."""


class _OpenSearch(Struct, frozen=True):
    """A search for the offset of a partition that its leader has begun."""

    partition: ListOffsetsPartition
    replica: Replica
    leader: Leader
    job: SearchJob


class LookUps:
    """The look-ups of this broker.

    Args:
        stepper: What steps the replicas.
        reader: What knows whether this broker answers for a partition.

    Attributes:
        locations: What tells where records stand in files.
    """

    def __init__(self, stepper: ReplicaStepper, reader: FetchReader) -> None:
        self._stepper = stepper
        self._reader = reader
        self.locations = SegmentLocations(stepper, reader)

    async def answer(
        self, request: ListOffsetsRequest | EpochEndsRequest | FindCutsRequest | LocateSegmentsRequest
    ) -> ListOffsetsResponse | EpochEndsResponse | FindCutsResponse | LocateSegmentsResponse:
        """Looks up what a client asks for; a partition that is not served has the reason in its result.

        Raises:
            MalformedFrameError: The cuts of more partitions are asked for than one request may name.
            NotLeaderOrFollowerError, FencedLeaderEpochError, UnknownLeaderEpochError: Another broker must be asked where records stand.
            OffsetOutOfRangeError: The log does not have the records whose place is asked for.
            StorageError: The replica whose records are asked for cannot be read.
        """
        match request:
            case ListOffsetsRequest():
                listed = await self._in_steps(self.list_offset, request.partitions)
                results = [
                    await self.search(partition) if result is None else result
                    for result, partition in zip(listed, request.partitions, strict=True)
                ]
                return ListOffsetsResponse(tuple(results))
            case EpochEndsRequest():
                return EpochEndsResponse(await self._in_steps(self.epoch_end, request.partitions))
            case FindCutsRequest():
                return await self.find_cuts(request)
            case LocateSegmentsRequest():
                return await self._stepper.driver.call(lambda: self.locations.locate(request))

    async def producers(
        self, partitions: Sequence[ProducersPartition]
    ) -> Sequence[Sequence[ProducerSnapshotEntry] | Refusal]:
        """Returns the producers of each partition as its leader knows them, or why this broker does not tell them."""
        return await self._in_steps(self._producers, partitions)

    async def _in_steps(self, look_up: Callable[[P], R], partitions: Sequence[P]) -> tuple[R, ...]:
        """Looks something up for each partition; what else waits for the driver has its turn in between."""
        found: list[R] = []
        for start in range(0, len(partitions), LOOK_UPS_AT_ONCE):
            step = partitions[start : start + LOOK_UPS_AT_ONCE]
            found += await self._stepper.driver.call(partial(_looked_up, look_up, step))
        return tuple(found)

    def list_offset(self, partition: ListOffsetsPartition) -> ListOffsetsResult | None:
        """Looks up the start or the end; it must run on the driver.  None: a search is asked for, see `search`."""
        led = self._led_for(partition)
        if isinstance(led, ListOffsetsResult):
            return led
        replica, leader = led
        if partition.timestamp == EARLIEST_TIMESTAMP:
            return self._listed(partition, leader, (replica.log.log_start_offset, -1))
        if partition.timestamp == LATEST_TIMESTAMP:
            return self._listed(partition, leader, (_end_offset(replica, leader, partition), -1))
        return None

    async def search(self, partition: ListOffsetsPartition) -> ListOffsetsResult:
        """Looks for the first offset at a time, or from an offset on, beside the driver: a client decides how long it takes."""
        call = self._stepper.driver.call
        step = await call(partial(self._begin_search, partition))
        while isinstance(step, _OpenSearch):
            await self._stepper.searches.run(step.job.run)
            step = await call(partial(self._continue_search, step))
        return step

    def _begin_search(self, partition: ListOffsetsPartition) -> _OpenSearch | ListOffsetsResult:
        led = self._led_for(partition)
        if isinstance(led, ListOffsetsResult):
            return led
        replica, leader = led
        end_offset = _end_offset(replica, leader, partition)
        try:
            if partition.timestamp == FROM_OFFSET_TIMESTAMP:
                job = replica.log.prepare_search_from(partition.from_offset, end_offset=end_offset)
            else:
                wanted_ms = None if partition.timestamp == LARGEST_TIMESTAMP else partition.timestamp
                job = replica.log.prepare_search(wanted_ms, end_offset=end_offset)
        except StorageError as error:
            return self._unreadable(partition, replica, error)
        return self._listed(partition, leader, None) if job is None else _OpenSearch(partition, replica, leader, job)

    def _continue_search(self, search: _OpenSearch) -> _OpenSearch | ListOffsetsResult:
        partition, replica, leader = search.partition, search.replica, search.leader
        if replica.role is not leader:
            return refused(ListOffsetsResult, partition, self._reader.not_leader(partition))
        try:
            found = replica.log.complete_search(search.job)
        except StorageError as error:
            return self._unreadable(partition, replica, error)
        if isinstance(found, SearchJob):
            return replace(search, job=found)
        if found is not None and found[0] < replica.log.log_start_offset:  # deleted meanwhile: the next one counts
            return self._begin_search(partition)
        return self._listed(partition, leader, found)

    def _led_for(self, partition: ListOffsetsPartition) -> tuple[Replica, Leader] | ListOffsetsResult:
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return refused(ListOffsetsResult, partition, led)
        replica, leader = led
        if partition.timestamp != EARLIEST_TIMESTAMP and not leader.latest_offset_available():
            # the high watermark bounds both the latest offset and a search
            error = ErrorCode.OFFSET_NOT_AVAILABLE
            return refused(ListOffsetsResult, partition, refused_by(replica, error, error.name))
        return led

    def _unreadable(self, partition: ListOffsetsPartition, replica: Replica, error: StorageError) -> ListOffsetsResult:
        self._stepper.trouble.storage_failed(replica, error)
        return refused(ListOffsetsResult, partition, self._reader.not_leader(partition))

    def _listed(
        self, partition: ListOffsetsPartition, leader: Leader, found: tuple[int, int] | None
    ) -> ListOffsetsResult:
        offset, timestamp = (-1, -1) if found is None else found
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

    async def find_cuts(self, request: FindCutsRequest) -> FindCutsResponse:
        """Tells readers that share the work of a partition where to cut it, where this broker leads it.

        Raises:
            MalformedFrameError: There are more partitions than one request may name.
        """
        check_partitions(len(request.partitions))
        cuts_max = max(1, CUTS_MAX // max(1, len(request.partitions)))
        return FindCutsResponse(
            await self._in_steps(
                partial(self._find_cuts, target_bytes=request.target_bytes, cuts_max=cuts_max), request.partitions
            )
        )

    def _find_cuts(self, partition: FindCutsPartition, target_bytes: int, cuts_max: int) -> FindCutsResult:
        led = self._reader.leader_for(partition)
        if isinstance(led, Refusal):
            return refused(FindCutsResult, partition, led)
        replica, leader = led
        start_offset, end_offset = partition.start_offset, partition.end_offset
        if not replica.log.log_start_offset <= start_offset <= end_offset <= leader.high_watermark:
            text = f"[{start_offset}, {end_offset}) is not in [{replica.log.log_start_offset}, {leader.high_watermark})"
            return refused(FindCutsResult, partition, refused_by(replica, ErrorCode.OFFSET_OUT_OF_RANGE, text))
        try:
            found = replica.log.find_cuts(start_offset, end_offset, target_bytes=target_bytes, cuts_max=cuts_max)
        except OffsetOutOfRangeError as error:
            return refused(FindCutsResult, partition, refused_by(replica, error.code, str(error)))
        except StorageError as error:
            self._stepper.trouble.storage_failed(replica, error)
            return refused(FindCutsResult, partition, self._reader.not_leader(partition))
        return FindCutsResult(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            error=ErrorCode.NONE,
            cuts=tuple(Cut(cut.offset, cut.size_bytes) for cut in found),
            leader_epoch=leader.leader_epoch,
            leader_id=self._stepper.config.node_id,
        )

    def _producers(self, partition: ProducersPartition) -> Sequence[ProducerSnapshotEntry] | Refusal:
        led = self._reader.leader_for(partition)
        return led if isinstance(led, Refusal) else led[0].log.producers.to_snapshot()


def _looked_up(look_up: Callable[[P], R], partitions: Sequence[P]) -> list[R]:
    return [look_up(partition) for partition in partitions]


def _end_offset(replica: Replica, leader: Leader, partition: ListOffsetsPartition) -> int:
    """Returns the exclusive end of the records that the caller may see."""
    end_offset = leader.high_watermark
    return replica.log.last_stable_offset(end_offset) if partition.read_committed else end_offset
