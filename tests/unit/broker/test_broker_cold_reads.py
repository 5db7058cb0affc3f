"""Fetches of records that are not in the page cache: read in threads, checked again when they are there."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from broker_kit import KEY, TOPIC_ID, Rig, batch, rig, topic, wait_until
from slow_disk import SlowDisk, lead, make_cold
from stream_kit import OTHER, RATE, WAIT_MS, Stream, adding, append, at, data_of, throttled, two_topics

from replog.broker.disk import cold_reads
from replog.errors import ErrorCode
from replog.log import Log
from replog.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from replog.records import scan
from replog.rpc.messages import FetchPartition, FetchRequest, FetchResponse
from replog.testing import Operation


def bases(data: bytes | bytearray | memoryview) -> list[int]:
    return [header.base_offset for header in scan(bytes(data))]


async def test_a_cold_fetch_does_not_hold_up_the_driver() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 5)
        fs.gate.clear()
        fetched = it.fetch(1)
        await wait_until(lambda: fs.waiting)
        await it.settle()
        assert fetched.is_parked
        produced = await it.produce()  # goes on meanwhile
        assert produced.base_offset == 5
        fs.gate.set()
        await wait_until(lambda: not fetched.is_parked)
        assert bases(fetched.response.batches[0]) == [1, 2, 3, 4]
        assert fs.loop_reads == 0


async def test_what_was_read_once_is_read_at_once() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        first = it.fetch(0)
        await wait_until(lambda: not first.is_parked)
        fs.gate.clear()
        second = it.fetch(0)
        await it.settle()
        assert bases(second.response.batches[0]) == [0, 1, 2]


async def test_only_a_few_reads_wait_for_the_disk_at_a_time() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        fs.gate.clear()
        fetches = [it.fetch(0) for _ in range(12)]
        await wait_until(lambda: fs.waiting == cold_reads.COLD_READS_MAX)
        await it.settle()
        fs.gate.set()
        await wait_until(lambda: not any(fetched.is_parked for fetched in fetches))
        assert fs.waiting_max == cold_reads.COLD_READS_MAX
        assert all(bases(fetched.response.batches[0]) == [0, 1, 2] for fetched in fetches)


async def test_more_than_may_wait_are_answered_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_reads, "COLD_READS_WAITING_MAX", 1)
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        fs.gate.clear()
        fetches = [it.fetch(0, max_wait_ms=0) for _ in range(cold_reads.COLD_READS_MAX + 3)]
        await it.settle()
        answered = [fetched for fetched in fetches if not fetched.is_parked]
        assert [fetched.size for fetched in answered] == [0, 0]
        assert all(fetched.result.error is ErrorCode.NONE for fetched in answered)
        fs.gate.set()
        await wait_until(lambda: not any(fetched.is_parked for fetched in fetches))


async def test_leadership_that_is_lost_meanwhile() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        fs.gate.clear()
        fetched = it.fetch(0)
        await wait_until(lambda: fs.waiting)
        await it.apply(PartitionChangeRecord(0, KEY[0], replicas=(1, 2), isr=(2,), leader=2))
        fs.gate.set()
        await wait_until(lambda: not fetched.is_parked)
        assert fetched.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched.size == 0


async def test_a_topic_that_is_deleted_meanwhile() -> None:
    fs = SlowDisk()
    async with rig(fs) as it:
        await lead(it, 3)
        fs.gate.clear()
        fetched = it.fetch(0)
        await wait_until(lambda: fs.waiting)
        await it.apply(RemoveTopicRecord(KEY[0]))
        fs.gate.set()
        await wait_until(lambda: not fetched.is_parked)
        assert fetched.result.error is ErrorCode.UNKNOWN_TOPIC_ID
        assert fetched.size == 0
    assert not fs._files


async def test_a_log_that_is_cut_meanwhile_is_read_again() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 6)
        fs.gate.clear()
        fetched = it.fetch(1)
        await wait_until(lambda: fs.waiting)
        epoch = it.replica.registration.leader_epoch
        await it.apply(PartitionChangeRecord(0, KEY[0], replicas=(1, 2), isr=(1, 2), leader=2))
        it.replica.log.truncate_to(3)
        await it.apply(PartitionChangeRecord(0, KEY[0], leader=1))
        assert it.replica.registration.leader_epoch > epoch
        it.replica.log.append_as_leader(batch(b"other"), leader_epoch=it.replica.registration.leader_epoch, now_ms=1)
        fs.gate.set()
        await wait_until(lambda: not fetched.is_parked)
        assert fetched.result.error is ErrorCode.NONE
        assert all(base < it.replica.high_watermark for base in bases(fetched.response.batches[0]))
        assert bases(fetched.response.batches[0]) == [1, 2]


async def test_a_lease_that_ends_meanwhile() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        fs.gate.clear()
        fetched = it.fetch(0)
        await wait_until(lambda: fs.waiting)
        it.refused = "cut off"
        fs.gate.set()
        await wait_until(lambda: not fetched.is_parked)
        assert (fetched.result.error, fetched.size) == (ErrorCode.BROKER_NOT_AVAILABLE, 0)


async def test_a_disk_that_does_not_answer_takes_the_replica_away() -> None:
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        fs.faults.fail_next(Operation.READ, path_part=".log")
        it.fetch(0)
        error = await it.failure()
        assert "cannot be read" in str(error)


async def test_stopping_waits_for_the_disk_and_leaves_nothing_open() -> None:
    fs = SlowDisk()
    async with rig(fs) as it:
        await lead(it, 3)
        fs.gate.clear()
        for _ in range(cold_reads.COLD_READS_MAX + 2):
            it.fetch(0)
        await wait_until(lambda: fs.waiting == cold_reads.COLD_READS_MAX)
        asyncio.get_running_loop().call_later(0.01, fs.gate.set)
    assert not fs._files


async def test_what_was_read_for_an_earlier_position_of_a_stream_says_nothing_about_the_next() -> None:
    """The leader is elected again while the disk is read; the follower has said its position of the new epoch by then."""
    async with rig(SlowDisk()) as it:
        fs = await lead(it, 3)
        answers: list[FetchResponse] = []
        stream = it.fetch_path.incremental.open(answers.append, lambda: None)

        def ask(correlation_id: int, leader_epoch: int) -> None:
            position = FetchPartition(*KEY, 0, leader_epoch=leader_epoch)
            request = FetchRequest(correlation_id, 1000, -1, -1, 500, 1, 1 << 20, (position,), incremental=True)
            it.fetch_path.submit_incremental(stream, request)

        fs.gate.clear()
        ask(1, leader_epoch=0)
        await wait_until(lambda: fs.waiting)
        await it.apply(PartitionChangeRecord(0, KEY[0], leader=1))
        ask(2, leader_epoch=1)
        await it.settle()
        fs.gate.set()
        await wait_until(lambda: answers)
        assert [(result.error, result.leader_epoch) for answer in answers for result in answer.results] in (
            [],
            [(ErrorCode.NONE, 1)],
        )
        if not answers[0].results:  # answered without news; what stands is read for the next request
            request = FetchRequest(3, 1000, -1, -1, 500, 1, 1 << 20, (), incremental=True)
            it.fetch_path.submit_incremental(stream, request)
            await wait_until(lambda: len(answers) == 2)
        assert bases(answers[-1].batches[0]) == [0, 1, 2]


# ---- on a follower's stream ------------------------------------------------------------------------------------------


async def lead_two(it: Rig, count: int) -> tuple[SlowDisk, Stream]:
    """Leads two partitions that broker 2 follows; the records of the first are not in the page cache."""
    fs = it.fs
    assert isinstance(fs, SlowDisk)
    await two_topics(it)
    for _ in range(count):
        await append(it, KEY)
    make_cold(fs, it.replica.log)
    fs.gate.clear()
    return fs, Stream(it)


async def test_a_partition_on_a_slow_disk_does_not_hold_up_the_others() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        await stream.ask(at(0), at(0, OTHER))
        await wait_until(lambda: fs.waiting)
        for offset in range(3):
            await append(it, OTHER)
            assert data_of(stream.take()) == {OTHER[0]: [offset]}
            await stream.ask(at(offset + 1, OTHER))
        await it.advance(WAIT_MS)
        assert stream.take().results[0].topic_id == OTHER[0], "the time of a request is over when it is over"
        await stream.ask()
        fs.gate.set()
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {TOPIC_ID: [0, 1, 2]}
        assert (fs.waiting_max, fs.loop_reads) == (1, 0)


async def brought(it: Rig) -> tuple[SlowDisk, Stream]:
    """The disk has brought three records of the first partition, and no request waits."""
    fs, stream = await lead_two(it, 3)
    await stream.ask(at(0), at(0, OTHER))
    await append(it, OTHER)
    assert data_of(stream.take()) == {OTHER[0]: [0]}
    fs.gate.set()
    await wait_until(lambda: not stream.fetch._cold)
    assert stream.answers == []
    return fs, stream


async def test_what_the_disk_has_brought_is_kept_until_it_is_told() -> None:
    """The page cache may not keep it: a partition that always has something to say must not starve another."""
    async with rig(SlowDisk()) as it:
        fs, stream = await brought(it)
        make_cold(fs, it.replica.log)
        fs.gate.clear()
        await stream.ask(at(1, OTHER))
        assert data_of(stream.take())[TOPIC_ID] == [0, 1, 2]
        assert stream.fetch._found == {}


async def test_what_the_disk_has_brought_is_checked_when_it_is_told() -> None:
    async with rig(SlowDisk()) as it:
        _, stream = await brought(it)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        await stream.ask(at(1, OTHER))
        errors = {result.topic_id: result.error for result in stream.take().results}
        assert errors[TOPIC_ID] is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_progress_is_told_while_the_disk_is_read() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        await stream.ask(at(1))
        await wait_until(lambda: fs.waiting)
        assert it.replica.high_watermark == 1
        make_cold(fs, it.replica.log)
        await stream.ask(at(2))
        assert it.replica.high_watermark == 2
        fs.gate.set()
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {TOPIC_ID: [2]}, "the follower has moved on while the disk was read"


async def test_a_place_that_is_said_again_is_not_read_again() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        for _ in range(5):
            await stream.ask(at(0))
        await wait_until(lambda: fs.waiting)
        await it.settle()
        assert (fs.waiting_max, len(stream.fetch._cold)) == (1, 1)
        fs.gate.set()
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {TOPIC_ID: [0, 1, 2]}


async def test_no_more_is_read_from_the_disk_at_a_time_than_an_answer_holds() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        for _ in range(3):
            await append(it, OTHER)
        make_cold(fs, it.stepper.replicas[OTHER].log)
        less = len(batch(b"v")) // 2  # of a batch, which is given whole
        await stream.ask(at(0), at(0, OTHER), max_bytes=less)
        await stream.ask(max_bytes=less)
        assert list(stream.fetch._cold) == [KEY]
        fs.gate.set()
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {TOPIC_ID: [0]}
        await stream.ask(max_bytes=less)
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {OTHER[0]: [0]}


async def test_an_answer_with_records_from_the_disk_keeps_within_its_limit() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        limit = 3 * len(batch(b"v")) + 1
        await stream.ask(at(0), at(0, OTHER), max_bytes=limit)
        await wait_until(lambda: fs.waiting)
        other = it.stepper.replicas[OTHER].log  # nothing wakes the stream before the disk does
        await it.stepper.driver.call(lambda: other.append_as_leader(batch(b"x" * 5_000), leader_epoch=0, now_ms=1))
        fs.gate.set()
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {TOPIC_ID: [0, 1, 2]}
        await stream.ask(max_bytes=limit)
        assert data_of(stream.take()) == {OTHER[0]: [0]}


async def test_who_waits_for_room_among_the_reads_is_not_looked_at_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of such partitions would cost each append of another one milliseconds."""
    third = (UUID(int=102), 0)
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        await it.apply(*topic((1, 2), name="third", topic_id=third[0]))
        await append(it, third)
        log, looks, read_cached = it.stepper.replicas[third].log, list[int](), Log.read_cached
        make_cold(fs, log)

        def counted(self: Log, offset: int, **limits: Any) -> Any:
            if self is log:
                looks.append(offset)
            return read_cached(self, offset, **limits)

        monkeypatch.setattr(Log, "read_cached", counted)
        await stream.ask(at(0), at(0, third), at(0, OTHER), max_bytes=100)
        for offset in range(5):
            await append(it, OTHER)
            assert data_of(stream.take()) == {OTHER[0]: [offset]}
            await stream.ask(at(offset + 1, OTHER), max_bytes=100)
        assert len(looks) == 1
        fs.gate.set()
        told: list[UUID] = []
        while third[0] not in told:
            await wait_until(lambda: stream.answers)
            told += [topic_id for topic_id, offsets in data_of(stream.take()).items() if offsets]
            await stream.ask(max_bytes=100)
        assert told == [TOPIC_ID, third[0]]


