"""What a stream tells a consumer group: never in the way of the query."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from replog.client import MemberDescription, TopicPartition
from replog.errors import ConfigError, GroupIdNotFoundError, NonEmptyGroupError, RequestTimedOutError
from replog.spark.stream import group_offsets
from replog.spark.stream.group_offsets import ALL_AGAIN_S, StreamGroup
from replog.spark.stream.offset import Place, Places

T_ID, OLD_ID = UUID(int=1), UUID(int=2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeGroups:
    """What the coordinator of the group does."""

    def __init__(self, _view: Any = None) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.members: tuple[MemberDescription, ...] = ()

    async def describe_groups(self, names: list[str], *, timeout_ms: int) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {names[0]: SimpleNamespace(members=self.members)}

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int) -> None:
        assert group == "g"
        if self.gate is not None:
            await self.gate.wait()
        self.commits.append(dict(offsets))
        if self.error is not None:
            raise self.error


class Clock:
    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    made = FakeGroups()
    monkeypatch.setattr(group_offsets, "_Groups", lambda _view: made)
    return made


def offsets_of(clock: Clock | None = None) -> StreamGroup:
    view: Any = SimpleNamespace(image=SimpleNamespace(topics={"t": SimpleNamespace(topic_id=T_ID)}))
    return StreamGroup(view, "g", clock or Clock())


def places(first: int, second: int) -> Places:
    return {T0: Place(T_ID, first, 0), T1: Place(T_ID, second, 0)}


async def told(it: StreamGroup, where: Places) -> None:
    """A batch has ended, and its commit, if there was one, is over."""
    it.tell(where)
    assert it._task is not None
    await it._task


async def test_only_what_has_changed_is_committed_and_all_of_it_now_and_then(fake: FakeGroups) -> None:
    clock = Clock()
    it = offsets_of(clock)
    await told(it, places(3, 4))
    await told(it, places(3, 4))
    await told(it, places(3, 9))
    assert fake.commits == [{T0: 3, T1: 4}, {T1: 9}]
    clock.now_s += ALL_AGAIN_S
    await told(it, places(3, 9))
    assert fake.commits[2:] == [{T0: 3, T1: 9}]


async def test_what_was_deleted_or_is_another_topic_now_is_left_out(fake: FakeGroups) -> None:
    it = offsets_of()
    await told(it, {T0: Place(OLD_ID, 3, 0), TopicPartition("gone", 0): Place(T_ID, 3, 0), T1: Place(T_ID, 4, 0)})
    assert fake.commits == [{T1: 4}]


async def test_a_slow_commit_holds_up_nobody_and_the_last_batch_is_told(fake: FakeGroups) -> None:
    fake.gate = asyncio.Event()
    it = offsets_of()
    for end in range(1, 100):
        it.tell(places(end, 0))
        await asyncio.sleep(0)
    fake.gate.set()
    await it.close()
    assert fake.commits == [{T0: 1, T1: 0}, {T0: 99}]


async def test_a_failure_is_told_once_and_made_up_for_with_the_next_batch(
    fake: FakeGroups, caplog: pytest.LogCaptureFixture
) -> None:
    it = offsets_of()
    fake.error = NonEmptyGroupError("somebody has joined")
    with caplog.at_level(logging.INFO):
        await told(it, places(3, 4))
        await told(it, places(5, 4))
        fake.error = None
        await told(it, places(5, 4))
    assert fake.commits[-1] == {T0: 5, T1: 4}
    failed, again = (record.getMessage() for record in caplog.records)
    assert "with the next batch it is tried again: somebody has joined" in failed
    assert again == "group g is told again where the stream stands"


async def test_the_end_does_not_wait_for_a_coordinator_that_is_silent(
    fake: FakeGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "LAST_COMMIT_S", 0.0)
    fake.gate = asyncio.Event()
    it = offsets_of()
    await it.close()
    it.tell(places(1, 1))
    await it.close()
    assert fake.commits == []
    assert it._task is not None
    assert it._task.done()


async def test_a_group_with_members_is_refused_and_one_that_nobody_tells_of_is_not(
    fake: FakeGroups, caplog: pytest.LogCaptureFixture
) -> None:
    it = offsets_of()
    await it.check()
    fake.error = GroupIdNotFoundError("no such group")
    await it.check()
    assert not caplog.records
    fake.error = RequestTimedOutError("nobody answers")
    await it.check()
    assert "nobody answers" in caplog.text
    fake.error, fake.members = None, (MemberDescription("m", None, "billing", "10.0.0.1", 1, ()),)
    with pytest.raises(
        ConfigError, match=r'group "g" has 1 members \(billing at 10.0.0.1\).* no consumer uses'
    ) as caught:
        await it.check()
    assert caught.value.field == "commitOffsetsToGroup"
