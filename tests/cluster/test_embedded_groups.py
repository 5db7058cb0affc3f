"""A consumer that reads a topic as a member of a group, with a broker in the process of the test."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

import pytest
from embedded_group_kit import (
    EVERYTHING,
    PATIENCE_S,
    QUICK,
    Heard,
    Rig,
    error_of_poll,
    member,
    places,
    read,
    until,
)

from replog import embedded
from replog.client import Admin, Consumer, Producer, SyncConsumer, TopicPartition
from replog.errors import InvalidRequestError, NoOffsetError, RecreatedTopicError, UnknownTopicOrPartitionError


async def test_the_next_member_begins_with_the_record_that_the_last_one_had_in_hand(rig: Rig) -> None:
    """It was handed out, and nobody has said by asking for more that it is done with."""
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        first = await read(consumer, 25)
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        second = await read(consumer, 16)
    assert places(first) & places(second) == {(first[-1].partition, first[-1].offset)}
    assert places(first) | places(second) == EVERYTHING


async def test_an_explicit_commit_counts_what_is_in_hand(rig: Rig) -> None:
    async with rig.consumer(enable_auto_commit=False) as consumer:
        await consumer.subscribe(["t"])
        assert consumer.subscription() == {"t"}
        first = await read(consumer, 25)
        await consumer.commit()
        in_hand = first[-1]
        assert await consumer.committed((in_hand.topic, in_hand.partition)) == in_hand.offset + 1
        assert consumer.lag(("t", in_hand.partition)) == 9 - in_hand.offset
        await read(consumer, 10)  # and without a commit, they come again
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        first += await read(consumer, 5)
        await consumer.commit()  # what is committed by itself at the end does not go back behind this
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        assert places(await read(consumer, 10)) == EVERYTHING - places(first)


async def test_what_is_done_with_is_committed_while_the_application_works(rig: Rig) -> None:
    async with rig.consumer(auto_commit_interval_ms=20) as consumer:
        await consumer.subscribe(["t"])
        records = await consumer.poll(40, 5_000)
        partition = TopicPartition("t", records[0].partition)
        await consumer.poll(1, 0)
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.committed(partition) in {None, 0}:  # 0: where the policy has it begin
                await asyncio.sleep(0.01)
        assert await consumer.committed(partition) == 10


async def test_without_an_offset_and_a_policy_the_ways_out_are_named(rig: Rig) -> None:
    async with rig.consumer(auto_offset_reset="raise") as consumer:
        await consumer.subscribe(["t"])
        with pytest.raises(
            NoOffsetError, match=r'to "earliest" or "latest", or seek .* seek_to_beginning\(\(\'t\', \d\)\)'
        ):
            await read(consumer, 1)
        with pytest.raises(NoOffsetError):
            consumer.position(("t", 0))
        for partition in range(4):
            consumer.seek(("t", partition), 9)
        assert places(await read(consumer, 4)) == {(partition, 9) for partition in range(4)}


async def test_a_topic_that_was_made_anew_is_no_place_to_go_on(rig: Rig) -> None:
    """Whoever went on at 0 by itself would take the records of another topic for those that it was reading."""
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        await read(consumer, 40)
        await consumer.commit()
        await rig.admin.delete_topic("t")
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            await read(consumer, 1)
        await rig.admin.create_topic("t", 1)
        await rig.fill("t", 3, 1)
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(error := await error_of_poll(consumer), RecreatedTopicError):
                await asyncio.sleep(0.01)
        assert "seek_to_beginning(('t', 0)) reads all that is in it now" in str(error)
        await consumer.seek_to_beginning(("t", 0))
        assert places(await read(consumer, 3)) == {(0, 0), (0, 1), (0, 2)}


async def test_what_a_group_needs_is_said(rig: Rig) -> None:
    async with Consumer(rig.servers) as consumer:
        with pytest.raises(InvalidRequestError, match="group_id"):
            await consumer.subscribe(["t"])
        await consumer.assign([("t", 0)])
    async with rig.consumer() as consumer:
        with pytest.raises(UnknownTopicOrPartitionError, match='"tt" does not exist'):
            await consumer.subscribe(["tt"])
        await consumer.subscribe(["t"])
        with pytest.raises(InvalidRequestError, match="call unsubscribe first"):
            await consumer.assign([("t", 0)])
        await consumer.unsubscribe()
        await consumer.assign([("t", 0)])
        assert len(await read(consumer, 10)) == 10
        with pytest.raises(InvalidRequestError, match="make another one"):
            await consumer.subscribe(["t"])


async def test_topics_that_match_are_read_also_those_that_come_later(rig: Rig) -> None:
    async with rig.consumer() as consumer:
        with pytest.raises(InvalidRequestError, match="topics is empty: name the topics, or give a pattern"):
            await consumer.subscribe()
        with pytest.raises(InvalidRequestError, match="topics and pattern are both given: give one of them"):
            await consumer.subscribe(["t"], pattern="t")
        await consumer.subscribe(pattern="u|x.*")
        assert await consumer.poll(1, 50) == []
        await rig.admin.create_topic("u", 1)
        await rig.admin.create_topic("uu", 1)
        await rig.fill("u", 2, 1)
        assert [record.topic for record in await read(consumer, 2)] == ["u", "u"]
        assert consumer.subscription() == {"u"}
        await consumer.subscribe(pattern=".*t.*")
        found = await read(consumer, 40)
        assert {record.topic for record in found} == {"t"}
        assert {partition.topic for partition in consumer.assignment()} == {"t"}


async def test_a_pattern_whose_last_topic_is_deleted_waits_for_another(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="replog.client")
    await rig.admin.create_topic("u1", 1)
    await rig.fill("u1", 1, 1)
    async with rig.consumer() as consumer:
        await consumer.subscribe(pattern="u.*")
        assert len(await read(consumer, 1)) == 1
        await rig.admin.delete_topic("u1")
        while consumer.assignment():
            assert await consumer.poll(1, 20) == []
        said = [line for line in caplog.messages if line.startswith("group g: ")]
        assert said == [
            "group g: deleted, and read no more: u1",
            "group g: no topic matches 'u.*'; this member waits for one",
        ]
        await rig.admin.create_topic("u2", 1)
        await rig.fill("u2", 1, 1)
        assert [record.topic for record in await read(consumer, 1)] == ["u2"]


async def test_a_topic_that_was_named_and_deleted_is_told_of(rig: Rig) -> None:
    await rig.admin.create_topic("u1", 1)
    async with rig.consumer() as consumer:
        await consumer.assign([("u1", 0)])
        await rig.admin.delete_topic("u1")
        with pytest.raises(UnknownTopicOrPartitionError, match="u1 was deleted; assign or subscribe to others"):
            await consumer.poll(1, PATIENCE_S * 1000)


async def test_a_deleted_topic_is_told_of_also_where_the_coordinator_has_taken_it_first(rig: Rig) -> None:
    """A member whose only topic is gone would wait for ever without a word."""
    await rig.admin.create_topic("u1", 1)
    await rig.fill("u1", 1, 1)
    async with rig.consumer() as consumer:
        await consumer.subscribe(["u1"])
        await read(consumer, 1)
        await rig.admin.delete_topic("u1")
        group = consumer._group
        assert group is not None
        async with asyncio.timeout(PATIENCE_S):
            while group.member.taken_back is None or "u1" in consumer._view.image.topics:
                await asyncio.sleep(0.01)
        with pytest.raises(UnknownTopicOrPartitionError, match="u1 was deleted; assign or subscribe to others"):
            await read(consumer, 1)


async def test_the_offset_of_a_partition_that_there_is_not(rig: Rig) -> None:
    async with rig.consumer(auto_offset_reset="raise") as consumer:
        await consumer.subscribe(["t"])
        assert await consumer.committed(("t", 3)) is None
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition 4"):
            await consumer.committed(("t", 4))
        with pytest.raises(UnknownTopicOrPartitionError, match='"u" does not exist'):
            await consumer.committed(("u", 0))


async def test_who_unsubscribes_leaves_and_may_come_again(rig: Rig) -> None:
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"])
        first = await read(consumer, 5)
        await consumer.unsubscribe()
        assert consumer.assignment() == []
        with pytest.raises(InvalidRequestError, match="no partition is assigned"):
            await consumer.poll(1, 0)
        await consumer.subscribe(["t"])
        second = await read(consumer, 36)
        assert places(first) | places(second) == EVERYTHING


async def test_members_hear_of_a_change_before_their_next_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats are farther apart than this test is patient."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    slow = {"group.consumer.heartbeat.interval.ms": 2 * PATIENCE_S * 1000, "group.consumer.session.timeout.ms": 600_000}
    async with embedded(config=QUICK | slow) as broker:
        servers = broker.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topic("t", 4)
            rig = Rig(servers, admin, producer)
            await rig.fill()
            first = await member(rig)
            await until(lambda: len(first.consumer.assignment()) == 4)
            second = await member(rig)
            third = await member(rig)
            everybody = [first, second, third]
            await until(lambda: sorted(len(each.consumer.assignment()) for each in everybody) == [1, 1, 2])
            await second.stop()
            await until(lambda: len(first.consumer.assignment()) == len(third.consumer.assignment()) == 2)
            await third.stop()
            await until(lambda: len(first.consumer.assignment()) == 4)
            await first.stop()


def tasks_of_groups() -> list[str]:
    return [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("replog-group-")]


async def test_a_subscription_that_has_ended_leaves_nothing(rig: Rig) -> None:
    async with rig.consumer() as consumer:
        before = len(consumer._view._listeners)
        for _ in range(3):
            await consumer.subscribe(["t"])
            await read(consumer, 1)
            await consumer.unsubscribe()
        assert len(consumer._view._listeners) == before
        assert tasks_of_groups() == []


async def test_whoever_gives_up_leaving_leaves_no_task(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator does not answer, and the application does not wait for it."""
    async with rig.consumer(enable_auto_commit=False) as consumer:
        await consumer.subscribe(["t"])
        await read(consumer, 1)
        assert consumer._group is not None
        is_asked = asyncio.Event()

        async def silence(*_: object) -> None:
            is_asked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(consumer._group.member._coordinator, "call", silence)
        leaving = asyncio.create_task(consumer.unsubscribe())
        async with asyncio.timeout(PATIENCE_S):
            await is_asked.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        assert tasks_of_groups() == []


