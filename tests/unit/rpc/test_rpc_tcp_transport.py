"""How nodes reach one another over TCP: calls, and who is there; over real sockets on loopback, with small handlers behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from rpc_handlers import ANSWERED, ASKED, HELLO
from tcp_served import serving, until

from replog.controller.requests import CreateTopics, CreateTopicsResponse
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    InvariantViolationError,
    MalformedFrameError,
    ReplogError,
    TopicExistsError,
)
from replog.rpc.node_messages import AddVoterRequest, DescribeNodeRequest
from replog.rpc.tcp import transport as tcp_transport
from replog.rpc.tcp.transport import TcpPeerConnection, TcpPeerTransport
from replog.rpc.transport import ConnectionLostError
from replog.tcp.port import bind
from tests.envelopes import in_envelope


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is said; a busy machine may take its time with it."""
    monkeypatch.setattr(tcp_transport, "HELLO_TIMEOUT_S", 20.0)


# ---- calls -------------------------------------------------------------------------------------------------------------


async def test_calls_are_answered_over_one_connection_each_kind() -> None:
    async with serving() as it:
        for _ in range(3):
            assert await it.connection.call(ASKED, timeout_ms=5000) == ANSWERED
            assert await it.connection.controller_call(
                in_envelope(CreateTopics(())), timeout_ms=5000
            ) == CreateTopicsResponse(())
        assert all(context.peer == "127.0.0.1" for context in it.handlers.contexts)
        assert len(it.listener) == 2


async def test_calls_overtake_one_another() -> None:
    async with serving() as it:
        slow = asyncio.create_task(it.connection.call(DescribeNodeRequest(), timeout_ms=300))
        assert await it.connection.call(ASKED, timeout_ms=5000) == ANSWERED
        with pytest.raises(ConnectionLostError, match="no answer in 300 ms"):
            await slow


@pytest.mark.parametrize(
    ("error", "seen", "text"),
    [
        (TopicExistsError("there is one"), TopicExistsError, "there is one"),
        (BrokerClosedError("the node is stopping"), BrokerNotAvailableError, "the node is stopping"),
        (ValueError("boom"), ReplogError, "^a bug of this node; its log says more$"),
        (InvariantViolationError("a bug"), BrokerNotAvailableError, "^a bug of this node; its log says more$"),
    ],
)
async def test_an_error_of_a_call_arrives_as_its_class(error: Exception, seen: type[ReplogError], text: str) -> None:
    async with serving() as it:
        it.handlers.error = error
        with pytest.raises(seen, match=text):
            await it.connection.call(ASKED, timeout_ms=5000)


async def test_a_call_that_is_too_large_ends_no_other() -> None:
    async with serving() as it:
        slow = asyncio.create_task(it.connection.call(DescribeNodeRequest(), timeout_ms=400))
        await until(lambda: it.handlers.contexts)
        with pytest.raises(MalformedFrameError, match=r"a call of .* bytes, the limit is"):
            await it.connection.call(in_envelope(AddVoterRequest(1, UUID(int=1), "t" * (65 << 20))), timeout_ms=5000)
        with pytest.raises(ConnectionLostError, match="no answer in 400 ms"):
            await slow


# ---- who is there? -----------------------------------------------------------------------------------------------------


async def closed_port() -> int:
    bound = bind("127.0.0.1", 0)
    with bound.socket:
        return bound.port


async def ask(connection: TcpPeerConnection) -> None:
    assert await connection.call(ASKED, timeout_ms=5000) == ANSWERED


async def open_stream(connection: TcpPeerConnection) -> None:
    await (await connection.open_fetch(HELLO)).close()


@pytest.mark.parametrize("use", [ask, open_stream])
async def test_nobody_there_is_refused_until_somebody_is(use: Callable[[TcpPeerConnection], Awaitable[None]]) -> None:
    port = await closed_port()
    connection = TcpPeerTransport().connect(f"127.0.0.1:{port}", purpose="data")
    errors = await asyncio.gather(*(use(connection) for _ in range(10)), return_exceptions=True)
    assert all(isinstance(error, ConnectionLostError) and error.refused for error in errors), errors
    assert {str(error) for error in errors} == {f"127.0.0.1:{port}: Connection refused"}
    async with serving(port=port):
        await use(connection)
        await connection.close()


async def test_a_node_that_was_away_is_found_again() -> None:
    async with serving() as it:
        connection = TcpPeerTransport().connect(it.address, purpose="data")
        await ask(connection)
        port = it.port
    with pytest.raises(ConnectionLostError):
        await ask(connection)
    async with serving(port=port):
        await ask(connection)
        await connection.close()


async def test_a_name_that_there_is_not_is_told() -> None:
    connection = TcpPeerTransport().connect("no-such-host.invalid:9092", purpose="data")
    with pytest.raises(ConnectionLostError, match=r"^no-such-host\.invalid:9092: \D+$") as caught:
        await ask(connection)
    assert not caught.value.refused


async def test_a_server_of_something_else_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    connection = TcpPeerTransport().connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", purpose="data")
    with pytest.raises(MalformedFrameError, match="the answer of a web server"):
        await ask(connection)
    await connection.close()
    server.close()
    await server.wait_closed()
