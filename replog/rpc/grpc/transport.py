"""How nodes meet: the gRPC side of the transport seam, of channels and a server of generic handlers.

gRPC is used with identity serializers: the codecs of this package turn messages into bytes, so that record bytes pass
without a protobuf copy.  The settings below were measured to matter:

- ``grpc.so_reuseport=0``: otherwise two brokers bind one port silently (`replog.rpc.grpc.port` where it is 1);
- ``grpc.use_local_subchannel_pool=1``: the quorum's traffic never shares a TCP connection with data;
- reconnect backoff 100 to 500 ms: the default took seconds to notice that a broker is back.  What gRPC calls the
  minimum is the least time an attempt may take; it delays nothing after a refusal;
- ``grpc.enable_http_proxy=0``: a proxy set for the web must not see loopback traffic.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from msgspec.structs import replace

from replog.access.principal import ANONYMOUS
from replog.errors import (
    MalformedFrameError,
    ReplogError,
)
from replog.errors.from_code import error_code_of
from replog.host.forks import note_grpc_use
from replog.rpc import frames, quorum_codec
from replog.rpc.call_stream import ItemStream, StreamedCalls, decode_items, encode_items
from replog.rpc.calling import CallingConnection
from replog.rpc.grpc.loop_noise import keep_quiet
from replog.rpc.grpc.port import GrpcPort
from replog.rpc.grpc.secure import ClientFiles, caller_of, host_of, why_not_reached
from replog.rpc.grpc.stream import (
    ERROR_CODE_KEY,
    MAX_MESSAGE_BYTES,
    MAX_STATUS_CHARACTERS,
    GrpcStream,
    reason_of,
    within_limit,
)
from replog.rpc.messages import FetchRequest, FetchResponse, Hello, client_hello
from replog.rpc.node_tls import LISTENER, NodeTls
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.serving import answer_node_call, serve_controller_calls
from replog.rpc.transport import ConnectionLostError, PeerHandlers, RequestContext, Stream, StreamPresence
from replog.tcp.connection_log import ConnectionLog

HELLO_TIMEOUT_S = 5.0

HANDSHAKE_TIMEOUT_S = 15.0
"""How long a caller may take until it speaks HTTP/2, behind a handshake where there is TLS."""

CONNECTIONS_MAX = 10_000
"""How many connections a node has from others, those that say nothing included; with few descriptors a share of these."""

DESCRIPTOR_SHARE = 4
"""Connections take at most one in so many of the descriptors that the process may have."""

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
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_connection_age_ms", 0x7FFFFFFF),
    (
        "grpc.server_handshake_timeout_ms",
        int(HANDSHAKE_TIMEOUT_S * 1000),
    ),  # 120 s by default, also for who says nothing
]


def _identity(data: bytes) -> bytes:
    return data


async def _close_after(channel: Any, under_way: set[Any]) -> None:
    """Closes a channel when nothing is under way on it any more."""
    await asyncio.gather(*(call.code() for call in under_way), return_exceptions=True)
    await channel.close()


class GrpcConnection(CallingConnection):
    """Connection to one address; see `replog.rpc.transport.PeerConnection`.

    Args:
        address: The host:port of the other node.
        hello: Who calls; None: somebody who is no node.
        node_id: The id of the node that is to be there; None: any.
        tls: What this node proves, and whom it believes; None: it speaks plain text.

    Invariants:
        - a call or stream that fails has tried to connect after it began: it never repeats what an earlier one met.
        - a call or stream begins on a channel that proves what the files of the certificates say now.
    """

    def __init__(
        self, address: str, hello: Hello | None = None, node_id: int | None = None, tls: NodeTls | None = None
    ) -> None:
        note_grpc_use()
        self._node_id = node_id
        self._tls = tls if tls is not None and tls.dials else None
        self._files = None if self._tls is None else ClientFiles(self._tls, node_id)
        self._hello = hello or client_hello("", "controller-calls")
        self._address = address
        self._channel = self._new_channel()
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
            reason = reason_of(self._address, error.code(), error.details(), error.trailing_metadata())
            raise self._explained(reason) from error
        return answer

    def _explained(self, error: ReplogError) -> ReplogError:
        """Returns the reason why a call or stream did not begin: in words, and in the log, where TLS is."""
        own = None if self._tls is None else self._tls.own
        reason = why_not_reached(str(error), own, self._node_id) if isinstance(error, ConnectionLostError) else ""
        if not reason:
            return error
        if self._tls is not None:
            self._tls.tell(self._address, reason)
        return ConnectionLostError(f"{self._address}: {reason}")

    def _new_channel(self) -> Any:
        if self._files is None:
            return grpc.aio.insecure_channel(self._address, options=_CLIENT_OPTIONS)
        options = [*_CLIENT_OPTIONS, *self._files.options]
        return grpc.aio.secure_channel(self._address, self._files.credentials(), options=options)

    def _usable_channel(self) -> Any:
        """Returns the channel; leaves one that could not connect, which fails every call at once for its backoff."""
        has_failed = self._channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
        if has_failed or (self._files is not None and self._files.have_changed):
            self._leave_channel()
        return self._channel

    def _leave_channel(self) -> None:
        """Leaves the channel for another one; it ends with the calls that are under way on it."""
        left, under_way = self._channel, self._under_way
        self._channel, self._under_way = self._new_channel(), set()
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
        except ConnectionLostError as error:
            call.cancel()
            raise self._explained(error) from error.__cause__
        except BaseException:
            call.cancel()
            raise
        if not isinstance(answer, Hello):
            call.cancel()
            raise MalformedFrameError(f"{self._address} answered hello with {type(answer).__name__}")
        if self._node_id not in {None, answer.node_id}:
            call.cancel()
            raise ConnectionLostError(
                f"{self._address}: node {answer.node_id} is there, and node {self._node_id} was looked for. Check the addresses"
            )
        stream.greeted()
        return stream, answer


class GrpcTransport:
    """Connections over gRPC, one TCP connection per (address, purpose).

    Args:
        tls: What this node proves, and whom it believes; None: nodes speak plain text.
    """

    def __init__(self, tls: NodeTls | None = None) -> None:
        self._tls = tls

    def connect(
        self,
        address: str,
        *,
        purpose: str,  # noqa: ARG002 -- the seam's shape
        hello: Hello | None = None,
        node_id: int | None = None,
    ) -> GrpcConnection:
        return GrpcConnection(address, hello, node_id, self._tls)


class GrpcServer:
    """Answers other nodes at a port; made by `bind`.

    Args:
        port: The port; it is the server's from here on.
        tls: What the node proves, and whom it believes; None: nodes speak plain text.
        log: What says who was refused.
    """

    def __init__(self, port: GrpcPort, tls: NodeTls | None, log: ConnectionLog) -> None:
        self.port = port.port
        self._port = port
        self._tls = tls
        self._log = log

    @property
    def refused_count(self) -> int:
        """The calls and streams whose caller showed a certificate that was not the right one."""
        return self._log.refused_counts[LISTENER]

    async def start(self, handlers: PeerHandlers) -> None:
        """Begins to answer; connections that came since `bind` have waited.

        Raises:
            ConfigError: Another process began to listen there after the port was bound.
        """
        service = _Service(handlers, self._port, self._tls, self._log)
        await self._port.start(service.generic_handler())

    async def stop(self, grace_s: float) -> None:
        await self._port.stop(grace_s)


async def serve(handlers: PeerHandlers, host: str, port: int, tls: NodeTls | None = None) -> GrpcServer:
    """Binds and starts; see `bind`."""
    server = bind(host, port, tls)
    await server.start(handlers)
    return server


def bind(host: str, port: int, tls: NodeTls | None = None) -> GrpcServer:
    """Takes the port; nothing is answered before `GrpcServer.start`, so that the handlers may need the port first.

    Args:
        host: The address to bind.
        port: The port; 0 picks a free one, see `GrpcServer.port`.
        tls: What the node proves, and whom it believes; None: nodes speak plain text.

    Raises:
        ConfigError: The port is taken.
        BrokerClosedError: This process was forked from one that had used gRPC.
    """
    note_grpc_use()
    log = ConnectionLog()
    return GrpcServer(GrpcPort(host, port, tls, log, _new_server), tls, log)


def _new_server(*, shares_port: bool) -> Any:
    descriptors_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CONNECTIONS_MAX if descriptors_max < 0 else min(CONNECTIONS_MAX, descriptors_max // DESCRIPTOR_SHARE)
    own = [("grpc.so_reuseport", int(shares_port)), ("grpc.max_allowed_incoming_connections", most)]
    return grpc.aio.server(options=[*_SERVER_OPTIONS, *own])


class _Service:
    """Generic handlers: bytes in, bytes out, errors of ours as answers."""

    def __init__(
        self,
        handlers: PeerHandlers,
        port: GrpcPort,
        tls: NodeTls | None,
        log: ConnectionLog,
    ) -> None:
        self._handlers = handlers
        self._port = port
        self._listener = f"{port.host}:{port.port}"
        self._tls = tls
        self._log = log

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
        try:
            asked = self._context(context, client_hello("", "calls"))
        except ReplogError as error:
            await _abort(context, error)
            raise  # not reached: gRPC ends the call by an exception of its own
        return await answer_node_call(self._handlers, data, replace(asked, client_id="", node=None))

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
            asked = self._context(context, hello)
            await stream.send(self._handlers.check_hello(hello))
            await handle(hello, stream, asked)
        except ConnectionLostError:
            return
        except TimeoutError:
            await _abort(context, MalformedFrameError(f"no hello within {HELLO_TIMEOUT_S:g} s"))
        except ReplogError as error:
            await _abort(context, error)
        except Exception:
            _log.exception("a stream ended with a bug of ours")
            raise

    def _context(self, context: Any, hello: Hello) -> RequestContext:
        """Returns who asks.

        Raises:
            InvalidRequestError, InconsistentClusterIdError: The certificate is not that of the node that the hello names.
        """
        peer = self._port.caller(context.peer())
        principal = ANONYMOUS
        if self._tls is not None:
            try:
                principal = caller_of(context, dt.datetime.now(dt.UTC))
                self._tls.check_hello(principal, hello)
            except ReplogError as error:
                self._log.tell_refused(LISTENER, host_of(peer), str(error))
                raise
        return RequestContext(principal.name, hello.client_id, self._listener, peer, hello)


async def _abort(context: Any, error: ReplogError) -> None:
    """Ends a call or stream with our error, readable by our client."""
    trailing = ((ERROR_CODE_KEY, str(int(error_code_of(error)))),)
    details = str(error)[:MAX_STATUS_CHARACTERS]
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details, trailing)
