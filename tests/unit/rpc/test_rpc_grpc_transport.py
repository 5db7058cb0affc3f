"""The transport over real sockets on loopback, with small handlers behind it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import grpc
import grpc.aio
import pytest
from rpc_handlers import ANSWERED, ASKED, HELLO, Handlers, fetch, fetched

from replog.controller.requests import CreateTopics, CreateTopicsResponse
from replog.errors import (
    BrokerClosedError,
    BrokerNotAvailableError,
    ConfigError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvariantViolationError,
    MalformedFrameError,
    ReplogError,
    TopicExistsError,
    UnsupportedVersionError,
)
from replog.rpc.grpc import stream as grpc_stream
from replog.rpc.grpc import transport as grpc_transport
from replog.rpc.grpc.transport import GrpcConnection, GrpcTransport, serve
from replog.rpc.messages import Hello, client_hello
from replog.rpc.node_messages import AddVoterRequest, DescribeNodeRequest
from replog.rpc.transport import ConnectionLostError, RequestContext
from replog_quorum.messages import QuorumError, VoteRequest, VoteResponse
from tests.envelopes import in_envelope


@contextlib.asynccontextmanager
async def serving(handlers: Handlers | None = None) -> AsyncIterator[tuple[Handlers, GrpcConnection]]:
    handlers = handlers or Handlers()
    server = await serve(handlers, "127.0.0.1", 0)
    connection = GrpcTransport().connect(f"127.0.0.1:{server.port}", purpose="data")
    try:
        yield handlers, connection
    finally:
        await connection.close()
        await server.stop(0)


# ---- calls -------------------------------------------------------------------------------------------------------------


async def test_calls_are_answered() -> None:
    async with serving() as (handlers, connection):
        assert await connection.call(ASKED, timeout_ms=5000) == ANSWERED
        assert await connection.controller_call(in_envelope(CreateTopics(())), timeout_ms=5000) == CreateTopicsResponse(
            ()
        )
        (context,) = handlers.contexts
        assert context.peer.startswith("ipv4:127.0.0.1:")


async def test_an_error_of_a_call_arrives_as_its_class() -> None:
    async with serving() as (handlers, connection):
        handlers.error = TopicExistsError("there is one")
        with pytest.raises(TopicExistsError, match="there is one"):
            await connection.controller_call(in_envelope(CreateTopics(())), timeout_ms=5000)


async def test_a_node_that_stops_says_so_in_a_way_that_is_worth_a_retry() -> None:
    async with serving() as (handlers, connection):
        handlers.error = BrokerClosedError("the node is stopping")
        with pytest.raises(BrokerNotAvailableError, match="the node is stopping"):
            await connection.call(ASKED, timeout_ms=5000)


async def test_a_bug_in_a_handler_is_answered() -> None:
    async with serving() as (handlers, connection):
        handlers.error = ValueError("boom")
        with pytest.raises(ReplogError, match=r"^a bug of this node; its log says more$"):
            await connection.call(ASKED, timeout_ms=5000)


async def test_a_violated_invariant_over_there_is_no_mistake_of_ours() -> None:
    """That node stops; who asked tries again elsewhere."""
    async with serving() as (handlers, connection):
        handlers.error = InvariantViolationError("a bug")
        with pytest.raises(ConnectionLostError):
            await connection.call(ASKED, timeout_ms=5000)


async def test_silence_ends_with_the_deadline() -> None:
    async with serving() as (_, connection):
        with pytest.raises(ConnectionLostError, match="Deadline") as caught:
            await connection.call(DescribeNodeRequest(), timeout_ms=50)
        assert not caught.value.refused


# ---- who is there? -----------------------------------------------------------------------------------------------------


async def closed_port() -> int:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_nobody_there_is_refused() -> None:
    connection = GrpcTransport().connect(f"127.0.0.1:{await closed_port()}", purpose="data")
    with pytest.raises(ConnectionLostError) as caught:
        await connection.call(ASKED, timeout_ms=5000)
    assert caught.value.refused
    with pytest.raises(ConnectionLostError) as caught:
        await connection.open_fetch(HELLO)
    assert caught.value.refused
    with pytest.raises(ConnectionLostError) as caught:
        await connection.open_presence(HELLO)
    assert caught.value.refused
    await connection.close()


async def ask(connection: GrpcConnection) -> None:
    assert await connection.call(ASKED, timeout_ms=5000) == ANSWERED


async def open_stream(connection: GrpcConnection) -> None:
    await (await connection.open_fetch(HELLO)).close()


@pytest.mark.parametrize("use", [ask, open_stream])
async def test_a_call_tries_anew_whatever_the_last_one_met(use: Callable[[GrpcConnection], Awaitable[None]]) -> None:
    """gRPC answers calls from memory while its reconnect backoff runs; a restarted node would look dead."""
    port = await closed_port()
    connection = GrpcTransport().connect(f"127.0.0.1:{port}", purpose="data")
    for _ in range(3):  # the backoff grows
        errors = await asyncio.gather(*(use(connection) for _ in range(10)), return_exceptions=True)
        assert all(isinstance(error, ConnectionLostError) and error.refused for error in errors), errors
    server = await serve(Handlers(), "127.0.0.1", port)
    try:
        await use(connection)
    finally:
        await connection.close()
        await server.stop(0)


async def test_calls_under_way_end_as_they_would_when_others_connect_anew() -> None:
    async with serving() as (_, connection):
        unanswered = asyncio.create_task(connection.call(DescribeNodeRequest(), timeout_ms=300))
        await connection.call(ASKED, timeout_ms=5000)
        connection._leave_channel()
        assert await connection.call(ASKED, timeout_ms=5000) == ANSWERED
        with pytest.raises(ConnectionLostError, match="Deadline"):
            await unanswered
        async with asyncio.timeout(60):
            while connection._left:
                await asyncio.sleep(0.01)


async def test_the_end_of_a_connection_is_that_of_what_runs_on_a_channel_it_has_left() -> None:
    async with serving() as (handlers, connection):
        unanswered = asyncio.create_task(connection.call(DescribeNodeRequest(), timeout_ms=60_000))
        stream = await connection.open_fetch(HELLO)
        await connection.call(ASKED, timeout_ms=5_000)
        connection._leave_channel()
        await stream.send(fetch(1))
        await stream.receive()
        await connection.close()
        async with asyncio.timeout(60):
            await handlers.stream_ended.wait()
            await asyncio.gather(unanswered, return_exceptions=True)


async def test_a_port_is_taken_once() -> None:
    server = await serve(Handlers(), "127.0.0.1", 0)
    with pytest.raises(ConfigError, match="another process may use the port") as caught:
        await serve(Handlers(), "127.0.0.1", server.port)
    assert caught.value.field == "inter.broker.listener"
    await server.stop(0)


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who connects and says nothing does not use up the descriptors of a node."""
    monkeypatch.setattr(grpc_transport, "CONNECTIONS_MAX", 2)
    server = await serve(Handlers(), "127.0.0.1", 0)
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""  # ended at once; the others hear gRPC's first frame
    for each in (writer, *(one for _, one in held)):
        each.close()
    await server.stop(0)


