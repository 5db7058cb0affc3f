"""Fetch, as consumers send it to a node's port: what is read, for how long they wait, what a session spares them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from kafka_node_kit import Served, batch, serving

from replog.broker.requests.fetch_reader import FetchReader
from replog.controller.requests import DeleteTopics
from replog.errors import ErrorCode
from replog.protocol.handlers.node import NO_TOPIC_ID
from replog.records import decode_batch, encode_batch, encode_end_transaction_marker, scan
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from tests.envelopes import CLIENT, sender

VERSIONS = range(4, 19)
BY_NAME, BY_ID = 12, 18
LONG_MS = 60_000
Partition = FetchRequest.FetchPartition


def asking(
    *partitions: Partition, topic: str = "t", topic_id: UUID = NO_TOPIC_ID, max_wait_ms: int = 0, **others: Any
) -> FetchRequest:
    """A fetch of some partitions of one topic."""
    topics = [FetchRequest.FetchTopic(topic, topic_id, list(partitions))] if partitions else []
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=others.pop("min_bytes", 1), topics=topics, **others)


def at(offset: int, partition: int = 0, **others: Any) -> Partition:
    return Partition(partition, fetch_offset=offset, partition_max_bytes=others.pop("max_bytes", 1 << 20), **others)


async def fetched(it: Served, request: FetchRequest, version: int = BY_NAME) -> FetchResponse:
    response = await it.ask(request, version, FetchResponse)
    assert isinstance(response, FetchResponse)
    return response


async def one(it: Served, request: FetchRequest, version: int = BY_NAME) -> FetchResponse.PartitionData:
    """The only partition of an answer."""
    response = await fetched(it, request, version)
    ((told,),) = (topic.partitions for topic in response.responses)
    return told


def offsets(records: memoryview | bytes | None) -> list[int]:
    assert records is not None
    return [header.base_offset for header in scan(bytes(records))]


def told_of(response: FetchResponse) -> dict[int, list[int]]:
    return {p.partition_index: offsets(p.records) for topic in response.responses for p in topic.partitions}


# ---- what is read ----------------------------------------------------------------------------------------------------


async def test_what_was_produced_is_read_in_every_version() -> None:
    async with serving() as it:
        topic_id = await it.create()
        await it.produce(batch(b"a", b"b"), batch(b"c" * 9000))
        for version in VERSIONS:
            told = await one(it, asking(at(0), topic_id=topic_id), version)
            assert (told.error_code, told.high_watermark, told.last_stable_offset) == (ErrorCode.NONE, 3, 3), version
            assert told.records is not None
            data = bytes(told.records)
            values = [
                record.value
                for header in scan(data)
                for record in decode_batch(data[header.position : header.end_position])
            ]
            assert values == [b"a", b"b", b"c" * 9000], version
            assert (told.aborted_transactions, told.preferred_read_replica) == (None, -1)


async def test_an_answer_without_records_has_empty_ones() -> None:
    """Trap: librdkafka takes null for a broken answer."""
    async with serving() as it:
        topic_id = await it.create()
        for version in VERSIONS:
            told = await one(it, asking(at(0), topic_id=topic_id), version)
            assert (told.error_code, told.records, told.high_watermark) == (ErrorCode.NONE, b"", 0)


@pytest.mark.parametrize(("max_bytes", "partition_max_bytes"), [(0, 0), (1, 1 << 20), (1 << 20, 1), (-1, -1)])
async def test_a_batch_larger_than_all_limits_is_sent_whole(max_bytes: int, partition_max_bytes: int) -> None:
    """Goal: a consumer whose limits are too small goes on, slowly (KIP-74)."""
    async with serving() as it:
        await it.create(partitions=2)
        await it.produce(batch(b"x" * 5000), batch())
        await it.produce(batch(b"y" * 5000), partition=1)
        partitions = [at(0, number, max_bytes=partition_max_bytes) for number in (0, 1)]
        response = await fetched(it, asking(*partitions, max_bytes=max_bytes))
        assert told_of(response) == {0: [0], 1: []}


async def test_an_answer_ends_at_its_limit_of_bytes() -> None:
    async with serving() as it:
        await it.create(partitions=2)
        for partition in (0, 1):
            await it.produce(*(batch(b"x" * 1000) for _ in range(5)), partition=partition)
        response = await fetched(it, asking(at(0, 0), at(0, 1), max_bytes=7500))
        assert told_of(response) == {0: [0, 1, 2, 3, 4], 1: [0, 1]}
        response = await fetched(it, asking(at(0, 0, max_bytes=2500), at(3, 1, max_bytes=1500)))
        assert told_of(response) == {0: [0, 1], 1: [3]}


async def test_offsets_that_are_not_there_are_out_of_range() -> None:
    async with serving() as it:
        await it.create()
        await it.produce(batch())
        for offset in (-1, 2, 10**12):
            told = await one(it, asking(at(offset), max_wait_ms=LONG_MS))
            assert (told.error_code, told.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


async def test_what_is_not_known_is_said_by_name_and_by_id() -> None:
    async with serving() as it:
        topic_id = await it.create()
        for version, name, unknown, error in (
            (4, "u", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (BY_NAME, "u", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (13, "", UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID),
            (BY_ID, "", UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            told = await one(it, asking(at(0), topic=name, topic_id=unknown, max_wait_ms=LONG_MS), version)
            assert (told.error_code, told.high_watermark, told.records) == (error, -1, b"")
            told = await one(it, asking(at(0, 7), topic_id=topic_id, max_wait_ms=LONG_MS), version)
            assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_is_gone_is_unknown_within_a_session() -> None:
    async with serving() as it:
        topic_id = await it.create()
        begun = await fetched(it, asking(at(0), topic_id=topic_id, session_epoch=0), BY_ID)
        await it.kafka.change(DeleteTopics(("t",)), 5000, sender(CLIENT))
        await it.until(lambda: "t" not in it.kafka.image.topics_by_name)
        request = asking(session_id=begun.session_id, session_epoch=1, max_wait_ms=LONG_MS)
        assert (await one(it, request, BY_ID)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_leader_epochs_are_compared() -> None:
    async with serving() as it:
        await it.create()
        await it.produce(batch())
        known = it.kafka.image.topics_by_name["t"].partitions[0].leader_epoch
        for version, epoch, error in (
            (8, 99, ErrorCode.NONE),  # not told yet
            (9, known, ErrorCode.NONE),
            (9, -1, ErrorCode.NONE),
            (9, known + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            told = await one(it, asking(at(0, current_leader_epoch=epoch), max_wait_ms=LONG_MS), version)
            assert told.error_code == error


async def test_a_consumer_that_read_what_was_cut_away_hears_where_its_epoch_ended() -> None:
    async with serving() as it:
        await it.create()
        await it.produce(batch(), batch())
        log = it.node.parts.replicas.stepper.replicas[it.kafka.image.topics_by_name["t"].topic_id, 0].log
        epoch = log.last_epoch
        assert epoch is not None
        told = await one(it, asking(at(2, last_fetched_epoch=epoch), max_wait_ms=0))
        assert told.diverging_epoch is None
        told = await one(it, asking(at(5, last_fetched_epoch=epoch), max_wait_ms=LONG_MS))
        assert told.diverging_epoch == FetchResponse.EpochEndOffset(epoch, 2)
        assert (told.error_code, told.records) == (ErrorCode.NONE, b"")


async def test_readers_of_committed_transactions_are_told_what_was_aborted() -> None:
    async with serving() as it:
        topic_id = await it.create()
        transactional: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        marker = encode_end_transaction_marker(
            base_offset=0,
            leader_epoch=-1,
            timestamp_ms=1,
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=1,
            is_commit=False,
        )
        stepper = it.node.parts.replicas.stepper
        records = [(1, None, b"v", ())]
        first = encode_batch(records, base_sequence=0, **transactional)
        second = encode_batch(records, base_sequence=1, **transactional)

        def write() -> None:
            for data in (first, marker, second):
                stepper.replicas[topic_id, 0].log.append_as_leader(data, leader_epoch=0, now_ms=1)

        await stepper.driver.call(write)
        await it.produce(batch())
        for version in VERSIONS:
            told = await one(it, asking(at(0), topic_id=topic_id, isolation_level=1), version)
            assert (told.high_watermark, told.last_stable_offset, offsets(told.records)) == (4, 2, [0, 1])
            assert told.aborted_transactions == [FetchResponse.AbortedTransaction(7, 0)]
            told = await one(it, asking(at(0), topic_id=topic_id), version)
            assert (told.aborted_transactions, offsets(told.records)) == (None, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        (4, asking(at(0), replica_id=2)),
        (14, asking(at(0), replica_id=2)),
        (BY_ID, asking(at(0), replica_state=FetchRequest.ReplicaState(2, 5))),
        (BY_NAME, asking(at(0), isolation_level=2)),
    ],
    ids=["follower", "follower by id", "follower with its state", "isolation"],
)
async def test_who_is_no_consumer_is_refused(version: int, request_: FetchRequest) -> None:
    async with serving() as it:
        await it.create()
        response = await fetched(it, request_, version)
        assert version < 7 or response.error_code == ErrorCode.INVALID_REQUEST
        assert [p.error_code for t in response.responses for p in t.partitions] == [ErrorCode.INVALID_REQUEST]


# ---- waiting ---------------------------------------------------------------------------------------------------------


async def test_an_empty_incremental_fetch_waits() -> None:
    """Trap: redpanda #1123: answered at once, a consumer with nothing to read keeps a broker busy."""
    async with serving() as it:
        await it.create()
        producer = await it.client()  # the first one, by which records come
        consumer = await it.client()
        begun = await it.ask(asking(at(0), session_epoch=0), BY_NAME, FetchResponse, consumer)
        request = asking(session_id=begun.session_id, session_epoch=1, max_wait_ms=LONG_MS)
        waiting = asyncio.ensure_future(it.ask(request, BY_NAME, FetchResponse, consumer))
        await it.until(it.waiting_fetches)
        assert not waiting.done()
        await it.produce(batch())
        assert told_of(await waiting) == {0: [0]}
        request = asking(at(1), session_id=begun.session_id, session_epoch=2, max_wait_ms=20)
        empty = await it.ask(request, BY_NAME, FetchResponse, consumer)
        assert (empty.session_id, empty.responses, empty.error_code) == (begun.session_id, [], 0)
        assert producer is not consumer


