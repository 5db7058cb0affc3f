"""The node's side of streams over TCP, of our clients and of other nodes; see `replog.rpc.tcp.wire`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from replog.errors import (
    BrokerNotAvailableError,
    InvalidRequestError,
    MalformedFrameError,
    ReplogError,
    UnsupportedVersionError,
)
from replog.rpc import frames, quorum_codec, watch_codec
from replog.rpc.messages import CONSUMER_REPLICA_ID, FetchRequest, Hello
from replog.rpc.serving import serve_client_calls, serve_controller_calls
from replog.rpc.task_ends import until_one_ends
from replog.rpc.tcp.codecs import CALLS
from replog.rpc.tcp.stream import TcpStream
from replog.rpc.tcp.wire import STREAM_VERSION, Codec, StreamKind, parse_opening, whole
from replog.rpc.transport import ClientHandlers, ConnectionLostError, NodeHandlers, PeerHandlers, RequestContext
from replog.tcp.frames import SpareBuffers
from replog.tcp.transfer_room import TransferRoom


def _decode_consumer_fetch(data: memoryview) -> Hello | FetchRequest:
    """Decodes what a consumer sends on its stream.

    Raises:
        InvalidRequestError: It asks as a follower: its position would count for what is committed.
    """
    request = frames.decode_fetch_request(data)
    if isinstance(request, FetchRequest) and request.replica_id != CONSUMER_REPLICA_ID:
        raise InvalidRequestError("this port is for clients; followers fetch at inter.broker.listener")
    return request


QUORUM = Codec(whole(quorum_codec.encode_quorum_message), quorum_codec.decode_quorum_message)
"""Of both ends, and here because clients, which import `codecs`, have no use for the messages of the quorum."""

_METADATA = Codec(whole(watch_codec.encode_update), watch_codec.decode_watch_request)
_OFFSETS = Codec(whole(watch_codec.encode_offsets_update), watch_codec.decode_offsets_request)
_PRODUCE = Codec(whole(frames.encode_produce_responses), frames.decode_produce_request)
_FETCH = Codec(frames.fetch_response_pieces, frames.decode_fetch_request)
_CONSUMER_FETCH = Codec(frames.fetch_response_pieces, _decode_consumer_fetch)

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
        except Exception as error:  # noqa: BLE001 -- one stream ends, and who opened it goes to another node
            _log.exception("a stream ended with a bug of ours")
            await self.stream.end(BrokerNotAvailableError(f"internal error: {error!r}"))
        else:
            await self.stream.close()
        finally:
            self.stream.drop()


class StreamService:
    """Makes streams of connections that ask for it, and serves those that clients and nodes open alike.

    Args:
        handlers: The node that they are for.
        listener: The host:port of the listener, for those who ask who asks.
        room: The bytes of large messages that the node reads at a time, all streams together.
    """

    def __init__(self, handlers: NodeHandlers, listener: str, room: TransferRoom) -> None:
        self._node_handlers = handlers
        self._listener = listener
        self._room = room
        self._spares = SpareBuffers()
        self._kinds: dict[int, tuple[Codec, Serve]] = {
            StreamKind.CALLS: (CALLS, self._calls),
            StreamKind.CONTROLLER: (CALLS, self._controller_calls),
            StreamKind.FETCH: (_FETCH, self._fetch),
        }

    def open(self, frame: memoryview, peer: str) -> ServedStream:
        """Returns what a connection becomes.

        Args:
            frame: The request that opens the stream.
            peer: The address of who connected.
        """
        version, kind, first = parse_opening(frame)
        codec, serve = self._kinds.get(kind, (CALLS, self._refuse))
        stream: TcpStream[Any, Any] = TcpStream(codec, self._spares, peer, room=self._room)
        context = RequestContext("anonymous", "", self._listener, peer, 0)
        return ServedStream(
            stream, partial(serve if version == STREAM_VERSION else self._refuse, stream, first, context)
        )

    async def _calls(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first, self._check_caller)
        await serve_client_calls(self._node_handlers, stream, replace(context, client_id=hello.client_id))

    async def _controller_calls(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first)
        await serve_controller_calls(self._node_handlers, stream, self._asked_by(hello, context))

    async def _fetch(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first)
        await self._node_handlers.handle_fetch_stream(hello, stream, self._asked_by(hello, context))

    async def _refuse(self, _stream: TcpStream[Any, Any], _first: memoryview, context: RequestContext) -> None:
        raise UnsupportedVersionError(
            f"{context.listener} does not know this kind of stream. Use the same replog version on both sides."
        )

    async def _greet(
        self, stream: TcpStream[Any, Any], first: memoryview, check: Callable[[Hello], Hello] | None = None
    ) -> Hello:
        """Answers the hello of the other side; returns it."""
        hello = stream.decoded(first)
        if not isinstance(hello, Hello):
            raise MalformedFrameError("the first message of a stream must be hello")
        stream.greeted()
        await stream.send((check or self._node_handlers.check_hello)(hello))
        return hello

    def _check_caller(self, hello: Hello) -> Hello:
        return self._node_handlers.check_hello(hello)

    def _asked_by(self, hello: Hello, context: RequestContext) -> RequestContext:
        """Returns the context of the requests of a stream."""
        return replace(context, client_id=hello.client_id)


class ClientStreams(StreamService):
    """Serves the streams of our clients.

    Args:
        handlers: The node that they are for.
        listener: The host:port of the listener, for those who ask who asks.
        room: The bytes of large messages that the node reads at a time, all streams together.
    """

    def __init__(self, handlers: ClientHandlers, listener: str, room: TransferRoom) -> None:
        super().__init__(handlers, listener, room)
        self._handlers = handlers
        self._kinds |= {
            StreamKind.WATCH_METADATA: (_METADATA, self._metadata),
            StreamKind.WATCH_OFFSETS: (_OFFSETS, self._offsets),
            StreamKind.PRODUCE: (_PRODUCE, self._produce),
            StreamKind.FETCH: (_CONSUMER_FETCH, self._fetch),
        }

    async def _produce(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first)
        await self._handlers.handle_produce_stream(hello, stream, replace(context, client_id=hello.client_id))

    async def _metadata(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        updates = self._handlers.watch_metadata(watch_codec.decode_watch_request(first), context)
        await _tell(stream, updates)

    async def _offsets(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        updates = self._handlers.watch_offsets(watch_codec.decode_offsets_request(first), context)
        await _tell(stream, updates)


class PeerStreams(StreamService):
    """Serves the streams of other nodes.

    Args:
        handlers: The node that they are for.
        listener: The host:port of the listener, for those who ask who asks.
        room: The bytes of large messages that the node reads at a time, all streams together.
    """

    def __init__(self, handlers: PeerHandlers, listener: str, room: TransferRoom) -> None:
        super().__init__(handlers, listener, room)
        self._handlers = handlers
        self._kinds |= {StreamKind.QUORUM: (QUORUM, self._quorum)}

    async def _quorum(self, stream: TcpStream[Any, Any], first: memoryview, context: RequestContext) -> None:
        hello = await self._greet(stream, first)
        await self._handlers.handle_quorum_stream(hello, stream, self._asked_by(hello, context))

    def _check_caller(self, hello: Hello) -> Hello:
        return self._handlers.check_caller(hello)

    def _asked_by(self, hello: Hello, context: RequestContext) -> RequestContext:
        return replace(super()._asked_by(hello, context), node=hello)


async def _tell(stream: TcpStream[Any, Any], updates: AsyncIterator[object]) -> None:
    """Sends updates until there are no more, or nobody is there."""
    stream.accept()

    async def send_all() -> None:
        try:
            async for update in updates:
                await stream.send(update)
        finally:
            if isinstance(updates, AsyncGenerator):
                await updates.aclose()

    async def hear_the_end() -> None:
        await stream.receive()
        raise MalformedFrameError("a watch is asked for once; after that only the node speaks")

    await until_one_ends(send_all(), hear_the_end())
