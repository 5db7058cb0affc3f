"""One end of a stream of messages that has a TCP connection to itself; client and broker use the same.

What is on the wire: `replog.rpc.tcp.wire`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from replog.errors import MalformedFrameError, ReplogError, raised_anew
from replog.rpc.messages import Buffer, Hello
from replog.rpc.tcp.wire import MAX_MESSAGE_BYTES, Codec, StreamKind, Tag, decode_error, encode_error, head, opening
from replog.rpc.transport import ConnectionLostError
from replog.tcp.dialing import let_go, write_pieces
from replog.tcp.frames import SHARED_BYTES, FrameReader, SpareBuffers
from replog.tcp.transfer_room import TransferRoom

_CAME_SLOWLY = "a large message came too slowly while others waited for the memory that it held"

_log = logging.getLogger(__name__)

Out = TypeVar("Out")
In = TypeVar("In")

LOOK_S: Final = 3.0
"""How often a stream is looked at."""

PING_LOOKS: Final = 2
"""Looks without a byte after which the client pings."""

SILENT_LOOKS: Final = 5
"""Looks without a byte after which the other side is taken for gone."""

STALLED_LOOKS: Final = 20
"""Looks without progress after which a frame that has begun, or a message that is not read, ends the stream."""

PROGRESS_BYTES: Final = 1 << 20
"""Bytes within a frame that are progress: fewer between `STALLED_LOOKS` only hold memory."""

RECEIVED_BYTES_MAX: Final = 1 << 20
"""Bytes that wait to be received before reading pauses."""

WRITTEN_BYTES_MAX: Final = 256 << 10
"""Bytes that wait to be written before sending does."""

CLOSE_S: Final = 1.0
"""How long the bytes that wait may take to leave when a stream is closed."""

LINGER_S: Final = 2.0
"""How long whoever is told why a stream ends may take to close it."""

_HINT = (
    " before it said anything. Is this the port for nodes (inter.broker.listener) of a replog node of this version, and does it take"
    " plain text (inter.broker.accepted.protocols)?"
)


class _Arrived(NamedTuple):
    """A message that has come, and the room that is held for it."""

    body: memoryview
    held_bytes: int


class TcpStream(asyncio.BufferedProtocol, Generic[Out, In]):
    """A `replog.rpc.transport.Stream` over a connection that carries nothing else.

    One task sends and one receives.  What has come and is not received, and what is sent and has not left, is bounded, and
    pushes back on the other side.

    Args:
        codec: How messages become bytes.
        spares: The buffers that connections share.
        address: The address of the other side, for texts.
        room: The bytes of large frames that a node reads at a time, all streams together; None: as many as come.
        is_client: Whether this end asks in a silence.

    Attributes:
        closed: The future that is done when the connection has ended.
        tls_trouble: Why TLS has ended the connection; "": it has not.
    """

    def __init__(
        self,
        codec: Codec,
        spares: SpareBuffers,
        address: str,
        *,
        room: TransferRoom | None = None,
        is_client: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._codec = codec
        self._address = address
        self._room = room
        self._is_client = is_client
        self._reader = FrameReader(MAX_MESSAGE_BYTES + 1, spares, bytes_min=1)
        self._messages: deque[_Arrived] = deque()
        self._waiting_bytes = 0  # of messages that are not received
        self._reading_bytes = 0  # of room, for the large frame that is being read
        self._received_bytes = 0  # of room, for the message that was received last: until the next one is asked for
        self._admitting: asyncio.Task[None] | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._sender: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_writable = True
        self._is_greeted = False
        self._has_heard = False
        self._end: ReplogError | None = None  # why nothing more comes
        self._spilled: memoryview | None = None  # where bytes go that nobody takes any more
        self._heard_bytes = 0  # since the last progress
        self._written_bytes = self._drained_bytes = 0
        self._silent_looks = self._stalled_looks = self._unread_looks = 0
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.tls_trouble = ""

    # ---- what asyncio calls ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITTEN_BYTES_MAX)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Returns where the next bytes go."""
        return self._reader.buffer() if self._spilled is None else self._spilled

    def buffer_updated(self, nbytes: int) -> None:
        """Takes in bytes that have come."""
        if self._spilled is not None:
            return
        self._silent_looks = 0
        frames = self._reader.received(nbytes)
        self._heard_bytes += nbytes
        if frames or self._heard_bytes >= PROGRESS_BYTES:
            self._heard_bytes = self._stalled_looks = 0
        if frames and not self._has_heard:
            self._has_heard = True
            _wake(self._receiver)
        for frame in frames:
            self._take_in(frame)
        if self._reader.trouble:
            self._lose(MalformedFrameError(f"{self._address}: {self._reader.trouble}"))
        elif self._reader.wanted_bytes and self._admitting is None:
            self._admit(self._reader.wanted_bytes)
        self._set_reading()

    def eof_received(self) -> bool:
        """Ends the stream: whoever has closed one half has closed both."""
        return False

    def pause_writing(self) -> None:
        """Lets whoever sends wait."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Lets whoever sends go on."""
        self._is_writable = True
        _wake(self._sender)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the stream."""
        if isinstance(exc, ssl.SSLError):
            self.tls_trouble = str(exc)
        if self._end is None:
            cause = f" ({exc})" if exc is not None else ""
            hint = "" if self._has_heard or not self._is_client or self.tls_trouble else _HINT
            self._end = ConnectionLostError(f"{self._address}: the other side closed the stream{cause}{hint}")
        let_go(self._transport)
        self._transport = None
        for timer in (self._timer, self._lingering):
            if timer is not None:
                timer.cancel()
        if self._admitting is not None:
            self._admitting.cancel()
        self._stop_reading()
        _wake(self._receiver)
        _wake(self._sender)
        if not self.closed.done():
            self.closed.set_result(None)

    # ---- the stream ------------------------------------------------------------------------------------------------------

    def greeted(self) -> None:
        """Notes that both sides have said hello; from here on a hello is no message any more."""
        self._is_greeted = True

    async def send(self, message: Out) -> None:
        """Sends a message; returns when few bytes wait to leave.

        Raises:
            ConnectionLostError: The stream has ended.
            MalformedFrameError: The message is too large.
        """
        pieces = self._codec.encode(message)
        size = sum(map(len, pieces))
        if size > MAX_MESSAGE_BYTES:
            raise MalformedFrameError(f"{self._address}: a message of {size} bytes, the limit is {MAX_MESSAGE_BYTES}")
        transport = self._transport
        if self._end is not None or transport is None or transport.is_closing() or self._spilled is not None:
            raise self._why_ended()  # whoever never waits for anything else would keep the loop from telling of the end
        self._write(Tag.MESSAGE, size, pieces)
        while not self._is_writable:
            self._sender = self._loop.create_future()
            try:
                await self._sender
            finally:
                self._sender = None
            if self._transport is None:
                raise self._why_ended()

    async def receive(self) -> In:
        """Returns the next message.

        Raises:
            ConnectionLostError: The stream has ended.
            ReplogError: What the other side ended it with, or a message that is none.
        """
        self._release(self._received_bytes)
        self._received_bytes = 0
        while not self._messages:
            if self._end is not None:
                raise self._why_ended()
            await self._wait_received()
        body, self._received_bytes = self._messages.popleft()
        self._waiting_bytes -= len(body)
        self._set_reading()
        message: In = self._codec.decode(body)
        if self._is_greeted and isinstance(message, Hello):
            raise MalformedFrameError("hello was said before; after it only requests and answers follow")
        return message

    def accept(self) -> None:
        """Tells the client that it is served, where the first message may be long in coming."""
        self._write(Tag.PONG, 0, ())

    async def _wait_received(self) -> None:
        self._receiver = self._loop.create_future()
        try:
            await self._receiver
        finally:
            self._receiver = None

    def decoded(self, first: memoryview) -> Any:
        """Returns the first message of the other side, which came with the opening."""
        return self._codec.decode(first)

    async def close(self) -> None:
        """Ends the stream when what was sent has left, or soon; what has come and was not received is dropped."""
        transport = self._transport
        try:
            if transport is not None and transport.get_write_buffer_size():
                transport.close()
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.shield(self.closed)
        except TimeoutError:
            pass
        finally:
            self.drop()

    def drop(self) -> None:
        """Ends the stream at once, and forgets what has come."""
        self.abort()
        self._forget()

    def abort(self) -> None:
        """Ends the stream at once."""
        if self._transport is not None:
            self._transport.abort()

    async def end(self, error: ReplogError) -> None:
        """Ends the stream with an error; returns when the other side has heard it, or soon."""
        self._tell_end(error)
        await asyncio.shield(self.closed)

    def open(self, kind: StreamKind, first: Out) -> None:
        """Sends the frame that makes a stream of a new connection."""
        if self._transport is not None:
            self._transport.write(opening(kind, self._codec.encode(first)))

    # ---- what the reading room asks ----------------------------------------------------------------------------------------

    @property
    def moved_bytes(self) -> int:
        """How much of the large frame has come that is being read."""
        return self._reader.come_bytes

    def give_way(self) -> None:
        """Ends the stream: others wait for the memory of a frame of which too little comes."""
        _log.warning("a stream from %s was ended: %s", self._address, _CAME_SLOWLY)
        self._end = self._end or ConnectionLostError(_CAME_SLOWLY)
        self.abort()

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _take_in(self, frame: memoryview) -> None:
        tag, body = frame[0], frame[1:]
        held_bytes, self._reading_bytes = self._reading_bytes, 0
        if self._room is not None and held_bytes:
            self._room.ended(self)
        match tag:
            case Tag.MESSAGE:
                self._messages.append(_Arrived(body, held_bytes))
                self._waiting_bytes += len(body)
                held_bytes = 0
                _wake(self._receiver)
            case Tag.ERROR:
                self._end = self._end or decode_error(body)
                _wake(self._receiver)
                self.abort()
            case Tag.PING if self._is_writable:  # who does not read answers needs none, and would have them pile up
                self._write(Tag.PONG, 0, ())
            case Tag.PING:
                pass
            case Tag.PONG:
                pass
            case _:
                self._lose(MalformedFrameError(f"{self._address}: a frame with the tag {tag}, which there is not"))
        self._release(held_bytes)

    def _lose(self, error: ReplogError) -> None:
        """Ends the stream for a reason; what came before is received first."""
        if self._end is None:
            self._end = error
        _wake(self._receiver)
        if self._is_client:
            self.abort()
        else:
            self._tell_end(error)

    def _tell_end(self, error: ReplogError) -> None:
        """Says why the stream ends, and takes nothing more.

        The connection stays open until the other side closes it: one that is closed with bytes that were not read is reset,
        and what was said is lost on the way.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self._spilled is not None:
            return
        self._spilled = memoryview(bytearray(SHARED_BYTES))
        self._set_reading()
        body = encode_error(error)
        self._write(Tag.ERROR, len(body), (body,))
        try:
            transport.write_eof()
        except OSError:  # the other side has reset the connection, and hears nothing more
            self.abort()
            return
        self._lingering = self._loop.call_later(LINGER_S, self.abort)

    def _why_ended(self) -> ReplogError:
        if self._end is None:
            return ConnectionLostError(f"{self._address}: the stream was closed")
        return raised_anew(self._end)

    def _write(self, tag: Tag, size: int, pieces: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        front = head(tag, size)
        self._written_bytes += len(front) + size
        write_pieces(transport, front, size, pieces)

    def _admit(self, size: int) -> None:
        """Takes memory for a large frame, at once where there is room for it: reading goes on without a pause."""
        if self._room is None:
            self._reader.admit()
            return
        if self._room.take_at_once(self, size):
            self._reading_bytes = size
            self._reader.admit()
            return
        self._admitting = self._loop.create_task(self._room.take(self, size))
        self._admitting.add_done_callback(self._admitted)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        self._admitting = None
        if task.cancelled() or task.exception() is not None:
            return
        self._reading_bytes = self._reader.wanted_bytes
        if self._transport is None:
            self._forget()
            return
        self._reader.admit()
        self._set_reading()

    def _forget(self) -> None:
        """Forgets what has come, and gives its room back."""
        self._stop_reading()
        self._release(self._received_bytes + sum(held_bytes for _, held_bytes in self._messages))
        self._received_bytes = self._waiting_bytes = 0
        self._messages.clear()

    def _stop_reading(self) -> None:
        """Gives the room of a frame back that will not come whole."""
        if self._room is not None and self._reading_bytes:
            self._room.ended(self)
            self._release(self._reading_bytes)
            self._reading_bytes = 0

    def _release(self, size: int) -> None:
        if self._room is not None and size:
            self._room.give_back(size)

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_full = self._waiting_bytes >= RECEIVED_BYTES_MAX or self._reader.wanted_bytes
        is_reading = self._spilled is not None or not is_full
        if is_reading is self._is_reading:
            return
        self._is_reading = is_reading
        if is_reading:
            self._stalled_looks = self._silent_looks = 0  # the time before was ours
            transport.resume_reading()
        else:
            transport.pause_reading()

    # ---- limits of time --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if reason := self._why_too_slow():
            self._end = self._end or ConnectionLostError(f"{self._address}: {reason}")
            self.abort()
            return
        if self._is_client and self._silent_looks == PING_LOOKS:
            self._write(Tag.PING, 0, ())
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _why_too_slow(self) -> str:
        """Returns which limit of time is passed; "" where none is."""
        if self._is_unread():
            return f"what was sent was not read for {STALLED_LOOKS * LOOK_S:g} s"
        if not self._is_reading or self._spilled is not None:
            return ""
        self._silent_looks += 1
        if self._is_client and self._silent_looks > SILENT_LOOKS:
            return f"nothing was heard for {SILENT_LOOKS * LOOK_S:g} s"
        if self._reader.is_between_frames:
            return ""
        self._stalled_looks += 1
        return (
            f"a message stopped in the middle for {STALLED_LOOKS * LOOK_S:g} s"
            if self._stalled_looks > STALLED_LOOKS
            else ""
        )

    def _is_unread(self) -> bool:
        """Whether hardly anything of what waits has left for long."""
        left_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        drained_bytes = self._written_bytes - left_bytes
        self._unread_looks += 1
        if not left_bytes or drained_bytes - self._drained_bytes >= PROGRESS_BYTES:
            self._drained_bytes, self._unread_looks = drained_bytes, 0
        return self._unread_looks > STALLED_LOOKS


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
