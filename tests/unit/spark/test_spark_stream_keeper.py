"""The bounds of a stream's partitions, kept up to date by watching leaders."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from replog.client.ranges import patience
from replog.client.types import TopicPartition
from replog.errors import ErrorCode, RequestTimedOutError
from replog.rpc.messages import ListOffsetsRequest
from replog.spark.options import TopicChoice
from replog.spark.stream import keeper as keeper_module
from replog.spark.stream.changes import LogBounds
from replog.spark.stream.keeper import BoundsKeeper
from replog.spark.stream.runner import wanted_partitions
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.spark_fakes import fill, open_view

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(autouse=True)
def in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "STALE_S", 0.2)
    monkeypatch.setattr(keeper_module, "LOOK_S", 0.02)


@pytest.fixture
async def cluster() -> FakeCluster:
    """Topic t: 10 records in partition 0 of broker 1, none in partition 1 of broker 2."""
    made = FakeCluster(2)
    made.create_topic("t", 2)
    made.move_leader("t", 0, 1)
    made.move_leader("t", 1, 2)
    fill(made, "t", 10)
    return made


@asynccontextmanager
async def keeping(cluster: FakeCluster, choice: TopicChoice | None = None) -> AsyncIterator[BoundsKeeper]:
    chosen = choice or TopicChoice(("t",))
    async with open_view(cluster) as view:
        keeper = BoundsKeeper(view, lambda image: wanted_partitions(image, chosen))
        try:
            await keeper.start()
            yield keeper
        finally:
            await keeper.close()
            assert not keeper._tasks


def ends(keeper: BoundsKeeper) -> dict[str, tuple[int, int]]:
    bounds = keeper.known().bounds
    return {str(each): (b.log_start_offset, b.high_watermark) for each, b in sorted(bounds.items())}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def questions(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Requests for offsets, from now on."""
    asked: list[Any] = []
    for node in cluster.nodes.values():
        handle = node.handle_client_call

        async def noted(call: Any, context: Any, handle: Any = handle) -> Any:
            if isinstance(call.request, ListOffsetsRequest):
                asked.append(call.request)
            return await handle(call, context)

        monkeypatch.setattr(node, "handle_client_call", noted)
    return asked


async def test_what_moves_is_known_without_a_question(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "STALE_S", 60.0)
    async with keeping(cluster) as keeper:
        assert ends(keeper) == {"t-0": (0, 10), "t-1": (0, 0)}
        asked = questions(cluster, monkeypatch)
        version = keeper.version
        fill(cluster, "t", 5, partition=1)
        await until(lambda: ends(keeper)["t-1"] == (0, 5))
        assert keeper.version > version
        cluster.logs["t", 0].log_start_offset = 4
        await until(lambda: ends(keeper)["t-0"] == (4, 10))
        assert keeper.known().bounds[T0].bytes_per_offset > 0
        assert asked == []
        assert [len(node.offset_watches) for node in cluster.nodes.values()] == [1, 1]


