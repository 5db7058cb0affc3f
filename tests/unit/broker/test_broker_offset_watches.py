"""The watch of high watermarks and log starts: one node, real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID

import pytest
from broker_kit import wait_until
from node_kit import Running, node

from replog.broker.requests import offset_watches
from replog.broker.requests.offset_watches import OffsetWatch
from replog.controller.requests import DeleteTopics
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    ErrorCode,
    InconsistentClusterIdError,
    InvalidRequestError,
    ThrottledError,
)
from replog.rpc.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    OffsetsUpdate,
    PollOffsets,
    WatchedOffsets,
    WatchedPartition,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import TopicInfo
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.rpc.transport import ConnectionLostError
from replog.testing import SimulatedFileSystem


def asked(*topics: TopicInfo, leader_epoch: int = -1, cluster_id: str = "c") -> WatchOffsetsRequest:
    return WatchOffsetsRequest(cluster_id, tuple(WatchedPartition(topic.topic_id, 0, leader_epoch) for topic in topics))


async def next_update(updates: Any, *, is_heartbeat: bool = False) -> tuple[WatchedOffsets, ...]:
    """The next update that is, or is not, a heartbeat."""
    async with asyncio.timeout(60):
        while True:
            update: OffsetsUpdate = await anext(updates)
            if bool(update.partitions) != is_heartbeat:
                return update.partitions


async def bounds(updates: Any) -> list[tuple[int, int]]:
    return [(each.log_start_offset, each.high_watermark) for each in await next_update(updates)]


def watches(it: Running) -> Any:
    inner: Any = it.node
    return inner.parts.requests.fetch_path.watches


async def polled(it: Running, topic: TopicInfo) -> AsyncGenerator[OffsetsUpdate]:
    """The updates of a watch of one partition, asked of the broker itself."""
    poll = PollOffsets(0, asked(topic).partitions)
    while True:
        told = await watches(it).poll(poll)
        poll = PollOffsets(told.watch_id)
        yield told.update


async def test_it_tells_the_state_and_then_what_moves() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic, other = await it.create("t"), await it.create("u")
        await it.produce(topic)
        updates = it.connection.watch_offsets(asked(topic, other))
        first = await next_update(updates)
        assert [(each.topic_id, each.high_watermark, each.error) for each in first] == [
            (topic.topic_id, 1, ErrorCode.NONE), (other.topic_id, 0, ErrorCode.NONE),
        ]  # fmt: skip
        assert first[0].leader_epoch == topic.partitions[0].leader_epoch
        assert first[0].size_bytes > first[1].size_bytes == 0
        await it.produce(other)
        (moved,) = await next_update(updates)
        assert (moved.topic_id, moved.high_watermark) == (other.topic_id, 1)
        await it.connection.call(
            DeleteRecordsRequest((DeleteRecordsPartition(topic.topic_id, 0, -1),)), timeout_ms=5_000
        )
        assert await bounds(updates) == [(1, 1)]
        assert await next_update(updates, is_heartbeat=True) == ()


async def test_a_reader_that_is_behind_gets_the_newest_state_once() -> None:
    """Goal: nothing is queued, whatever moves meanwhile."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = polled(it, topic)
        assert await bounds(updates) == [(0, 0)]
        for _ in range(20):
            await it.produce(topic)
        assert await bounds(updates) == [(0, 20)]


