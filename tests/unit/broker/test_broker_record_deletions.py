"""DeleteRecords on the leader: the log start moves, and the answer waits for the replicas that are up."""

from __future__ import annotations

import asyncio

import pytest
from broker_kit import KEY, TOPIC, TOPIC_ID, Rig, registered, rig, topic, wait_until

from replog.broker.requests import record_deletions
from replog.errors import ErrorCode, ThrottledError
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, ResourceType
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog.replication.leader import Leader
from replog.rpc.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResult,
    EpochEndPartition,
    FetchPartition,
    FetchRequest,
)

BROKERS = (registered(1), registered(2), registered(3))
COMPACTED = ConfigRecord(ResourceType.TOPIC, TOPIC, "cleanup.policy", "compact")


def fetch_from(it: Rig, replica_id: int, offset: int, log_start_offset: int) -> None:
    partition = FetchPartition(*KEY, offset, offset, log_start_offset, leader_epoch=0, max_bytes=1 << 20)
    request = FetchRequest(1, 1000, replica_id, 100 + replica_id, 0, 1, 1 << 20, (partition,))
    it.fetch_path.submit(request, lambda _: None)


async def committed(it: Rig, records: int, replicas: tuple[int, ...] = (1, 2)) -> None:
    await it.apply(*BROKERS, *topic(replicas))
    waiting = [it.produce() for _ in range(records)]
    await it.settle()
    for replica_id in replicas[1:]:
        fetch_from(it, replica_id, records, 0)
    await asyncio.gather(*waiting)


def delete(
    it: Rig, offset: int, *, timeout_ms: int = 5_000, leader_epoch: int = -1
) -> asyncio.Task[DeleteRecordsResult]:
    async def run() -> DeleteRecordsResult:
        request = DeleteRecordsRequest((DeleteRecordsPartition(*KEY, offset, leader_epoch),))
        (result,) = (await it.deletions.delete(request, timeout_ms=timeout_ms)).results
        return result

    return asyncio.create_task(run())


async def test_the_answer_waits_for_every_replica_that_is_up() -> None:
    async with rig() as it:
        await committed(it, 5, (1, 2, 3))
        task = delete(it, 3)
        await wait_until(lambda: it.replica.log.log_start_offset == 3)
        fetch_from(it, 2, 5, 3)
        await it.settle()
        assert not task.done()
        fetch_from(it, 3, 5, 4)
        result = await asyncio.wait_for(task, 60)
        assert (result.error, result.low_watermark, result.leader_id) == (ErrorCode.NONE, 3, 1)
        await it.settle()
        assert len(it.deletions) == 0


async def test_a_replica_on_a_dead_broker_is_not_waited_for() -> None:
    async with rig() as it:
        await committed(it, 5)
        task = delete(it, 3)
        await wait_until(lambda: it.replica.log.log_start_offset == 3)
        assert not task.done()
        await it.apply(registered(2, fenced=True))
        assert (await asyncio.wait_for(task, 60)).low_watermark == 3


async def test_followers_are_told_and_nothing_is_deleted_twice() -> None:
    async with rig() as it:
        await committed(it, 5, (1,))
        assert (await delete(it, 3)).low_watermark == 3
        assert (await delete(it, 2)).low_watermark == 3, "a log start never moves back"
        fetched = it.fetch(1)
        await it.settle()
        assert fetched.result.error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_everything_committed_can_go() -> None:
    async with rig() as it:
        await committed(it, 5)
        it.produce()
        await it.settle()
        task = delete(it, record_deletions.TO_HIGH_WATERMARK)
        await wait_until(lambda: it.replica.log.log_start_offset == 5)
        fetch_from(it, 2, 6, 5)
        assert (await task).low_watermark == 5


@pytest.mark.parametrize("offset", [-2, 6])
async def test_only_what_is_committed_can_go(offset: int) -> None:
    async with rig() as it:
        await committed(it, 5)
        result = await delete(it, offset)
        assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert "high watermark is 5" in result.message
        assert it.replica.log.log_start_offset == 0


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
async def test_records_of_an_internal_topic_stay_whatever_its_policy_is(policy: str) -> None:
    """Committed offsets were gone where somebody had changed the policy."""
    async with rig() as it:
        changed = ConfigRecord(ResourceType.TOPIC, OFFSETS_TOPIC, "cleanup.policy", policy)
        await it.apply(*BROKERS, *topic((1,), name=OFFSETS_TOPIC), changed)
        for offset in (0, record_deletions.TO_HIGH_WATERMARK, 5):
            result = await delete(it, offset)
            assert result.error is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert OFFSETS_TOPIC in result.message


