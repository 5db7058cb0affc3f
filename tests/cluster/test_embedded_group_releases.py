"""A member that gives partitions back reads the others on, while the last commit of those that go is under way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from embedded_group_kit import (
    EVERYTHING,
    Background,
    Heard,
    Line,
    Rig,
    member,
    places,
    read,
    until,
)

from replog.client import Consumer, ConsumerRecord, SyncConsumer
from replog.client.consumer.group_commits import GroupCommits
from replog.client.consumer.group_member import GroupMember
from replog.coordinator.offsets.requests import CommitOffsets
from replog.errors import ReplogError
from tests.cancelling import WAITS_MAX, cancelled_at_wait
from tests.quiet import quiet_for

AGAIN = {(partition, offset) for partition in range(4) for offset in range(10, 20)}
QUIET_S = 0.2


class Giving:
    """A member that had all four partitions: it has let go of two of them, and their last commit is held up.

    Attributes:
        second: The member that waits for them.
        stays: The partitions that stay.
    """

    def __init__(self, first: Background, second: Background, listener: Heard, line: Line) -> None:
        self.first = first
        self.second = second
        self.listener = listener
        self.line = line
        self.stays = set(first.consumer.assignment())

    def of_stays(self) -> set[tuple[int, int]]:
        """Returns the places of the second filling that are in partitions that stay."""
        return {place for place in AGAIN if ("t", place[0]) in self.stays}

    def leave_nothing_to_commit(self) -> None:
        """Seeks in what stays: nothing of it is done with then, and only the last commit of what goes is waited for."""
        for each in self.stays:
            self.first.consumer.seek(each, 10)

    async def stop_reading(self) -> None:
        self.first.task.cancel()
        await asyncio.wait([self.first.task])

    async def stop(self) -> None:
        self.line.gate.set()
        await self.second.stop()
        await self.first.stop()


async def giving(rig: Rig, patch: pytest.MonkeyPatch, group_id: str = "g", **config: Any) -> Giving:
    listener = Heard()
    first = await member(rig, listener, group_id=group_id, **config)
    line = Line(first.consumer, patch)
    line.gate.clear()  # before anything is read: a commit that is due early is held up as the last one is
    await until(lambda: len(first.records) == 40)
    second = await member(rig, group_id=group_id)
    await until(lambda: len(first.consumer.assignment()) == 2 and line.commits_count == 1)
    return Giving(first, second, listener, line)


def member_of(consumer: Consumer) -> GroupMember:
    assert consumer._group is not None
    return consumer._group.member


def tasks_of_groups() -> list[str]:
    return sorted(name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("replog-group-"))


OF_ONE = ["replog-group-commits", "replog-group-heartbeats", "replog-group-news", "replog-group-openings"]


async def test_what_stays_is_read_while_the_last_commit_of_what_goes_is_under_way(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await giving(rig, monkeypatch)
    first, second, line = found.first, found.second, found.line
    await rig.fill()
    await until(lambda: len(first.records) == 60)
    assert places(first.records[40:]) == found.of_stays()
    assert second.consumer.assignment() == []
    assert "owns 2" not in line.said
    line.gate.set()
    await until(lambda: len(second.records) == 20)
    assert places(second.records) == AGAIN - found.of_stays()
    assert line.said.index("commits") < line.said.index("owns 2")
    assert found.listener.heard == [("assigned", 4), ("revoked", 2)]
    await found.stop()


async def test_a_partition_that_comes_back_is_read_from_its_last_commit_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await giving(rig, monkeypatch)
    await rig.fill()
    second = asyncio.create_task(found.second.stop())  # before it has got anything
    found.line.gate.set()
    await second
    await until(lambda: len(found.first.records) == 80)
    assert places(found.first.records) == EVERYTHING | AGAIN
    await found.first.stop()


async def test_whoever_closes_waits_for_the_last_commit_and_leaves_then(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await giving(rig, monkeypatch)
    found.leave_nothing_to_commit()
    closing = asyncio.create_task(found.first.stop())
    await until(lambda: found.listener.heard == [("assigned", 4), ("revoked", 2), ("revoked", 2)])
    await quiet_for(QUIET_S)
    assert "leaves" not in found.line.said
    found.line.gate.set()
    await closing
    assert found.line.said.index("commits") < found.line.said.index("leaves")
    assert tasks_of_groups() == OF_ONE
    await rig.fill()
    await until(lambda: len(found.second.records) == 60)  # the two that stayed are read again: so said the seek
    assert places(found.second.records) == {place for place in EVERYTHING if ("t", place[0]) in found.stays} | AGAIN
    await found.second.stop()


async def test_leaving_that_is_cancelled_at_any_wait_leaves_no_task(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, WAITS_MAX):
        found = await giving(rig, monkeypatch, group_id=f"g{number}")
        await found.stop_reading()
        found.leave_nothing_to_commit()
        found.line.gate.set()
        was_cancelled = await cancelled_at_wait(number, found.first.consumer.unsubscribe())
        assert tasks_of_groups() == OF_ONE
        assert number > 1 or "leaves" in found.line.said  # whoever does not wait for the commit leaves all the same
        await found.stop()
        if not was_cancelled:
            return
    pytest.fail("it never ends")


async def test_leaving_that_is_given_up_gives_up_the_last_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = await giving(rig, monkeypatch)
    await found.stop_reading()
    leaving = asyncio.create_task(found.first.consumer.unsubscribe())
    await until(lambda: found.listener.heard == [("assigned", 4), ("revoked", 2), ("revoked", 2)])
    for _ in range(2):  # the commit of what was read to the end, and the one that was under way before
        leaving.cancel()
        await quiet_for(QUIET_S)
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    assert tasks_of_groups() == OF_ONE
    assert found.line.said[-1] == "leaves"
    assert "this consumer was closed before the commit was answered" in caplog.messages
    await until(lambda: len(found.second.records) == 40)
    await found.stop()


async def test_a_read_that_is_cancelled_while_partitions_go_loses_nothing_and_repeats_nothing(
    rig: Rig,
) -> None:
    for number in range(1, WAITS_MAX):
        async with rig.consumer(group_id=f"g{number}") as first:
            await first.subscribe(["t"])
            records = await read(first, 20)
            mine = member_of(first)
            second = await member(rig, group_id=f"g{number}")
            await until(lambda: mine.taken_back is not None)  # noqa: B023 -- awaited here

            async def run(consumer: Consumer = first, records: list[ConsumerRecord] = records) -> None:
                records += await consumer.poll(1, 0)

            was_cancelled = await cancelled_at_wait(number, run())
            again = Background(first)
            everybody = [records, again.records, second.records]
            await until(lambda: sum(map(len, everybody)) >= 40)  # noqa: B023 -- awaited here
            assert places([each for found in everybody for each in found]) == EVERYTHING
            assert sum(map(len, everybody)) == 40
            assert len(second.consumer.assignment()) == 2
            await again.stop()
            await second.stop()
        if not was_cancelled:
            return
    pytest.fail("it never ends")


async def test_who_is_put_out_while_its_last_commit_hangs_hears_of_it_with_the_next_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The time for giving back passes.  Whatever it read on would be another member's already."""
    found = await giving(rig, monkeypatch, max_poll_interval_ms=1_000)
    await until(lambda: ("lost", 2) in found.listener.heard)
    assert not found.line.gate.is_set()
    assert sum("records since the last commit will be read again" in line for line in caplog.messages) == 1
    found.line.gate.set()
    await until(lambda: len(found.first.consumer.assignment()) == len(found.second.consumer.assignment()) == 2)
    await rig.fill()
    await until(lambda: places([*found.first.records[40:], *found.second.records]) >= AGAIN)
    await found.stop()


