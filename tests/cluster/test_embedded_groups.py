"""Consumers that share topics as members of a group, with brokers in the process of the test."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from replog import embedded
from replog.client import Admin, AssignmentListener, Consumer, ConsumerRecord, Producer, SyncConsumer, TopicPartition
from replog.errors import InvalidRequestError, ReplogError, UnknownTopicOrPartitionError
from replog.group_errors import CommitStaleError, NoOffsetError, RecreatedTopicError

QUICK = {
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.session.timeout.ms": 2_000,
    "offsets.topic.num.partitions": 2,
}
PATIENCE_S = 30


class Rig:
    """A broker with topic "t" of four partitions, ten records in each."""

    def __init__(self, servers: str, admin: Admin, producer: Producer) -> None:
        self.servers = servers
        self.admin = admin
        self.producer = producer

    def consumer(self, **config: Any) -> Consumer:
        return Consumer(self.servers, **({"group_id": "g", "auto_offset_reset": "earliest"} | config))

    async def fill(self, topic: str = "t", count: int = 40, partitions: int = 4) -> None:
        for number in range(count):
            await self.producer.send(topic, b"%d" % number, partition=number % partitions)
        await self.producer.flush()


@pytest_asyncio.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with embedded(config=QUICK) as broker:
        servers = broker.bootstrap_servers
        async with Admin(servers) as admin, Producer(servers) as producer:
            await admin.create_topic("t", 4)
            found = Rig(servers, admin, producer)
            await found.fill()
            yield found


class Background:
    """A member that reads in a task of its own until it is stopped, and remembers what it got."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.records: list[ConsumerRecord] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for record in self.consumer:
            self.records.append(record)

    async def stop(self) -> None:
        """The task is cancelled where it waits, and the consumer closed."""
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.consumer.close()


async def member(rig: Rig, listener: AssignmentListener | None = None, **config: Any) -> Background:
    consumer = rig.consumer(**config)
    await consumer.start()
    await consumer.subscribe(["t"], listener=listener)
    return Background(consumer)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Reads so many records; the last one stays in hand."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(PATIENCE_S):
        async for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


def places(records: Collection[ConsumerRecord]) -> set[tuple[int, int]]:
    return {(record.partition, record.offset) for record in records}


async def error_of_poll(consumer: Consumer) -> ReplogError | None:
    try:
        await consumer.poll(1, 100)
    except ReplogError as error:
        return error
    return None


EVERYTHING = {(partition, offset) for partition in range(4) for offset in range(10)}


