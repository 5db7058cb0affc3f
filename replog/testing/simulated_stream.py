"""One end of a simulated stream: messages in, bytes out, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from replog.errors import MalformedFrameError
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_network import CallEnd, Pipe, SimulatedCall

Out = TypeVar("Out")
In = TypeVar("In")

MAX_MESSAGE_BYTES = 64 << 20


class SimulatedStream(Generic[Out, In]):
    """One end of a stream."""

    def __init__(
        self,
        call: SimulatedCall,
        outgoing: Pipe,
        incoming: Pipe,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
    ) -> None:
        self._call = call
        self._outgoing = outgoing
        self._incoming = incoming
        self._encode = encode
        self._decode = decode
        self.is_greeted = False

    async def send(self, message: Out) -> None:
        await self._outgoing.send(within_limit(self._encode(message)))

    async def receive(self) -> In:
        frame = await self._incoming.receive()
        if isinstance(frame, CallEnd):
            raise frame.error or ConnectionLostError("the other side closed the stream")
        message: In = self._decode(frame.data)
        if self.is_greeted and isinstance(message, Hello):
            raise MalformedFrameError("hello was said before; after it only requests and answers follow")
        return message

    async def close(self) -> None:
        self._call.cancel()


def within_limit(data: bytes) -> bytes:
    """Raises `MalformedFrameError` for a message that no transport carries."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise MalformedFrameError(f"a message of {len(data)} bytes, the limit is {MAX_MESSAGE_BYTES}")
    return data