async def test_a_last_commit_that_is_refused_is_told_to_the_log_and_keeps_nothing_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = await giving(rig, monkeypatch)
    found.line.refusal = ReplogError("out of order")
    found.line.gate.set()
    await until(lambda: len(found.second.records) == 20)  # from the beginning
    assert "out of order; records since the last commit will be read again" in caplog.messages
    assert not found.first.task.done()
    found.line.refusal = None
    await found.stop()


async def test_where_nothing_is_to_be_committed_partitions_go_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await member(rig, enable_auto_commit=False)
    await until(lambda: len(first.records) == 40)
    line = Line(first.consumer, monkeypatch)
    second = await member(rig)
    await until(lambda: len(second.records) == 20)
    assert line.commits_count == 0
    await first.stop()
    await second.stop()


async def test_a_commit_of_the_applications_ends_before_its_partitions_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await member(rig, enable_auto_commit=False)
    await until(lambda: len(first.records) == 40)
    line = Line(first.consumer, monkeypatch)
    line.gate.clear()
    committing = asyncio.create_task(first.consumer.commit())
    await until(lambda: line.commits_count == 1)
    second = await member(rig)
    await until(lambda: len(first.consumer.assignment()) == 2)
    await quiet_for(QUIET_S)
    assert "owns 2" not in line.said
    line.gate.set()
    await committing
    await until(lambda: len(second.consumer.assignment()) == 2)
    assert line.said.index("commits") < line.said.index("owns 2")
    assert second.records == []
    await first.stop()
    await second.stop()


