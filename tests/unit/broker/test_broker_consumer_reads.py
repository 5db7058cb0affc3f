"""What consumers of Kafka's port ask beyond our own: committed transactions, a replica nearer to them, more kinds of offsets."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from broker_kit import TOPIC_ID, Rig, batch, registered, rig, topic
from msgspec.structs import replace
from node_kit import node

from replog.broker.replicas.stepper import SEARCHES_MAX
from replog.errors import CorruptRecordError, ErrorCode
from replog.log import Log
from replog.log.reading.time_search import SegmentSearch
from replog.metadata.records import MetadataRecord
from replog.records import encode_batch, encode_end_transaction_marker, scan
from replog.replication.fetch_positions import FetchPositions
from replog.rpc.messages import (
    FROM_OFFSET_TIMESTAMP,
    LARGEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    AbortedTransaction,
    FetchPartition,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
)
from replog.testing import SimulatedFileSystem

BROKERS = (registered(1), registered(2), registered(3))


def data(producer_id: int, sequence: int) -> bytes:
    return encode_batch(
        [(1, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(producer_id: int, *, commit: bool) -> bytes:
    return encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=-1,
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=1,
        is_commit=commit,
    )


async def transactions(it: Rig) -> None:
    """7 from 0 aborts at 2, 8 from 3 commits at 4, 9 from 5 stays open; 8 records, as a log of Kafka's has them."""
    await it.apply(*BROKERS, *topic((1,)))
    written = (data(7, 0), batch(), marker(7, commit=False), data(8, 0), marker(8, commit=True), data(9, 0), batch())

    def write() -> None:
        for one in written:
            it.replica.log.append_as_leader(one, leader_epoch=0, now_ms=0)

    await it.stepper.driver.call(write)
    await it.committed(1)
    assert it.replica.high_watermark == 8


def offsets(sent: bytes | memoryview | bytearray) -> list[int]:
    return [header.base_offset for header in scan(bytes(sent))]


async def test_committed_records_end_at_the_last_stable_offset() -> None:
    async with rig() as it:
        await transactions(it)
        committed, uncommitted = it.fetch(0, read_committed=True), it.fetch(0)
        await it.settle()
        assert offsets(committed.response.batches[0]) == [0, 1, 2, 3, 4]
        assert committed.result.aborted == (AbortedTransaction(7, 0),)
        assert offsets(uncommitted.response.batches[0]) == [0, 1, 2, 3, 4, 5, 6, 7]
        assert uncommitted.result.aborted == ()
        for fetched in (committed, uncommitted):
            assert (fetched.result.last_stable_offset, fetched.result.high_watermark) == (5, 8)


async def test_only_what_was_aborted_within_the_answer_is_named() -> None:
    async with rig() as it:
        await transactions(it)
        later, first = it.fetch(3, read_committed=True), it.fetch(0, read_committed=True, max_bytes=1)
        await it.settle()
        assert (offsets(later.response.batches[0]), later.result.aborted) == ([3, 4], ())
        assert (offsets(first.response.batches[0]), first.result.aborted) == ([0], (AbortedTransaction(7, 0),))


async def test_a_transaction_that_begins_behind_the_answer_is_not_named() -> None:
    async with rig() as it:
        await transactions(it)
        await it.stepper.driver.call(
            lambda: it.replica.log.append_as_leader(marker(9, commit=False), leader_epoch=0, now_ms=0)
        )
        await it.committed(1)
        short, whole = it.fetch(3, read_committed=True, max_bytes=1), it.fetch(3, read_committed=True)
        await it.settle()
        assert (offsets(short.response.batches[0]), short.result.aborted) == ([3], ())
        assert whole.result.aborted == (AbortedTransaction(9, 5),)


async def test_a_fetch_at_the_last_stable_offset_waits_until_the_transaction_ends() -> None:
    async with rig() as it:
        await transactions(it)
        waiting = it.fetch(5, read_committed=True)
        await it.settle()
        assert waiting.is_parked
        await it.committed(1)
        assert waiting.is_parked
        await it.stepper.driver.call(
            lambda: it.replica.log.append_as_leader(marker(9, commit=True), leader_epoch=0, now_ms=0)
        )
        await it.committed(1)
        await it.settle()
        assert offsets(waiting.response.batches[0]) == [5, 6, 7, 8, 9, 10]


