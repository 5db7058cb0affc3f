"""Our client's side of the port for clients: one TCP connection a stream, opened when it is needed.

A stream has a connection of its own, so that TCP's flow control is the stream's, and none waits behind another.  Calls share
two streams, to any node and to the controller, opened with the first call and again after they were lost.

Nothing here needs gRPC: a process that is only a client does not load it, and a forked child opens connections of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from replog.errors import MalformedFrameError
from replog.rpc import frames, watch_codec
from replog.rpc.call_stream import ItemStream, StreamedCalls
from replog.rpc.calling import CallingConnection
from replog.rpc.forks import close_at_fork
from replog.rpc.messages import (
    FetchRequest,
    FetchResponse,
    Hello,
    OffsetsUpdate,
    ProduceRequest,
    ProduceResponse,
    WatchOffsetsRequest,
    client_hello,
)
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest
from replog.rpc.tcp.codecs import CALLS
from replog.rpc.tcp.looks import timeout_in_looks
from replog.rpc.tcp.stream import TcpStream
from replog.rpc.tcp.wire import MAX_MESSAGE_BYTES, Codec, StreamKind, whole
from replog.rpc.transport import ConnectionLostError, Stream
from replog.tcp.frames import SpareBuffers
from replog.tcp.port import keep_alive

OPEN_TIMEOUT_S = 1.0
"""How long the way to the other side may take, with its first answer: who is stopped or overloaded is left for another."""

CALL_BYTES_MAX = MAX_MESSAGE_BYTES - 1024
"""Bound of one call: a message, but for what stands around it."""

Connect = Callable[
    [Callable[[], asyncio.BaseProtocol], str, int], Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]
]
"""Connects a protocol that it makes to a host and a port, as the event loop's `create_connection`; raises OSError."""

_SPARES = SpareBuffers()
"""Shared by all clients of the process."""

_PRODUCE = Codec(frames.produce_request_pieces, frames.decode_produce_responses)
FETCH: Final = Codec(whole(frames.encode_fetch_request), frames.decode_fetch_response)
_METADATA = Codec(whole(watch_codec.encode_watch_request), watch_codec.decode_update)
_OFFSETS = Codec(whole(watch_codec.encode_offsets_request), watch_codec.decode_offsets_update)


async def create_connection(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int
) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
    """Connects over TCP, in a way that a fork of this process does not keep open; the addresses of a host are tried in their order.

    Args:
        make: The function that makes the protocol.
        host: The name or address of the host.
        port: The port.

    Raises:
        OSError: There is no such host, or it cannot be reached at any address.
    """
    loop = asyncio.get_running_loop()
    problem = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await _addresses(host, port):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)  # noqa: FBT003 -- the standard library's signature
            await loop.sock_connect(sock, address)
            keep_alive(sock)
            close_at_fork(sock)
            return await loop.create_connection(make, sock=sock)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
    raise problem


async def _addresses(host: str, port: int) -> Sequence[tuple[Any, Any, int, str, Any]]:
    """Returns what a host is reached at; a number without a thread.

    There are none for who outlives the main thread of its process: Python ends those of its pools first.

    Raises:
        OSError: There is no such host, or no thread to ask for it.
    """
    with suppress(OSError):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except RuntimeError as error:
        raise OSError(
            f"the addresses of {host} cannot be asked for ({error}): the main thread has ended. Wait in it for the threads that "
            "use a client, or name brokers by their addresses"
        ) from error


