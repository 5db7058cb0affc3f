"""The caller's side of the simulated transport; messages pass the real codecs as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from replog.errors import MalformedFrameError
from replog.rpc.grpc.method_calling import MethodConnection
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_network import CallEnd, SimulatedCall
from replog.testing.simulated_stream import SimulatedStream, within_limit

HELLO_TIMEOUT_S = 5.0


class OpenCall(Protocol):
    """Opens a call from this machine to whoever listens at an address."""

    def __call__(self, address: str, method: str, *, is_unary: bool) -> SimulatedCall: ...


class SimulatedConnection(MethodConnection):
    """See `replog.rpc.transport.PeerConnection`."""

    def __init__(self, open_call: OpenCall, address: str, hello: Hello | None) -> None:
        self._open_call_to = open_call
        self._hello = hello
        self._address = address
        self._calls: list[SimulatedCall] = []

    @property
    def address(self) -> str:
        return self._address

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        self._calls.clear()

    async def _carry_call(self, data: bytes, timeout_ms: int) -> bytes:
        return await self._unary("Call", data, timeout_ms)

    async def _carry_controller_call(self, data: bytes, timeout_ms: int) -> bytes:
        return await self._unary("ControllerCall", data, timeout_ms)

    def _open_call(self, method: str, *, is_unary: bool) -> SimulatedCall:
        self._calls = [call for call in self._calls if not call.is_over]
        call = self._open_call_to(self._address, method, is_unary=is_unary)
        self._calls.append(call)
        return call

    async def _unary(self, method: str, data: bytes, timeout_ms: int) -> bytes:
        call = self._open_call(method, is_unary=True)
        call.hello = self._hello
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await call.up.send(within_limit(data))
                frame = await call.down.receive()
        except TimeoutError:
            raise ConnectionLostError(f"{self._address}: no answer in {timeout_ms} ms") from None
        finally:
            call.cancel()
        if isinstance(frame, CallEnd):
            raise frame.error or ConnectionLostError(f"{self._address} ended the call without an answer")
        return frame.data

    async def _greet(
        self, method: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], hello: Hello
    ) -> tuple[SimulatedStream[Any, Any], Hello]:
        call = self._open_call(method, is_unary=False)
        stream: SimulatedStream[Any, Any] = SimulatedStream(call, call.up, call.down, encode, decode)
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
        stream.is_greeted = True
        return stream, answer
