"""Writes the markers that end transactions into the partitions that this broker leads (docs/KAFKA.md 1.3, 4.1).

A coordinator that has decided a transaction asks the leader of each of its partitions, again and again until the marker has
committed there.  So a marker that is written twice is harmless, and a refusal says whether asking again helps.  Offsets that a
transaction commits are kept by the coordinators of groups, which write the markers into `__consumer_offsets` themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from replog.broker.replicas.stepper import ReplicaStepper
from replog.coordinator.offsets.transactions import CompleteTransaction
from replog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InvalidRequestError,
    NotCoordinatorError,
    ReplogError,
)
from replog.errors.from_code import error_code_of
from replog.metadata.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC
from replog.records import encode_end_transaction_marker
from replog.rpc.messages import ACKS_ALL, ProducePartition, ProduceRequest, ProduceResponse
from replog.rpc.request_limits import check_partitions
from replog.rpc.transaction_messages import Marker, PartitionRefusal, WriteMarkersRequest, WriteMarkersResponse

MARKERS_AT_ONCE: Final = 100
"""Markers that are appended in one step of the driver: each partition is a write of its own."""

Complete: TypeAlias = Callable[[int, CompleteTransaction, int | None], Awaitable[Any]]
"""Has the coordinator over a partition of the offsets topic end a transaction; the last argument is the time for that."""


class AppendsMarkers(Protocol):
    """What appends control batches as the leader, and answers when they have committed (`ProducePath`)."""

    def submit_markers(
        self, request: ProduceRequest, bumps_epochs: Sequence[bool], answer: Callable[[ProduceResponse], None]
    ) -> None: ...


class _Place(Struct, frozen=True):
    """One partition of one marker of a request."""

    marker_number: int
    topic: str
    partition_id: int

    def refusal(self, error: ErrorCode, message: str) -> PartitionRefusal:
        return PartitionRefusal(self.topic, self.partition_id, error, message)


_Refused = tuple[_Place, PartitionRefusal]


class _Begun(Struct):
    """Markers that are appended together.

    Attributes:
        refused: Those that are not: this broker does not know their partition.
        known: The others.
        answered: What becomes of these, once they have committed.
    """

    refused: list[_Refused]
    known: list[_Place]
    answered: asyncio.Future[ProduceResponse]

    async def refused_at_last(self) -> list[_Refused]:
        """Returns those that have no marker, once all others have committed theirs."""
        results = (await self.answered).results
        return self.refused + [
            (place, place.refusal(result.error, result.message))
            for place, result in zip(self.known, results, strict=True)
            if result.error is not ErrorCode.NONE
        ]


class MarkerWriter:
    """See the module.

    Args:
        stepper: The stepper of this broker's replicas.
        appends: What appends the markers.
        complete: What ends a transaction in a partition of the offsets topic.
    """

    def __init__(self, stepper: ReplicaStepper, appends: AppendsMarkers, complete: Complete) -> None:
        self._stepper = stepper
        self._appends = appends
        self._complete = complete

    async def write(self, request: WriteMarkersRequest, timeout_ms: int) -> WriteMarkersResponse:
        """Writes the markers; answers when they have committed, or cannot be written here just now.

        Args:
            request: The markers.
            timeout_ms: How long each may take to commit.

        Raises:
            MalformedFrameError: There are more partitions than one request may name.
            InvalidRequestError: A marker names no producer.
        """
        if any(min(marker.producer_id, marker.producer_epoch) < 0 for marker in request.markers):
            raise InvalidRequestError("a marker names no producer: producer id and epoch are at least 0")
        places = [
            _Place(number, named.topic, partition_id)
            for number, marker in enumerate(request.markers)
            for named in marker.topics
            for partition_id in named.partition_ids
        ]
        check_partitions(len(places))
        own = [place for place in places if place.topic != OFFSETS_TOPIC]
        begun: list[_Begun] = []
        for first in range(0, len(own), MARKERS_AT_ONCE):
            # one step after the other: markers of one partition stay in the order of the request.  None waits for those before it
            # to commit: it would come late, perhaps behind the next transaction of its producer
            begun.append(self._begin(request.markers, own[first : first + MARKERS_AT_ONCE], timeout_ms))
            await asyncio.sleep(0)
        of_groups = [place for place in places if place.topic == OFFSETS_TOPIC]
        outcomes: list[asyncio.Task[list[_Refused]]] = []
        async with asyncio.TaskGroup() as group:
            outcomes += [group.create_task(each.refused_at_last()) for each in begun]
            for number, place in enumerate(of_groups, 1):
                marker = request.markers[place.marker_number]
                outcomes.append(group.create_task(self._completed(marker, place, timeout_ms)))
                if not number % MARKERS_AT_ONCE:
                    await asyncio.sleep(0)
        refused = [each for found in outcomes for each in found.result()]
        of_markers: list[list[PartitionRefusal]] = [[] for _ in request.markers]
        for place, refusal in refused:
            of_markers[place.marker_number].append(refusal)
        return WriteMarkersResponse(tuple(map(tuple, of_markers)))

    def _begin(self, markers: Sequence[Marker], places: Sequence[_Place], timeout_ms: int) -> _Begun:
        """Submits markers that are appended in one step of the driver."""
        topics = self._stepper.image.topics_by_name
        refused: list[_Refused] = []
        known: list[_Place] = []
        partitions: list[ProducePartition] = []
        for place in places:
            topic = topics.get(place.topic)
            if topic is None or place.partition_id not in topic.partitions:
                text = "this broker does not know the partition (yet, or any more)"
                refused.append((place, place.refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)))
            elif place.topic in INTERNAL_TOPICS:
                text = f"{place.topic} is no part of transactions"
                refused.append((place, place.refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text)))
            else:
                known.append(place)
                partitions.append(ProducePartition(topic.topic_id, place.partition_id))
        answered: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        if known:
            now_ms = self._stepper.clock.wall_ms()
            self._appends.submit_markers(
                ProduceRequest(
                    0,
                    timeout_ms,
                    ACKS_ALL,
                    tuple(partitions),
                    tuple(_marker_batch(markers[place.marker_number], now_ms) for place in known),
                ),
                [markers[place.marker_number].bumps_epochs for place in known],
                lambda response: None if answered.done() else answered.set_result(response),
            )
        else:
            answered.set_result(ProduceResponse(0, ()))
        return _Begun(refused, known, answered)

    async def _completed(self, marker: Marker, place: _Place, timeout_ms: int) -> list[_Refused]:
        end = CompleteTransaction(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.is_commit, marker.bumps_epochs
        )
        try:
            await self._complete(place.partition_id, end, timeout_ms)
        except (CoordinatorNotAvailableError, CoordinatorLoadInProgressError, NotCoordinatorError) as error:
            # whoever decides transactions knows leaders of partitions only: they are looked up again
            return [(place, place.refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)))]
        except ReplogError as error:
            return [(place, place.refusal(error_code_of(error), str(error)))]
        return []


def _marker_batch(marker: Marker, now_ms: int) -> bytes:
    return encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=-1,
        timestamp_ms=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        is_commit=marker.is_commit,
    )