async def test_it_says_that_it_serves_while_what_moves_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a log that grows while its high watermark stands still (a follower hangs) does not make its readers leave."""
    monkeypatch.setattr(offset_watches, "HEARTBEAT_S", 0.05)

    async def moves_at_once(watch: OffsetWatch, _timeout_s: float) -> None:
        for key in watch.asked:
            watch.note(key)

    monkeypatch.setattr(OffsetWatch, "wait", moves_at_once)
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = polled(it, topic)
        assert await bounds(updates) == [(0, 0)]
        for _ in range(2):
            assert await next_update(updates, is_heartbeat=True) == ()


async def test_it_ends_where_the_broker_leads_nothing_any_more() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic, other = await it.create("t"), await it.create("u")
        updates = it.connection.watch_offsets(asked(topic, other))
        await next_update(updates)
        await it.connection.call(DeleteTopics(("t",)), timeout_ms=5_000)
        (gone,) = await next_update(updates)
        assert (gone.topic_id, gone.error) == (topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        await it.connection.call(DeleteTopics(("u",)), timeout_ms=5_000)
        await next_update(updates)
        with pytest.raises(ConnectionLostError, match="leads none of the partitions any more"):
            await next_update(updates)
        await wait_until(lambda: len(watches(it)) == 0)
        assert not watches(it)._by_key
        assert watches(it)._watched_count == 0


async def test_another_epoch_is_refused() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        (state,) = await next_update(it.connection.watch_offsets(asked(topic, leader_epoch=99)))
        assert state.error is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_broker_without_its_lease_ends_its_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who is cut off does not go on saying that nothing moves."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = it.connection.watch_offsets(asked(topic))
        await next_update(updates)
        monkeypatch.setattr(watches(it), "_serving", lambda: "cut off")
        with pytest.raises(BrokerNotAvailableError, match="cut off"):
            await next_update(updates)
        await wait_until(lambda: len(watches(it)) == 0)


@pytest.mark.parametrize("name", ["WATCHES_MAX", "WATCHED_PARTITIONS_MAX"])
async def test_watches_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        monkeypatch.setattr(offset_watches, name, 2)
        first, second, third = (it.connection.watch_offsets(asked(topic)) for _ in range(3))
        await next_update(first)
        await next_update(second)
        with pytest.raises(ThrottledError, match="ask for the offsets instead"):
            await next_update(third)
        monkeypatch.setattr(offset_watches, "EXPIRES_S", 0.0)
        assert await bounds(it.connection.watch_offsets(asked(topic))) == [(0, 0)]


async def test_a_watch_that_is_gone_or_polled_already_is_refused() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        told = await watches(it).poll(PollOffsets(0, asked(topic).partitions))
        again = asyncio.create_task(watches(it).poll(PollOffsets(told.watch_id)))
        await asyncio.sleep(0)
        for watch_id in (told.watch_id, told.watch_id + 1):
            with pytest.raises(InvalidRequestError, match="begin a new one"):
                await watches(it).poll(PollOffsets(watch_id))
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        assert len(watches(it)) == 0


async def test_what_may_not_be_asked() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        with pytest.raises(InconsistentClusterIdError):
            await next_update(it.connection.watch_offsets(asked(topic, cluster_id="another")))
        many = tuple(WatchedPartition(UUID(int=5), number) for number in range(MAX_PARTITIONS + 1))
        with pytest.raises(InvalidRequestError, match=r"10,001 partitions, 10,000 may be"):
            await next_update(it.connection.watch_offsets(WatchOffsetsRequest("c", many)))
        with pytest.raises(ConnectionLostError):
            await next_update(it.connection.watch_offsets(WatchOffsetsRequest("c", ())), is_heartbeat=False)
        assert len(watches(it)) == 0


async def test_many_partitions_are_told_in_several_updates() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        strange = tuple(WatchedPartition(topic.topic_id, number) for number in range(600))
        updates = it.connection.watch_offsets(WatchOffsetsRequest("c", strange))
        sizes = [len(await next_update(updates)) for _ in range(3)]
        assert sizes == [250, 250, 100]
        await it.produce(topic)
        assert await bounds(updates) == [(0, 1)]


async def test_a_node_stops_with_open_watches() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = polled(it, topic)
        await next_update(updates)
        async with asyncio.timeout(60):
            await it.node.stop()
            with pytest.raises(BrokerClosedError):
                await anext(updates)