async def test_a_fetch_waits_for_as_many_bytes_as_it_wants() -> None:
    async with serving() as it:
        await it.create()
        await it.produce(batch())
        consumer = await it.client()
        request = asking(at(0), min_bytes=150, max_wait_ms=LONG_MS)
        waiting = asyncio.ensure_future(it.ask(request, BY_NAME, FetchResponse, consumer))
        await it.until(it.waiting_fetches)
        await it.produce(batch())
        assert it.waiting_fetches()
        await it.produce(batch())
        assert told_of(await waiting) == {0: [0, 1, 2]}


async def test_a_consumer_that_leaves_while_it_waits_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: consumers that come and go do not fill the purgatory, where then nobody could wait."""
    async with serving() as it:
        await it.create()
        await it.client()
        consumer = await it.client()
        await asyncio.to_thread(consumer.send, asking(at(0), max_wait_ms=LONG_MS), BY_NAME)
        await it.until(it.waiting_fetches)
        consumer.connection.close()
        await it.until(lambda: not it.waiting_fetches())
        await it.produce(batch())
        assert told_of(await fetched(it, asking(at(0)))) == {0: [0]}
        assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


# ---- sessions --------------------------------------------------------------------------------------------------------


async def test_a_session_tells_news_only() -> None:
    async with serving() as it:
        await it.create(partitions=3)
        begun = await fetched(it, asking(at(0, 0), at(0, 1), at(0, 2), session_epoch=0))
        assert begun.session_id > 0
        assert told_of(begun) == {0: [], 1: [], 2: []}
        await it.produce(batch(), partition=1)
        response = await fetched(it, asking(session_id=begun.session_id, session_epoch=1))
        assert (response.session_id, told_of(response)) == (begun.session_id, {1: [0]})
        forgotten = [FetchRequest.ForgottenTopic("t", partitions=[0])]
        request = asking(at(1, 1), session_id=begun.session_id, session_epoch=2, forgotten_topics_data=forgotten)
        assert told_of(await fetched(it, request)) == {}
        for partition in (0, 2):
            await it.produce(batch(), partition=partition)
        assert told_of(await fetched(it, asking(session_id=begun.session_id, session_epoch=3))) == {2: [0]}


async def test_a_session_costs_what_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a consumer of thousands of partitions, of which one moves, is served by looking at that one."""
    async with serving() as it:
        topic_id = await it.create(partitions=40)
        await it.client()  # the first one, by which records come
        consumer = await it.client()
        asked = asking(*(at(0, number) for number in range(40)), topic_id=topic_id, session_epoch=0)
        begun = await it.ask(asked, BY_ID, FetchResponse, consumer)
        looks: list[int] = []
        for name in ("_read", "has_something"):
            real = getattr(FetchReader, name)

            def counted(self: Any, request: Any, partition: Any, *others: Any, real: Any = real, **named: Any) -> Any:
                looks.append(partition.partition_id)
                return real(self, request, partition, *others, **named)

            monkeypatch.setattr(FetchReader, name, counted)
        for epoch in range(1, 4):
            changed = (at(epoch - 1, 7),) if epoch > 1 else ()
            request = asking(
                *changed, topic_id=topic_id, session_id=begun.session_id, session_epoch=epoch, max_wait_ms=LONG_MS
            )
            waiting = asyncio.ensure_future(it.ask(request, BY_ID, FetchResponse, consumer))
            await it.until(it.waiting_fetches)
            await it.produce(batch(), partition=7)
            assert told_of(await waiting) == {7: [epoch - 1]}
        assert set(looks) == {7}
        assert len(looks) <= 3 * 6


