"""Where members of a group begin, while others come and go: nothing is skipped, and no commit of another member's is undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import pytest
from embedded_group_kit import PATIENCE_S, Rig, member, places, read, until

from replog.client import AssignmentListener, Consumer, ConsumerRecord, TopicPartition
from replog.client.consumer.group_openings import Opened

EVERYTHING_NEW = {
    (each, offset) for each, first in enumerate((10, 10, 10, 10, 0, 0)) for offset in range(first, first + 10)
}
ENDS = {TopicPartition("t", each): 10 for each in range(4)}


class Slow:
    """Holds up the first question to leaders where a member begins."""

    def __init__(self, consumer: Consumer, patch: pytest.MonkeyPatch) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()
        assert consumer._group is not None
        openings = consumer._group.member.openings
        self._reset = openings.reset
        patch.setattr(openings, "reset", self._hold_up)

    async def _hold_up(self, ids: Mapping[TopicPartition, UUID]) -> list[Opened]:
        found = await self._reset(ids)
        if not self.asked.is_set():
            self.asked.set()
            await self.gate.wait()
        return found


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("commits", [True, False])
async def test_an_answer_of_before_others_had_the_partition_counts_no_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, policy: str, commits: bool
) -> None:
    """A leader is slow; meanwhile another member has the partition, commits, and leaves again."""
    async with rig.consumer(auto_offset_reset=policy, enable_auto_commit=commits) as first:
        await first.subscribe(["t"])
        slow = Slow(first, monkeypatch)
        await asyncio.wait_for(slow.asked.wait(), PATIENCE_S)
        async with rig.consumer() as second:
            await second.subscribe(["t"])
            async with asyncio.timeout(PATIENCE_S):
                while len(second.assignment()) < 2:
                    await second.poll(1, timeout_ms=100)
            theirs = second.assignment()
            for partition in theirs:
                second.seek(partition, 5)
            await second.commit()
        assert first._group is not None
        core = first._group.member._core
        await until(lambda: len(core.owned) == 4)
        slow.gate.set()
        mine: list[ConsumerRecord] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(first.assignment()) < 4 or len(mine) < (10 if policy == "latest" else 30):
                mine += await first.poll(timeout_ms=100)
        assert {each for each in places(mine) if TopicPartition("t", each[0]) in theirs} == {
            (partition.partition, offset) for partition in theirs for offset in range(5, 10)
        }
        for partition in theirs:
            assert await first.committed(partition) == 5


async def test_what_a_busy_member_has_not_begun_with_begins_where_it_was_to_begin(rig: Rig) -> None:
    """The topic grows while the only member works on a record, and then another member comes."""
    async with rig.consumer(auto_offset_reset="latest") as busy:
        await busy.subscribe(["t"])
        async with asyncio.timeout(PATIENCE_S):
            while len(busy.assignment()) < 4:
                await busy.poll(timeout_ms=50)
        await rig.fill()
        await read(busy, 1)
        await rig.admin.create_partitions("t", 8)
        assert busy._group is not None
        group_member = busy._group.member
        await until(lambda: len(group_member.ready) == 4)
        await rig.fill(partitions=8, count=80)
        other = await member(rig, auto_offset_reset="latest")
        new = {(partition, offset) for partition in range(4, 8) for offset in range(10)}
        await until(lambda: places(other.records) >= new)
        await other.stop()


async def hold_up(consumer: Consumer, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """Lets a member find out where to begin only when the event is set."""
    assert consumer._group is not None
    openings, gate = consumer._group.member.openings, asyncio.Event()
    find = openings.open

    async def open_later(*arguments: Any) -> Any:
        await gate.wait()
        return await find(*arguments)

    patch.setattr(openings, "open", open_later)
    return gate


async def until_assigned(consumer: Consumer, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(consumer.assignment()) < count:
            assert await consumer.poll(timeout_ms=20) == []


async def test_partitions_that_come_after_the_subscription_are_read_from_their_beginning(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in them was written since, and "latest" is said of what there was."""
    async with rig.consumer(auto_offset_reset="latest") as consumer:
        await consumer.subscribe(["t"])
        await until_assigned(consumer, 4)
        gate = await hold_up(consumer, monkeypatch)
        await rig.admin.create_partitions("t", 6)
        await consumer.subscribe(["t"])  # says nothing new
        await rig.fill(count=60, partitions=6)
        gate.set()
        assert places(await read(consumer, 60)) == EVERYTHING_NEW
        await consumer.commit()
    await rig.admin.create_partitions("t", 7)
    await rig.fill(count=70, partitions=7)
    async with rig.consumer(auto_offset_reset="latest") as consumer:
        await consumer.subscribe(["t"])
        assert places(await read(consumer, 60)) == {(each, offset + 10) for each, offset in EVERYTHING_NEW}
        while ("t", 6) not in consumer.assignment():
            await consumer.poll(timeout_ms=20)
        assert consumer.position(("t", 6)) == 10  # it was there when this one subscribed


async def test_topics_that_come_to_match_are_read_from_their_beginning(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.admin.create_topic("u1", 1)
    await rig.fill("u1", 3, 1)
    consumer = rig.consumer(auto_offset_reset="latest")
    await consumer.subscribe(pattern="u.*")  # before it is started, and knows of topics
    async with consumer:
        await until_assigned(consumer, 1)
        gate = await hold_up(consumer, monkeypatch)
        await rig.admin.create_topic("u2", 1)
        await rig.fill("u2", 3, 1)
        gate.set()
        assert [(record.topic, record.offset) for record in await read(consumer, 3)] == [
            ("u2", each) for each in range(3)
        ]


@pytest.mark.parametrize("way", ["times out", "fails"])
async def test_the_place_is_kept_whatever_the_listener_does(rig: Rig, way: str) -> None:
    class Listener(AssignmentListener):
        times = 0

        async def on_assigned(self, _: Collection[TopicPartition]) -> None:
            self.times += 1
            if self.times == 1 and way == "fails":
                raise ValueError(way)
            if self.times == 1:
                await asyncio.Event().wait()

    listener = Listener()
    async with rig.consumer(auto_offset_reset="latest", auto_commit_interval_ms=600_000) as consumer:
        await consumer.subscribe(["t"], listener=listener)
        with contextlib.suppress(ValueError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S if way == "fails" else 1):
                while True:
                    await consumer.poll(timeout_ms=100)
        assert listener.times == 1
        assert dict(await rig.admin.group_offsets("g")) == ENDS
