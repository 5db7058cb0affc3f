"""The serving side of streams between nodes over TCP; see `replog.rpc.tcp.wire`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from replog.access.principal import Principal
from replog.errors import (
    BrokerNotAvailableError,
    MalformedFrameError,
    ReplogError,
    UnsupportedVersionError,
)
from replog.rpc import frames
from replog.rpc.messages import Hello
from replog.rpc.node_tls import NodeTls
from replog.rpc.serving import BUG, serve_controller_calls, serve_node_calls
from replog.rpc.tcp.stream import TcpStream
from replog.rpc.tcp.wire import CALLS, QUORUM, STREAM_VERSION, Codec, StreamKind, parse_opening
from replog.rpc.transport import ConnectionLostError, PeerHandlers, RequestContext
from replog.tcp.frames import SpareBuffers
from replog.tcp.transfer_room import TransferRoom

_FETCH = Codec(frames.fetch_response_pieces, frames.decode_fetch_request)

_log = logging.getLogger(__name__)

Serve = Callable[["TcpStream[Any, Any]", memoryview, RequestContext], Awaitable[None]]
"""Serves a stream, given its first message."""


class ServedStream:
    """A connection that has become a stream.

    Args:
        stream: The stream.
        serve: The function that serves it until it ends.

    Attributes:
        stream: As given.
        closed: The future that is done when the connection has ended.
    """

    def __init__(self, stream: TcpStream[Any, Any], serve: Callable[[], Awaitable[None]]) -> None:
        self.stream = stream
        self.closed = stream.closed
        self._serve = serve

    async def serve(self) -> None:
        """Serves the stream until it ends; an error of ours is told to the other side."""
        try:
            await self._serve()
        except GeneratorExit:
            raise  # whoever closes a coroutine, as a simulation does with a process that dies, runs nothing to its end
        except ConnectionLostError:
            pass
        except ReplogError as error:
            await self.stream.end(error)
        except Exception:  # noqa: BLE001 -- one stream ends, and who opened it goes to another node
            _log.exception("a stream ended with a bug of ours")
            await self.stream.end(BrokerNotAvailableError(BUG))
        else:
            await self.stream.close()
        finally:
            self.stream.drop()


class PeerStreams:
    """Makes streams of connections of other nodes, and serves them.

    Args:
        handlers: The node that they are for.
        listener: The host:port of the listener, for those who ask who asks.
        room: The bytes of large messages that the node reads at a time, all streams together.
        tls: What says whether a certificate is that of who says hello; None: nodes show none.
        tell_refused: The function that hears the address of a caller that is not believed, and why.
    """

    def __init__(
        self,
        handlers: PeerHandlers,
        listener: str,
        room: TransferRoom,
        tls: NodeTls | None = None,
        tell_refused: Callable[[str, str], None] = lambda _address, _reason: None,
    ) -> None:
        self._tls = tls
        self._tell_refused = tell_refused
        self._handlers = handlers
        self._listener = listener
        self._room = room
        self._spares = SpareBuffers()
        self._kinds: dict[int, tuple[Codec, Serve]] = {
            StreamKind.CALLS: (CALLS, self._calls),
            StreamKind.CONTROLLER: (CALLS, self._controller_calls),
            StreamKind.FETCH: (_FETCH, self._fetch),
            StreamKind.QUORUM: (QUORUM, self._quorum),
        }

    def open(self, frame: memoryview, principal: Principal, peer: str) -> ServedStream:
        """Returns what a connection becomes.

        Args:
            frame: The request that opens the stream.
            principal: Who the certificate of who connected says it is; ANONYMOUS: none was shown.
            peer: The address of who connected.
        """
        version, kind, first = parse_opening(frame)
        codec, serve = self._kinds.get(kind, (CALLS, self._refuse))
        stream: TcpStream[Any, Any] = TcpStream(codec, self._spares, peer, room=self._room)
        context = RequestContext(principal.name, "", self._listener, peer)
        return ServedStream(
            stream, partial(serve if version == STREAM_VERSION else self._refuse, stream, first, context)
        )

    async def _calls(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first, self._handlers.check_caller, context)
        await serve_node_calls(self._handlers, stream, replace(context, client_id=hello.client_id))

    async def _controller_calls(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first, self._handlers.check_hello, context)
        await serve_controller_calls(self._handlers, stream, _asked_by(hello, context))

    async def _fetch(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first, self._handlers.check_hello, context)
        await self._handlers.handle_fetch_stream(hello, stream, _asked_by(hello, context))

    async def _quorum(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first, self._handlers.check_hello, context)
        await self._handlers.handle_quorum_stream(hello, stream, _asked_by(hello, context))

    async def _refuse(self, _stream: TcpStream[Any, Any], _first: memoryview, context: RequestContext) -> None:
        raise UnsupportedVersionError(
            f"{context.listener} does not know this kind of stream. Use the same replog version on both sides."
        )

    async def _greet(
        self, stream: TcpStream[Any, Any], first: memoryview, check: Callable[[Hello], Hello], context: RequestContext
    ) -> Hello:
        """Answers the hello of the other side; returns it."""
        hello = stream.decoded(first)
        if not isinstance(hello, Hello):
            raise MalformedFrameError("the first message of a stream must be hello")
        stream.greeted()
        self._check_certificate(hello, context)
        await stream.send(check(hello))
        return hello

    def _check_certificate(self, hello: Hello, context: RequestContext) -> None:
        """Raises, and tells of it, unless the caller has shown the certificate of the node that it says it is."""
        if self._tls is None:
            return
        try:
            self._tls.check_hello(Principal(context.principal), hello)
        except ReplogError as error:
            self._tell_refused(context.peer, str(error))
            raise


def _asked_by(hello: Hello, context: RequestContext) -> RequestContext:
    """Returns the context of the requests of a stream."""
    return replace(context, client_id=hello.client_id, node=hello)
