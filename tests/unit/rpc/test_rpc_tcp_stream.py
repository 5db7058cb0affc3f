"""Streams between nodes: messages, ends and limits, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import struct
import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from rpc_handlers import ANSWERED, ASKED, HELLO, TOPIC, Handlers, fetch, fetched
from tcp_served import Served, serving, until

from replog.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvariantViolationError,
    MalformedFrameError,
    ReplogError,
    TopicExistsError,
    UnsupportedVersionError,
)
from replog.rpc.frames import _varint, encode_fetch_request
from replog.rpc.messages import (
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
    client_hello,
)
from replog.rpc.tcp import service as tcp_service
from replog.rpc.tcp import stream as tcp_stream
from replog.rpc.tcp import transport as tcp_transport
from replog.rpc.tcp.stream import TcpStream
from replog.rpc.tcp.transport import TcpPeerTransport
from replog.rpc.tcp.wire import STREAM_KEY, Codec, StreamKind, Tag, decode_error
from replog.rpc.transport import ConnectionLostError
from replog.tcp import transfer_room as transfer_room_module
from replog.tcp.frames import SpareBuffers


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is said; a busy machine may take its time with it."""
    monkeypatch.setattr(tcp_transport, "HELLO_TIMEOUT_S", 20.0)


READ_ALL = FetchRequest(1, 1, -1, -1, 1, 1, 1, ())


def padded(correlation_id: int, size: int) -> bytes:
    """A request that `opened` sends, with a field of `size` bytes that nobody knows."""
    unknown_field = bytes((15 << 3 | 2,)) + _varint(size) + bytes(size)
    return encode_fetch_request(fetch(correlation_id)) + unknown_field


async def opened(it: Served) -> TcpStream[Any, Any]:
    """A stream that sends bytes as they are."""
    stream: Any = await it.connection.open_fetch(HELLO)
    codec = stream._codec
    stream._codec = Codec(lambda one: (one,) if isinstance(one, bytes) else codec.encode(one), codec.decode)
    assert isinstance(stream, TcpStream)
    return stream


# ---- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 3, 60_000, 66_000, 3 << 20])
async def test_a_stream_carries_messages_both_ways(size: int) -> None:
    async with serving() as it:
        stream = await opened(it)
        for correlation_id in range(3):
            await stream.send(fetch(correlation_id, size))
            assert await stream.receive() == fetched(correlation_id, size)
            await stream.send(padded(correlation_id, size))
            assert await stream.receive() == fetched(correlation_id)
        assert [request.correlation_id for request in it.handlers.fetched] == [0, 0, 1, 1, 2, 2]
        assert it.handlers.contexts[0].client_id == "tester"
        await stream.close()
        async with asyncio.timeout(60):
            await it.handlers.stream_ended.wait()


async def test_what_was_sent_before_a_close_arrives() -> None:
    async with serving() as it:
        stream = await opened(it)
        for correlation_id in range(20):
            await stream.send(padded(correlation_id, 1 << 20))
        await stream.close()
        async with asyncio.timeout(60):
            await it.handlers.stream_ended.wait()
        assert len(it.handlers.fetched) >= 1, "those that were read before the connection was gone"


async def test_a_stream_of_another_cluster_is_refused_with_the_reason() -> None:
    async with serving() as it:
        with pytest.raises(InconsistentClusterIdError, match="this is cluster c, not other"):
            await it.connection.open_fetch(client_hello("other", "x"))
        with pytest.raises(UnsupportedVersionError, match="too new"):
            await it.connection.open_fetch(Hello("c", -1, UUID(int=0), min_api_version=9, max_api_version=9))


async def first_frame(it: Served, frame: bytes) -> tuple[int, int, bytes]:
    """The tag, the code and the text of the first frame after an opening."""
    reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
    writer.write(struct.pack(">i", len(frame)) + frame)
    async with asyncio.timeout(60):
        size, tag, code = struct.unpack(">iBh", await reader.readexactly(7))
        text = await reader.readexactly(size - 3)
    writer.close()
    return tag, code, text