async def test_a_log_whose_transactions_cannot_be_told_is_taken_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as it:
        await transactions(it)

        def fails(_log: Log, _start_offset: int, _end_offset: int) -> list[object]:
            raise CorruptRecordError("/data/x.txnindex", 0, "torn")

        monkeypatch.setattr(Log, "aborted_transactions", fails)
        fetched = it.fetch(0, read_committed=True)
        await it.settle()
        assert fetched.result.error is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_session_at_an_open_transaction_is_looked_at_when_that_moves() -> None:
    """Trap: the records behind it are there, and each fetch of the session would look at them in vain."""
    async with rig() as it:
        await transactions(it)
        session: FetchPositions[FetchPartition] = FetchPositions(it.fetch_path.movements)
        at_end = it.fetch(5, read_committed=True, session=session, max_wait_ms=0)
        await it.settle()
        assert at_end.result.high_watermark == 8
        assert session.to_look_at() == ()
        waiting = it.fetch(0, keys=(), read_committed=True, session=session)
        await it.stepper.driver.call(
            lambda: it.replica.log.append_as_leader(marker(9, commit=True), leader_epoch=0, now_ms=0)
        )
        await it.committed(1)
        await it.settle()
        assert offsets(waiting.response.batches[0]) == [5, 6, 7, 8, 9]


async def test_what_was_aborted_behind_the_answer_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a consumer far behind does not read the transaction indexes of all that it has before it."""
    ends: list[int] = []
    inner = Log.aborted_transactions

    def noted(log: Log, start_offset: int, end_offset: int) -> list[Any]:
        ends.append(end_offset)
        return inner(log, start_offset, end_offset)

    monkeypatch.setattr(Log, "aborted_transactions", noted)
    async with rig() as it:
        await transactions(it)
        short = it.fetch(0, read_committed=True, max_bytes=1)
        await it.settle()
        assert short.result.aborted == (AbortedTransaction(7, 0),)
        assert ends == [1]
        it.fetch(3, read_committed=True)
        await it.settle()
        assert ends == [1, 5]


# ---- a replica nearer to the consumer --------------------------------------------------------------------------------


async def followed(it: Rig, *brokers: MetadataRecord, isr: tuple[int, ...] = (1, 2, 3)) -> None:
    """Two committed records that brokers 2 and 3 have fetched."""
    await it.apply(*(brokers or BROKERS), *topic((1, 2, 3), isr=isr))
    waiting = [it.produce(), it.produce()]
    for replica_id in (2, 3):
        it.fetch(2, replica_id=replica_id, max_wait_ms=0)
    for each in waiting:
        await each


async def test_a_leader_names_a_replica_that_is_nearer_and_sends_nothing() -> None:
    async with rig(replica_selector="rack-aware") as it:
        await followed(it)
        fetched, waiting = it.fetch(0, near=(2,)), it.fetch(2, near=(3, 4))
        await it.settle()
        assert (fetched.result.preferred_replica, bytes(fetched.response.batches[0])) == (2, b"")
        assert not waiting.is_parked
        assert waiting.result.preferred_replica == 3


@pytest.mark.parametrize(
    ("selector", "near", "isr", "offset"),
    [
        ("leader", (2,), (1, 2, 3), 0),
        ("rack-aware", (), (1, 2, 3), 0),
        ("rack-aware", (1, 2), (1, 2, 3), 0),
        ("rack-aware", (4,), (1, 2, 3), 0),
        ("rack-aware", (2,), (1, 3), 0),
    ],
    ids=["not told to", "no rack", "the leader is near", "no replica", "out of sync"],
)
async def test_a_leader_serves_by_itself(
    selector: str, near: tuple[int, ...], isr: tuple[int, ...], offset: int
) -> None:
    async with rig(replica_selector=selector) as it:
        await followed(it, isr=isr)
        fetched = it.fetch(offset, near=near)
        await it.settle()
        assert (fetched.result.preferred_replica, offsets(fetched.response.batches[0])) == (-1, [0, 1])


async def test_a_preferred_replica_is_told_within_a_session_as_long_as_it_is_one() -> None:
    """Trap: redpanda #11748: left out of an incremental answer, the consumer asks the leader for ever and gets nothing."""
    async with rig(replica_selector="rack-aware") as it:
        await followed(it)
        session: FetchPositions[FetchPartition] = FetchPositions(it.fetch_path.movements)
        for _ in range(2):
            fetched = it.fetch(0, near=(2,), session=session)
            await it.settle()
            assert fetched.result.preferred_replica == 2
        fetched = it.fetch(0, keys=(), session=session)
        await it.settle()
        assert offsets(fetched.response.batches[0]) == [0, 1]


async def test_a_replica_is_not_named_for_what_it_is_not_known_to_have() -> None:
    """Goal: a consumer that is sent there would be sent back, again and again."""
    async with rig(replica_selector="rack-aware") as it:
        await followed(it)
        it.produce()
        ahead = it.fetch(3, near=(2,))
        await it.settle()
        assert ahead.is_parked