async def test_a_grpc_server_of_something_else_is_told_apart() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection = GrpcTransport().connect(f"127.0.0.1:{port}", purpose="data")
    with pytest.raises(MalformedFrameError, match="Is this the port of a replog broker"):
        await connection.call(ASKED, timeout_ms=5000)
    with pytest.raises(MalformedFrameError, match="Is this the port of a replog broker"):
        await connection.open_fetch(HELLO)
    await connection.close()
    await server.stop(None)


async def test_a_web_server_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    connection = GrpcTransport().connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", purpose="data")
    with pytest.raises(ReplogError) as caught:
        await connection.call(ASKED, timeout_ms=2000)
    assert "http" in str(caught.value).lower()
    await connection.close()
    server.close()
    await server.wait_closed()


# ---- streams -----------------------------------------------------------------------------------------------------------


async def test_a_stream_carries_messages_both_ways() -> None:
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        for correlation_id in range(3):
            await stream.send(fetch(correlation_id))
            assert await stream.receive() == fetched(correlation_id)
        assert handlers.fetched == [fetch(correlation_id) for correlation_id in range(3)]
        assert handlers.contexts[0].client_id == "tester"
        await stream.close()
        async with asyncio.timeout(60):
            await handlers.stream_ended.wait()


async def test_a_stream_of_another_cluster_is_refused_with_the_reason() -> None:
    async with serving() as (_, connection):
        with pytest.raises(InconsistentClusterIdError, match="this is cluster c, not other"):
            await connection.open_fetch(client_hello("other", "x"))
        with pytest.raises(UnsupportedVersionError, match="too new"):
            await connection.open_fetch(Hello("c", -1, UUID(int=0), min_api_version=9, max_api_version=9))


async def test_the_first_message_must_be_hello() -> None:
    async with serving() as (_, connection):
        with pytest.raises(InvalidRequestError, match="first message of a stream must be hello"):
            # a client that skips hello
            await connection._greet(
                "Fetch",
                grpc_transport.frames.encode_fetch_request,
                grpc_transport.frames.decode_fetch_response,
                fetch(1),  # type: ignore[arg-type]
            )


async def test_who_never_says_hello_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_transport, "HELLO_TIMEOUT_S", 0.05)
    async with serving() as (_, connection):
        call = connection._channel.stream_stream(f"/{grpc_transport.SERVICE}/Fetch")()
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "no hello within" in await call.details()


async def test_who_never_answers_hello_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_transport, "HELLO_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts, nobody reads
        connection = GrpcTransport().connect(f"127.0.0.1:{silent.getsockname()[1]}", purpose="data")
        with pytest.raises(ConnectionLostError, match="did not answer hello") as caught:
            await connection.open_quorum(HELLO)
        assert not caught.value.refused
        await connection.close()


async def test_an_error_ends_a_stream_as_its_class() -> None:
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        handlers.error = TopicExistsError("there is one")
        await stream.send(fetch(1))
        with pytest.raises(TopicExistsError, match="there is one"):
            await stream.receive()
        with pytest.raises(TopicExistsError):
            await stream.send(fetch(2))