async def test_a_session_ends_at_once_with_its_connection() -> None:
    """Goal: consumers that come and go do not keep the room of others for minutes."""
    async with serving(kafka_fetch_sessions=1) as it:
        await it.create()
        for _ in range(3):
            consumer = await it.client()
            begun = await it.ask(asking(at(0), session_epoch=0), BY_NAME, FetchResponse, consumer)
            assert begun.session_id > 0
            consumer.connection.close()
            await it.until(lambda: len(it.kafka.fetch_sessions) == 0)
        assert len(it.node.parts.requests.fetch_path.movements) == 0


@pytest.mark.parametrize("version", [7, BY_NAME, BY_ID])
async def test_sessions_that_are_unknown_or_at_another_epoch_are_refused(version: int) -> None:
    async with serving() as it:
        topic_id = await it.create()
        begun = await fetched(it, asking(at(0), topic_id=topic_id, session_epoch=0), version)
        for session_id, epoch, error in (
            (begun.session_id ^ 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (begun.session_id, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ):
            response = await fetched(it, asking(session_id=session_id, session_epoch=epoch), version)
            assert (response.error_code, response.session_id, response.responses) == (error, 0, [])


async def test_a_session_of_names_is_not_one_of_ids() -> None:
    async with serving() as it:
        await it.create()
        begun = await fetched(it, asking(at(0), session_epoch=0), BY_NAME)
        response = await fetched(it, asking(session_id=begun.session_id, session_epoch=1), BY_ID)
        assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_partitions_take_turns_where_an_answer_has_room_for_one() -> None:
    async with serving() as it:
        await it.create(partitions=3)
        for partition in range(3):
            await it.produce(*(batch(b"x" * 1000) for _ in range(2)), partition=partition)
        begun = await fetched(it, asking(*(at(0, number) for number in range(3)), session_epoch=0, max_bytes=1))
        served, positions = told_of(begun), dict.fromkeys(range(3), 0)
        order = []
        for epoch in range(1, 6):
            (number,) = [number for number, found in served.items() if found]
            order.append(number)
            positions[number] += 1
            request = asking(
                at(positions[number], number), session_id=begun.session_id, session_epoch=epoch, max_bytes=1
            )
            served = told_of(await fetched(it, request))
        assert order == [0, 1, 2, 0, 1]


async def test_where_there_is_no_room_for_a_session_all_is_told() -> None:
    async with serving(kafka_fetch_sessions=0) as it:
        await it.create(partitions=2)
        for _ in range(2):
            response = await fetched(it, asking(at(0, 0), at(0, 1), session_epoch=0))
            assert (response.session_id, told_of(response)) == (0, {0: [], 1: []})


async def test_names_that_no_topic_has_never_enter_a_session() -> None:
    """Goal: sessions are bounded by partitions, and a name of 32 KiB would take as much as a hundred of them.  A topic that is
    made later is found, since the consumer names it each time."""
    async with serving() as it:
        await it.create()
        request = asking(at(0), session_epoch=0)
        request.topics.append(FetchRequest.FetchTopic("x" * 30_000, partitions=[at(0, 3)]))
        begun = await fetched(it, request)
        assert [
            (len(topic.topic), p.partition_index, p.error_code) for topic in begun.responses for p in topic.partitions
        ] == [(1, 0, ErrorCode.NONE), (30_000, 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert (begun.session_id, it.kafka.fetch_sessions.partitions_count) == (0, 0)
