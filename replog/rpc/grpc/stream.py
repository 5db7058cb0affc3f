"""One end of a stream over gRPC: what may be sent, and why it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from replog.errors import ErrorCode, MalformedFrameError, ReplogError
from replog.errors.from_code import error_from_code
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError

Out = TypeVar("Out")
In = TypeVar("In")

MAX_MESSAGE_BYTES = 64 << 20
"""Bound of one message either way.  A batch (message.max.bytes) and a fetch response must fit."""

MAX_STATUS_CHARACTERS = 1000
"""Of the message that ends a stream: it travels in HTTP/2 headers, which have a limit of 8 KiB."""

ERROR_CODE_KEY = "replog-error-code"


class GrpcStream(Generic[Out, In]):
    """One end of a stream over anything with gRPC's ``read`` and ``write`` (a client call or a server context)."""

    def __init__(
        self,
        channel: Any,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        *,
        address: str,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._address = address
        self._channel = channel
        self._encode = encode
        self._decode = decode
        self._close = close
        self._is_greeted = False

    def greeted(self) -> None:
        """Notes that both sides have said hello; from here on a hello is no message any more."""
        self._is_greeted = True

    async def send(self, message: Out) -> None:
        data = within_limit(self._encode(message), self._address)
        try:
            await self._channel.write(data)
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise await self._lost(error) from error

    async def receive(self) -> In:
        try:
            data = await self._channel.read()
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise await self._lost(error) from error
        if data is grpc.aio.EOF:
            raise await self._lost(None)
        message: In = self._decode(data)
        if self._is_greeted and isinstance(message, Hello):
            raise MalformedFrameError("hello was said before; after it only requests and answers follow")
        return message

    async def close(self) -> None:
        if self._close is not None:
            await self._close()

    async def _lost(self, error: BaseException | None) -> ReplogError:
        """Returns why the stream ended: the other side's own error if it gave one."""
        if isinstance(error, grpc.aio.AioRpcError):
            return reason_of(self._address, error.code(), error.details(), error.trailing_metadata())
        channel = self._channel
        if isinstance(channel, grpc.aio.Call):
            code = await channel.code()
            return reason_of(self._address, code, await channel.details(), await channel.trailing_metadata())
        return ConnectionLostError("the other side closed the stream")


def reason_of(address: str, code: Any, details: str | None, trailing: Any) -> ReplogError:
    """Returns the error that ended a call: the other side's own if it gave one, else what gRPC's status means here."""
    details = details or f"the connection ended with {code}"
    for key, value in trailing or ():
        if key == ERROR_CODE_KEY:
            return _error_of(str(value), details)
    match code:
        case grpc.StatusCode.UNIMPLEMENTED:
            return MalformedFrameError(
                f"{address} does not speak replog's protocol ({details}). Is this the port of a replog broker?"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return MalformedFrameError(f"{address}: a message over {MAX_MESSAGE_BYTES} bytes was refused ({details})")
        case _:  # also a bug over there (UNKNOWN): that node stops, another may answer
            return ConnectionLostError(f"{address}: {details}", refused="refused" in details.lower())


def within_limit(data: bytes, address: str) -> bytes:
    """Returns the message; raises on one too large to send, of which gRPC only says that something went wrong."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedFrameError(f"{address}: a message of {len(data)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    return data


def _error_of(code: str, message: str) -> ReplogError:
    try:
        return error_from_code(ErrorCode(int(code)), message)
    except ValueError:  # of a newer version
        return ReplogError(f"error {code}: {message}")
