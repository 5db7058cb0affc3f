"""The calling side of streams between nodes over TCP: one connection a stream, opened when it is needed.

A stream has a connection of its own, so that TCP's flow control is the stream's, and none waits behind another.  Calls share
two streams, to any node and to the controller, opened with the first call and again after they were lost.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from replog.errors import MalformedFrameError
from replog.rpc import frames
from replog.rpc.call_stream import ItemStream, StreamedCalls
from replog.rpc.calling import CallingConnection
from replog.rpc.messages import FetchRequest, FetchResponse, Hello, client_hello
from replog.rpc.node_tls import NodeTls
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.tcp.stream import TcpStream
from replog.rpc.tcp.wire import CALLS, MAX_MESSAGE_BYTES, QUORUM, Codec, StreamKind, whole
from replog.rpc.transport import ConnectionLostError, Stream, StreamPresence
from replog.tcp.dialing import Connect, cause_of, create_connection
from replog.tcp.frames import SpareBuffers
from replog.waiting.looks import timeout_in_looks

HELLO_TIMEOUT_S: Final = 5.0
"""How long the way to another node may take, with its hello: a busy one is no dead one."""

CALL_BYTES_MAX: Final = MAX_MESSAGE_BYTES - 1024
"""Bound of one call: a message, but for what stands around it."""

_SPARES = SpareBuffers()
"""Shared by all connections of the process."""

_FETCH: Final = Codec(whole(frames.encode_fetch_request), frames.decode_fetch_response)


class TcpPeerConnection(CallingConnection):
    """A way to another node; see `replog.rpc.transport.PeerConnection`.

    Args:
        address: The host:port where the other node meets nodes.
        hello: Who calls; None: somebody who is no node.
        connect: The function that connects.
        node_id: The id of the node that is to be there; None: any.
        tls: What this node proves, and whom it believes; None: it speaks plain text.
    """

    def __init__(
        self,
        address: str,
        hello: Hello | None,
        connect: Connect,
        node_id: int | None = None,
        tls: NodeTls | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._host, self._port = host.removeprefix("[").removesuffix("]"), int(port)
        self._hello = hello or client_hello("", "calls")
        self._connect = connect
        self._node_id = node_id
        self._tls = tls if tls is not None and tls.dials else None
        self._streams: dict[TcpStream[Any, Any], None] = {}  # in the order of their opening
        self._calls = StreamedCalls(address)
        self._controller_calls = StreamedCalls(address)

    @property
    def address(self) -> str:
        return self._address

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        return (await self._greet(StreamKind.FETCH, _FETCH, hello))[0]

    async def open_quorum(self, hello: Hello) -> Stream[QuorumFrame, QuorumFrame]:
        return (await self._greet(StreamKind.QUORUM, QUORUM, hello))[0]

    async def open_presence(self, hello: Hello) -> StreamPresence:
        return StreamPresence(*await self._greet(StreamKind.FETCH, _FETCH, hello))

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

    async def _greet(self, kind: StreamKind, codec: Codec, hello: Hello) -> tuple[TcpStream[Any, Any], Hello]:
        stream: TcpStream[Any, Any] | None = None
        try:
            async with timeout_in_looks(HELLO_TIMEOUT_S):
                stream = await self._open(kind, codec, hello)
                answer = await stream.receive()
        except TimeoutError:
            self._abort(stream)
            raise ConnectionLostError(f"{self._address} did not answer hello in {HELLO_TIMEOUT_S:g} s") from None
        except BaseException:
            if stream is not None and self._tls is not None and stream.tls_trouble:
                self._tls.tell(self._address, stream.tls_trouble)
            self._abort(stream)
            raise
        if not isinstance(answer, Hello):
            stream.abort()
            raise MalformedFrameError(f"{self._address} answered hello with {type(answer).__name__}")
        if self._node_id not in {None, answer.node_id}:
            stream.abort()
            raise ConnectionLostError(
                f"{self._address}: node {answer.node_id} is there, and node {self._node_id} was looked for. Check the addresses"
            )
        stream.greeted()
        return stream, answer

    async def _open(self, kind: StreamKind, codec: Codec, first: object) -> TcpStream[Any, Any]:
        made: TcpStream[Any, Any] = TcpStream(codec, _SPARES, self._address, is_client=True)
        try:
            if self._tls is None:
                await self._connect(lambda: made, self._host, self._port)
            else:
                await self._tls.open(made, self._host, self._port, self._node_id, self._connect)
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            raise ConnectionLostError(f"{self._address}: {cause_of(error)}", refused=is_refused) from None
        self._streams[made] = None
        made.closed.add_done_callback(lambda _: self._streams.pop(made))
        made.open(kind, first)
        return made

    def _within_limit(self, data: bytes) -> bytes:
        """Returns an encoded call; raises on one too large to send, which would end the stream of all calls."""
        if len(data) > CALL_BYTES_MAX:
            raise MalformedFrameError(f"{self._address}: a call of {len(data)} bytes, the limit is {CALL_BYTES_MAX}")
        return data

    @staticmethod
    def _abort(stream: TcpStream[Any, Any] | None) -> None:
        if stream is not None:
            stream.abort()


class TcpPeerTransport:
    """Connections to other nodes over TCP.

    Args:
        connect: The function that connects: over TCP, or as a simulation has it.
        tls: What this node proves, and whom it believes; None: nodes speak plain text.
    """

    def __init__(self, connect: Connect = create_connection, tls: NodeTls | None = None) -> None:
        self._connect = connect
        self._tls = tls

    def connect(
        self,
        address: str,
        *,
        purpose: str,  # noqa: ARG002 -- the seam's shape
        hello: Hello | None = None,
        node_id: int | None = None,
    ) -> TcpPeerConnection:
        return TcpPeerConnection(address, hello, self._connect, node_id, self._tls)