# ---- without async --------------------------------------------------------------------------------------------------


async def test_the_same_without_async(rig: Rig) -> None:
    def work() -> list[set[tuple[int, int]]]:
        found = []
        for count in (25, 16):
            with SyncConsumer(rig.servers, group_id="g", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["t"])
                found.append(places([next(consumer) for _ in range(count)]))
                partition = consumer.assignment()[0]
                assert consumer.lag(partition) == 10 - consumer.position(partition)
        return found

    first, second = await asyncio.to_thread(work)
    assert len(first & second) == 1
    assert first | second == EVERYTHING


async def test_a_loop_without_async_asks_with_each_record(rig: Rig) -> None:
    """It polls many at once: a slow loop would be put out, or keep from others what is theirs."""
    listener = Heard()
    consumer = SyncConsumer(rig.servers, group_id="g", auto_offset_reset="earliest")
    await asyncio.to_thread(consumer.subscribe, ["t"], listener=listener)
    await asyncio.to_thread(next, consumer)
    mine = consumer._client._group.member  # type: ignore[union-attr]
    count = mine.watch.count
    await asyncio.to_thread(next, consumer)
    assert mine.watch.count > count
    other = await member(rig)
    await until(lambda: mine.taken_back is not None)
    await asyncio.to_thread(next, consumer)
    assert listener.heard == [("assigned", 4), ("revoked", 2)]
    await other.stop()
    await asyncio.to_thread(consumer.close)
