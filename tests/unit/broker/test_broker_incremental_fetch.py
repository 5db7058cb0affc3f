"""Incremental fetches on the leader: positions stand, answers name what is new, whoever waits is woken."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from broker_kit import KEY, TOPIC_ID, batch, rig, topic, wait_until
from stream_kit import BROKERS, OTHER, RATE, WAIT_MS, Stream, adding, append, at, data_of, throttled, two_topics

from replog.broker.requests import incremental_fetch
from replog.broker.requests.fetch_reader import FetchReader
from replog.errors import ErrorCode
from replog.metadata.records import ConfigRecord, PartitionChangeRecord, ResourceType
from replog.records import scan
from replog.rpc.messages import FetchRequest, FetchResponse, FetchResult


def result_of(answer: FetchResponse) -> FetchResult:
    (result,) = answer.results
    return result


async def test_a_position_stands_until_records_answer_it() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0), at(0, OTHER))
        assert stream.answers == []
        await append(it, KEY)
        answer = stream.take()
        assert data_of(answer)[TOPIC_ID] == [0]
        await append(it, KEY)
        await stream.ask()
        assert stream.answers == [], "a position that was answered is not read again"
        await append(it, OTHER)
        assert data_of(stream.take()) == {OTHER[0]: [0]}
        await stream.ask(at(1))
        assert data_of(stream.take()) == {TOPIC_ID: [1]}


async def test_a_request_that_finds_nothing_new_is_answered_when_its_time_is_over() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        first = await stream.ask(at(0), at(0, OTHER))
        await it.advance(WAIT_MS - 1)
        assert stream.answers == []
        await it.advance(1)
        answer = stream.take()
        assert (answer.correlation_id, len(answer.results)) == (first, 2), "what has not been told"
        await stream.ask()
        await it.advance(WAIT_MS)
        assert stream.take().results == ()


async def test_a_high_watermark_is_news_that_wakes_nobody() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0))
        await append(it, KEY)
        assert result_of(stream.take()).high_watermark == 0
        await stream.ask(at(1))
        assert it.replica.high_watermark == 1
        assert stream.answers == []
        await it.advance(WAIT_MS)
        answer = stream.take()
        assert (result_of(answer).high_watermark, bytes(answer.batches[0])) == (1, b"")
        await stream.ask()
        await it.advance(WAIT_MS)
        assert stream.take().results == (), "told once"


async def test_fetches_count_as_progress_when_they_come_only() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        produced = it.produce()
        await stream.ask(at(0))
        stream.take()
        assert not produced.done()
        await stream.ask(at(1))
        assert (await asyncio.wait_for(produced, 60)).error is ErrorCode.NONE


async def test_what_does_not_fit_comes_next_and_before_what_comes_later() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        for key in (KEY, KEY, OTHER):
            await append(it, key)
        size = len(batch(b"v"))
        await stream.ask(at(0), at(0, OTHER), max_bytes=size)
        assert data_of(stream.take()) == {TOPIC_ID: [0]}
        await stream.ask(at(1), max_bytes=size)
        assert data_of(stream.take()) == {OTHER[0]: [0]}, "one that always has something does not hold up the others"
        await stream.ask(max_bytes=size)
        assert data_of(stream.take()) == {TOPIC_ID: [1]}


async def test_an_error_answers_a_position() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0, leader_epoch=5), at(0, OTHER))
        errors = {result.topic_id: result.error for result in stream.take().results}
        assert errors[TOPIC_ID] is ErrorCode.UNKNOWN_LEADER_EPOCH
        await stream.ask()
        assert stream.answers == []


async def test_a_lost_leadership_is_told_at_once() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0), at(0, OTHER))
        await it.apply(PartitionChangeRecord(0, TOPIC_ID, leader=2))
        errors = {result.topic_id: result.error for result in stream.take().results}
        assert errors[TOPIC_ID] is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_forgotten_partition_is_not_read_any_more() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0), at(0, OTHER))
        await stream.ask(forgotten=(KEY,))
        await append(it, KEY)
        assert stream.answers == []
        await append(it, OTHER)
        assert data_of(stream.take()) == {OTHER[0]: [0]}


async def test_a_second_request_is_served_with_the_first() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0))
        await it.advance(WAIT_MS - 1)
        second = await stream.ask(at(0, OTHER))
        assert stream.merged_count == 1
        await it.advance(1)
        assert stream.take().correlation_id == second, "at the earlier of their times"


async def test_a_broker_that_may_not_serve_says_so_for_every_position() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0), at(0, OTHER))
        it.refused = "cut off"
        await it.advance(WAIT_MS)
        assert {result.error for result in stream.take().results} == {ErrorCode.BROKER_NOT_AVAILABLE}


async def test_the_end_of_a_stream_leaves_nothing_behind() -> None:
    async with rig() as it:
        await two_topics(it)
        stream = Stream(it)
        await stream.ask(at(0), at(0, OTHER))
        it.fetch_path.close_incremental(stream.fetch)
        await it.settle()
        fetches = it.fetch_path.incremental
        assert (len(fetches), fetches.next_deadline_ms(), len(it.fetch_path.movements)) == (0, None, 0)
        await append(it, KEY)
        assert stream.answers == []


async def test_an_unknown_partition_does_not_hold_up_the_others() -> None:
    async with rig() as it:
        await it.apply(*BROKERS, *topic((1, 2)))
        later = []
        it.wait_for_image = lambda run: later.append(run) is None
        stream = Stream(it)
        await append(it, KEY)
        await stream.ask(at(0), at(0, OTHER))
        assert data_of(stream.take()) == {TOPIC_ID: [0]}
        await stream.ask()
        it.wait_for_image = lambda _run: False
        await it.apply(*topic((1, 2), name="other", topic_id=OTHER[0]))
        await it.stepper.driver.call(later[0])
        await append(it, OTHER)
        assert data_of(stream.take()) == {OTHER[0]: [0]}


# ---- the throttle of replicas that are being added --------------------------------------------------------------------


async def test_a_replica_that_is_being_added_is_given_no_more_than_the_rate() -> None:
    async with rig() as it:
        await two_topics(it)
        await it.apply(throttled(), adding(1))
        for _ in range(300):
            await append(it, KEY)
        await wait_until(lambda: it.replica.high_watermark == 300)  # who has so much is in sync
        stream = Stream(it)
        await stream.ask(at(0), at(0, OTHER))
        given, asked_s, offset = 0, 0.0, 0
        while asked_s < 10:
            await it.advance(WAIT_MS)
            asked_s += WAIT_MS / 1000
            (answer,) = stream.answers
            stream.answers.clear()
            given += sum(map(len, answer.batches))
            for header in [header for batches in answer.batches for header in scan(bytes(batches))]:
                offset = header.next_offset
            await stream.ask(at(offset)) if any(answer.batches) else await stream.ask()
        size = len(batch(b"v"))
        assert RATE * 9 - size <= given <= RATE * 10 + size


async def test_replicas_that_are_not_being_added_are_not_throttled() -> None:
    async with rig() as it:
        await two_topics(it)
        await it.apply(throttled("1"))
        for _ in range(100):
            await append(it, KEY)
        stream = Stream(it)
        await stream.ask(at(0))
        assert len(data_of(stream.take())[TOPIC_ID]) == 100


async def test_a_replica_that_is_in_sync_before_the_others_that_are_added_is_not_throttled() -> None:
    async with rig() as it:
        await two_topics(it)
        await it.apply(throttled(), adding(1, 2))
        for _ in range(100):
            await append(it, KEY)
        stream = Stream(it)
        await stream.ask(at(0))
        assert len(data_of(stream.take())[TOPIC_ID]) == 100, "acknowledgements wait for it"


async def test_a_throttle_that_is_lifted_holds_nobody_up() -> None:
    async with rig() as it:
        await two_topics(it)
        await it.apply(throttled(), adding(1))
        for _ in range(100):
            await append(it, KEY)
        stream = Stream(it)
        await stream.ask(at(0))
        assert stream.answers == []
        await it.apply(ConfigRecord(ResourceType.BROKER, "", "leader.replication.throttled.rate", None))
        await it.advance(WAIT_MS)
        assert len(data_of(stream.take())[TOPIC_ID]) == 100


async def test_thousands_of_positions_are_looked_at_some_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: with each request all positions that had nothing to tell were read again, and ten thousand held the loop for 150 ms."""
    monkeypatch.setattr(incremental_fetch, "LOOKED_TOGETHER", 3)
    looks: list[int] = []
    read = FetchReader.read_warm

    def noted(reader: FetchReader, request: FetchRequest, *others: Any, **named: Any) -> Any:
        looks.append(len(request.partitions))
        return read(reader, request, *others, **named)

    monkeypatch.setattr(FetchReader, "read_warm", noted)
    many = [(UUID(int=200 + number), 0) for number in range(10)]
    async with rig() as it:
        made = [topic((1, 2), name=f"t{number}", topic_id=key[0]) for number, key in enumerate(many)]
        await it.apply(*BROKERS, *(record for records in made for record in records))
        stream = Stream(it)
        await stream.ask(*(at(0, key) for key in many))
        await wait_until(lambda: len(looks) == 4)
        assert (looks, stream.answers) == ([3, 3, 3, 1 + 2], [])
        await append(it, many[9])
        assert data_of(stream.take())[many[9][0]] == [0], "what has records is looked at first"
        told = 2
        await stream.ask(at(1, many[9]))
        await it.advance(WAIT_MS)
        while told < 10:
            answer = stream.take()
            assert 1 <= len(answer.results) <= 3
            told += len(answer.results)
            await stream.ask()
        assert stream.answers == [], "everything is told, and nobody waits for it more than once"
        assert max(looks) == 3