class Heard(AssignmentListener):
    """Writes down what it hears; `gate` holds up revocations."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("assigned", len(partitions)))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("revoked", len(partitions)))
        await self.gate.wait()

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("lost", len(partitions)))


# ---- one member -----------------------------------------------------------------------------------------------------


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
            while await consumer.committed(partition) is None:
                await asyncio.sleep(0.01)
        assert await consumer.committed(partition) == 10


async def test_without_an_offset_and_a_policy_the_ways_out_are_named(rig: Rig) -> None:
    async with rig.consumer(auto_offset_reset="raise") as consumer:
        await consumer.subscribe(["t"])
        with pytest.raises(NoOffsetError, match='auto_offset_reset to "earliest" or "latest", or seek'):
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
        assert "seek_to_beginning" in str(error)
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
        for nothing in ({}, {"topics": ["t"], "pattern": "t"}):
            with pytest.raises(InvalidRequestError, match="name the topics, or give a pattern, and not both"):
                await consumer.subscribe(**nothing)  # type: ignore[arg-type]
        await consumer.subscribe(pattern="u|x.*")
        assert await consumer.poll(1, 50) == []
        await rig.admin.create_topic("u", 1)
        await rig.admin.create_topic("uu", 1)
        await rig.fill("u", 2, 1)
        assert [record.topic for record in await read(consumer, 2)] == ["u", "u"]
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


async def test_the_offset_of_a_partition_that_there_is_not(rig: Rig) -> None:
    async with rig.consumer() as consumer:
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


# ---- several --------------------------------------------------------------------------------------------------------


async def test_members_share_and_whoever_goes_is_replaced_at_once(rig: Rig) -> None:
    first, second = await member(rig), await member(rig)
    await until(lambda: len(first.consumer.assignment()) == len(second.consumer.assignment()) == 2)
    third = await member(rig)
    await until(lambda: len(third.consumer.assignment()) == 1)
    await rig.fill()
    await until(lambda: len(places([*first.records, *second.records, *third.records])) == 80)
    await first.stop()
    await second.stop()
    await until(lambda: len(third.consumer.assignment()) == 4)
    await third.stop()


async def test_a_member_without_partitions_waits(rig: Rig) -> None:
    members = [await member(rig) for _ in range(5)]
    await until(lambda: sorted(len(each.consumer.assignment()) for each in members) == [0, 1, 1, 1, 1])
    idle = next(each for each in members if not each.consumer.assignment())
    working = next(each for each in members if each.consumer.assignment())
    assert not idle.task.done()
    await working.stop()
    await until(lambda: len(idle.consumer.assignment()) == 1)
    for each in members:
        await each.stop()


async def test_partitions_go_when_the_listener_is_done_and_nothing_is_read_twice(rig: Rig) -> None:
    listener = Heard()
    first = await member(rig, listener)
    await until(lambda: len(first.records) == 40)
    listener.gate.clear()
    second = await member(rig)
    await until(lambda: ("revoked", 2) in listener.heard)
    await until(lambda: second.consumer._group is not None and second.consumer._group.member.epoch > 1)
    assert second.consumer.assignment() == []
    listener.gate.set()
    await until(lambda: len(second.consumer.assignment()) == 2)
    await rig.fill()
    await until(lambda: len(first.records) + len(second.records) == 80)
    assert listener.heard == [("assigned", 4), ("revoked", 2)]
    await second.stop()
    await until(lambda: len(first.consumer.assignment()) == 4)
    await first.stop()
    assert listener.heard == [("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4)]


async def test_an_application_that_is_too_slow_leaves_with_one_line_and_comes_back(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Heard()
    caplog.set_level(logging.WARNING, logger="replog")  # it may have left before the other one is there
    async with rig.consumer(max_poll_interval_ms=1_000) as slow:
        await slow.subscribe(["t"], listener=listener)
        first = await read(slow, 1)
        other = await member(rig)
        await until(lambda: len(places(other.records)) == 40)  # also what the slow one has in hand
        assert sum("max_poll_interval_ms" in line for line in caplog.messages) == 1
        with pytest.raises(CommitStaleError, match="another member of group 'g' has it") as caught:
            await slow.commit({(first[0].topic, first[0].partition): 1})
        partition = first[0].topic, first[0].partition
        assert caught.value.partition == partition
        (found,) = (await rig.admin.describe_groups(["g"]))["g"].members
        assert partition in found.assignment
        assert f"read by member {found.member_id} now: client 'replog-consumer' at 127.0.0.1." in str(caught.value)
        again = Background(slow)
        await until(lambda: len(slow.assignment()) == 2)
        assert sum(count for what, count in listener.heard if what == "lost") == 4
        assert "revoked" not in {what for what, _ in listener.heard}
        await again.stop()
        await other.stop()


async def test_a_static_member_has_its_partitions_again_when_it_restarts(rig: Rig) -> None:
    heard = Heard()
    other = await member(rig, heard)
    static = await member(rig, group_instance_id="i")
    await until(lambda: len(other.consumer.assignment()) == len(static.consumer.assignment()) == 2)
    had = set(static.consumer.assignment())
    before = list(heard.heard)
    await static.stop()
    again = await member(rig, group_instance_id="i")
    await until(lambda: set(again.consumer.assignment()) == had)
    assert heard.heard == before
    await again.stop()
    await other.stop()


async def test_a_listener_that_fails_keeps_nothing_back(rig: Rig) -> None:
    first = rig.consumer()
    await first.start()
    await first.subscribe(["t"], listener=FailingToRevoke())
    await read(first, 40)
    second = await member(rig)
    with pytest.raises(ValueError, match="out of order"):
        await read(first, 1)
    await until(lambda: len(second.consumer.assignment()) == 2)
    with pytest.raises(ValueError, match="out of order"):
        await first.close()
    await until(lambda: len(second.consumer.assignment()) == 4)
    await second.stop()


async def test_a_listener_seeks_and_commits_and_cannot_read(rig: Rig) -> None:
    class Own(AssignmentListener):
        """Keeps the offsets itself."""

        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer

        async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            with pytest.raises(InvalidRequestError, match="cannot read"):
                await self.consumer.poll(1, 0)
            for partition in partitions:
                self.consumer.seek(partition, 8)

        async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await self.consumer.commit()

    async with rig.consumer(enable_auto_commit=False) as consumer:
        await consumer.subscribe(["t"], listener=Own(consumer))
        first = await read(consumer, 8)
    assert places(first) == {(partition, offset) for partition in range(4) for offset in (8, 9)}
    async with rig.consumer() as consumer:
        assert [await committed(consumer, partition) for partition in range(4)] == [10] * 4


async def test_a_bug_in_a_task_of_the_member_is_told_to_whoever_reads(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait for ever for partitions that nobody asks for any more."""

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    async with rig.consumer() as consumer:
        monkeypatch.setattr("replog.client.groups.coordinator.Coordinator.call", broken)
        await consumer.subscribe(["t"])
        with pytest.raises(ReplogError, match=r"replog-group-heartbeats ended, .*a bug"):
            await read(consumer, 1)
        monkeypatch.undo()


