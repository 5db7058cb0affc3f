"""The caller's side of the simulated transport; messages pass the real codecs as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from replog.controller.messages import ControllerRequest, ControllerResponse
from replog.errors import MalformedFrameError
from replog.rpc import calls, frames, quorum_codec, watch_codec
from replog.rpc.client_messages import ClientRequest, ClientResponse
from replog.rpc.messages import (
    FetchRequest,
    FetchResponse,
    Hello,
    OffsetsUpdate,
    ProduceRequest,
    ProduceResponse,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import ConnectionLostError, Stream, StreamPresence
from replog.testing.simulated_network import Call, End
from replog.testing.simulated_stream import SimulatedStream, within_limit

HELLO_TIMEOUT_S = 5.0


class OpenCall(Protocol):
    """Opens a call from this machine to whoever listens at an address."""

    def __call__(self, address: str, method: str, *, is_unary: bool) -> Call: ...


class SimulatedConnection:
    """See `replog.rpc.transport.Connection`."""

    def __init__(self, open_call: OpenCall, address: str) -> None:
        self._open_call_to = open_call
        self._address = address
        self._calls: list[Call] = []

    @property
    def address(self) -> str:
        return self._address

    async def call(
        self, request: ClientRequest, *, timeout_ms: int, cluster_id: str = "", forwarded: bool = False
    ) -> ClientResponse:
        data = calls.encode_client_request(request, cluster_id=cluster_id, timeout_ms=timeout_ms, forwarded=forwarded)
        return calls.decode_client_response(await self._unary("Call", data, timeout_ms))

    async def controller_call(
        self, request: ControllerRequest, *, timeout_ms: int, cluster_id: str = "", forwarded: bool = False
    ) -> ControllerResponse:
        data = calls.encode_controller_request(
            request, cluster_id=cluster_id, timeout_ms=timeout_ms, forwarded=forwarded
        )
        return calls.decode_controller_response(await self._unary("ControllerCall", data, timeout_ms))

    async def watch_metadata(self, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        call = self._open_call("WatchMetadata", is_unary=False)
        try:
            await call.up.send(watch_codec.encode_watch_request(request))
            while not isinstance(frame := await call.down.receive(), End):
                yield watch_codec.decode_update(frame.data)
            raise frame.error or ConnectionLostError(f"{self._address} ended the metadata watch")
        finally:
            call.cancel()

    async def watch_offsets(self, request: WatchOffsetsRequest) -> AsyncIterator[OffsetsUpdate]:
        call = self._open_call("WatchOffsets", is_unary=False)
        try:
            await call.up.send(watch_codec.encode_offsets_request(request))
            while not isinstance(frame := await call.down.receive(), End):
                yield watch_codec.decode_offsets_update(frame.data)
            raise frame.error or ConnectionLostError(f"{self._address} ended the watch of offsets")
        finally:
            call.cancel()

    async def open_produce(self, hello: Hello) -> Stream[ProduceRequest, tuple[ProduceResponse, ...]]:
        return await self._open("Produce", frames.encode_produce_request, frames.decode_produce_responses, hello)

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        return await self._open("Fetch", frames.encode_fetch_request, frames.decode_fetch_response, hello)

    async def open_quorum(self, hello: Hello) -> Stream[QuorumFrame, QuorumFrame]:
        encode, decode = quorum_codec.encode_quorum_message, quorum_codec.decode_quorum_message
        return await self._open("Quorum", encode, decode, hello)

    async def open_presence(self, hello: Hello) -> StreamPresence:
        return StreamPresence(
            *await self._greet("Fetch", frames.encode_fetch_request, frames.decode_fetch_response, hello)
        )

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        self._calls.clear()

    def _open_call(self, method: str, *, is_unary: bool) -> Call:
        self._calls = [call for call in self._calls if not call.is_over]
        call = self._open_call_to(self._address, method, is_unary=is_unary)
        self._calls.append(call)
        return call

    async def _unary(self, method: str, data: bytes, timeout_ms: int) -> bytes:
        call = self._open_call(method, is_unary=True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await call.up.send(within_limit(data))
                frame = await call.down.receive()
        except TimeoutError:
            raise ConnectionLostError(f"{self._address}: no answer in {timeout_ms} ms") from None
        finally:
            call.cancel()
        if isinstance(frame, End):
            raise frame.error or ConnectionLostError(f"{self._address} ended the call without an answer")
        return frame.data

    async def _open(
        self, method: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], hello: Hello
    ) -> SimulatedStream[Any, Any]:
        return (await self._greet(method, encode, decode, hello))[0]

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