async def test_a_replica_that_is_being_added_is_given_no_more_than_the_rate_from_the_disk() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 30)
        fs.gate.set()
        await it.apply(throttled(), adding(1))
        await stream.ask(at(0), at(0, OTHER))
        await it.advance(WAIT_MS)
        assert not any(stream.take().batches), "it is read from the disk from now on"
        await stream.ask()
        await wait_until(lambda: stream.answers)
        given = len(b"".join(map(bytes, stream.take().batches)))
        assert 0 < given <= RATE * WAIT_MS / 1000
        assert fs.loop_reads == 0


async def test_leadership_lost_while_the_disk_is_read_is_told() -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        await stream.ask(at(0))
        await wait_until(lambda: fs.waiting)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        fs.gate.set()
        await wait_until(lambda: stream.answers)
        assert stream.take().results[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_disk_with_too_much_to_do_is_asked_again_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(SlowDisk()) as it:
        fs, stream = await lead_two(it, 3)
        monkeypatch.setattr(cold_reads, "COLD_READS_WAITING_MAX", 0)
        await stream.ask(at(0))
        assert (stream.answers, stream.fetch._cold) == ([], {})
        monkeypatch.setattr(cold_reads, "COLD_READS_WAITING_MAX", 10)
        fs.gate.set()
        await it.advance(WAIT_MS)
        stream.answers.clear()
        await stream.ask()
        await wait_until(lambda: stream.answers)
        assert data_of(stream.take()) == {TOPIC_ID: [0, 1, 2]}
