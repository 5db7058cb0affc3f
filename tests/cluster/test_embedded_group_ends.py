"""What a group is told of where an application ends, fails or is slow: never more than it is done with, and no less."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from embedded_group_kit import EVERYTHING, PATIENCE_S, Heard, Line, Rig, member, places, read, until

from replog.client import Consumer, ConsumerRecord, SyncConsumer, TopicPartition
from replog.client.consumer.partition_reader import RESET_MIN_MS
from replog.errors import RequestTimedOutError

POLL_LIMIT_MS = 1_000


def consumer_without_async(rig: Rig, **config: object) -> SyncConsumer:
    return SyncConsumer(rig.servers, **({"group_id": "g", "auto_offset_reset": "earliest"} | config))  # type: ignore[arg-type]


async def committed(rig: Rig) -> dict[TopicPartition, int]:
    return dict(await rig.admin.group_offsets("g"))


def in_hand(rig: Rig, take: Callable[[SyncConsumer], list[object]], **config: object) -> None:
    """Takes something, and fails with it."""
    with consumer_without_async(rig, **config) as consumer:
        consumer.subscribe(["t"])
        while not take(consumer):
            pass
        raise ValueError("the work fails")


@pytest.mark.parametrize("way", ["poll", "fetch_batches", "getone", "getmany"])
async def test_what_an_application_without_async_has_in_hand_when_it_fails_comes_again(rig: Rig, way: str) -> None:
    takes: dict[str, Callable[[SyncConsumer], list[object]]] = {
        "poll": lambda consumer: [*consumer.poll()],
        "fetch_batches": lambda consumer: [*consumer.fetch_batches()],
        "getone": lambda consumer: [consumer.getone()],
        "getmany": lambda consumer: [*consumer.getmany(timeout_ms=1_000)],
    }
    with pytest.raises(ValueError, match="the work fails"):
        await asyncio.to_thread(in_hand, rig, takes[way])
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        assert places(await read(consumer, 40)) == EVERYTHING


async def test_batches_are_done_with_when_the_next_are_asked_for(rig: Rig) -> None:
    def work() -> None:
        with consumer_without_async(rig) as consumer:
            consumer.subscribe(["t"])
            ends: dict[int, int] = {}
            while sum(ends.values()) < 40:
                ends |= {each.partition: each.next_offset for each in consumer.fetch_batches()}
            consumer.fetch_batches(timeout_ms=0)

    await asyncio.to_thread(work)
    assert await committed(rig) == {TopicPartition("t", each): 10 for each in range(4)}


async def test_a_slow_loop_without_async_commits_what_it_has_asked_past(rig: Rig) -> None:
    """Goal: a poll of five hundred records is not all or nothing."""
    seen: list[tuple[set[tuple[int, int]], dict[TopicPartition, int]]] = []
    loop = asyncio.get_running_loop()

    def work() -> None:
        done: set[tuple[int, int]] = set()
        with consumer_without_async(rig, auto_commit_interval_ms=50) as consumer:
            consumer.subscribe(["t"])
            for record in consumer:
                time.sleep(0.02)
                found = asyncio.run_coroutine_threadsafe(committed(rig), loop).result()
                seen.append((set(done), found))
                done.add((record.partition, record.offset))
                if len(done) == 40:
                    return

    await asyncio.to_thread(work)
    for done, found in seen:
        for partition, offset in found.items():
            assert {(partition.partition, each) for each in range(offset)} <= done
    assert sum(seen[-1][1].values()) > 20
    for (_, before), (_, after) in pairwise(seen):
        assert all(after[each] >= offset for each, offset in before.items())


async def test_a_handler_that_blocks_the_loop_for_a_moment_each_time_does_not_starve_its_group(rig: Rig) -> None:
    """Trap: an `async for` over records that are here need never let the loop go, so that no heartbeat and no commit leaves."""
    await rig.fill(count=120)
    found: list[ConsumerRecord] = []
    turns = [0]  # the numbers of records after which the loop had its turn

    def work() -> None:
        time.sleep(0.02)
        asyncio.get_running_loop().call_soon(lambda: turns.append(len(found)))

    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        async for record in consumer:
            found.append(record)
            work()
            if len(found) == 160:
                break
    assert max(after - before for before, after in pairwise(turns)) < 20
    assert places(found) == {(partition, offset) for partition in range(4) for offset in range(40)}


async def test_polls_of_what_a_loop_has_left_are_reads(rig: Rig) -> None:
    """Goal: who polls is not put out for being slow, and hands out nothing that another member reads by now."""
    mine: list[ConsumerRecord] = []
    ready, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        with consumer_without_async(rig, max_poll_interval_ms=POLL_LIMIT_MS, auto_commit_interval_ms=50) as consumer:
            consumer.subscribe(["t"])
            mine.append(next(consumer))
            for _ in range(4):
                time.sleep(POLL_LIMIT_MS / 2_000)
                mine.extend(consumer.poll(max_records=1))
            loop.call_soon_threadsafe(ready.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
            while len(consumer.assignment()) == 4 or (found := consumer.poll(max_records=1, timeout_ms=500)):
                mine.extend(consumer.poll(max_records=1) if len(consumer.assignment()) == 4 else found)
            mine.extend(consumer.poll(timeout_ms=500))

    working = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.wait_for(ready.wait(), PATIENCE_S)
    assert len(mine) == 5
    second = await member(rig)
    go_on.set()
    await asyncio.wait_for(working, PATIENCE_S)
    await until(lambda: places(mine) | places(second.records) == EVERYTHING)
    assert not places(mine) & places(second.records)
    await second.stop()


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_what_is_read_after_a_reset_is_committed(rig: Rig, policy: str) -> None:
    """The committed offset is behind the end: where reading goes on is below what was committed."""
    await rig.admin.alter_group_offsets("g", {TopicPartition("t", each): 1_000 for each in range(4)})
    async with rig.consumer(auto_offset_reset=policy, auto_commit_interval_ms=50) as consumer:
        await consumer.subscribe(["t"])
        found: list[ConsumerRecord] = []
        async with asyncio.timeout(PATIENCE_S):
            while policy == "latest" and {consumer.position(each) for each in consumer.assignment()} != {10}:
                found += await consumer.poll(timeout_ms=50)
        await rig.fill()
        wanted = 40 if policy == "latest" else 80
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < wanted:
                found += await consumer.poll(timeout_ms=50)
        await consumer.poll(timeout_ms=0)
    assert await committed(rig) == {TopicPartition("t", each): 20 for each in range(4)}


@pytest.mark.parametrize("closes", [True, False])
async def test_a_member_that_waits_at_the_end_has_said_so(rig: Rig, closes: bool) -> None:
    """Goal: "latest" is where the group came, not where each of its members comes."""
    first = rig.consumer(auto_offset_reset="latest", auto_commit_interval_ms=600_000)
    await first.start()
    await first.subscribe(["t"])
    await until_read(first)
    if closes:
        await first.close()
    ends = {TopicPartition("t", each): 10 for each in range(4)}
    async with asyncio.timeout(PATIENCE_S):
        while await committed(rig) != ends:
            await asyncio.sleep(0.01)
    await rig.fill()
    if not closes:
        await first.close()
    async with rig.consumer(auto_offset_reset="latest") as second:
        await second.subscribe(["t"])
        assert places(await read(second, 40)) == {(partition, 10 + offset) for partition, offset in EVERYTHING}


async def until_read(consumer: Consumer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(consumer.assignment()) < 4:
            await consumer.poll(timeout_ms=50)


async def test_closing_does_not_undo_a_seek_without_async(rig: Rig) -> None:
    def work() -> TopicPartition:
        with consumer_without_async(rig, auto_commit_interval_ms=600_000) as consumer:
            consumer.subscribe(["t"])
            for record in consumer:
                if record.offset == 5:
                    found = TopicPartition("t", record.partition)
                    consumer.seek(found, 0)
                    return found
        raise AssertionError

    partition = await asyncio.to_thread(work)
    assert (await committed(rig))[partition] == 0


async def test_a_commit_in_a_loop_without_async_counts_the_record_of_now_and_none_behind_it(rig: Rig) -> None:
    def work() -> None:
        with consumer_without_async(rig, enable_auto_commit=False) as consumer:
            consumer.subscribe(["t"])
            seen: dict[TopicPartition, int] = {}
            for count, record in enumerate(consumer, 1):
                partition = TopicPartition(record.topic, record.partition)
                seen[partition] = record.offset + 1
                ahead = len(consumer._left)
                consumer.commit()
                assert len(consumer._left) == ahead
                assert consumer.committed(partition) == record.offset + 1
                if count == 15:
                    consumer.commit({("t", 0): 3})
                    seen[TopicPartition("t", 0)] = 3
                    ends.update(seen)
                    return

    ends: dict[TopicPartition, int] = {}
    await asyncio.to_thread(work)
    found = await committed(rig)
    assert {each: offset for each, offset in found.items() if offset} == ends


async def test_a_topic_of_a_pattern_that_is_deleted_while_its_offset_is_looked_for_is_no_error(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.admin.create_topic("u", 1)
    await rig.admin.alter_group_offsets("g", {TopicPartition("u", 0): 1_000})
    async with rig.consumer() as consumer:
        ends = consumer._reader._ends

        async def delete_first(partition: TopicPartition, timeout_ms: int) -> tuple[int, int]:
            await rig.admin.delete_topic("u")
            await until(lambda: not consumer._reader.is_current(partition))
            return await ends(partition, timeout_ms)

        monkeypatch.setattr(consumer._reader, "_ends", delete_first)
        await consumer.subscribe(pattern="t|u")
        assert places(await read(consumer, 40)) == EVERYTHING


async def test_a_read_waits_for_leaders_that_say_nothing_no_longer_than_it_may(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    async def time_out(_: TopicPartition, timeout_ms: int) -> tuple[int, int]:
        limits.append(timeout_ms)
        raise RequestTimedOutError("nobody answers")

    async with rig.consumer(group_id=None) as consumer:
        await consumer.assign([("t", 0)], start={("t", 0): 1_000})
        monkeypatch.setattr(consumer._reader, "_ends", time_out)
        async with asyncio.timeout(PATIENCE_S):
            while not limits:
                assert await consumer.poll(timeout_ms=200) == []
        assert max(limits) <= RESET_MIN_MS
        monkeypatch.undo()
        assert await consumer.poll(timeout_ms=10_000)


@pytest.mark.parametrize("held", ["listener", "commit"])
async def test_leaving_takes_no_longer_than_the_limit_that_is_set(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """A listener or a commit that does not end held it up, for as long as `request_timeout_ms` or for ever."""
    listener = Heard()
    async with asyncio.timeout(PATIENCE_S):
        async with rig.consumer(close_timeout_ms=200, request_timeout_ms=600_000) as consumer:
            await consumer.subscribe(["t"], listener=listener)
            line = Line(consumer, monkeypatch)
            await read(consumer, 5)
            (listener.gate if held == "listener" else line.gate).clear()
        assert line.said[-1] == "leaves"
        async with rig.consumer() as consumer:
            await consumer.subscribe(["t"])
            assert places(await read(consumer, 40)) == EVERYTHING
