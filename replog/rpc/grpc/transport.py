"""How nodes meet: the gRPC side of the transport seam, of channels and a server of generic handlers.

gRPC is used with identity serializers: the codecs of this package turn messages into bytes, so that record bytes pass
without a protobuf copy.  The settings below were measured to matter:

- ``grpc.so_reuseport=0``: otherwise two brokers bind one port silently;
- ``grpc.use_local_subchannel_pool=1``: the quorum's traffic never shares a TCP connection with data;
- reconnect backoff 100 to 500 ms: the default took seconds to notice that a broker is back.  What gRPC calls the
  minimum is the least time an attempt may take; it delays nothing after a refusal;
- ``grpc.enable_http_proxy=0``: a proxy set for the web must not see loopback traffic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from replog.errors import (
    ConfigError,
    MalformedFrameError,
    ReplogError,
)
from replog.errors.from_code import error_code_of
from replog.host.forks import note_grpc_use
from replog.rpc import frames, quorum_codec
from replog.rpc.call_stream import ItemStream, StreamedCalls, decode_items, encode_items
from replog.rpc.calling import CallingConnection
from replog.rpc.grpc.loop_noise import keep_quiet
from replog.rpc.grpc.stream import (
    ERROR_CODE_KEY,
    MAX_MESSAGE_BYTES,
    MAX_STATUS_CHARACTERS,
    GrpcStream,
    reason_of,
    within_limit,
)
from replog.rpc.messages import FetchRequest, FetchResponse, Hello, client_hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.serving import answer_node_call, serve_controller_calls
from replog.rpc.transport import ConnectionLostError, PeerHandlers, RequestContext, Stream, StreamPresence

HELLO_TIMEOUT_S = 5.0

SERVICE = "replog.v1.Node"

_log = logging.getLogger(__name__)
keep_quiet()

_COMMON_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 15_000),  # 60 s by default, and while such a ping is out keepalive sends none
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
_CLIENT_OPTIONS = [
    *_COMMON_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also the time an attempt may take: 100 fails where both ends are busy
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
]
_SERVER_OPTIONS = [
    *_COMMON_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_connection_age_ms", 0x7FFFFFFF),
]


def _identity(data: bytes) -> bytes:
    return data


async def _close_after(channel: Any, under_way: set[Any]) -> None:
    """Closes a channel when nothing is under way on it any more."""
    await asyncio.gather(*(call.code() for call in under_way), return_exceptions=True)
    await channel.close()


def _channel_to(address: str) -> Any:
    return grpc.aio.insecure_channel(address, options=_CLIENT_OPTIONS)


class GrpcConnection(CallingConnection):
    """Connection to one address; see `replog.rpc.transport.PeerConnection`.

    Args:
        address: The host:port of the other node.
        hello: Who calls; None: somebody who is no node.

    Invariants:
        - a call or stream that fails has tried to connect after it began: it never repeats what an earlier one met.
    """

    def __init__(self, address: str, hello: Hello | None = None) -> None:
        note_grpc_use()
        self._hello = hello or client_hello("", "controller-calls")
        self._address = address
        self._channel = _channel_to(address)
        self._under_way: set[Any] = set()  # calls and streams of the channel
        self._left: dict[asyncio.Task[None], tuple[Any, set[Any]]] = {}  # channels with theirs
        self._controller_calls = StreamedCalls(address)

    @property
    def address(self) -> str:
        return self._address

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        return (await self._greet("Fetch", frames.encode_fetch_request, frames.decode_fetch_response, hello))[0]

    async def open_quorum(self, hello: Hello) -> Stream[QuorumFrame, QuorumFrame]:
        encode, decode = quorum_codec.encode_quorum_message, quorum_codec.decode_quorum_message
        return (await self._greet("Quorum", encode, decode, hello))[0]

    async def open_presence(self, hello: Hello) -> StreamPresence:
        encode, decode = frames.encode_fetch_request, frames.decode_fetch_response
        return StreamPresence(*await self._greet("Fetch", encode, decode, hello))

    async def close(self) -> None:
        await self._controller_calls.close()
        left = dict(self._left)
        for waiting, (_, under_way) in left.items():
            waiting.cancel()
            for call in list(under_way):
                call.cancel()
        for channel in (self._channel, *(channel for channel, _ in left.values())):
            await channel.close()

    async def _carry_call(self, data: bytes, timeout_ms: int) -> bytes:
        return await self._unary("Call", data, timeout_ms)

    async def _carry_controller_call(self, data: bytes, timeout_ms: int) -> bytes:
        data = within_limit(data, self._address)
        return await self._controller_calls.call(data, self._open_controller, timeout_ms=timeout_ms)

    async def _open_controller(self) -> ItemStream:
        return (await self._greet("Controller", encode_items, decode_items, self._hello))[0]

    async def _unary(self, method: str, data: bytes, timeout_ms: int) -> bytes:
        start = self._usable_channel().unary_unary(f"/{SERVICE}/{method}", _identity, _identity)
        try:
            answer: bytes = await self._noted(start(within_limit(data, self._address), timeout=timeout_ms / 1000))
        except grpc.aio.AioRpcError as error:
            raise reason_of(self._address, error.code(), error.details(), error.trailing_metadata()) from error
        return answer

    def _usable_channel(self) -> Any:
        """Returns the channel; leaves one that could not connect, which fails every call at once for its backoff."""
        if self._channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            self._leave_channel()
        return self._channel

    def _leave_channel(self) -> None:
        """Leaves the channel for another one; it ends with the calls that are under way on it."""
        left, under_way = self._channel, self._under_way
        self._channel, self._under_way = _channel_to(self._address), set()
        task = asyncio.create_task(_close_after(left, under_way), name=f"close-channel-{self._address}")
        self._left[task] = left, under_way
        task.add_done_callback(self._left.pop)

    def _noted(self, call: Any) -> Any:
        """Notes a call that has begun on the channel; returns it."""
        under_way = self._under_way
        under_way.add(call)
        call.add_done_callback(under_way.discard)
        return call

    async def _greet(
        self, method: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], hello: Hello
    ) -> tuple[GrpcStream[Any, Any], Hello]:
        call = self._noted(self._usable_channel().stream_stream(f"/{SERVICE}/{method}", _identity, _identity)())

        async def close() -> None:
            call.cancel()

        stream: GrpcStream[Any, Any] = GrpcStream(call, encode, decode, address=self._address, close=close)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await stream.send(hello)
                answer = await stream.receive()
        except TimeoutError:
            call.cancel()
            raise ConnectionLostError(f"{self._address} did not answer hello in {HELLO_TIMEOUT_S:g} s") from None
        except BaseException:
            call.cancel()
            raise
        if not isinstance(answer, Hello):
            call.cancel()
            raise MalformedFrameError(f"{self._address} answered hello with {type(answer).__name__}")
        stream.greeted()
        return stream, answer


class GrpcTransport:
    """Connections over gRPC, one TCP connection per (address, purpose)."""

    def connect(
        self,
        address: str,
        *,
        purpose: str,  # noqa: ARG002 -- the seam's shape
        hello: Hello | None = None,
        node_id: int | None = None,  # noqa: ARG002 -- looked at over TCP alone
    ) -> GrpcConnection:
        return GrpcConnection(address, hello)


class GrpcServer:
    """A gRPC server on a port of its own; made by `bind`, answers from `start` on."""

    def __init__(self, server: Any, port: int, listener: str) -> None:
        self._server = server
        self._port = port
        self._listener = listener
        self._has_started = False

    @property
    def port(self) -> int:
        return self._port

    @property
    def refused_count(self) -> int:
        return 0  # nobody shows a certificate here

    async def start(self, handlers: PeerHandlers) -> None:
        """Begins to answer; connections that came since `bind` have waited."""
        self._server.add_generic_rpc_handlers((_Service(handlers, self._listener).generic_handler(),))
        await self._begin()

    async def _begin(self) -> None:
        self._has_started = True
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        if not self._has_started:
            await self._begin()  # gRPC keeps the port of a server that never began, whatever is said to it
        await self._server.stop(grace_s)


async def serve(handlers: PeerHandlers, host: str, port: int) -> GrpcServer:
    """Binds and starts; see `bind`."""
    server = bind(host, port)
    await server.start(handlers)
    return server


def bind(host: str, port: int) -> GrpcServer:
    """Takes the port; nothing is answered before `GrpcServer.start`, so that the handlers may need the port first.

    Args:
        host: The address to bind.
        port: The port; 0 picks a free one, see `GrpcServer.port`.

    Raises:
        ConfigError: The port is taken.
        BrokerClosedError: This process was forked from one that had used gRPC.
    """
    note_grpc_use()
    server = grpc.aio.server(options=_SERVER_OPTIONS)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        bound = 0
        cause = str(error)
    else:
        cause = "no port was bound"
    if not bound:
        raise ConfigError(
            "inter.broker.listener",
            f"{host}:{port}",
            f"cannot listen at {host}:{port}: another process may use the port ({cause}). "
            "Choose another port, or port 0 for a free one.",
        )
    return GrpcServer(server, bound, f"{host}:{port}")


class _Service:
    """Generic handlers: bytes in, bytes out, errors of ours as answers."""

    def __init__(self, handlers: PeerHandlers, listener: str) -> None:
        self._handlers = handlers
        self._listener = listener

    def generic_handler(self) -> Any:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Call": grpc.unary_unary_rpc_method_handler(self._call),
                "Controller": grpc.stream_stream_rpc_method_handler(self._controller),
                "Fetch": grpc.stream_stream_rpc_method_handler(self._fetch),
                "Quorum": grpc.stream_stream_rpc_method_handler(self._quorum),
            },
        )

    async def _call(self, data: bytes, context: Any) -> bytes:
        return await answer_node_call(self._handlers, data, self._context(context))

    async def _controller(self, _requests: Any, context: Any) -> None:
        await self._stream(context, encode_items, decode_items, self._serve_controller_calls)

    async def _serve_controller_calls(self, _hello: Hello, stream: ItemStream, context: RequestContext) -> None:
        await serve_controller_calls(self._handlers, stream, context)

    async def _fetch(self, _requests: Any, context: Any) -> None:
        handle = self._handlers.handle_fetch_stream
        await self._stream(context, frames.encode_fetch_response, frames.decode_fetch_request, handle)

    async def _quorum(self, _requests: Any, context: Any) -> None:
        handle = self._handlers.handle_quorum_stream
        encode, decode = quorum_codec.encode_quorum_message, quorum_codec.decode_quorum_message
        await self._stream(context, encode, decode, handle)

    async def _stream(
        self,
        context: Any,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        handle: Callable[[Hello, Any, RequestContext], Awaitable[None]],
    ) -> None:
        stream: GrpcStream[Any, Any] = GrpcStream(context, encode, decode, address=context.peer())
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await stream.receive()
            if not isinstance(hello, Hello):
                raise MalformedFrameError("the first message of a stream must be hello")  # noqa: TRY301 -- one way out
            stream.greeted()
            await stream.send(self._handlers.check_hello(hello))
            await handle(hello, stream, self._context(context, hello))
        except ConnectionLostError:
            return
        except TimeoutError:
            await _abort(context, MalformedFrameError(f"no hello within {HELLO_TIMEOUT_S:g} s"))
        except ReplogError as error:
            await _abort(context, error)
        except Exception:
            _log.exception("a stream ended with a bug of ours")
            raise

    def _context(self, context: Any, hello: Hello | None = None) -> RequestContext:
        return RequestContext(
            principal="anonymous",
            client_id=hello.client_id if hello else "",
            listener=self._listener,
            peer=context.peer(),
            node=hello,
        )


async def _abort(context: Any, error: ReplogError) -> None:
    """Ends a stream with our error, readable by our client."""
    trailing = ((ERROR_CODE_KEY, str(int(error_code_of(error)))),)
    details = str(error)[:MAX_STATUS_CHARACTERS]
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details, trailing)