async def test_some_are_asked_alone(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: of a partition in doubt its leader is asked, and no other one that may be dead."""
    monkeypatch.setattr(keeper_module, "STALE_S", 60.0)
    async with keeping(cluster) as keeper:
        asked = questions(cluster, monkeypatch)
        await keeper.refresh({T1, TopicPartition("strange", 0)})
        assert {each.partition_id for request in asked for each in request.partitions} == {T1.partition}


async def test_nothing_is_stale_while_leaders_say_that_all_holds(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "STALE_S", 60.0)
    async with keeping(cluster) as keeper:
        watches = keeper._watches.values()
        await until(lambda: all(len(watch.confirmed) == 1 for watch in watches))
        keeper._asked_s.clear()  # as if it was long ago, like the beginning of the watches
        for watch in watches:
            watch._began_s = -math.inf
        assert keeper._stale_groups() == []
        cluster.nodes[1].refuses_watches = True
        await until(lambda: keeper._stale_groups() == [(T0,)] or T0 in keeper._asking or T0 in keeper._asked_s)


async def test_leaders_are_followed(cluster: FakeCluster) -> None:
    async with keeping(cluster) as keeper:
        cluster.move_leader("t", 0, 2)
        fill(cluster, "t", 5)
        await until(lambda: ends(keeper)["t-0"] == (0, 15))
        assert keeper.known().bounds[T0].leader_epoch == cluster.logs["t", 0].leader_epoch
        assert [len(each.partitions) for each in cluster.nodes[2].offset_watches] == [1, 2]


async def test_new_partitions_and_topics_are_taken_in(cluster: FakeCluster) -> None:
    async with keeping(cluster, TopicChoice(pattern="[tu]")) as keeper:
        cluster.create_topic("u", 1)
        fill(cluster, "u", 5)
        await until(lambda: ends(keeper).get("u-0") == (0, 5))
        cluster.delete_topic("t")
        await until(lambda: list(ends(keeper)) == ["u-0"])
        assert keeper.known().untold == frozenset()


async def test_a_topic_created_anew_is_another_one(cluster: FakeCluster) -> None:
    async with keeping(cluster) as keeper:
        before = keeper.known().bounds[T0].topic_id
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        await until(lambda: ends(keeper) == {"t-0": (0, 0)})
        assert keeper.known().bounds[T0].topic_id != before


async def test_a_leader_that_lets_nobody_watch_is_asked_and_told_of_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper_module, "WATCH_BACKOFF_MS_MAX", 1)
    for node in cluster.nodes.values():
        node.refuses_watches = True
    async with keeping(cluster) as keeper:
        fill(cluster, "t", 5)
        await until(lambda: ends(keeper)["t-0"] == (0, 15))
        await until(lambda: all(len(node.offset_watches) >= 3 for node in cluster.nodes.values()))
        assert not keeper.has_trouble
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == 2, told
    assert all("does not let its offsets be watched" in each and "no watches here" in each for each in told)


async def test_a_watch_that_ends_is_nothing_to_tell(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", keeper_module.__name__)
    async with keeping(cluster):
        await until(lambda: len(cluster.nodes[1].offset_watches) == 1)
        cluster.nodes[1].is_down = True
        await until(lambda: "watch of" in caplog.text)
        cluster.nodes[1].is_down = False
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []


async def test_a_leader_that_falls_silent_is_asked(cluster: FakeCluster) -> None:
    async with keeping(cluster) as keeper:
        cluster.nodes[1].is_silent = True
        fill(cluster, "t", 5)
        await until(lambda: ends(keeper)["t-0"] == (0, 15))


async def test_a_dead_broker_is_trouble_when_patience_is_over_and_holds_up_no_other(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "UNSERVED_TIMEOUT_MS", 300)
    async with keeping(cluster) as keeper:
        cluster.nodes[1].is_down = True
        fill(cluster, "t", 5, partition=1)
        await until(lambda: ends(keeper)["t-1"] == (0, 5))
        await until(lambda: keeper.has_trouble)
        with pytest.raises(RequestTimedOutError, match="look up offsets of t-0: no answer for"):
            keeper.raise_if_unserved()
        assert ends(keeper)["t-0"] == (0, 10), "what was committed stays so"
        cluster.nodes[1].is_down = False
        await until(lambda: not keeper.has_trouble)
        keeper.raise_if_unserved()
        fill(cluster, "t", 5)
        await until(lambda: ends(keeper)["t-0"] == (0, 15))


async def test_it_does_not_begin_without_all_leaders(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "UNSERVED_TIMEOUT_MS", 300)
    cluster.nodes[1].is_down = True
    with pytest.raises(RequestTimedOutError, match="its leader, broker 1"):
        async with keeping(cluster):
            pytest.fail("it began")


async def test_a_high_watermark_that_is_not_known_yet_is_waited_for(cluster: FakeCluster) -> None:
    """Goal: KIP-207, while the first bounds are asked for."""
    cluster.nodes[1].list_offsets_script.extend([ErrorCode.OFFSET_NOT_AVAILABLE] * 3)
    async with keeping(cluster) as keeper:
        assert ends(keeper)["t-0"] == (0, 10)


async def test_answers_that_were_overtaken_change_nothing(cluster: FakeCluster) -> None:
    async with keeping(cluster) as keeper:
        now = keeper.known().bounds[T0]
        version = keeper.version
        keeper._learn(T0, now._replace(high_watermark=7))
        keeper._learn(T0, now._replace(leader_epoch=now.leader_epoch - 1, high_watermark=99))
        keeper._learn(T0, LogBounds(UUID(int=99), 0, 99, 99))
        keeper._learn(TopicPartition("strange", 0), now)
        assert (keeper.known().bounds[T0], keeper.version) == (now, version)


async def test_many_partitions_of_one_leader_are_several_watches(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "WATCH_PARTITIONS_MAX", 2)
    cluster.create_topic("wide", 5)
    async with keeping(cluster, TopicChoice(("wide",))):
        await until(lambda: sum(len(node.offset_watches) for node in cluster.nodes.values()) >= 3)
        sizes = [len(each.partitions) for node in cluster.nodes.values() for each in node.offset_watches]
        assert max(sizes) == 2
        assert sum(sizes) == 5
