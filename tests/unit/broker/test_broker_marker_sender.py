"""Markers of decided transactions, on their way to the leaders of their partitions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from broker_kit import registered, wait_until

from replog.broker.transactions import marker_sender
from replog.broker.transactions.marker_sender import AT_ONCE, PARTITIONS_TOGETHER, MarkerSender
from replog.coordinator.transactions.requests import (
    Incarnation,
    MarkersWritten,
    MarkersWrittenResponse,
    TransactionEnd,
    TransactionPartition,
    WaitForEnds,
    WaitForEndsResponse,
)
from replog.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, ErrorCode, NotCoordinatorError
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replog.rpc.transaction_messages import PartitionRefusal, WriteMarkersRequest, WriteMarkersResponse
from replog.rpc.transport import ConnectionLostError

KEY = (UUID(int=77), 3)
TOPIC = UUID(int=5)
Errors = dict[tuple[str, int], ErrorCode]


def end(*partitions: int, name: str = "t", topic: str = "orders", is_commit: bool = True) -> TransactionEnd:
    named = tuple(TransactionPartition(topic, number) for number in partitions)
    return TransactionEnd(name, Incarnation(9, 2), 4, is_commit, True, named)  # noqa: FBT003 -- a record


class World:
    """The metadata, the coordinators and the brokers around a sender."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.change(registered(1), registered(2), TopicRecord("orders", TOPIC))
        self.change(*(PartitionRecord(number, TOPIC, (1, 2), (1, 2), 1 + number % 2, 0, 0) for number in range(4)))
        self.ends: asyncio.Queue[TransactionEnd] = asyncio.Queue()
        self.told: list[tuple[str, tuple[int, ...]]] = []
        self.requests_count = 0
        self.notes_nothing = False
        self.sent: list[tuple[int, WriteMarkersRequest]] = []
        self.errors: dict[int, Errors] = {}
        self.lost: set[int] = set()
        self.held = asyncio.Event()
        self.held.set()
        self.refusals: list[Exception] = []
        self.bugs: list[BaseException] = []
        self.sender = MarkerSender(1, lambda: self.image, self, self, self, self.bugs.append)  # type: ignore[arg-type]

    def change(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.end_offset + len(records), 1)

    # ---- the shards

    async def submit(self, key: Any, request: Any, timeout_ms: int | None) -> Any:
        assert key == KEY
        if self.refusals:
            raise self.refusals.pop(0)
        if isinstance(request, WaitForEnds):
            return WaitForEndsResponse((await self.ends.get(),))
        assert isinstance(request, MarkersWritten)
        self.requests_count += 1
        if self.notes_nothing:
            raise CoordinatorNotAvailableError("not now")
        self.told += [
            (one.end.transactional_id, tuple(sorted(each.partition for each in one.partitions))) for one in request.ends
        ]
        return MarkersWrittenResponse()

    # ---- the brokers

    async def write(self, request: WriteMarkersRequest, timeout_ms: int) -> WriteMarkersResponse:
        return await self._write(1, request)

    async def call(
        self, broker_id: int, request: WriteMarkersRequest, answer: type[Any], timeout_ms: int
    ) -> WriteMarkersResponse:
        return await self._write(broker_id, request)

    async def _write(self, broker_id: int, request: WriteMarkersRequest) -> WriteMarkersResponse:
        self.sent.append((broker_id, request))
        if broker_id != 1:
            await self.held.wait()
        if broker_id in self.lost:
            raise ConnectionLostError("nobody there")
        errors = self.errors.get(broker_id, {})
        return WriteMarkersResponse(
            tuple(
                tuple(
                    PartitionRefusal(topic.topic, number, errors[topic.topic, number])
                    for topic in marker.topics
                    for number in topic.partition_ids
                    if (topic.topic, number) in errors
                )
                for marker in request.markers
            )
        )

    def done(self) -> set[tuple[str, int]]:
        """Which partitions of which transaction the coordinator knows to have their marker."""
        return {(name, number) for name, numbers in self.told for number in numbers}


