"""Markers: the leader writes the end of a transaction, and answers when it has committed (KIP-98, KIP-890)."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from broker_kit import TOPIC, TOPIC_ID, Rig, batch, registered, rig, topic

from replog.broker.transactions import markers as markers_module
from replog.broker.transactions.markers import MARKERS_AT_ONCE, MarkerWriter
from replog.coordinator.offsets.transactions import CompleteTransaction
from replog.errors import ErrorCode, InvalidRequestError, NotCoordinatorError, ReplogError
from replog.metadata.records import PartitionChangeRecord
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.records import encode_batch, scan
from replog.rpc.transaction_messages import Marker, NamedPartitions, PartitionRefusal, WriteMarkersRequest

BROKERS = (registered(1), registered(2), registered(3))
HERE = (NamedPartitions(TOPIC, (0,)),)


class Completions:
    """Coordinators of groups that complete what they are told to, or refuse it."""

    def __init__(self) -> None:
        self.told: list[tuple[int, CompleteTransaction]] = []
        self.error: ReplogError | None = None

    async def complete(self, partition_id: int, end: CompleteTransaction, _timeout_ms: int | None) -> Any:
        self.told.append((partition_id, end))
        if self.error is not None:
            raise self.error


def marker(
    producer_id: int = 7,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 1,
    commit: bool = True,
    bumps: bool = False,
    topics: tuple[NamedPartitions, ...] = HERE,
) -> Marker:
    return Marker(producer_id, epoch, coordinator_epoch, commit, bumps, topics)


def writing(it: Rig, *markers: Marker, timeout_ms: int = 30_000) -> asyncio.Task[list[list[tuple[str, ErrorCode]]]]:
    """Begins to write markers; its result has the refusals of each."""

    async def write() -> list[list[tuple[str, ErrorCode]]]:
        writer = MarkerWriter(it.stepper, it.produce_path, Completions().complete)
        response = await writer.write(WriteMarkersRequest(markers), timeout_ms)
        return [[(f"{one.topic}-{one.partition_id}", one.error) for one in refused] for refused in response.refusals]

    return asyncio.create_task(write())


async def opened(it: Rig, *producer_ids: int, replicas: tuple[int, ...] = (1,)) -> None:
    """A partition with a transaction of each producer open."""
    await it.apply(*BROKERS, *topic(replicas))

    def write() -> None:
        for producer_id in producer_ids:
            one = encode_batch(
                [(1, None, b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            it.replica.log.append_as_leader(one, leader_epoch=0, now_ms=0)

    await it.stepper.driver.call(write)


async def test_a_marker_that_has_committed_ends_the_transaction_for_readers() -> None:
    async with rig() as it:
        await opened(it, 7, 8)
        reader = it.fetch(0, read_committed=True)
        await it.settle()
        assert reader.is_parked
        assert await writing(it, marker(7, commit=False), marker(8, epoch=1, bumps=True)) == [[], []]
        assert [header.base_offset for header in scan(bytes(reader.response.batches[0]))] == [0, 1, 2, 3]
        assert [one.producer_id for one in reader.result.aborted] == [7]
        assert it.replica.log.producers.open_transactions == {}
        assert it.replica.log.producers.producers[8].producer_epoch == 1


async def test_it_is_answered_when_all_in_sync_replicas_have_it() -> None:
    async with rig() as it:
        await opened(it, 7, replicas=(1, 2))
        written = writing(it, marker())
        it.fetch(0, replica_id=2)
        await it.settle()
        assert not written.done()
        assert it.replica.log.last_stable_offset(it.replica.high_watermark) == 0
        it.fetch(2, replica_id=2)
        assert await written == [[]]
        assert it.replica.log.last_stable_offset(it.replica.high_watermark) == 2


async def test_one_that_does_not_commit_in_time_is_asked_for_again_and_harmless() -> None:
    async with rig() as it:
        await opened(it, 7, replicas=(1, 2))
        written = writing(it, marker(epoch=1, bumps=True), timeout_ms=100)
        await it.settle()
        await it.advance(100)
        assert await written == [[("flights-0", ErrorCode.REQUEST_TIMED_OUT)]]
        again = writing(it, marker(epoch=1, bumps=True))
        await it.settle()
        it.fetch(3, replica_id=2)
        assert await again == [[]]


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (marker(epoch=1, coordinator_epoch=4), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (marker(epoch=0, coordinator_epoch=5), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
    ids=["earlier coordinator", "earlier epoch"],
)
async def test_what_comes_late_is_refused(late: Marker, error: ErrorCode) -> None:
    async with rig() as it:
        await opened(it, 7)
        first = marker(epoch=1, coordinator_epoch=5, bumps=True)
        assert await writing(it, first, late) == [[], [("flights-0", error)]]
        assert it.replica.log.log_end_offset == 2


async def test_a_repeated_marker_does_not_end_the_transaction_behind_it() -> None:
    async with rig() as it:
        await opened(it, 7)
        assert await writing(it, marker(epoch=1, bumps=True), marker(epoch=1, bumps=True)) == [[], []]
        following = encode_batch(
            [(1, None, b"v", ())], producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True
        )
        await it.stepper.driver.call(lambda: it.replica.log.append_as_leader(following, leader_epoch=0, now_ms=0))
        late = await writing(it, marker(epoch=1, bumps=True))
        assert late == [[("flights-0", ErrorCode.INVALID_PRODUCER_EPOCH)]]
        assert list(it.replica.log.producers.open_transactions) == [7]


async def test_partitions_that_are_not_led_here_are_told_apart() -> None:
    async with rig() as it:
        await opened(it, replicas=(1, 2))
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        elsewhere = (NamedPartitions(TOPIC, (0, 9)), NamedPartitions("gone", (0,)))
        assert await writing(it, marker(topics=elsewhere)) == [
            [
                ("flights-9", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("gone-0", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("flights-0", ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ]
        ]
        it.refused = "no lease"
        assert await writing(it, marker()) == [[("flights-0", ErrorCode.NOT_LEADER_OR_FOLLOWER)]]


async def test_many_markers_of_one_partition_are_one_after_the_other() -> None:
    async with rig() as it:
        producers = range(2 * MARKERS_AT_ONCE + 1)
        await opened(it, *producers)
        assert await writing(it, *map(marker, producers)) == [[] for _ in producers]
        assert it.replica.log.producers.open_transactions == {}


async def test_none_waits_for_those_before_it_to_commit() -> None:
    async with rig() as it:
        producers = range(2 * MARKERS_AT_ONCE + 1)
        await opened(it, *producers, replicas=(1, 2))
        written = writing(it, *map(marker, producers), timeout_ms=100)
        await it.settle()
        assert it.replica.log.producers.open_transactions == {}
        await it.advance(100)
        assert await written == [[("flights-0", ErrorCode.REQUEST_TIMED_OUT)] for _ in producers]


async def test_offsets_are_completed_by_the_coordinators_of_groups() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic(name=OFFSETS_TOPIC, topic_id=UUID(int=9)))
        completions = Completions()
        writer = MarkerWriter(it.stepper, it.produce_path, completions.complete)
        request = WriteMarkersRequest((marker(commit=False, topics=(NamedPartitions(OFFSETS_TOPIC, (0,)),)),))
        assert (await writer.write(request, 1000)).refusals == ((),)
        assert completions.told == [(0, CompleteTransaction(7, 0, 1, is_commit=False))]
        bumped = marker(epoch=1, bumps=True, topics=(NamedPartitions(OFFSETS_TOPIC, (0,)),))
        assert (await writer.write(WriteMarkersRequest((bumped,)), 1000)).refusals == ((),)
        assert completions.told[1:] == [(0, CompleteTransaction(7, 1, 1, is_commit=True, bumps_epochs=True))]
        completions.error = NotCoordinatorError("another broker does")
        refused = PartitionRefusal(OFFSETS_TOPIC, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker does")
        assert (await writer.write(request, 1000)).refusals == ((refused,),)


async def test_offsets_of_many_transactions_are_completed_some_in_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: one request of 10,000 markers in the topic of offsets was half a million calls in one turn."""
    async with rig() as it:
        completions = Completions()
        begun: list[int] = [0]
        monkeypatch.setattr(markers_module, "MARKERS_AT_ONCE", 10)
        writer = MarkerWriter(it.stepper, it.produce_path, completions.complete)
        request = WriteMarkersRequest((marker(topics=(NamedPartitions(OFFSETS_TOPIC, tuple(range(95))),)),))
        written = asyncio.create_task(writer.write(request, 1000))
        while not written.done():
            await asyncio.sleep(0)
            begun.append(len(completions.told))
        assert (await written).refusals == ((),)
        assert [number for number, _ in completions.told] == list(range(95))
        assert max(after - before for before, after in pairwise(begun)) <= 10


async def test_a_marker_without_a_producer_is_no_marker() -> None:
    async with rig() as it:
        await opened(it, 7)
        with pytest.raises(InvalidRequestError):
            await writing(it, marker(-1))
        assert (await it.produce(batch())).base_offset == 1