async def test_records_of_a_compacted_topic_stay() -> None:
    async with rig() as it:
        await committed(it, 5)
        await it.apply(COMPACTED)
        assert (await delete(it, 1)).error is ErrorCode.POLICY_VIOLATION
        assert it.replica.log.log_start_offset == 0


async def test_a_replica_that_is_silent_ends_the_wait_in_time() -> None:
    async with rig() as it:
        await committed(it, 5)
        result = await delete(it, 3, timeout_ms=10)
        assert result.error is ErrorCode.REQUEST_TIMED_OUT
        assert it.replica.log.log_start_offset == 3


async def test_who_does_not_lead_says_so() -> None:
    async with rig() as it:
        await committed(it, 5)
        assert (await delete(it, 1, leader_epoch=7)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
        waiting = delete(it, 3)
        await wait_until(lambda: it.replica.log.log_start_offset == 3)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        result = await asyncio.wait_for(waiting, 60)
        assert (result.error, result.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
        assert (await delete(it, 3)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        it.refused = "cut off"
        assert (await delete(it, 3)).error is ErrorCode.BROKER_NOT_AVAILABLE


async def test_waiting_deletions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_deletions, "MAX_WAITING_DELETIONS", 1)
    async with rig() as it:
        await committed(it, 5)
        waiting = delete(it, 3, timeout_ms=50)
        await wait_until(lambda: len(it.deletions) == 1)
        with pytest.raises(ThrottledError):
            await delete(it, 3)
        await waiting


async def test_a_partition_that_is_named_a_thousand_times_is_looked_at_as_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    low_watermark = Leader.low_watermark

    def counted(self: Leader, log_start_offset: int) -> int:
        nonlocal looks
        looks += 1
        return low_watermark(self, log_start_offset)

    monkeypatch.setattr(Leader, "low_watermark", counted)
    async with rig() as it:
        await committed(it, 5)
        request = DeleteRecordsRequest((DeleteRecordsPartition(*KEY, 3),) * 1_000)
        task = asyncio.create_task(it.deletions.delete(request, timeout_ms=60_000))
        await wait_until(lambda: sum(map(len, it.deletions._waiting.values())) == 1_000)
        fetch_from(it, 2, 5, 3)
        answer = await asyncio.wait_for(task, 60)
        assert {(result.error, result.low_watermark) for result in answer.results} == {(ErrorCode.NONE, 3)}
        assert len(answer.results) == 1_000
        assert looks < 10_000  # it was half a million: each looked at all before it
        await it.settle()
        assert len(it.deletions) == 0


async def test_deletions_that_are_given_up_while_they_begin_are_forgotten() -> None:
    async with rig() as it:
        await committed(it, 5)
        request = DeleteRecordsRequest((DeleteRecordsPartition(*KEY, 3),) * 1_000)
        task = asyncio.create_task(it.deletions.delete(request, timeout_ms=60_000))
        await wait_until(lambda: it.replica.log.log_start_offset == 3)
        task.cancel()
        await asyncio.wait([task])
        await it.settle()
        assert len(it.deletions) == 0
        assert it.deletions._waiting == {}


async def test_the_end_of_a_leader_epoch() -> None:
    async with rig() as it:
        await committed(it, 5)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))  # elected again: epoch 1
        find = it.look_ups.epoch_end
        asked = {epoch: find(EpochEndPartition(*KEY, epoch, leader_epoch=1)) for epoch in (0, 1, 9)}
        assert [(asked[epoch].epoch, asked[epoch].end_offset) for epoch in (0, 1)] == [(0, 5), (1, 5)]
        assert (asked[9].epoch, asked[9].end_offset) == (-1, -1), "an epoch that is not known here yet"
        assert find(EpochEndPartition(*KEY, 0, leader_epoch=0)).error is ErrorCode.FENCED_LEADER_EPOCH
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        assert find(EpochEndPartition(*KEY, 0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        it.refused = "cut off"
        assert find(EpochEndPartition(*KEY, 0)).error is ErrorCode.BROKER_NOT_AVAILABLE