async def test_a_bug_in_the_release_is_told_to_whoever_reads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions would never go, and nobody know why."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(GroupCommits, "wait_for_last", broken)
    async with rig.consumer() as first:
        await first.subscribe(["t"])
        await read(first, 40)
        second = await member(rig)
        with pytest.raises(ReplogError, match=r"replog-group-release ended, .*a bug"):
            await read(first, 1)
        monkeypatch.undo()
        await second.stop()


async def test_an_application_that_never_waits_does_not_hold_up_what_goes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is always a record to hand out: nothing else would have its turn before some thousand of them."""
    async with rig.consumer() as first:
        await first.subscribe(["t"])
        await read(first, 40)
        line = Line(first, monkeypatch)
        line.gate.clear()
        line.refusal = ReplogError("is answered at once")
        second, mine = await member(rig), member_of(first)
        await rig.fill(count=4_000)
        await until(lambda: mine.taken_back is not None and first._reader.backlog.held_bytes > 10_000)
        await read(first, 1)
        assert mine.going is not None
        line.gate.set()
        for _ in range(100):
            await first.getone()
        assert mine.going is None
        line.refusal = None
        await second.stop()


async def test_without_async_what_stays_is_read_on_as_well(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = SyncConsumer(rig.servers, group_id="g", auto_offset_reset="earliest")
    await asyncio.to_thread(consumer.subscribe, ["t"])
    first = [await asyncio.to_thread(next, consumer) for _ in range(40)]
    mine = member_of(consumer._client)
    second = await member(rig)
    await until(lambda: mine.taken_back is not None)
    gate = threading.Event()
    call = mine._coordinator.call

    async def held_up(request: Any, *rest: Any) -> Any:
        while isinstance(request, CommitOffsets) and not gate.is_set():
            await asyncio.sleep(0.01)
        return await call(request, *rest)

    monkeypatch.setattr(mine._coordinator, "call", held_up)
    await rig.fill()
    first.append(await asyncio.to_thread(next, consumer))
    assert mine.going is not None
    left = sum(20 - consumer.position(each) for each in consumer.assignment())
    first += [await asyncio.to_thread(next, consumer) for _ in range(left)]
    assert len(first) == 60
    assert second.consumer.assignment() == []
    gate.set()
    await until(lambda: len(first) + len(second.records) == 80)
    assert places([*first, *second.records]) == EVERYTHING | AGAIN
    await second.stop()
    await asyncio.to_thread(consumer.close)


async def test_an_error_of_the_application_at_the_end_spares_the_commits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await giving(rig, monkeypatch, auto_commit_interval_ms=100)
    await rig.fill()
    await until(lambda: len(found.first.records) == 60)
    await found.stop_reading()
    held = member_of(found.first.consumer)

    async def fail(_: object) -> None:
        raise ValueError("of the application")

    monkeypatch.setattr(found.listener, "on_revoked", fail)
    closing = asyncio.create_task(found.first.consumer.close())
    await quiet_for(2 * QUIET_S)  # a commit is due, of what is read no more
    found.line.gate.set()
    with pytest.raises(ValueError, match="of the application"):
        await closing
    assert held.failure is None
    assert found.line.said[-1] == "leaves"
    await found.second.stop()


async def test_who_closes_while_another_task_leaves_waits_for_the_last_commit_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await giving(rig, monkeypatch)
    await found.stop_reading()
    found.leave_nothing_to_commit()
    leaving = asyncio.create_task(found.first.consumer.unsubscribe())
    await quiet_for(QUIET_S)
    closing = asyncio.create_task(found.first.consumer.close())
    await quiet_for(QUIET_S)
    assert "leaves" not in found.line.said
    found.line.gate.set()
    await asyncio.gather(leaving, closing)
    assert found.line.said.index("commits") < found.line.said.index("leaves")
    await found.second.stop()
