"""Fetch: what consumers and followers may see, and for how long they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest
from broker_kit import KEY, TOPIC_ID, Rig, batch, registered, rig, topic, wait_until

from replog.broker.requests import fetch_path, fetch_reader
from replog.errors import ErrorCode
from replog.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from replog.records import BatchHeader, encode_batch, scan
from replog.replication.fetch_positions import FetchPositions
from replog.replication.messages import FetchAnswered
from replog.rpc.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    ListOffsetsPartition,
)

BROKERS = (registered(1), registered(2), registered(3))


async def two_replicas(it: Rig, records: int = 0) -> None:
    """Records that broker 2 has as well."""
    await it.apply(*BROKERS, *topic((1, 2)))
    waiting = [it.produce() for _ in range(records)]
    it.fetch(records, replica_id=2, max_wait_ms=0)
    await it.settle()
    await asyncio.gather(*waiting)
    assert it.replica.high_watermark == records


def headers(data: bytes) -> list[BatchHeader]:
    return list(scan(data))


def offsets(data: bytes | memoryview | bytearray) -> list[int]:
    return [header.base_offset for header in headers(bytes(data))]


# ---- what a consumer sees ----------------------------------------------------------------------------------------------


async def test_a_consumer_reads_below_the_high_watermark_only() -> None:
    async with rig() as it:
        await two_replicas(it, records=2)
        it.produce()
        fetched = it.fetch(0)
        await it.settle()
        assert offsets(fetched.response.batches[0]) == [0, 1]
        assert (fetched.result.high_watermark, fetched.result.log_end_offset) == (2, -1)


async def test_a_fetch_between_high_watermark_and_log_end_waits() -> None:
    async with rig() as it:
        await two_replicas(it, records=2)
        waiting = [it.produce(), it.produce()]
        at, above = it.fetch(2), it.fetch(3)
        await it.settle()
        assert at.is_parked
        assert above.is_parked
        it.fetch(4, replica_id=2)
        await asyncio.gather(*waiting)
        await it.settle()
        assert offsets(at.response.batches[0]) == [2, 3]
        assert offsets(above.response.batches[0]) == [3]


async def test_nothing_a_consumer_was_given_is_ever_at_or_above_the_high_watermark() -> None:
    """Random produces, follower fetches and consumer fetches."""
    random = Random(4711)
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2, 3)))
        log = it.replica.log
        ends = {2: 0, 3: 0}
        fetched = []
        for _ in range(400):
            match random.randrange(4):
                case 0:
                    it.produce(batch(*[b"v"] * random.randint(1, 3)))
                case 1:
                    replica_id = random.choice([2, 3])
                    ends[replica_id] = random.randint(ends[replica_id], log.log_end_offset)
                    while ends[replica_id] and all(
                        h.next_offset != ends[replica_id]
                        for h in headers(
                            log.read(0, max_bytes=1 << 20, end_offset=log.log_end_offset, min_one_batch=True)
                        )
                    ):
                        ends[replica_id] += 1
                    it.fetch(ends[replica_id], replica_id=replica_id, max_wait_ms=0)
                case 2:
                    fetched.append(it.fetch(random.randint(0, log.log_end_offset), max_wait_ms=random.choice([0, 100])))
                case _:
                    await it.advance(random.randint(0, 50))
            await it.settle()
            for one in fetched:
                for answer in one.answers:
                    assert all(
                        header.next_offset <= answer.results[0].high_watermark
                        for header in headers(bytes(answer.batches[0]))
                    )
                    assert answer.results[0].high_watermark <= min(ends.values())
            fetched = [one for one in fetched if one.is_parked]


# ---- followers that serve consumers --------------------------------------------------------------------------------------


async def follower_with(it: Rig, records: int, high_watermark: int) -> None:
    """Broker 1 follows broker 2, holds `records` and knows that some of them are committed."""
    await it.apply(*BROKERS, *topic((1, 2), leader=2))
    stored = b"".join(
        encode_batch([(1, None, b"v", ())], base_offset=offset, partition_leader_epoch=0) for offset in range(records)
    )
    answer = FetchAnswered(0, 0, ErrorCode.NONE, high_watermark, 0, records, len(stored))
    await it.stepper.driver.call(lambda: it.stepper.step_follower(it.replica, answer, stored))
    assert (it.replica.log.log_end_offset, it.replica.high_watermark) == (records, high_watermark)


async def test_a_follower_serves_consumers_only_where_it_is_told_to() -> None:
    async with rig() as it:
        await follower_with(it, 3, 3)
        fetched = it.fetch(0)
        await it.settle()
        assert (fetched.result.error, fetched.result.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


async def test_a_follower_serves_what_it_knows_to_be_committed() -> None:
    async with rig(replica_selector="rack-aware") as it:
        await follower_with(it, 3, 2)
        fetched, waiting = it.fetch(0), it.fetch(2)
        await it.settle()
        assert offsets(fetched.response.batches[0]) == [0, 1]
        assert (fetched.result.high_watermark, fetched.result.leader_id) == (2, 2)
        assert waiting.is_parked
        committed = FetchAnswered(3, 0, ErrorCode.NONE, 3, 0, 3, 0)
        await it.stepper.driver.call(lambda: it.stepper.step_follower(it.replica, committed))
        await it.settle()
        assert offsets(waiting.response.batches[0]) == [2]


async def test_a_follower_outside_of_the_isr_or_of_another_epoch_serves_nobody() -> None:
    async with rig(replica_selector="rack-aware") as it:
        await follower_with(it, 3, 3)
        at_another_epoch = it.fetch(0, leader_epoch=7)
        await it.settle()
        assert at_another_epoch.result.error is ErrorCode.UNKNOWN_LEADER_EPOCH
        waiting = it.fetch(3)
        await it.settle()
        assert waiting.is_parked
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(2,)))
        fetched = it.fetch(0)
        await it.settle()
        assert fetched.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        another_replica = it.fetch(0, replica_id=3)
        await it.settle()
        assert another_replica.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_waits_at_a_follower_hears_when_that_leaves_the_isr() -> None:
    """Goal: a session looks at what moves, and a follower that hears of its leader no more moves nothing."""
    async with rig(replica_selector="rack-aware") as it:
        await follower_with(it, 3, 3)
        session: FetchPositions[FetchPartition] = FetchPositions(it.fetch_path.movements)
        fetched = it.fetch(3, session=session, max_wait_ms=0)
        await it.settle()
        assert fetched.result.error is ErrorCode.NONE
        waiting, of_session = it.fetch(3), it.fetch(3, keys=(), session=session)
        await it.settle()
        assert waiting.is_parked
        assert of_session.is_parked
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, isr=(2,)))
        assert waiting.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert of_session.result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_out_of_range_says_what_the_range_is() -> None:
    async with rig() as it:
        await two_replicas(it, records=3)
        it.replica.log.set_log_start_offset(1)
        for offset in (0, 4):
            fetched = it.fetch(offset)
            await it.settle()
            result = fetched.result
            assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
            assert (result.log_start_offset, result.log_end_offset) == (1, 3)
            assert f"offset {offset} is outside of [1, 3]" in result.message


# ---- waiting -------------------------------------------------------------------------------------------------------------


async def test_a_parked_fetch_is_answered_once_with_everything_that_arrived_together() -> None:
    async with rig() as it:
        await two_replicas(it)
        follower = it.fetch(0, replica_id=2)
        await it.settle()
        assert follower.is_parked
        for _ in range(5):
            it.produce()
        await it.settle()
        assert offsets(follower.response.batches[0]) == [0, 1, 2, 3, 4]


async def test_time_runs_out_with_an_empty_answer() -> None:
    async with rig() as it:
        await two_replicas(it)
        fetched = it.fetch(0, max_wait_ms=300)
        await it.advance(299)
        assert fetched.is_parked
        await it.advance(1)
        assert (fetched.result.error, fetched.size) == (ErrorCode.NONE, 0)


async def test_no_fetch_waits_longer_than_the_broker_allows() -> None:
    async with rig() as it:
        await two_replicas(it)
        fetched = it.fetch(0, max_wait_ms=2**31 - 1)
        await it.advance(fetch_reader.FETCH_WAIT_MAX_MS)
        assert not fetched.is_parked


async def test_who_does_not_want_to_wait_does_not() -> None:
    async with rig() as it:
        await two_replicas(it)
        fetched = it.fetch(0, max_wait_ms=0)
        await it.settle()
        assert fetched.size == 0


async def test_a_fetch_waits_for_as_much_as_it_wants() -> None:
    async with rig() as it:
        await two_replicas(it)
        wanted = len(batch()) + 1
        follower = it.fetch(0, replica_id=2, min_bytes=wanted)
        it.produce()
        await it.settle()
        assert follower.is_parked
        it.produce()
        await it.settle()
        assert offsets(follower.response.batches[0]) == [0, 1]


async def lose_leadership(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))


async def delete_topic(it: Rig) -> None:
    await it.apply(RemoveTopicRecord(TOPIC_ID))


async def move_away(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2, replicas=(2, 3), isr=(2,)))


async def be_elected_again(it: Rig) -> None:
    await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))


async def stop(it: Rig) -> None:
    await it.manager.stop()


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (lose_leadership, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (delete_topic, ErrorCode.UNKNOWN_TOPIC_ID),
        (move_away, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (be_elected_again, ErrorCode.FENCED_LEADER_EPOCH),
        (stop, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_who_waits_is_told_when_the_leadership_ends(
    event: Callable[[Rig], Awaitable[None]], error: ErrorCode
) -> None:
    async with rig() as it:
        await two_replicas(it)
        consumer, follower = it.fetch(0, leader_epoch=0), it.fetch(0, replica_id=2, leader_epoch=0)
        await it.settle()
        await event(it)
        assert consumer.result.error is error
        assert follower.result.error is error
        assert (it.fetch_path.waiting_count, len(it.fetch_path.movements)) == (0, 0)


async def test_the_waiting_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_path, "MAX_WAITING_FETCHES", 2)
    async with rig() as it:
        await two_replicas(it)
        fetches = [it.fetch(0) for _ in range(3)]
        await it.settle()
        assert [fetched.is_parked for fetched in fetches] == [True, True, False]


async def test_without_its_lease_a_leader_serves_nothing_not_even_what_waits() -> None:
    async with rig() as it:
        await two_replicas(it)
        parked = it.fetch(0, replica_id=2)
        await it.settle()
        it.refused = "cut off from the controller"
        await it.advance(1_000)
        refused = it.fetch(0)
        await it.settle()
        for fetched in (parked, refused):
            assert fetched.result.error is ErrorCode.BROKER_NOT_AVAILABLE
            assert fetched.result.message == "cut off from the controller"


# ---- how much ------------------------------------------------------------------------------------------------------------


async def two_topics(it: Rig) -> list[tuple[UUID, int]]:
    other = UUID(int=101)
    await it.apply(*BROKERS, *topic((1, 2)), *topic((1, 2), name="u", topic_id=other))
    it.produce()
    it.produce()
    await it.settle()
    it.stepper.replicas[other, 0].log.append_as_leader(batch(b"other"), leader_epoch=0, now_ms=0)
    return [KEY, (other, 0)]


async def test_the_first_batch_is_whole_whatever_the_limit() -> None:
    async with rig() as it:
        keys = await two_topics(it)
        fetched = it.fetch(0, replica_id=2, keys=keys, max_bytes=1)
        await it.settle()
        assert [offsets(data) for data in fetched.response.batches] == [[0], []]
        swapped = it.fetch(0, replica_id=2, keys=keys[::-1], max_bytes=1)
        await it.settle()
        assert [offsets(data) for data in swapped.response.batches] == [[0], []]


async def test_all_partitions_share_the_limit_of_the_request() -> None:
    async with rig() as it:
        keys = await two_topics(it)
        fetched = it.fetch(0, replica_id=2, keys=keys, max_bytes=2 * len(batch()) + 1)
        await it.settle()
        assert [offsets(data) for data in fetched.response.batches] == [[0, 1], []]


async def test_an_answer_fits_into_a_message_whatever_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_reader, "MAX_RESPONSE_BYTES", 2 * len(batch()) + 1)
    async with rig() as it:
        keys = await two_topics(it)
        fetched = it.fetch(0, replica_id=2, keys=keys, max_bytes=2**31 - 1)
        await it.settle()
        assert fetched.size <= fetch_reader.MAX_RESPONSE_BYTES


# ---- followers -----------------------------------------------------------------------------------------------------------


async def test_a_follower_reads_to_the_log_end() -> None:
    async with rig() as it:
        await two_replicas(it)
        it.produce()
        fetched = it.fetch(0, replica_id=2)
        await it.settle()
        assert offsets(fetched.response.batches[0]) == [0]
        assert (fetched.result.high_watermark, fetched.result.log_end_offset) == (0, 1)


async def test_a_fetch_that_was_parked_does_not_count_as_progress_again() -> None:
    async with rig() as it:
        await two_replicas(it, records=1)
        it.fetch(1, replica_id=2)
        await it.settle()
        it.produce()
        await it.settle()
        assert it.replica.high_watermark == 1


@pytest.mark.parametrize(
    ("replica_id", "broker_epoch", "error"),
    [
        (3, 103, ErrorCode.UNKNOWN_LEADER_EPOCH),  # not a replica, as far as is known here
        (-7, 103, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, 99, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # an incarnation that has been replaced
    ],
)
async def test_who_is_no_follower_moves_no_high_watermark(replica_id: int, broker_epoch: int, error: ErrorCode) -> None:
    async with rig() as it:
        await two_replicas(it)
        it.produce()
        fetched = it.fetch(1, replica_id=replica_id, broker_epoch=broker_epoch)
        await it.settle()
        assert fetched.result.error is error
        assert it.replica.high_watermark == 0


# ---- fetches that nobody waits for -----------------------------------------------------------------------------------------


async def test_a_fetch_that_is_withdrawn_stops_waiting_and_is_not_answered() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1,)))
        parked, queued, kept = it.fetch(0), it.fetch(0), it.fetch(0)
        queued.withdraw()
        await it.settle()
        assert it.fetch_path.waiting_count == 2
        parked.withdraw()
        await it.settle()
        assert it.fetch_path.waiting_count == 1
        await it.committed(1)
        await it.settle()
        assert (parked.answers, queued.answers) == ([], [])
        assert offsets(kept.response.batches[0]) == [0]
        kept.withdraw()  # it is answered
        await it.settle()


# ---- offsets -------------------------------------------------------------------------------------------------------------


async def list_offset(it: Rig, timestamp: int, leader_epoch: int = -1) -> tuple[ErrorCode, int]:
    asked = ListOffsetsPartition(TOPIC_ID, 0, timestamp, leader_epoch)
    result = await it.stepper.driver.call(lambda: it.look_ups.list_offset(asked)) or await it.look_ups.search(asked)
    return result.error, result.offset


async def test_the_latest_offset_is_the_high_watermark() -> None:
    async with rig() as it:
        await two_replicas(it, records=2)
        it.produce()
        await it.settle()
        assert await list_offset(it, LATEST_TIMESTAMP) == (ErrorCode.NONE, 2)
        assert await list_offset(it, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)


async def test_a_new_leader_does_not_know_the_latest_offset_yet() -> None:
    """KIP-207: what was acknowledged and visible before must not seem to be gone."""
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2), leader=2))
        it.replica.log.append_as_follower(stamped(0), now_ms=0)
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=1))
        for timestamp in (LATEST_TIMESTAMP, 1):
            assert await list_offset(it, timestamp) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await list_offset(it, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)
        it.fetch(1, replica_id=2)
        assert await list_offset(it, LATEST_TIMESTAMP) == (ErrorCode.NONE, 1)
        assert await list_offset(it, 1) == (ErrorCode.NONE, 0)
        assert await list_offset(it, 10**15) == (ErrorCode.NONE, -1)


def stamped(base_offset: int) -> bytes:
    """As a leader stored it."""
    from replog.records import encode_batch

    return encode_batch([(1, None, b"v", ())], base_offset=base_offset, partition_leader_epoch=0)


async def test_a_lookup_by_time_finds_nothing_above_the_high_watermark() -> None:
    async with rig() as it:
        await two_replicas(it)
        it.produce(batch(timestamp_ms=50))
        await it.settle()
        assert await list_offset(it, 50) == (ErrorCode.NONE, -1)
        it.fetch(1, replica_id=2)
        await it.settle()
        assert await list_offset(it, 50) == (ErrorCode.NONE, 0)


async def test_offsets_are_refused_like_fetches() -> None:
    async with rig() as it:
        assert await list_offset(it, LATEST_TIMESTAMP) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
        await two_replicas(it)
        assert await list_offset(it, LATEST_TIMESTAMP, 7) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        await lose_leadership(it)
        assert await list_offset(it, LATEST_TIMESTAMP) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        it.refused = "cut off"
        assert await list_offset(it, LATEST_TIMESTAMP) == (ErrorCode.BROKER_NOT_AVAILABLE, -1)


# ---- many partitions ----------------------------------------------------------------------------------------------------


async def test_others_have_their_turn_while_many_partitions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_path, "PARTITIONS_AT_ONCE", 2)
    async with rig() as it:
        await two_replicas(it, records=2)
        reads: list[int] = []
        real = fetch_reader.FetchReader.read_warm

        def noted(me: fetch_reader.FetchReader, request: FetchRequest, *others: Any, **named: Any) -> Any:
            reads.append(len(request.partitions))
            return real(me, request, *others, **named)

        monkeypatch.setattr(fetch_reader.FetchReader, "read_warm", noted)
        fetched = it.fetch(0, keys=(KEY,) * 5, max_bytes=len(batch()) * 3)
        turns = [await it.stepper.driver.call(lambda: len(reads)) for _ in range(3)]
        await it.settle()
        assert (reads, turns) == ([2, 2, 1], [1, 2, 3])
        assert [offsets(data) for data in fetched.response.batches] == [[0, 1], [0], [], [], []]


async def test_what_comes_while_many_partitions_are_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_path, "PARTITIONS_AT_ONCE", 2)
    async with rig() as it:
        await two_replicas(it)
        await it.apply(*topic(name="u", topic_id=UUID(int=101)))
        keys = (KEY, *((UUID(int=101), 0),) * 40)
        fetched = it.fetch(0, keys=keys, max_wait_ms=60_000, min_bytes=1 << 20)
        await it.stepper.driver.call(lambda: None)  # the first ones are read
        appended = it.produce()
        it.fetch(1, replica_id=2)
        await appended
        await wait_until(lambda: fetched.answers)
        assert offsets(fetched.response.batches[0]) == [0]


async def test_a_fetch_of_many_partitions_waits_and_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_path, "PARTITIONS_AT_ONCE", 2)
    async with rig() as it:
        await two_replicas(it)
        fetched = it.fetch(0, keys=(KEY,) * 5, max_wait_ms=60_000)
        await it.settle()
        assert fetched.is_parked
        assert len(it.fetch_path.movements) == 1
        appended = it.produce()
        it.fetch(1, replica_id=2)
        await it.settle()
        await appended
        assert offsets(fetched.response.batches[0]) == [0]