@contextlib.asynccontextmanager
async def sending(monkeypatch: pytest.MonkeyPatch | None = None) -> AsyncIterator[World]:
    world = World()
    if monkeypatch is not None:
        monkeypatch.setattr(marker_sender, "PAUSE_MS", 1)
    world.sender.begun(KEY)
    try:
        yield world
    finally:
        world.held.set()
        await world.sender.stop()
        assert not world.bugs
        assert not world.sender.waiting


async def test_each_leader_gets_the_markers_of_its_partitions_and_the_coordinator_hears_of_them() -> None:
    async with sending() as it:
        it.ends.put_nowait(end(0, 1, 2, 3))
        await wait_until(lambda: len(it.told) == 2)
        assert sorted(it.told) == [("t", (0, 2)), ("t", (1, 3))]
        found = {}
        for broker_id, request in it.sent:
            (marker,) = request.markers
            found[broker_id] = [(one.topic, one.partition_ids) for one in marker.topics]
            assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (9, 2, 4)
            assert (marker.is_commit, marker.bumps_epochs) == (True, True)
        assert found == {1: [("orders", (0, 2))], 2: [("orders", (1, 3))]}


async def test_a_broker_that_is_slow_holds_up_nobody_else() -> None:
    async with sending() as it:
        it.held.clear()
        for number in range(20):
            it.ends.put_nowait(end(0, 1, name=f"t{number}"))
        await wait_until(lambda: len(it.done()) == 20)
        assert {number for _, number in it.done()} == {0}
        assert sum(broker_id == 2 for broker_id, _ in it.sent) == AT_ONCE
        it.held.set()
        await wait_until(lambda: len(it.done()) == 40)
        last = [len(request.markers) for broker_id, request in it.sent if broker_id == 2][-1]
        assert last == 20 - AT_ONCE, "what has waited goes together"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the leader does not know it yet
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_what_a_leader_does_not_take_just_now_is_tried_again(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sending(monkeypatch) as it:
        it.errors[2] = {("orders", 1): code}
        it.ends.put_nowait(end(1, 3))
        await wait_until(lambda: len(it.sent) > 2)
        assert it.done() == {("t", 3)}
        again = it.sent[-1][1].markers[0].topics
        assert [(one.topic, one.partition_ids) for one in again] == [("orders", (1,))]
        it.errors.clear()
        await wait_until(lambda: it.done() == {("t", 1), ("t", 3)})


async def test_markers_follow_the_leader_when_a_broker_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sending(monkeypatch) as it:
        it.lost.add(2)
        it.ends.put_nowait(end(1))
        await wait_until(lambda: len(it.sent) > 1)
        it.change(PartitionChangeRecord(1, TOPIC, leader=-1))
        await wait_until(lambda: it.sender.waiting == 1)
        it.change(PartitionChangeRecord(1, TOPIC, leader=1))
        await wait_until(lambda: it.done() == {("t", 1)})
        assert it.sent[-1][0] == 1


async def test_a_partition_without_a_leader_takes_no_more_time_for_more_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sending(monkeypatch) as it:
        looks = [0]  # of each turn of the loop

        def image() -> MetadataImage:
            if not looks[-1]:
                asyncio.get_running_loop().call_soon(looks.append, 0)
            looks[-1] += 1
            return it.image

        many = 2 * PARTITIONS_TOGETHER + 1
        it.change(PartitionChangeRecord(1, TOPIC, leader=-1))
        for number in range(many):
            it.ends.put_nowait(end(1, name=f"t{number}"))
        await wait_until(lambda: it.sender.waiting == many)
        monkeypatch.setattr(it.sender, "_image", image)
        await wait_until(lambda: sum(looks) >= 2 * many)
        assert max(looks) == PARTITIONS_TOGETHER
        it.change(PartitionChangeRecord(1, TOPIC, leader=2))
        await wait_until(lambda: len(it.done()) == many)


async def test_a_deleted_topic_needs_no_marker() -> None:
    async with sending() as it:
        it.change(RemoveTopicRecord(TOPIC))
        it.ends.put_nowait(end(0, 1))
        await wait_until(lambda: it.done() == {("t", 0), ("t", 1)})
        assert not it.sent


async def test_a_topic_without_markers_keeps_no_transaction_open() -> None:
    async with sending() as it:
        it.errors[2] = {("orders", 1): ErrorCode.INVALID_TOPIC_EXCEPTION}
        it.ends.put_nowait(end(0, 1, 3))
        await wait_until(lambda: it.done() == {("t", 0), ("t", 1), ("t", 3)})


async def test_a_transaction_of_a_later_coordinator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sending(monkeypatch) as it:
        it.errors[2] = {("orders", 1): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        it.ends.put_nowait(end(1))
        await wait_until(lambda: len(it.sent) == 1)
        it.ends.put_nowait(end(3, name="other"))
        await wait_until(lambda: it.done() == {("other", 3)})
        assert not it.sender.waiting


async def test_a_newer_epoch_in_one_partition_keeps_no_other_without_its_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of the transaction can be open there; it would never be complete, and its producer never go on."""
    async with sending(monkeypatch) as it:
        it.errors[2] = {
            ("orders", 1): ErrorCode.INVALID_PRODUCER_EPOCH,
            ("orders", 3): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        it.ends.put_nowait(end(1, 3))
        await wait_until(lambda: it.done() == {("t", 1)})
        del it.errors[2]["orders", 3]
        await wait_until(lambda: it.done() == {("t", 1), ("t", 3)})


async def test_a_coordinator_that_cannot_note_it_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sending(monkeypatch) as it:
        await wait_until(lambda: bool(it.ends._getters))  # type: ignore[attr-defined]
        it.refusals = [CoordinatorNotAvailableError("not now"), CoordinatorNotAvailableError("not yet")]
        it.ends.put_nowait(end(0))
        await wait_until(lambda: it.done() == {("t", 0)})


async def test_a_coordinator_that_notes_nothing_is_asked_no_more_often_for_more_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a broker that may not serve for a while is not kept from its heartbeats by what it cannot note."""
    async with sending(monkeypatch) as it:
        await wait_until(lambda: bool(it.ends._getters))  # type: ignore[attr-defined]
        it.notes_nothing = True
        for number in range(300):
            it.ends.put_nowait(end(0, name=f"t{number}"))
        await wait_until(lambda: len(it.sent) > 0 and not it.ends.qsize() and not it.sender.waiting)
        before = it.requests_count
        await wait_until(lambda: it.requests_count > before)
        assert it.requests_count < before + 100
        it.notes_nothing = False
        await wait_until(lambda: len(it.done()) == 300)
        assert it.requests_count < before + 200


async def test_a_coordinator_that_reads_its_log_is_asked_until_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sending(monkeypatch) as it:
        it.sender.ended(KEY)
        it.refusals = [CoordinatorLoadInProgressError("reading"), NotCoordinatorError("not yet")]
        it.sender.begun(KEY)
        it.ends.put_nowait(end(0))
        await wait_until(lambda: it.done() == {("t", 0)})


async def test_nothing_is_sent_for_a_leadership_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sending(monkeypatch) as it:
        it.held.clear()
        it.lost.add(2)
        for number in range(AT_ONCE + 2):
            it.ends.put_nowait(end(1, name=f"t{number}"))
        await wait_until(lambda: len(it.sent) == AT_ONCE)
        it.sender.ended(KEY)
        it.held.set()
        await wait_until(lambda: not it.sender.waiting)
        assert (len(it.sent), it.told) == (AT_ONCE, [])


async def test_a_large_transaction_goes_in_pieces() -> None:
    async with sending() as it:
        many = 2 * PARTITIONS_TOGETHER + 1
        it.change(*(PartitionRecord(number, TOPIC, (1,), (1,), 1, 0, 0) for number in range(4, many)))
        it.change(*(PartitionChangeRecord(number, TOPIC, leader=1) for number in range(4)))
        it.ends.put_nowait(end(*range(many)))
        await wait_until(lambda: len(it.done()) == many)
        sizes = [len(request.markers[0].topics[0].partition_ids) for _, request in it.sent]
        assert sizes == [PARTITIONS_TOGETHER, PARTITIONS_TOGETHER, 1]
