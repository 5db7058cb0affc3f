"""What answers with records hold of a broker's memory for those, while a Kafka client does not read them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import kafka_node_kit
import pytest
import served_connections
from kafka_node_kit import batch
from served_connections import ALONE, Client, Served, answer, request

from replog.tcp.answers import Answer
from replog.waiting.unread_answers import UnreadAnswers
from replog.wire.messages.fetch import FetchRequest, FetchResponse

SIZE = 32 << 20
MIB = 1 << 20


class Fetches:
    """Answers every request with records that hold their bytes of a budget."""

    def __init__(self) -> None:
        self.budget = UnreadAnswers(SIZE)
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun_count = 0

    async def serve(self, frame: memoryview, _address: str) -> Answer | None:
        self.begun_count += 1
        unread = self.budget.open()
        unread.hold(SIZE, 0)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            unread.close()
            raise
        return answer(frame[-1], SIZE)._replace(unread=unread)


@contextlib.asynccontextmanager
async def fetching() -> AsyncIterator[tuple[Served, Fetches]]:
    fetches = Fetches()
    async with served_connections.serving(serve=fetches.serve) as it:
        yield it, fetches
    assert fetches.budget.held_bytes == 0


async def asked(it: Served) -> Client:
    """A client that has asked, and does not read."""
    client = await it.client()
    client.writer.write(request(1, kind=ALONE))
    return client


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_an_answer_holds_its_bytes_until_it_is_read() -> None:
    async with fetching() as (it, fetches):
        client = await asked(it)
        (connection,) = await connections(it)
        await until(lambda: connection._unread)
        assert fetches.budget.held_bytes == SIZE
        async with asyncio.timeout(60):
            await client.reader.readexactly(8 + SIZE)
        await until(lambda: not fetches.budget.held_bytes)
        assert len(it.listener) == 1


async def test_what_of_an_answer_was_read_is_given_back_before_the_rest_of_it() -> None:
    async with fetching() as (it, fetches):
        client = await asked(it)
        (connection,) = await connections(it)
        await until(lambda: connection._unread)
        async with asyncio.timeout(60):
            await client.reader.readexactly(SIZE // 2)
        connection._look()
        assert 0 < fetches.budget.held_bytes <= SIZE // 2


async def test_the_end_of_a_connection_gives_back_what_its_answer_holds() -> None:
    async with fetching() as (it, fetches):
        client = await asked(it)
        (connection,) = await connections(it)
        await until(lambda: connection._unread)
        client.writer.transport.abort()
        await until(lambda: not fetches.budget.held_bytes)


async def test_an_answer_to_a_client_that_has_gone_holds_nothing() -> None:
    async with fetching() as (it, fetches):
        fetches.gate.clear()
        client = await asked(it)
        await until(lambda: fetches.begun_count)
        client.writer.transport.abort()
        await until(lambda: not fetches.budget.held_bytes)


async def test_an_answer_that_comes_in_the_turn_in_which_the_client_goes_holds_nothing() -> None:
    async with fetching() as (it, fetches):
        await asked(it)
        (connection,) = await connections(it)
        await until(lambda: connection._unread)
        late = fetches.budget.open()
        late.hold(5, 0)
        connection.end("")
        connection._write(answer(2, 5)._replace(unread=late))
        assert late.held_bytes == 0


async def test_a_connection_whose_answer_is_given_up_ends_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fetching() as (it, fetches):
        await asked(it)
        (connection,) = await connections(it)
        await until(lambda: connection._unread)
        fetches.budget.end_oldest(now_ms=10, unread_ms=10)
        await until(lambda: not len(it.listener))
        assert fetches.budget.held_bytes == 0
    assert "was ended: an answer was not read while others waited" in caplog.text


async def connections(it: Served) -> list[Any]:
    await until(lambda: len(it.listener))
    return list(it.listener._connections)


# ---- a node ----------------------------------------------------------------------------------------------------------


def asking(max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=64 * MIB)
    return FetchRequest(max_wait_ms=max_wait_ms, topics=[FetchRequest.FetchTopic("t", partitions=[partition])])


async def test_an_answer_of_a_node_has_its_share_and_gives_it_back() -> None:
    async with kafka_node_kit.serving(queued_max_response_bytes=16 * MIB) as it:
        await it.create()
        await it.produce(*(batch(b"v" * (MIB - 1000)) for _ in range(12)))
        budget = it.node.parts.requests.fetch_path.unread
        client = await it.client()
        await asyncio.to_thread(client.send, asking(), 12)
        size = len(await asyncio.to_thread(client.frame))
        assert 2 * MIB < size < 3 * MIB, "an answer has a quarter of three quarters of the bytes for all"
        await it.until(lambda: not budget.held_bytes)


async def test_a_fetch_that_fails_as_a_whole_holds_nothing() -> None:
    async with kafka_node_kit.serving() as it:
        await it.create()
        await it.produce(batch())
        refused = await it.ask(FetchRequest(isolation_level=7), 12, FetchResponse)
        assert refused.error_code
        assert (await it.ask(asking(), 12, FetchResponse)).error_code == 0
        assert it.node.parts.requests.fetch_path.unread.held_bytes == 0
