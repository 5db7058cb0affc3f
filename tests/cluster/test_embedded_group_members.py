"""Consumers that share a topic as members of a group, with a broker in the process of the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

import pytest
from embedded_group_kit import PATIENCE_S, Background, Heard, Rig, member, places, read, until

from replog.client import AssignmentListener, Consumer, TopicPartition
from replog.client.groups.coordinator import Coordinator
from replog.coordinator.consumers.requests import WaitForGroupNews
from replog.errors import CommitStaleError, InvalidRequestError, ReplogError, UnsupportedVersionError


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


async def test_without_news_members_hear_of_changes_by_their_heartbeats(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has no such API: it is asked for once in a while, in case that another broker coordinates by then."""
    asked: list[str] = []
    call = Coordinator.call

    async def refused(it: Coordinator, request: Any, *others: Any) -> Any:
        if isinstance(request, WaitForGroupNews):
            asked.append(request.member_id)
            raise UnsupportedVersionError("the broker serves none of API 20002")
        return await call(it, request, *others)

    monkeypatch.setattr(Coordinator, "call", refused)
    first, second = await member(rig), await member(rig)
    await until(lambda: len(first.consumer.assignment()) == len(second.consumer.assignment()) == 2)
    await first.stop()
    await until(lambda: len(second.consumer.assignment()) == 4)
    await second.stop()
    assert sorted(asked) == sorted(set(asked))


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