async def committed(consumer: Consumer, partition: int) -> int | None:
    if not consumer._group:
        await consumer.subscribe(["t"])
    return await consumer.committed(("t", partition))


async def test_a_listener_that_was_cancelled_hears_again_before_anything_is_handed_out(rig: Rig) -> None:
    class Seeking(AssignmentListener):
        def __init__(self) -> None:
            self.began = asyncio.Event()
            self.gates = [asyncio.Event()]

        async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            self.began.set()
            for gate in self.gates:
                await gate.wait()
            for partition in partitions:
                consumer.seek(partition, 8)

    listener = Seeking()
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"], listener=listener)
        reader = asyncio.create_task(consumer.getone())
        await listener.began.wait()
        reader.cancel()
        await asyncio.wait([reader])
        listener.gates.clear()
        assert places(await read(consumer, 8)) == {(partition, offset) for partition in range(4) for offset in (8, 9)}


class FailingToRevoke(AssignmentListener):
    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        raise ValueError("out of order")


async def test_a_listener_that_fails_while_it_unsubscribes_does_not_spoil_the_next_subscription(rig: Rig) -> None:
    async with rig.consumer() as consumer:
        await consumer.subscribe(["t"], listener=FailingToRevoke())
        await read(consumer, 1)
        with pytest.raises(ValueError, match="out of order"):
            await consumer.unsubscribe()
        await consumer.subscribe(["t"])
        assert len(await read(consumer, 40)) == 40
        await consumer.commit()


async def test_whoever_waits_hears_that_its_consumer_unsubscribes(rig: Rig) -> None:
    reading = await member(rig)
    await until(lambda: len(reading.records) == 40)
    await reading.consumer.unsubscribe()
    await asyncio.wait([reading.task], timeout=PATIENCE_S)
    with pytest.raises(InvalidRequestError, match="no partition is assigned"):
        reading.task.result()
    await reading.stop()


async def test_a_second_task_or_loop_is_told_what_to_do_instead(rig: Rig) -> None:
    """What one task has in hand would count as done with when the other one asks."""
    reading = await member(rig)
    await until(lambda: len(reading.records) == 40)
    with pytest.raises(InvalidRequestError, match="belongs to an event loop that is not the one"):
        await asyncio.to_thread(asyncio.run, reading.consumer.commit())
    with pytest.raises(InvalidRequestError, match=r"another task waits.*a consumer of its own with the same group_id"):
        await reading.consumer.poll(1, 50)
    assert not reading.task.done()
    await reading.stop()


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