async def test_a_long_error_fits_into_the_status() -> None:
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        handlers.error = TopicExistsError("ö" * 20_000)
        await stream.send(fetch(1))
        with pytest.raises(TopicExistsError, match=r"^ö{1000}$"):
            await stream.receive()


async def test_an_error_code_of_a_newer_version_is_an_error_of_ours() -> None:
    error = grpc_stream.reason_of("a:1", grpc.StatusCode.FAILED_PRECONDITION, "new", (("replog-error-code", "4711"),))
    assert type(error) is ReplogError
    assert str(error) == "error 4711: new"


async def test_a_bug_in_a_stream_ends_it_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        handlers.error = InvariantViolationError("a bug")
        await stream.send(fetch(1))
        with pytest.raises(ConnectionLostError):
            await stream.receive()
        assert "a stream ended with a bug of ours" in caplog.text


async def test_damaged_bytes_end_the_stream_with_the_reason() -> None:
    async with serving() as (_, connection):
        stream = await connection.open_fetch(HELLO)
        await stream._channel.write(b"\x1a\x00")  # type: ignore[attr-defined]
        with pytest.raises(InvalidRequestError, match="carries 0 requests, expected one"):
            await stream.receive()


async def test_the_end_of_a_server_ends_its_streams() -> None:
    handlers = Handlers()
    server = await serve(handlers, "127.0.0.1", 0)
    connection = GrpcTransport().connect(f"127.0.0.1:{server.port}", purpose="data")
    stream = await connection.open_fetch(HELLO)
    waiting = asyncio.create_task(stream.receive())
    await asyncio.sleep(0)
    await server.stop(0)
    with pytest.raises(ConnectionLostError):
        await waiting
    await connection.close()


async def test_quorum_messages_have_a_stream() -> None:
    async with serving() as (_, connection):
        stream = await connection.open_quorum(Hello("c", 2, UUID(int=2)))
        directory_id = UUID(int=2)
        await stream.send(VoteRequest(5, 1, 2, 3, 2, 10, True, directory_id, None))  # noqa: FBT003 -- a pre-vote
        assert await stream.receive() == VoteResponse(5, 1, QuorumError.NONE, None, 3, vote_granted=True)
        with pytest.raises(ConnectionLostError):  # the handler has ended
            await stream.receive()


async def test_a_presence_ends_with_the_process_that_was_there() -> None:
    handlers = Handlers()
    server = await serve(handlers, "127.0.0.1", 0)
    connection = GrpcTransport().connect(f"127.0.0.1:{server.port}", purpose="presence")
    presence = await connection.open_presence(HELLO)
    assert presence.peer == handlers.check_hello(HELLO)
    waiting = asyncio.create_task(presence.wait_lost())
    await asyncio.sleep(0)
    assert not waiting.done()
    await server.stop(0)
    async with asyncio.timeout(60):
        await waiting
    await connection.close()


# ---- limits --------------------------------------------------------------------------------------------------------------


async def test_a_message_over_the_limit_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that took it for one would send it again for ever."""
    monkeypatch.setattr(grpc_stream, "MAX_MESSAGE_BYTES", 20_000)
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        await stream.send(fetch(1, 10_000))
        await stream.receive()
        with pytest.raises(MalformedFrameError, match="the limit is 20000"):
            await stream.send(fetch(2, partitions=1_000))
        with pytest.raises(MalformedFrameError, match="the limit is 20000"):
            await connection.call(in_envelope(AddVoterRequest(1, UUID(int=1), "t" * 20_001)), timeout_ms=5000)
        assert len(handlers.fetched) == 1


async def test_a_message_over_the_servers_limit_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(key, 20_000 if "message_length" in key else value) for key, value in grpc_transport._SERVER_OPTIONS]
    monkeypatch.setattr(grpc_transport, "_SERVER_OPTIONS", limits)
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        with pytest.raises(MalformedFrameError, match="larger than max"):  # noqa: PT012 -- whichever hears of it first
            await stream.send(fetch(2, partitions=1_000))
            await stream.receive()
        assert handlers.fetched == []
        assert await connection.call(ASKED, timeout_ms=5000) == ANSWERED


class Flood(Handlers):
    async def handle_fetch_stream(self, hello: Hello, stream: Any, context: RequestContext) -> None:
        await stream.receive()
        payload = bytes(1 << 20)
        while True:
            await stream._channel.write(b"\x0a\x00\x7a" + b"\x80\x80\x40" + payload)
            self.sent += 1


async def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    async with serving(Flood()) as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        await stream.send(fetch(1))
        seen = -1
        async with asyncio.timeout(60):
            while seen != handlers.sent:  # until it does not move for a while
                seen = handlers.sent
                await asyncio.sleep(0.1)
        assert seen < 16, f"{seen} MB are on their way to a reader that reads nothing"
        await stream.close()


async def test_nothing_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with serving() as (handlers, connection):
        stream = await connection.open_fetch(HELLO)
        await stream.send(fetch(1))
        await stream.receive()
    async with asyncio.timeout(60):
        await handlers.stream_ended.wait()
    gc.collect()
    async with asyncio.timeout(60):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)
