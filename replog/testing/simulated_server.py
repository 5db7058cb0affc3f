"""The listening side of the simulated transport: handlers of the process that has bound it, bytes in, bytes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

from replog.controller.requests import ControllerResponse
from replog.errors import InvariantViolationError, MalformedFrameError, ReplogError
from replog.errors.from_code import error_code_of, error_from_code
from replog.rpc import calls, frames, quorum_codec
from replog.rpc.messages import Hello
from replog.rpc.node_requests import NodeResponse
from replog.rpc.transport import ConnectionLostError, PeerHandlers, RequestContext
from replog.testing.simulated_network import CallEnd, SimulatedCall, SimulatedNetwork
from replog.testing.simulated_stream import SimulatedStream, within_limit


class SimulatedServer:
    """See `replog.rpc.transport.Server`.  Its handlers are tasks of the process that has bound it.

    Args:
        on_stop: A function that is told when it takes no more calls.
    """

    def __init__(
        self, network: SimulatedNetwork, port: int, address: str, *, on_stop: Callable[[SimulatedServer], None]
    ) -> None:
        self._network = network
        self._on_stop = on_stop
        self._port = port
        self._address = address
        self._context = copy_context()
        self._handlers: PeerHandlers | None = None
        self._waiting: list[tuple[SimulatedCall, str]] = []
        self._tasks: dict[asyncio.Task[None], SimulatedCall] = {}
        self._is_stopping = False

    @property
    def port(self) -> int:
        return self._port

    async def start(self, handlers: PeerHandlers) -> None:
        self._handlers = handlers
        for call, method in self._waiting:
            self._begin(call, method)
        self._waiting.clear()

    async def stop(self, grace_s: float) -> None:
        self._is_stopping = True
        self._on_stop(self)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for call in (*left.values(), *(call for call, _ in self._waiting)):
            call.break_soon("the server stopped")

    def accept(self, call: SimulatedCall, method: str) -> bool:
        """Whether it is taken."""
        if self._is_stopping:
            return False
        if self._handlers is None:
            self._waiting.append((call, method))
        else:
            self._begin(call, method)
        return True

    def _begin(self, call: SimulatedCall, method: str) -> None:
        if call.is_over:
            return
        task = self._network.loop.create_task(self._serve(call, method), context=self._context.copy())
        call.on_cancel = task.cancel
        self._tasks[task] = call
        task.add_done_callback(lambda done: self._tasks.pop(done, None), context=self._context.copy())

    # ---- one call ----------------------------------------------------------------------------------------------------

    async def _serve(self, call: SimulatedCall, method: str) -> None:
        """Serves a call: errors of ours are answers; whatever else leaves a handler is a bug, and told as one."""
        if self._handlers is None:
            raise InvariantViolationError("a call was taken before the start")
        try:
            await self._route(call, method, self._handlers)
        except ConnectionLostError:
            call.down.end(None)
        except ReplogError as error:
            call.down.end(_as_received(error))
        except Exception as bug:  # noqa: BLE001 -- the caller sees a lost connection, the simulation sees this
            self._network.loop.call_exception_handler({"message": f"{method} failed", "exception": bug})
            call.down.end(ConnectionLostError(f"{self._address}: a bug over there"))

    async def _route(self, call: SimulatedCall, method: str, handlers: PeerHandlers) -> None:
        match method:
            case "Call":
                await self._answer(call, self._client_call(call, handlers), calls.encode_node_response)
            case "ControllerCall":
                await self._answer(call, self._controller_call(call, handlers), calls.encode_controller_response)
            case "Fetch":
                encode, decode = frames.encode_fetch_response, frames.decode_fetch_request
                await self._stream(call, encode, decode, handlers, handlers.handle_fetch_stream)
            case _:
                to_bytes, from_bytes = quorum_codec.encode_quorum_message, quorum_codec.decode_quorum_message
                await self._stream(call, to_bytes, from_bytes, handlers, handlers.handle_quorum_stream)

    async def _answer(self, call: SimulatedCall, answer: Awaitable[Any], encode: Callable[[Any], bytes]) -> None:
        try:
            outcome = await answer
        except ReplogError as error:
            outcome = error
        await call.down.send(within_limit(encode(outcome)))

    async def _client_call(self, call: SimulatedCall, handlers: PeerHandlers) -> NodeResponse:
        request = calls.decode_node_request(await _first(call))
        return await handlers.handle_node_call(request, self._context_of(call, request.timeout_ms))

    async def _controller_call(self, call: SimulatedCall, handlers: PeerHandlers) -> ControllerResponse:
        request = calls.decode_controller_request(await _first(call))
        if call.hello is not None:
            handlers.check_hello(call.hello)
        return await handlers.handle_controller_call(request, self._context_of(call, request.timeout_ms, call.hello))

    async def _stream(
        self,
        call: SimulatedCall,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        handlers: PeerHandlers,
        handle: Callable[[Hello, Any, RequestContext], Awaitable[None]],
    ) -> None:
        stream: SimulatedStream[Any, Any] = SimulatedStream(call, call.down, call.up, encode, decode)
        hello = await stream.receive()
        if not isinstance(hello, Hello):
            raise MalformedFrameError("the first message of a stream must be hello")
        stream.is_greeted = True
        await stream.send(handlers.check_hello(hello))
        await handle(hello, stream, self._context_of(call, 0, hello))
        call.down.end(None)

    def _context_of(self, call: SimulatedCall, timeout_ms: int, hello: Hello | None = None) -> RequestContext:
        now_ms = self._network.loop.now_us // 1000
        return RequestContext(
            principal="anonymous",
            client_id=hello.client_id if hello else "",
            listener=self._address,
            peer=f"simulated:{call.caller}",
            deadline_ms=now_ms + timeout_ms if timeout_ms > 0 else 0,
            node=hello,
        )


async def _first(call: SimulatedCall) -> bytes:
    frame = await call.up.receive()
    if isinstance(frame, CallEnd):
        raise frame.error or ConnectionLostError(f"{call.caller} gave up")
    return frame.data


def _as_received(error: ReplogError) -> ReplogError:
    """Returns what the other side makes of the code and the text that travel."""
    received: ReplogError = error_from_code(error_code_of(error), str(error))
    return received
