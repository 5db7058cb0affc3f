"""Upkeep of many logs: some at a time, with other work of the loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from broker_kit import DIRECTORY, KEY, Rig, registered, rig, topic, wait_until
from msgspec.structs import replace

from replog.broker.replicas import log_keeper
from replog.broker.replicas.log_keeper import LogKeeper
from replog.broker.replicas.replica import Replica
from replog.log import Log
from replog.metadata.records import PartitionRecord, TopicRecord

OTHER = UUID(int=101)
TOGETHER, MANY = 10, 35


async def many_replicas(it: Rig) -> LogKeeper:
    await it.apply(registered(1))
    made = [PartitionRecord(number, OTHER, (1,), (1,), 1, 0, 0) for number in range(MANY)]
    await it.apply(TopicRecord("other", OTHER), *made)
    assert len(it.stepper.replicas) == MANY
    return LogKeeper(it.config, it.directory, it.stepper, it.manager.retry_roles, it.executor, it.failures.append)


async def most_together(looked: list[object], work: Coroutine[Any, Any, None]) -> int:
    """The largest number of logs that `work` has looked at in one turn of the loop."""
    task, most = asyncio.create_task(work), 0
    while not task.done():
        before = len(looked)
        await asyncio.sleep(0)
        most = max(most, len(looked) - before)
    await task
    return most


def count_reads(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    """Who is asked for a property, from now on."""
    looked: list[object] = []
    read: Callable[[Any], object] = getattr(owner, name).fget
    monkeypatch.setattr(owner, name, property(lambda one: (looked.append(one), read(one))[1]))
    return looked


@pytest.mark.parametrize(
    ("work", "owner", "name"),
    [
        (LogKeeper.remove_deleted_files, Log, "next_file_deletion_ms"),
        (LogKeeper.checkpoint_high_watermarks, Replica, "high_watermark"),
        (LogKeeper.request_due_flushes, Log, "config"),
    ],
)
async def test_some_logs_are_looked_at_in_one_turn(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[LogKeeper], Coroutine[Any, Any, None]], owner: type, name: str
) -> None:
    monkeypatch.setattr(log_keeper, "LOGS_TOGETHER", TOGETHER)
    async with rig() as it:
        upkeep = await many_replicas(it)
        looked = count_reads(monkeypatch, owner, name)
        assert 0 < await most_together(looked, work(upkeep)) <= TOGETHER
        assert len(looked) >= MANY


async def test_a_replica_that_is_replaced_meanwhile_leaves_no_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a topic that is deleted and created again must not inherit what was committed in the first one."""
    monkeypatch.setattr(log_keeper, "LOGS_TOGETHER", 1)
    async with rig() as it:
        await it.apply(registered(1), *topic((1,)), *topic((1,), name="other", topic_id=OTHER))
        await it.committed(4)
        await wait_until(lambda: it.replica.high_watermark == 4)
        upkeep = LogKeeper(it.config, it.directory, it.stepper, it.manager.retry_roles, it.executor, it.failures.append)
        call = it.stepper.driver.call

        async def replaced_after(work: Callable[[], Any]) -> object:
            result = await call(work)
            it.stepper.replicas[KEY] = replace(it.stepper.replicas[KEY])
            return result

        monkeypatch.setattr(it.stepper.driver, "call", replaced_after)
        await upkeep.checkpoint_high_watermarks()
        assert it.fs.image()[f"{DIRECTORY}/replication-offset-checkpoint"] == b"0\n1\nother 0 0\n"


async def test_only_high_watermarks_that_have_moved_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: those of 100,000 replicas were merged in one step every few seconds, a tenth of a second, though none had moved."""
    named: list[int] = []
    async with rig() as it:
        await it.apply(registered(1), *topic((1,)), *topic((1,), name="other", topic_id=OTHER))
        prepare = it.directory.prepare_high_watermarks

        def noted(marks: Any) -> Any:
            named.append(len(marks))
            return prepare(marks)

        monkeypatch.setattr(it.directory, "prepare_high_watermarks", noted)
        upkeep = LogKeeper(it.config, it.directory, it.stepper, it.manager.retry_roles, it.executor, it.failures.append)
        await upkeep.checkpoint_high_watermarks()
        await it.committed(4)
        await wait_until(lambda: it.replica.high_watermark == 4)
        for _ in range(2):
            await upkeep.checkpoint_high_watermarks()
        assert named == [2, 1, 0]
        assert b"flights 0 4\n" in it.fs.image()[f"{DIRECTORY}/replication-offset-checkpoint"]
