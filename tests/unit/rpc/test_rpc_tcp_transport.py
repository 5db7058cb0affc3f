"""How our clients reach nodes: calls, and who is there; over real sockets on loopback, with small handlers behind them."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from rpc_handlers import HELLO, METADATA, UPDATE, Handlers, fetch, produce
from tcp_served import serving, until

from replog.controller.messages import CreateTopics, CreateTopicsResponse
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    InvalidRequestError,
    InvariantViolationError,
    MalformedFrameError,
    ReplogError,
    TopicExistsError,
)
from replog.rpc.grpc.transport import serve
from replog.rpc.messages import (
    Hello,
    ProduceResponse,
)
from replog.rpc.metadata_messages import MetadataRequest, WatchRequest
from replog.rpc.node_messages import DescribeNodeRequest
from replog.rpc.tcp import service as tcp_service
from replog.rpc.tcp import stream as tcp_stream
from replog.rpc.tcp import transport as tcp_transport
from replog.rpc.tcp.stream import TcpStream
from replog.rpc.tcp.transport import TcpConnection, TcpTransport
from replog.rpc.tcp.wire import Tag
from replog.rpc.transport import ConnectionLostError
from replog.tcp.port import bind

# ---- calls -------------------------------------------------------------------------------------------------------------


async def test_calls_are_answered_over_one_connection_each_kind() -> None:
    async with serving() as it:
        for _ in range(3):
            assert await it.connection.call(MetadataRequest(), timeout_ms=5000) == METADATA
            assert await it.connection.controller_call(CreateTopics(()), timeout_ms=5000) == CreateTopicsResponse(())
        assert all(context.deadline_ms > 0 and context.peer == "127.0.0.1" for context in it.handlers.contexts)
        assert len(it.listener) == 2


async def test_calls_overtake_one_another() -> None:
    async with serving() as it:
        slow = asyncio.create_task(it.connection.call(DescribeNodeRequest(), timeout_ms=300))
        assert await it.connection.call(MetadataRequest(), timeout_ms=5000) == METADATA
        with pytest.raises(ConnectionLostError, match="no answer in 300 ms"):
            await slow


@pytest.mark.parametrize(
    ("error", "seen", "text"),
    [
        (TopicExistsError("there is one"), TopicExistsError, "there is one"),
        (BrokerClosedError("the node is stopping"), BrokerNotAvailableError, "the node is stopping"),
        (ValueError("boom"), ReplogError, "internal error: ValueError"),
        (InvariantViolationError("a bug"), BrokerNotAvailableError, "a bug"),
    ],
)
async def test_an_error_of_a_call_arrives_as_its_class(error: Exception, seen: type[ReplogError], text: str) -> None:
    async with serving() as it:
        it.handlers.error = error
        with pytest.raises(seen, match=text):
            await it.connection.call(MetadataRequest(), timeout_ms=5000)


async def test_a_call_that_is_too_large_ends_no_other() -> None:
    async with serving() as it:
        slow = asyncio.create_task(it.connection.call(DescribeNodeRequest(), timeout_ms=400))
        await until(lambda: it.handlers.contexts)
        with pytest.raises(MalformedFrameError, match=r"a call of .* bytes, the limit is"):
            await it.connection.call(MetadataRequest(("t" * (65 << 20),)), timeout_ms=5000)
        with pytest.raises(ConnectionLostError, match="no answer in 400 ms"):
            await slow


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is said; a busy machine may take its time with it."""
    monkeypatch.setattr(tcp_transport, "OPEN_TIMEOUT_S", 20.0)


# ---- who is there? -----------------------------------------------------------------------------------------------------


async def closed_port() -> int:
    bound = bind("127.0.0.1", 0)
    with bound.socket:
        return bound.port


async def ask(connection: TcpConnection) -> None:
    assert await connection.call(MetadataRequest(), timeout_ms=5000) == METADATA


async def watch(connection: TcpConnection) -> None:
    assert await anext(connection.watch_metadata(WatchRequest())) == UPDATE


async def open_stream(connection: TcpConnection) -> None:
    await (await connection.open_fetch(HELLO)).close()


