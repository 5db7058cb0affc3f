"""How long a range waits for a broker that is gone, and what it says then: in virtual time, with the real limits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from replog.client.ranges import range_reader
from replog.client.ranges.range_reader import FetchSettings, RangeReader
from replog.errors import RequestTimedOutError
from replog.records import decode_records
from replog.rpc.calls import IncomingCall
from replog.rpc.transport import ConnectionLostError, RequestContext
from replog.spark.options import parse_read_options
from replog.spark.snapshot import PinnedOffsets, resolve_snapshot
from replog.spark.words import WORDS
from replog.testing.virtual_loop import VirtualLoop
from tests.unit.client.fake_cluster import FakeCluster, FakeNode
from tests.unit.spark.spark_fakes import fill, open_view, whole

T = TypeVar("T")
RECORDS = 500
LEADER = "broker 1 (127.0.0.1:10001)"


@pytest.fixture(autouse=True)
def small_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = FetchSettings(max_bytes=400, max_partition_bytes=400, buffer_memory_bytes=1_200)
    monkeypatch.setattr(range_reader, "FETCH_SETTINGS", settings)


def in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    return VirtualLoop(random.Random(1)).run(main)


async def read_through(
    trouble: Callable[[FakeCluster], Awaitable[None]], *, poll_timeout_ms: int | None = None
) -> tuple[list[int], float, str]:
    """Reads one range of two brokers, the leader's trouble beginning in the middle.

    Returns:
        The offsets that came, the seconds that the last of them or the error took to come, and the error's text.
    """
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    fill(cluster, "t", RECORDS)
    wanted = whole(cluster)
    offsets: list[int] = []
    loop = asyncio.get_running_loop()
    async with open_view(cluster) as view:
        reader = RangeReader(view, wanted, words=WORDS, fail_on_data_loss=True, poll_timeout_ms=poll_timeout_ms)
        view.add_listener(reader.handle_metadata)
        await reader.start()
        first = await reader.next_piece()
        assert first is not None
        offsets += [record.offset for record in decode_records(first.data)]
        began_s, troubling = loop.time(), asyncio.create_task(trouble(cluster))  # type: ignore[arg-type]  # coroutines
        text = ""
        try:
            while (piece := await reader.next_piece()) is not None:
                offsets += [record.offset for record in decode_records(piece.data, start_offset=piece.start_offset)]
        except RequestTimedOutError as error:
            text = str(error)
        took_s = loop.time() - began_s
        await troubling
        await reader.close()
    return offsets, took_s, text


def silence(cluster: FakeCluster, node_id: int) -> None:
    """The process of a node stands still."""
    cluster.nodes[node_id].is_silent = cluster.nodes[node_id].is_mute = True


async def no_leader(cluster: FakeCluster) -> None:
    cluster.move_leader("t", 0, -1)


async def refused(cluster: FakeCluster) -> None:
    """The process is gone, and the controller has not noticed."""
    cluster.nodes[1].is_down = True
    cluster.nodes[1].cut()


async def all_silent(cluster: FakeCluster) -> None:
    for node_id in cluster.nodes:
        silence(cluster, node_id)


async def leader_silent(cluster: FakeCluster) -> None:
    silence(cluster, 1)


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (no_leader, f"the partition has no leader; the last was {LEADER}"),
        (refused, f"its leader, {LEADER}, refuses connections"),
        (all_silent, f"no broker of the cluster answers; its leader was {LEADER}"),
    ],
)
def test_a_range_that_no_broker_can_serve_fails_after_ten_seconds(
    trouble: Callable[[FakeCluster], Awaitable[None]], text: str
) -> None:
    offsets, took_s, error = in_virtual_time(read_through(trouble))
    assert offsets == list(range(len(offsets)))
    assert 10 <= took_s < 12
    assert f"t-0 [0, 500): at offset {len(offsets)} nothing came for 10" in error
    assert text in error
    assert "kafkaConsumer.pollTimeoutMs" in error


def test_a_silent_leader_is_waited_for_while_others_may_elect_another() -> None:
    """Goal: the session of a broker that stands still ends after 9 s, later where a new controller counts it."""

    async def stands_still_for_fifteen_seconds(cluster: FakeCluster) -> None:
        silence(cluster, 1)
        await asyncio.sleep(15)
        cluster.move_leader("t", 0, 2)

    offsets, took_s, error = in_virtual_time(read_through(stands_still_for_fifteen_seconds))
    assert (offsets, error) == (list(range(RECORDS)), "")
    assert 15 < took_s < 16


def test_a_leader_that_stays_silent_fails_after_a_minute() -> None:
    _, took_s, error = in_virtual_time(read_through(leader_silent))
    assert 60 <= took_s < 62
    assert f"its leader, {LEADER}, sends no records; its high watermark is 500" in error


@pytest.mark.parametrize("trouble", [no_leader, refused, all_silent, leader_silent])
@pytest.mark.parametrize("limit_s", [2, 100])
def test_the_option_sets_both_limits(trouble: Callable[[FakeCluster], Awaitable[None]], limit_s: int) -> None:
    _, took_s, error = in_virtual_time(read_through(trouble, poll_timeout_ms=limit_s * 1_000))
    assert limit_s <= took_s < limit_s + 2
    assert error


def test_a_broker_that_comes_back_in_time_is_read_from_again() -> None:
    async def gone_for_eight_seconds(cluster: FakeCluster) -> None:
        await refused(cluster)
        await asyncio.sleep(8)
        cluster.nodes[1].is_down = False

    offsets, _, error = in_virtual_time(read_through(gone_for_eight_seconds))
    assert (offsets, error) == (list(range(RECORDS)), "")


# ---- while it is planned ---------------------------------------------------------------------------------------------------


def leave_calls_unanswered(node: FakeNode) -> None:
    """A node answers no calls, either, while it is silent."""
    answer = node.handle_client_call

    async def answer_or_not(call: IncomingCall[Any], context: RequestContext) -> Any:
        if node.is_silent:
            await asyncio.sleep(call.timeout_ms / 1000)
            raise ConnectionLostError(f"no answer within {call.timeout_ms} ms")
        return await answer(call, context)

    node.handle_client_call = answer_or_not  # type: ignore[method-assign]


async def plan_through(
    trouble: Callable[[FakeCluster], Awaitable[None]], **options: str
) -> tuple[PinnedOffsets | None, float, str]:
    """Plans a read of two brokers whose trouble began before.

    Returns:
        What was planned, the seconds that it or the error took to come, and the error's text.
    """
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    fill(cluster, "t", RECORDS)
    for node in cluster.nodes.values():
        leave_calls_unanswered(node)
    loop = asyncio.get_running_loop()
    async with open_view(cluster) as view:
        planned, text, began_s = None, "", loop.time()
        troubling: asyncio.Task[None] = asyncio.create_task(trouble(cluster))  # type: ignore[arg-type]  # coroutines
        await asyncio.sleep(0)
        try:
            wanted = parse_read_options({"bootstrap.servers": "h:1", "subscribe": "t", **options})
            planned = await resolve_snapshot(view, wanted, now_ms=0)
        except RequestTimedOutError as error:
            text = str(error)
        took_s = loop.time() - began_s
        await troubling
    return planned, took_s, text


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (no_leader, "t-0 has no leader; it waits for one of the brokers 1,2"),
        (refused, f"its leader, {LEADER}, refuses connections"),
        (all_silent, f"no broker of the cluster answers; its leader was {LEADER}"),
    ],
)
def test_planning_fails_after_ten_seconds_where_no_broker_can_tell_the_offsets(
    trouble: Callable[[FakeCluster], Awaitable[None]], text: str
) -> None:
    planned, took_s, error = in_virtual_time(plan_through(trouble))
    assert planned is None
    assert 10 <= took_s < 16  # an attempt at a silent broker takes five
    assert text in error
    assert "kafkaConsumer.pollTimeoutMs" in error


def test_planning_waits_a_minute_for_a_leader_that_is_alive_and_silent() -> None:
    planned, took_s, error = in_virtual_time(plan_through(leader_silent))
    assert planned is None
    assert 60 <= took_s < 62
    assert "list offsets" in error


def test_planning_goes_on_at_the_next_leader() -> None:
    async def stands_still_for_fifteen_seconds(cluster: FakeCluster) -> None:
        silence(cluster, 1)
        await asyncio.sleep(15)
        cluster.move_leader("t", 0, 2)

    planned, took_s, error = in_virtual_time(plan_through(stands_still_for_fifteen_seconds))
    assert error == ""
    assert planned is not None
    assert planned.ranges[0].end_offset == RECORDS
    assert 15 <= took_s < 21


@pytest.mark.parametrize("trouble", [no_leader, refused, all_silent, leader_silent])
@pytest.mark.parametrize("limit_s", [2, 100])
def test_the_option_sets_how_long_planning_waits(
    trouble: Callable[[FakeCluster], Awaitable[None]], limit_s: int
) -> None:
    option = {"kafkaConsumer.pollTimeoutMs": str(limit_s * 1_000)}
    planned, took_s, error = in_virtual_time(plan_through(trouble, **option))
    assert planned is None
    assert limit_s <= took_s + 0.001 < limit_s + 6  # deadlines are in whole milliseconds
    assert error
