"""No stream of records ends a node, or holds anything of it back: hostile bytes are refused, others go on being served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from broker_kit import batch, wait_until
from hostile_streams import fetch_requests, offsets_requests, produce_requests, watch_requests
from node_kit import Running
from test_broker_hostile_requests import check_serves, is_ours, leading, unhurried_node

from replog.errors import ErrorCode, InvalidRequestError, ReplogError
from replog.rpc.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    Hello,
    ProducePartition,
    ProduceRequest,
    client_hello,
)
from replog.rpc.metadata_messages import TopicInfo, WatchRequest
from replog.rpc.tcp import transport as tcp_transport
from replog.rpc.tcp.wire import Codec, StreamKind
from replog.rpc.transport import ConnectionLostError

pytestmark = pytest.mark.exhaustive

LAST = 77
"""Correlation id of the good request behind a hostile one."""


async def open_stream(it: Running, method: str) -> Any:
    """A stream to which bytes may be given instead of a request."""
    kind, codec = {
        "Produce": (StreamKind.PRODUCE, tcp_transport._PRODUCE),
        "Fetch": (StreamKind.FETCH, tcp_transport.FETCH),
    }[method]
    return (await it.connection._greet(kind, also_bytes(codec), client_hello("c", "hostile")))[0]


def also_bytes(codec: Codec) -> Codec:
    """The same, by which bytes go as they are."""
    return Codec(lambda one: (one,) if isinstance(one, bytes) else codec.encode(one), codec.decode)


@contextlib.asynccontextmanager
async def opened(it: Running, method: str) -> AsyncIterator[Any]:
    """A stream for a minute at most."""
    stream = await open_stream(it, method)
    try:
        async with asyncio.timeout(60):
            yield stream
    finally:
        await stream.close()


def good_produce(topic: TopicInfo) -> ProduceRequest:
    return ProduceRequest(LAST, 5_000, -1, (ProducePartition(topic.topic_id, 0),), (batch(),))


def good_fetch(topic: TopicInfo) -> FetchRequest:
    return FetchRequest(LAST, 5_000, -1, -1, 0, 1, 1 << 20, (FetchPartition(topic.topic_id, 0, 0),))


async def one_after_the_other(stream: Any, hostile: bytes, good: Any) -> ReplogError | None:
    """Sends a hostile request and a good one behind it; the good one is answered, or the stream ended with an error."""
    try:
        await stream.send(hostile)
        await stream.send(good)
        while True:
            received = await stream.receive()
            for response in (received,) if isinstance(received, FetchResponse) else received:
                assert all(result.error is not ErrorCode.UNKNOWN_SERVER_ERROR for result in response.results)
                if response.correlation_id == LAST:
                    return None
    except ReplogError as error:
        return error


@contextlib.asynccontextmanager
async def healthy_client(it: Running, topic: TopicInfo) -> AsyncIterator[list[int]]:
    """Writes and reads all the time; it is never refused."""
    served = [0]

    async def run() -> None:
        while True:
            assert (await it.produce(topic)).error is ErrorCode.NONE
            assert await it.fetch(topic) > 0
            served[0] += 1

    task = asyncio.create_task(run())
    try:
        yield served
        before = served[0]
        await wait_until(lambda: served[0] > before or task.done(), timeout_s=30)
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def check_nothing_is_held(it: Running) -> None:
    """Whatever those streams had of the node is free again."""
    node: Any = it.node
    paths = node.parts.requests
    produces, fetches, held = paths.produce_path, paths.fetch_path, paths.handlers._parts.credits
    await wait_until(lambda: not produces._waiting and not produces._queue and produces._ready_count == 0)
    await wait_until(lambda: len(fetches._purgatory) < 50 and len(fetches.incremental) == 0, timeout_s=60)
    assert not fetches.incremental._watching
    await wait_until(lambda: held.held_bytes == 0)  # a stream that was being opened holds its first bytes for a moment
    assert not held._waiters
    assert not node.parts.replicas.images._later


@pytest.mark.parametrize(
    ("method", "requests", "good"),
    [("Produce", produce_requests, good_produce), ("Fetch", fetch_requests, good_fetch)],
    ids=["produce", "fetch"],
)
async def test_no_request_of_a_stream_ends_a_node(
    method: str,
    requests: Callable[[UUID, int], Iterator[tuple[str, bytes]]],
    good: Callable[[TopicInfo], Any],
) -> None:
    async with unhurried_node() as it:
        topic = await leading(it)
        count = 0
        async with healthy_client(it, await it.create("healthy")) as served:
            for what, hostile in requests(topic.topic_id, it.node.parts.replicas.lifecycle.broker_epoch):
                count += 1
                async with opened(it, method) as stream:
                    error = await one_after_the_other(stream, hostile, good(topic))
                assert error is None or is_ours(error), (what, str(error)[:500])
                assert not isinstance(error, ConnectionLostError), (what, str(error)[:500])
                assert it.node._failure is None, what
        assert count > 200
        assert served[0] > 10
        await check_nothing_is_held(it)
        await check_serves(it, topic)


async def test_too_many_partitions_are_refused_by_name() -> None:
    async with unhurried_node() as it:
        topic = await leading(it)
        partitions = tuple(FetchPartition(topic.topic_id, number, 0) for number in range(10_001))
        stream = await open_stream(it, "Fetch")
        await stream.send(FetchRequest(1, 5_000, -1, -1, 0, 1, 1 << 20, partitions))
        with pytest.raises(InvalidRequestError, match=r"10,001 partitions, 10,000 may be"):
            await stream.receive()
        stream = await open_stream(it, "Produce")
        many = tuple(ProducePartition(topic.topic_id, number) for number in range(10_001))
        await stream.send(ProduceRequest(1, 5_000, -1, many, (b"",) * len(many)))
        with pytest.raises(InvalidRequestError, match=r"10,001 partitions, 10,000 may be"):
            await stream.receive()


async def test_streams_that_are_left_in_the_middle_hold_nothing() -> None:
    """Half-closed, cancelled with a request at the broker, or never read from."""
    async with unhurried_node() as it:
        topic = await leading(it)
        large = ProduceRequest(1, 60_000, -1, (ProducePartition(topic.topic_id, 0),), (batch(b"v" * 900_000),))
        waiting = FetchRequest(1, 60_000, -1, -1, 60_000, 1, 1, (FetchPartition(topic.topic_id, 0, 1 << 40),))
        parked = FetchRequest(1, 60_000, -1, -1, 60_000, 1 << 30, 1 << 30, (FetchPartition(topic.topic_id, 0, 0),))
        async with healthy_client(it, await it.create("healthy")):
            for _ in range(5):
                for method, request in (("Produce", large), ("Fetch", waiting), ("Fetch", parked)):
                    half_closed = await open_stream(it, method)
                    await half_closed.send(request)
                    half_closed._transport.write_eof()
                    cancelled = await open_stream(it, method)
                    for _ in range(3):
                        await cancelled.send(request)
                    await cancelled.close()
                    await half_closed.close()
        assert it.node._failure is None
        await check_serves(it, topic)
        purgatory = it.node.parts.requests.fetch_path._purgatory
        await wait_until(lambda: len(purgatory) <= 20, timeout_s=60)


async def test_hellos_and_answers_out_of_order_end_only_their_stream() -> None:
    async with unhurried_node() as it:
        topic = await leading(it)
        epoch = it.node.parts.replicas.lifecycle.broker_epoch
        position = FetchPartition(topic.topic_id, 0, 0)
        hello = Hello("c", 1, it.node.incarnation_id)
        peer = it.peer(1, it.node.incarnation_id)
        for correlation_ids in ((5, 5, 5), (9, 3, -1), (-(2**63), 2**63 - 1, 0)):
            stream: Any = await peer.open_fetch(hello)
            for number, correlation_id in enumerate(correlation_ids):
                await stream.send(
                    FetchRequest(
                        correlation_id, 1_000, 1, epoch, 10, 1, 1 << 20, (position,) if number % 2 == 0 else (),
                        incremental=number != 1,
                    )
                )  # fmt: skip
            await stream.receive()
            await stream.close()
        stream = await open_stream(it, "Produce")
        await stream.send(client_hello("c", "again"))
        with pytest.raises(InvalidRequestError, match="hello was said before"):
            await stream.receive()
        await check_nothing_is_held(it)
        await check_serves(it, topic)


async def first_picture(it: Running, request: Any) -> ReplogError | None:
    """What a watch tells first has an end, or it is refused."""
    updates: Any = it.connection.watch_metadata(request)
    try:
        while True:
            update = await anext(updates)
            assert update.cluster_id == "c"
            if update.is_last:
                return None
    except ReplogError as error:
        return error
    finally:
        await updates.aclose()


async def test_no_watch_ends_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_transport, "_METADATA", also_bytes(tcp_transport._METADATA))
    async with unhurried_node() as it:
        topic = await leading(it)
        refused_count = count = 0
        async with healthy_client(it, await it.create("healthy")) as served:
            for what, request in watch_requests():
                count += 1
                async with asyncio.timeout(60):
                    error = await first_picture(it, request)
                refused_count += error is not None
                assert error is None or is_ours(error), (what, str(error)[:500])
                assert not isinstance(error, ConnectionLostError), (what, str(error)[:500])
                assert it.node._failure is None, what
        assert refused_count > 5
        assert count - refused_count > 20
        assert served[0] > 0
        await check_no_watch_is_left(it)
        await check_serves(it, topic)


async def first_state(it: Running, request: Any) -> ReplogError | None:
    """A watch of offsets tells something, or it is refused."""
    updates: Any = it.connection.watch_offsets(request)
    try:
        await anext(updates)
    except ReplogError as error:
        return error
    finally:
        await updates.aclose()
    return None


async def test_no_watch_of_offsets_ends_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async with unhurried_node() as it:
        topic = await leading(it)
        requests = list(offsets_requests(topic.topic_id))
        monkeypatch.setattr(tcp_transport, "_OFFSETS", also_bytes(tcp_transport._OFFSETS))
        refused_count = 0
        async with healthy_client(it, await it.create("healthy")) as served:
            for what, request in requests:
                async with asyncio.timeout(60):
                    error = await first_state(it, request)
                refused_count += error is not None
                assert error is None or is_ours(error), (what, str(error)[:500])
                assert it.node._failure is None, what
        assert refused_count > 5
        assert len(requests) - refused_count > 20
        assert served[0] > 0
        node: Any = it.node
        await wait_until(lambda: len(node.parts.requests.fetch_path.watches) == 0, timeout_s=60)
        assert not node.parts.requests.fetch_path.watches._by_key
        await check_serves(it, topic)


async def test_watches_that_nobody_reads_hold_nobody_up() -> None:
    """Left at their first step, in the middle, or never read from."""
    async with unhurried_node() as it:
        topic = await leading(it)
        async with healthy_client(it, await it.create("healthy")):
            watches: list[Any] = [it.connection.watch_metadata(WatchRequest(-1, follow=True)) for _ in range(100)]
            for updates in watches:
                await anext(updates)
            for number in range(20):
                await it.create(f"news-{number}")
            for updates in watches[:50]:
                assert (await anext(updates)).topics
            await wait_until(lambda: len(waiting_watches(it)) == len(watches))
            for updates in watches:
                await updates.aclose()
        assert it.node._failure is None
        await check_no_watch_is_left(it)
        await check_serves(it, topic)


def waiting_watches(it: Running) -> Any:
    """Those that wait for news of the metadata."""
    node: Any = it.node
    return node.parts.replicas.publisher._changed._waiters


async def check_no_watch_is_left(it: Running) -> None:
    await wait_until(lambda: not waiting_watches(it), timeout_s=60)