@pytest.mark.parametrize("use", [ask, watch, open_stream])
async def test_nobody_there_is_refused_until_somebody_is(use: Callable[[TcpConnection], Awaitable[None]]) -> None:
    port = await closed_port()
    connection = TcpTransport().connect(f"127.0.0.1:{port}", purpose="data")
    errors = await asyncio.gather(*(use(connection) for _ in range(10)), return_exceptions=True)
    assert all(isinstance(error, ConnectionLostError) and error.refused for error in errors), errors
    assert {str(error) for error in errors} == {f"127.0.0.1:{port}: Connection refused"}
    async with serving(port=port):
        await use(connection)
        await connection.close()


async def test_a_node_that_was_away_is_found_again() -> None:
    async with serving() as it:
        connection = TcpTransport().connect(it.address, purpose="data")
        await ask(connection)
        port = it.port
    with pytest.raises(ConnectionLostError):
        await ask(connection)
    async with serving(port=port):
        await ask(connection)
        await connection.close()


async def test_a_name_that_there_is_not_is_told() -> None:
    connection = TcpTransport().connect("no-such-host.invalid:9092", purpose="data")
    with pytest.raises(ConnectionLostError, match=r"^no-such-host\.invalid:9092: \D+$") as caught:
        await ask(connection)
    assert not caught.value.refused


async def test_the_port_for_nodes_is_told_apart() -> None:
    server = await serve(Handlers(), "127.0.0.1", 0)
    connection = TcpTransport().connect(f"127.0.0.1:{server.port}", purpose="data")
    try:
        with pytest.raises(ReplogError, match="Is this the port for clients"):
            await ask(connection)
    finally:
        await connection.close()
        await server.stop(0)


async def test_a_server_of_something_else_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    connection = TcpTransport().connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", purpose="data")
    with pytest.raises(MalformedFrameError, match="the answer of a web server"):
        await ask(connection)
    await connection.close()
    server.close()
    await server.wait_closed()


async def test_who_never_answers_hello_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_transport, "OPEN_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, nobody reads
        connection = TcpTransport().connect(f"127.0.0.1:{silent.getsockname()[1]}", purpose="data")
        with pytest.raises(ConnectionLostError, match="did not answer hello") as caught:
            await connection.open_fetch(HELLO)
        assert not caught.value.refused
        await connection.close()


async def test_a_loop_that_was_held_up_takes_nobody_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what came while the application computed counts, however long that took."""
    monkeypatch.setattr(tcp_transport, "OPEN_TIMEOUT_S", 0.2)
    async with serving() as it:
        for open_stream in (it.connection.open_fetch(HELLO), anext(it.connection.watch_metadata(WatchRequest()))):
            opening = asyncio.ensure_future(open_stream)
            await asyncio.sleep(0)  # it has begun to connect
            time.sleep(0.3)  # a computation of the application
            assert await opening


async def test_a_silent_node_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped, or a machine that is gone: nothing tells of it."""
    monkeypatch.setattr(tcp_stream, "LOOK_S", 0.01)
    asked = asyncio.Event()

    async def speaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        hello = b"".join(tcp_service._FETCH.encode(Hello("c", 1, UUID(int=1))))
        writer.write(struct.pack(">iB", len(hello) + 1, Tag.MESSAGE) + hello)
        assert await reader.readexactly(5) == struct.pack(">iB", 1, Tag.PING)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(speaking, "127.0.0.1", 0)
    connection = TcpTransport().connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", purpose="data")
    stream = await connection.open_fetch(HELLO)
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionLostError, match="nothing was heard"):
            await stream.receive()
    assert asked.is_set()
    await connection.close()
    server.close()
    await server.wait_closed()


async def test_a_node_that_answers_pings_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_stream, "LOOK_S", 0.005)
    async with serving() as it:
        stream = await it.connection.open_produce(HELLO)
        asked: list[int] = []
        write = TcpStream._write

        def counting(self: TcpStream[Any, Any], tag: Tag, size: int, pieces: Any) -> None:
            asked.append(tag)
            write(self, tag, size, pieces)

        monkeypatch.setattr(TcpStream, "_write", counting)
        await until(lambda: asked.count(Tag.PONG) >= 3)
        await stream.send(produce(1))
        assert await stream.receive() == (ProduceResponse(1, ()),)


async def test_who_asks_as_a_follower_is_refused_at_the_port_for_clients() -> None:
    """Its position would count for what is committed, of a replica that does not exist."""
    async with serving() as it:
        stream = await it.connection.open_fetch(HELLO)
        await stream.send(replace(fetch(1), replica_id=2))
        with pytest.raises(InvalidRequestError, match=r"followers fetch at inter\.broker\.listener"):
            await stream.receive()
        assert it.handlers.fetched == []
