"""The watch of high watermarks and log starts: one node, real connections."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from broker_kit import wait_until
from node_kit import Running, node

from replog.controller.requests import DeleteTopics
from replog.errors import ErrorCode, InconsistentClusterIdError, ReplogError, ThrottledError
from replog.records import encode_batch, encode_end_transaction_marker
from replog.rpc.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    FetchPartition,
    FetchResult,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import TopicInfo
from replog.rpc.request_limits import MAX_PARTITIONS
from replog.rpc.transport import ConnectionLostError
from replog.testing import SimulatedFileSystem


def asked(*topics: TopicInfo, leader_epoch: int = -1, cluster_id: str = "c") -> WatchOffsetsRequest:
    partitions = (FetchPartition(topic.topic_id, 0, -1, leader_epoch=leader_epoch) for topic in topics)
    return WatchOffsetsRequest(cluster_id, tuple(partitions))


async def next_update(updates: Any, *, is_heartbeat: bool = False) -> tuple[FetchResult, ...]:
    """The next update that is, or is not, a heartbeat."""
    async with asyncio.timeout(60):
        while True:
            update: tuple[FetchResult, ...] = await anext(updates)
            if bool(update) != is_heartbeat:
                return update


async def bounds(updates: Any) -> list[tuple[int, int]]:
    return [(each.log_start_offset, each.high_watermark) for each in await next_update(updates)]


def requests(it: Running) -> Any:
    inner: Any = it.node
    return inner.parts.requests


def is_clean(it: Running) -> bool:
    """Whether no session is left, and nobody hears of any partition."""
    sessions = requests(it).kafka_node.fetch_sessions
    return (len(sessions), sessions.partitions_count, len(requests(it).fetch_path.movements)) == (0, 0, 0)


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


async def test_an_open_transaction_ends_what_is_told() -> None:
    """Trap: a plan up to the high watermark waits for records that nobody is sent."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        stepper = it.node.parts.replicas.stepper
        replica = stepper.replicas[topic.topic_id, 0]
        written = {"producer_id": 7, "producer_epoch": 0}
        opens = encode_batch([(1, None, b"v", ())], base_sequence=0, is_transactional=True, **written)
        ends = encode_end_transaction_marker(
            base_offset=0, leader_epoch=-1, timestamp_ms=1, coordinator_epoch=0, is_commit=True, **written
        )  # fmt: skip
        await stepper.driver.call(lambda: replica.log.append_as_leader(opens, leader_epoch=0, now_ms=0))
        await it.produce(topic)
        updates = it.connection.watch_offsets(asked(topic))
        assert await bounds(updates) == [(0, 0)]
        await stepper.driver.call(lambda: replica.log.append_as_leader(ends, leader_epoch=0, now_ms=0))
        await it.produce(topic)
        assert await bounds(updates) == [(0, 4)]


async def test_a_reader_that_is_behind_gets_the_newest_state_once() -> None:
    """Goal: nothing is queued, whatever moves meanwhile."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = it.connection.watch_offsets(asked(topic))
        assert await bounds(updates) == [(0, 0)]
        for _ in range(20):
            await it.produce(topic)
        assert await bounds(updates) == [(0, 20)]


async def test_it_ends_where_the_broker_leads_nothing_any_more() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic, other = await it.create("t"), await it.create("u")
        updates = it.connection.watch_offsets(asked(topic, other))
        await next_update(updates)
        await it.connection.call(DeleteTopics(("t",)), timeout_ms=5_000)
        errors = {
            each.topic_id: each.error for each in await next_update(updates)
        }  # of both where it is asked whole again
        assert errors[topic.topic_id] is ErrorCode.UNKNOWN_TOPIC_ID
        assert errors.get(other.topic_id, ErrorCode.NONE) is ErrorCode.NONE
        with pytest.raises(ConnectionLostError, match="begin it anew"):
            await next_update(updates)
        updates = it.connection.watch_offsets(asked(other))
        await next_update(updates)
        await it.connection.call(DeleteTopics(("u",)), timeout_ms=5_000)
        await next_update(updates)
        with pytest.raises(ConnectionLostError, match="leads none of the partitions any more"):
            await next_update(updates)
        await wait_until(lambda: is_clean(it))


async def test_another_epoch_is_refused() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        (state,) = await next_update(it.connection.watch_offsets(asked(topic, leader_epoch=99)))
        assert state.error is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_refusal_is_told_once_and_what_else_moves_is_told() -> None:
    """Goal: a partition that another broker leads does not make the watch of all others a storm of answers."""
    async with node(SimulatedFileSystem()) as it:
        topic, other = await it.create("t"), await it.create("u")
        partitions = (*asked(topic).partitions, *asked(other, leader_epoch=99).partitions)
        updates = it.connection.watch_offsets(WatchOffsetsRequest("c", partitions))
        assert [each.error for each in await next_update(updates)] == [0, ErrorCode.UNKNOWN_LEADER_EPOCH]
        assert await next_update(updates, is_heartbeat=True) == ()
        await it.produce(topic)
        assert await bounds(updates) == [(0, 1)]


async def test_a_broker_without_its_lease_ends_its_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who is cut off does not go on saying that nothing moves."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = it.connection.watch_offsets(asked(topic))
        await next_update(updates)
        monkeypatch.setattr(requests(it).fetch_path, "_serving", lambda: "cut off")
        (state,) = await next_update(updates)
        assert state.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ConnectionLostError, match="leads none"):
            await next_update(updates)
        assert is_clean(it)


@pytest.mark.parametrize("name", ["_slots", "_partitions_max"])
async def test_watches_are_bounded_and_give_their_room_back_at_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Goal: readers that come back one after the other do not keep room from one another for seconds."""
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        monkeypatch.setattr(requests(it).kafka_node.fetch_sessions, name, 2)
        first, second, third = (it.connection.watch_offsets(asked(topic)) for _ in range(3))
        await next_update(first)
        await next_update(second)
        assert await bounds(third) == [(0, 0)]
        with pytest.raises(ThrottledError, match="ask for the offsets instead"):
            await next_update(third)
        await first.aclose()  # type: ignore[attr-defined]
        await second.aclose()  # type: ignore[attr-defined]
        await wait_until(lambda: is_clean(it))
        another = it.connection.watch_offsets(asked(topic))
        assert await bounds(another) == [(0, 0)]
        await it.produce(topic)
        assert await bounds(another) == [(0, 1)]


async def test_what_may_not_be_asked() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        with pytest.raises(InconsistentClusterIdError):
            await next_update(it.connection.watch_offsets(asked(topic, cluster_id="another")))
        many = tuple(FetchPartition(UUID(int=5), number, -1) for number in range(MAX_PARTITIONS + 1))
        with pytest.raises(ReplogError, match="refuses to be watched"):
            await next_update(it.connection.watch_offsets(WatchOffsetsRequest("c", many)))
        with pytest.raises(ConnectionLostError):
            await next_update(it.connection.watch_offsets(WatchOffsetsRequest("c", ())), is_heartbeat=False)
        await wait_until(lambda: is_clean(it))


async def test_a_node_stops_with_open_watches() -> None:
    async with node(SimulatedFileSystem()) as it:
        topic = await it.create()
        updates = it.connection.watch_offsets(asked(topic))
        await next_update(updates)
        async with asyncio.timeout(60):
            await it.node.stop()
            with pytest.raises(ConnectionLostError):
                [update async for update in updates]
