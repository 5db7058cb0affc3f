"""How nodes meet over TCP: real sockets on loopback, with small handlers behind them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from rpc_handlers import ANSWERED, ASKED, HELLO, Handlers, fetch, fetched

from replog.controller.requests import CreateTopics, CreateTopicsResponse
from replog.errors import (
    ConfigError,
    InconsistentClusterIdError,
    MalformedFrameError,
    TopicExistsError,
)
from replog.rpc.grpc.transport import GrpcTransport
from replog.rpc.grpc.transport import serve as serve_grpc
from replog.rpc.messages import Hello
from replog.rpc.tcp import transport as tcp_transport
from replog.rpc.tcp.peers import OPENING_BYTES_MAX, TcpPeerServer, bind
from replog.rpc.tcp.transport import TcpPeerConnection, TcpPeerTransport
from replog.rpc.tcp.wire import StreamKind, opening
from replog.rpc.transport import ConnectionLostError
from replog_quorum.messages import QuorumError, VoteRequest, VoteResponse
from tests.envelopes import in_envelope

NODE = Hello("c", 2, UUID(int=2))


class Served:
    """Handlers at a port for nodes, and one connection to it."""

    def __init__(self, handlers: Handlers, server: TcpPeerServer) -> None:
        self.handlers = handlers
        self.server = server
        self.address = f"127.0.0.1:{server.port}"
        self.connection: TcpPeerConnection = TcpPeerTransport().connect(self.address, purpose="test")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    handlers = Handlers()
    server = bind("127.0.0.1", 0)
    await server.start(handlers)
    it = Served(handlers, server)
    try:
        yield it
    finally:
        await it.connection.close()
        await server.stop(0)


async def test_calls_are_answered() -> None:
    async with serving() as it:
        assert await it.connection.call(ASKED, timeout_ms=5000) == ANSWERED
        assert await it.connection.controller_call(
            in_envelope(CreateTopics(())), timeout_ms=5000
        ) == CreateTopicsResponse(())
        it.handlers.error = TopicExistsError("there is one")
        with pytest.raises(TopicExistsError, match="there is one"):
            await it.connection.controller_call(in_envelope(CreateTopics(())), timeout_ms=5000)


async def test_a_large_hello_is_not_even_read(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a stranger's message of megabytes, of any kind, is not decoded on the loop."""
    async with serving() as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.server.port)
        frame = opening(StreamKind.CALLS, (bytes(OPENING_BYTES_MAX),))
        writer.write(frame[:100])  # and not the rest
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
    assert f"and has at most {OPENING_BYTES_MAX}" in caplog.text


async def test_followers_fetch() -> None:
    async with serving() as it:
        stream = await it.connection.open_fetch(NODE)
        await stream.send(fetch(1, 300_000))
        assert await stream.receive() == fetched(1, 300_000)


async def test_quorum_messages_have_a_stream() -> None:
    async with serving() as it:
        stream = await it.connection.open_quorum(NODE)
        await stream.send(VoteRequest(5, 1, 2, 3, 2, 10, True, UUID(int=2), None))  # noqa: FBT003 -- a pre-vote
        assert await stream.receive() == VoteResponse(5, 1, QuorumError.NONE, None, 3, vote_granted=True)
        with pytest.raises(ConnectionLostError):  # the handler has ended
            await stream.receive()


async def test_a_node_of_another_cluster_is_refused_with_the_reason() -> None:
    async with serving() as it:
        with pytest.raises(InconsistentClusterIdError, match="this is cluster c, not d"):
            await it.connection.open_quorum(Hello("d", 2, UUID(int=2)))


async def test_a_presence_ends_with_the_process_that_was_there() -> None:
    async with serving() as it:
        presence = await it.connection.open_presence(NODE)
        assert presence.peer == it.handlers.check_hello(NODE)
        waiting = asyncio.create_task(presence.wait_lost())
        await asyncio.sleep(0)
        assert not waiting.done()
        await it.server.stop(0)
        async with asyncio.timeout(60):
            await waiting


async def test_who_never_answers_hello_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_transport, "HELLO_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = TcpPeerTransport().connect(f"127.0.0.1:{silent.getsockname()[1]}", purpose="test")
        with pytest.raises(ConnectionLostError, match=r"did not answer hello in 0\.05 s"):
            await connection.open_quorum(NODE)
        await connection.close()


async def test_before_it_starts_who_connects_is_refused_and_comes_again() -> None:
    server = bind("127.0.0.1", 0)
    connection = TcpPeerTransport().connect(f"127.0.0.1:{server.port}", purpose="test")
    with pytest.raises(ConnectionLostError) as caught:
        await connection.open_fetch(HELLO)
    assert caught.value.refused
    await server.start(Handlers())
    await (await connection.open_fetch(HELLO)).close()
    await connection.close()
    await server.stop(0)


# ---- who is in the wrong place -----------------------------------------------------------------------------------------


async def test_a_request_of_kafka_s_ends_its_connection_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving() as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.server.port)
        writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions 0, without a client id
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
    assert "where only nodes meet: clients come to the port of listeners" in caplog.text


async def test_a_node_that_meets_over_grpc_is_not_heard() -> None:
    """Both ways the error comes soon, and names no bug."""
    async with serving() as it:
        connection = GrpcTransport().connect(it.address, purpose="test")
        with pytest.raises(ConnectionLostError):
            await connection.open_fetch(HELLO)
        await connection.close()
    server = await serve_grpc(Handlers(), "127.0.0.1", 0)
    other = TcpPeerTransport().connect(f"127.0.0.1:{server.port}", purpose="test")
    with pytest.raises((ConnectionLostError, MalformedFrameError)):
        await other.open_fetch(HELLO)
    await other.close()
    await server.stop(0)


# ---- the port ----------------------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_told_by_its_key() -> None:
    async with serving() as it:
        with pytest.raises(
            ConfigError, match=rf"cannot listen at {it.address}: .*in inter\.broker\.listener"
        ) as caught:
            bind("127.0.0.1", it.server.port)
        assert caught.value.field == "inter.broker.listener"


async def test_a_server_that_never_began_gives_its_port_back() -> None:
    server = bind("127.0.0.1", 0)
    await server.stop(0)
    again = bind("127.0.0.1", server.port)
    await again.stop(0)