async def test_a_broker_that_is_fenced_is_not_named() -> None:
    fenced = replace(registered(2), fenced=True)
    async with rig(replica_selector="rack-aware") as it:
        await followed(it, BROKERS[0], fenced, BROKERS[2])
        fetched = it.fetch(0, near=(2,))
        await it.settle()
        assert fetched.result.preferred_replica == -1


# ---- offsets ---------------------------------------------------------------------------------------------------------


async def list_offset(
    it: Rig, timestamp: int, *, read_committed: bool = False, from_offset: int = 0
) -> tuple[int, int]:
    asked = ListOffsetsPartition(TOPIC_ID, 0, timestamp, read_committed=read_committed, from_offset=from_offset)
    result = await it.stepper.driver.call(lambda: it.look_ups.list_offset(asked)) or await it.look_ups.search(asked)
    assert result.error is ErrorCode.NONE
    return result.offset, result.timestamp


async def test_the_latest_offset_of_committed_transactions_is_the_last_stable_one() -> None:
    async with rig() as it:
        await transactions(it)
        assert await list_offset(it, LATEST_TIMESTAMP) == (8, -1)
        assert await list_offset(it, LATEST_TIMESTAMP, read_committed=True) == (5, -1)


async def test_the_record_with_the_largest_timestamp() -> None:
    async with rig() as it:
        await transactions(it)
        assert await list_offset(it, LARGEST_TIMESTAMP) == (0, 1)
        await it.produce(batch(timestamp_ms=50))
        await it.produce(batch(timestamp_ms=40))
        assert await list_offset(it, LARGEST_TIMESTAMP) == (8, 50)
        assert await list_offset(it, 45) == (8, 50)
        assert await list_offset(it, LARGEST_TIMESTAMP, read_committed=True) == (-1, -1)
        assert await list_offset(it, 45, read_committed=True) == (-1, -1)


async def test_a_request_for_many_offsets_leaves_the_broker_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client that asks for ten thousand offsets by time does not hold everybody else's requests."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        await it.produce(topic)
        look_ups, driver = it.node.parts.requests.handlers._parts.look_ups, it.node.parts.replicas.stepper.driver
        look_up, seen = look_ups.list_offset, []

        def looked_up(partition: ListOffsetsPartition) -> ListOffsetsResult:
            if not seen:
                driver.submit(lambda: seen.append("somebody else"))
            seen.append("offset")
            return look_up(partition)

        monkeypatch.setattr(look_ups, "list_offset", looked_up)
        asked = ListOffsetsRequest((ListOffsetsPartition(topic.topic_id, 0, 1),) * 1_000)
        found = await it.node.parts.requests.kafka_node.call(asked, 5_000)
        assert [result.offset for result in found.results] == [0] * 1_000
        assert seen.index("somebody else") < 1_000


async def test_a_search_that_takes_long_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client decides what batches decompress to: neither the driver nor the reads of consumers wait for searches."""
    started, may_end = threading.Semaphore(0), threading.Event()
    search = SegmentSearch.run

    def slow(it: SegmentSearch) -> tuple[int, int] | None:
        started.release()
        may_end.wait(60)
        return search(it)

    monkeypatch.setattr(SegmentSearch, "run", slow)
    async with rig() as it:
        await transactions(it)
        searches = [asyncio.create_task(list_offset(it, 1)) for _ in range(5)]
        for _ in range(SEARCHES_MAX):
            await asyncio.to_thread(started.acquire)
        assert await list_offset(it, LATEST_TIMESTAMP) == (8, -1)
        assert not started.acquire(blocking=False), "two at a time: the other threads are for consumers"
        searches[0].cancel()
        searches[-1].cancel()
        may_end.set()
        found = await asyncio.gather(*searches, return_exceptions=True)
        assert found[1:-1] == [(0, 1)] * 3
        assert await list_offset(it, 1) == (0, 1)


async def test_a_search_ends_with_the_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as it:
        await transactions(it)
        search, asked = SegmentSearch.run, ListOffsetsPartition(TOPIC_ID, 0, 1)
        loop, resigned = asyncio.get_running_loop(), threading.Event()

        def resign() -> None:
            it.stepper.leave_role(it.replica)
            resigned.set()

        def ran(one: SegmentSearch) -> tuple[int, int] | None:
            loop.call_soon_threadsafe(it.stepper.driver.submit, resign)
            resigned.wait(60)
            return search(one)

        monkeypatch.setattr(SegmentSearch, "run", ran)
        assert (await it.look_ups.search(asked)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_the_first_record_at_an_offset_is_one_of_data() -> None:
    async with rig() as it:
        await transactions(it)
        found = [await list_offset(it, FROM_OFFSET_TIMESTAMP, from_offset=offset) for offset in range(9)]
        assert [offset for offset, _ in found] == [0, 1, 3, 3, 5, 5, 6, 7, -1]  # 2 and 4 are markers