@pytest.mark.parametrize(
    ("version", "kind", "first", "error", "text"),
    [
        (1, StreamKind.FETCH, b"", UnsupportedVersionError, b"Use the same replog version"),
        (0, 77, b"", UnsupportedVersionError, b"Use the same replog version"),
        (0, StreamKind.FETCH, b"", MalformedFrameError, b"a fetch frame carries 0 requests"),
        (0, StreamKind.QUORUM, b"", MalformedFrameError, b"a kind this version does not know"),
        (0, StreamKind.CALLS, b"\xff\xff", MalformedFrameError, b"not a"),
    ],
)
async def test_an_opening_that_is_none_is_told_so(
    version: int, kind: int, first: bytes, error: type[ReplogError], text: bytes
) -> None:
    async with serving() as it:
        tag, code, told = await first_frame(it, struct.pack(">hhi", STREAM_KEY, version, kind) + first)
        assert (tag, code) == (Tag.ERROR, error.code)
        assert text in told


async def test_the_first_message_must_be_hello() -> None:
    async with serving() as it:
        first = encode_fetch_request(fetch(1))
        tag, code, told = await first_frame(it, struct.pack(">hhi", STREAM_KEY, 0, StreamKind.FETCH) + first)
        assert (tag, code) == (Tag.ERROR, MalformedFrameError.code)
        assert b"first message of a stream must be hello" in told


async def test_an_error_ends_a_stream_as_its_class() -> None:
    async with serving() as it:
        stream = await opened(it)
        it.handlers.error = TopicExistsError("there is one")
        await stream.send(fetch(1))
        with pytest.raises(TopicExistsError, match="there is one"):
            await stream.receive()
        with pytest.raises(TopicExistsError):
            await stream.send(fetch(2))


async def test_an_error_arrives_though_much_was_sent_behind_what_it_is_about() -> None:
    """A connection that is closed with bytes unread is reset, and the error with it."""
    async with serving() as it:
        for _ in range(5):
            stream = await opened(it)
            it.handlers.error = TopicExistsError("there is one")

            async def send_much(stream: Any = stream) -> None:
                for number in range(30):
                    await stream.send(padded(number, 1 << 20))

            sending = asyncio.create_task(send_much())
            with pytest.raises(TopicExistsError, match="there is one"):
                await stream.receive()
            with pytest.raises(TopicExistsError, match="there is one"):
                await sending


@pytest.mark.parametrize("message", [b"\x63", bytes((Tag.MESSAGE,)) + b"\xff"], ids=["a frame", "a message"])
async def test_who_resets_the_connection_meanwhile_is_no_bug_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, message: bytes
) -> None:
    """Goal: what the socket says, when one half of it is to be closed behind an error, does not reach the log."""

    def is_reset(_transport: Any) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    async with serving() as it:
        stream: Any = await opened(it)
        monkeypatch.setattr(type(stream._transport), "write_eof", is_reset)
        stream._transport.write(struct.pack(">i", len(message)) + message)
        with pytest.raises(ReplogError):
            await stream.receive()
        await until(lambda: len(it.listener) == 0)
    assert caplog.text == ""


async def test_a_long_error_is_cut() -> None:
    async with serving() as it:
        stream = await opened(it)
        it.handlers.error = TopicExistsError("x" * 200_000)
        await stream.send(fetch(1))
        with pytest.raises(TopicExistsError, match=r"^x{4096}$"):
            await stream.receive()


async def test_an_error_code_of_a_newer_version_is_an_error_of_ours() -> None:
    error = decode_error(memoryview(struct.pack(">h", 4711) + b"new"))
    assert type(error) is ReplogError
    assert str(error) == "error 4711: new"


async def test_a_bug_in_a_stream_ends_it_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as it:
        stream = await opened(it)
        it.handlers.error = InvariantViolationError("a bug")
        await stream.send(fetch(1))
        with pytest.raises(BrokerNotAvailableError, match=r"^a bug of this node; its log says more$"):
            await stream.receive()
        assert "ended with a bug of ours" in caplog.text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack(">iB", 3, 0) + b"\x1a\x00", "a fetch frame carries 0 requests"),
        (struct.pack(">iB", 1, 9), "a frame with the tag 9"),
        (struct.pack(">i", 0), "a frame is said to have 0 bytes"),
        (struct.pack(">i", 65 << 20), "a frame is said to have"),
        (struct.pack(">i", -1), "a frame is said to have -1 bytes"),
    ],
)
async def test_damaged_bytes_end_the_stream_with_the_reason(data: bytes, text: str) -> None:
    async with serving() as it:
        stream = await opened(it)
        assert stream._transport is not None
        stream._transport.write(data)
        with pytest.raises(InvalidRequestError, match=text):
            await stream.receive()