class TcpConnection(CallingConnection):
    """A way to one node; see `replog.rpc.transport.Connection`.

    Args:
        address: The host:port of the node's listener for clients.
        connect: The function that connects a protocol.
    """

    def __init__(self, address: str, connect: Connect) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._host, self._port = host.removeprefix("[").removesuffix("]"), int(port)
        self._connect = connect
        self._hello = client_hello("", "calls")
        self._open_timeout_s = OPEN_TIMEOUT_S
        self._streams: set[TcpStream[Any, Any]] = set()
        self._calls = StreamedCalls(address)
        self._controller_calls = StreamedCalls(address)

    @property
    def address(self) -> str:
        return self._address

    def watch_metadata(self, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        return self._watch(StreamKind.WATCH_METADATA, _METADATA, request)

    def watch_offsets(self, request: WatchOffsetsRequest) -> AsyncIterator[OffsetsUpdate]:
        return self._watch(StreamKind.WATCH_OFFSETS, _OFFSETS, request)

    async def open_produce(self, hello: Hello) -> Stream[ProduceRequest, tuple[ProduceResponse, ...]]:
        return (await self._greet(StreamKind.PRODUCE, _PRODUCE, hello))[0]

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        return (await self._greet(StreamKind.FETCH, FETCH, hello))[0]

    async def close(self) -> None:
        await self._calls.close()
        await self._controller_calls.close()
        for stream in list(self._streams):
            stream.abort()
        if self._streams:
            await asyncio.wait([stream.closed for stream in self._streams])

    async def _carry_call(self, data: bytes, timeout_ms: int) -> bytes:
        opened = partial(self._open_calls, StreamKind.CALLS)
        return await self._calls.call(self._within_limit(data), opened, timeout_ms=timeout_ms)

    async def _carry_controller_call(self, data: bytes, timeout_ms: int) -> bytes:
        opened = partial(self._open_calls, StreamKind.CONTROLLER)
        return await self._controller_calls.call(self._within_limit(data), opened, timeout_ms=timeout_ms)

    async def _open_calls(self, kind: StreamKind) -> ItemStream:
        return (await self._greet(kind, CALLS, self._hello))[0]

    async def _watch(self, kind: StreamKind, codec: Codec, request: object) -> AsyncIterator[Any]:
        stream: TcpStream[Any, Any] | None = None
        try:
            try:
                async with timeout_in_looks(self._open_timeout_s):
                    stream = await self._open(kind, codec, request)
                    await stream.wait_heard()
            except TimeoutError:
                raise ConnectionLostError(f"{self._address} did not answer within {self._open_timeout_s:g} s") from None
            while True:
                yield await stream.receive()
        finally:
            if stream is not None:
                stream.drop()

    async def _greet(self, kind: StreamKind, codec: Codec, hello: Hello) -> tuple[TcpStream[Any, Any], Hello]:
        stream: TcpStream[Any, Any] | None = None
        try:
            async with timeout_in_looks(self._open_timeout_s):
                stream = await self._open(kind, codec, hello)
                answer = await stream.receive()
        except TimeoutError:
            self._abort(stream)
            raise ConnectionLostError(f"{self._address} did not answer hello in {self._open_timeout_s:g} s") from None
        except BaseException:
            self._abort(stream)
            raise
        if not isinstance(answer, Hello):
            stream.abort()
            raise MalformedFrameError(f"{self._address} answered hello with {type(answer).__name__}")
        stream.greeted()
        return stream, answer

    async def _open(self, kind: StreamKind, codec: Codec, first: object) -> TcpStream[Any, Any]:
        make = partial(TcpStream, codec, _SPARES, self._address, is_client=True)
        try:
            _, stream = cast("tuple[Any, TcpStream[Any, Any]]", await self._connect(make, self._host, self._port))
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            raise ConnectionLostError(f"{self._address}: {_cause(error)}", refused=is_refused) from None
        self._streams.add(stream)
        stream.closed.add_done_callback(lambda _: self._streams.discard(stream))
        stream.open(kind, first)
        return stream

    def _within_limit(self, data: bytes) -> bytes:
        """Returns an encoded call; raises on one too large to send, which would end the stream of all calls."""
        if len(data) > CALL_BYTES_MAX:
            raise MalformedFrameError(f"{self._address}: a call of {len(data)} bytes, the limit is {CALL_BYTES_MAX}")
        return data

    @staticmethod
    def _abort(stream: TcpStream[Any, Any] | None) -> None:
        if stream is not None:
            stream.abort()


def _cause(error: OSError) -> str:
    """Returns what the system says: asyncio puts "Connect call failed" and the address, which is told already, in its place."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


class TcpTransport:
    """Connections over TCP.

    Args:
        connect: The function that connects a protocol; a simulated network has its own.
    """

    def __init__(self, connect: Connect = create_connection) -> None:
        self._connect = connect

    def connect(self, address: str, *, purpose: str) -> TcpConnection:  # noqa: ARG002 -- the seam's shape
        return TcpConnection(address, self._connect)