async def test_half_frames_are_waited_for() -> None:
    async with serving() as it:
        stream = await opened(it)
        assert stream._transport is not None
        body = padded(1, 70_000)
        frame = struct.pack(">iB", len(body) + 1, 0) + body
        for at in range(0, len(frame), 1_000):
            stream._transport.write(frame[at : at + 1_000])
            await asyncio.sleep(0)
        assert await stream.receive() == fetched(1)


async def test_who_stops_within_a_frame_holds_it_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_stream, "LOOK_S", 0.01)
    async with serving(room_bytes=1) as it:
        stream = await opened(it)
        assert stream._transport is not None
        stream._transport.write(struct.pack(">iB", 1 << 20, 0) + bytes(1000))
        await until(lambda: it.room.held_bytes)
        with pytest.raises(ConnectionLostError):
            await stream.receive()
        await until(lambda: not it.room.held_bytes)


async def test_reading_does_not_pause_for_a_large_message_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way of every large batch a task and two changes of what the loop waits for would cost more than its bytes."""
    async with serving() as it:
        stream = await opened(it)
        (connection,) = it.listener._connections
        assert connection._transport is not None
        paused: list[bool] = []
        monkeypatch.setattr(connection._transport, "pause_reading", lambda: paused.append(True))
        for number in range(5):
            await stream.send(padded(number, 300_000))
            assert await stream.receive() == fetched(number)
        assert paused == []


async def test_large_messages_share_the_room_that_there_is() -> None:
    async with serving(room_bytes=1) as it:
        streams = [await opened(it) for _ in range(4)]
        for number, stream in enumerate(streams):
            await stream.send(padded(number, 1 << 20))
        for number, stream in enumerate(streams):
            assert await stream.receive() == fetched(number)


async def test_a_message_that_trickles_gives_way_to_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("GRACE_S", 0.05), ("FINISH_S", 0.2), ("LOOK_S", 0.02)):
        monkeypatch.setattr(transfer_room_module, name, seconds)
    async with serving(room_bytes=1) as it:
        slow, other = [await opened(it) for _ in range(2)]
        assert isinstance(slow, TcpStream)
        assert slow._transport is not None
        slow._transport.write(struct.pack(">iB", 1 << 20, 0) + bytes(1000))
        await until(lambda: it.room.held_bytes)
        await other.send(padded(1, 1 << 20))
        assert await other.receive() == fetched(1)
        with pytest.raises(ConnectionLostError):
            await slow.receive()


async def test_the_end_of_a_port_ends_its_streams() -> None:
    async with serving() as it:
        stream = await opened(it)
        waiting = asyncio.create_task(stream.receive())
        await asyncio.sleep(0)
        await it.listener.stop()
        with pytest.raises(ConnectionLostError):
            await waiting


async def test_nothing_is_sent_while_a_connection_is_being_lost() -> None:
    """Who does nothing but send would never let the loop tell of the end."""
    async with serving() as it:
        stream = await opened(it)
        stream.abort()
        with pytest.raises(ConnectionLostError):
            await stream.send(fetch(1))


async def test_a_received_message_is_not_lost_with_its_receiver() -> None:
    async with serving() as it:
        stream = await opened(it)
        for _ in range(20):
            receiving = asyncio.create_task(stream.receive())
            await stream.send(fetch(1))
            await asyncio.sleep(0)
            receiving.cancel()
            outcome = (await asyncio.gather(receiving, return_exceptions=True))[0]
            if isinstance(outcome, BaseException):
                assert await stream.receive() == fetched(1)


# ---- silence --------------------------------------------------------------------------------------------------------------


async def test_a_loop_that_was_held_up_takes_nobody_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what came while the process computed counts, however long that took."""
    monkeypatch.setattr(tcp_transport, "HELLO_TIMEOUT_S", 0.2)
    async with serving() as it:
        for open_stream in (it.connection.open_fetch(HELLO), it.connection.open_presence(HELLO)):
            opening = asyncio.ensure_future(open_stream)
            await asyncio.sleep(0)  # it has begun to connect
            time.sleep(0.3)  # a computation
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
    connection = TcpPeerTransport().connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", purpose="data")
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
        stream = await opened(it)
        asked: list[int] = []
        write = TcpStream._write

        def counting(self: TcpStream[Any, Any], tag: Tag, size: int, pieces: Any) -> None:
            asked.append(tag)
            write(self, tag, size, pieces)

        monkeypatch.setattr(TcpStream, "_write", counting)
        await until(lambda: asked.count(Tag.PONG) >= 3)
        await stream.send(fetch(1))
        assert await stream.receive() == fetched(1)


# ---- limits --------------------------------------------------------------------------------------------------------------


async def test_a_message_over_the_limit_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that took it for one would send it again for ever."""
    monkeypatch.setattr(tcp_stream, "MAX_MESSAGE_BYTES", 20_000)
    async with serving() as it:
        stream = await opened(it)
        await stream.send(padded(1, 10_000))
        await stream.receive()
        with pytest.raises(MalformedFrameError, match="the limit is 20000"):
            await stream.send(padded(2, 20_001))
        assert len(it.handlers.fetched) == 1
        await stream.send(padded(3, 10_000))
        await stream.receive()


class Flood(Handlers):
    """Sends megabytes for as long as it may."""

    async def handle_fetch_stream(self, hello: Hello, stream: Any, context: Any) -> None:
        await stream.receive()
        result = FetchResult(TOPIC, 0, ErrorCode.NONE, 0, 0, 0, 0)
        while True:
            await stream.send(FetchResponse(self.sent, (result,), (bytes(1 << 20),)))
            self.sent += 1


async def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    async with serving(Flood()) as it:
        stream = await opened(it)
        assert stream._transport is not None
        stream._transport.pause_reading()
        await stream.send(READ_ALL)
        seen = -1
        async with asyncio.timeout(60):
            while seen != it.handlers.sent:  # until it does not move for a while
                seen = it.handlers.sent
                await asyncio.sleep(0.1)
        assert seen < 16, f"{seen} MB are on their way to a reader that reads nothing"
        await stream.close()


async def test_a_client_that_receives_nothing_stops_the_writer() -> None:
    async with serving(Flood()) as it:
        stream = await opened(it)
        await stream.send(READ_ALL)
        await until(lambda: not stream._is_reading)
        assert stream._waiting_bytes <= 3 << 20
        for number in range(30):
            assert (await stream.receive()).correlation_id == number
        await stream.close()


async def test_pings_of_a_client_that_reads_no_answers_do_not_pile_up() -> None:
    written: list[bytes] = []
    transport: Any = SimpleNamespace(
        set_write_buffer_limits=lambda high: None, is_closing=lambda: False, write=written.append, abort=lambda: None
    )
    stream: TcpStream[Any, Any] = TcpStream(tcp_service._FETCH, SpareBuffers(), "a client")
    stream.connection_made(transport)
    pings = struct.pack(">iB", 1, Tag.PING) * 3
    for is_writable in (True, False):
        if not is_writable:
            stream.pause_writing()
        stream.get_buffer(-1)[: len(pings)] = pings
        stream.buffer_updated(len(pings))
    assert b"".join(written) == struct.pack(">iB", 1, Tag.PONG) * 3
    stream.connection_lost(None)


async def test_who_reads_nothing_for_long_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_stream, "LOOK_S", 0.01)
    async with serving(Flood()) as it:
        stream = await opened(it)
        assert stream._transport is not None
        await stream.send(READ_ALL)
        stream._transport.pause_reading()
        stream._is_reading = False
        await until(lambda: not len(it.listener))
        stream.abort()


async def test_nothing_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with serving() as it:
        stream = await opened(it)
        await stream.send(fetch(1))
        await stream.receive()
        assert await it.connection.call(ASKED, timeout_ms=5000) == ANSWERED
    async with asyncio.timeout(60):
        await it.handlers.stream_ended.wait()
    gc.collect()
    await until(lambda: not asyncio.all_tasks() - before)
