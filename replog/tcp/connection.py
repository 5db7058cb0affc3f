"""One client's TCP connection, as the broker has it: frames come in, answers go out in their order, and all is bounded.

| what a client does | what happens |
|---|---|
| sends faster than the broker takes up | reading pauses, a little ahead: `in_flight_max` requests, room for their bytes, a throttled client's time |
| sends a frame that is none | the answers to earlier frames are written, then the connection ends |
| reads its answers slowly | nothing more is taken up; without progress for `stalled_s` the connection ends, even if it sends |
| stops within a frame or trickles it, sends nothing at first | `stalled_s`, `first_request_s` end the connection |
| has its answers, and asks nothing for long | `idle_s` ends the connection, as one of many (`IdleConnections`) |
| trickles a large frame, or does not read one, while others wait for its memory | the connection ends after seconds: see `TransferRoom` |

Small requests without records (metadata, offsets, a fetch) have room of their own: they do not wait while produces have taken
the rest.  Requests that may overlap are in flight together: produces and commits, whose appends are in order, and of which only
the answers are waited for.  Any other request begins when all before it are answered, so one answer of its size is held at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, cast

from msgspec import Struct

from replog.access.principal import ANONYMOUS, Principal
from replog.errors import MalformedFrameError
from replog.metadata.records import CLIENT_LISTENER
from replog.tcp.answers import Answer, Successor
from replog.tcp.dialing import let_go
from replog.tcp.frames import FrameReader, OrderedAnswers, SpareBuffers
from replog.tcp.login import Login, LoginStep
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore
from replog.waiting.unread_answers import UnreadAnswer

CHECK_S = 5.0
"""How often a connection is looked at for the limits of time, unless it is idle."""

LOOKS_PER_CHECK = 20
"""How often in `CHECK_S` the loop wakes to look at connections; it looks at many together."""

PROGRESS_BYTES = 1 << 20
"""How many bytes of an unfinished frame or answer are progress; a connection with fewer in `stalled_s` only holds memory."""

JOINED_BYTES_MAX = 16 << 10
"""Answers up to this size are written at once: a copy costs less than a system call, and each is a packet."""

SMALL_BYTES_MAX = 4 << 10
"""Size of the requests that have room of their own, unless they bring records."""

READ_AHEAD_BYTES = 4 << 10
"""Size of the requests that wait for those before them, beyond which no more are read.  While a connection is read, its end is
noticed at once: a client that leaves behind a fetch that waits, or a join, gives back what it holds."""

LARGE_ANSWER_BYTES = 64 << 10
"""Size of the answers that leave at once, even behind others on their way: the kernel takes them."""

CAME_SLOWLY = "a large request came too slowly while others waited for the memory that it held"
LEFT_SLOWLY = "a large answer was read too slowly while others waited for the memory that it held"
GIVEN_UP = "an answer was not read while others waited for the memory that it held (queued.max.response.bytes)"

_log = logging.getLogger(__name__)


class ConnectionLimits(Struct, frozen=True):
    """The limits of one connection.

    Attributes:
        frame_bytes_max: The size of the largest frame.
        recordless_bytes_max: The size of the largest one that brings no records: it is held while its answer is waited for.
        in_flight_max: How many requests are in flight before reading pauses.
        first_request_s: The time within which the first request has come.
        idle_s: The time after which one ends over which nothing comes or goes, and nothing is asked; `math.inf`: never.
        stalled_s: The time after which one that makes no progress within a frame or an answer ends.
    """

    frame_bytes_max: int = 64 << 20
    recordless_bytes_max: int = 8 << 20
    in_flight_max: int = 64
    first_request_s: float = 10.0
    idle_s: float = 600.0
    stalled_s: float = 60.0


def _nothing(_rest_s: float) -> None:
    """Ignores that a connection is to rest: there is none."""


class Caller:
    """The client of one connection: the same object for all requests that come over it.

    Attributes:
        principal: Who the client is.
        listener: The name of the listener by which it came.
        address: The address of the client; "" where it is not known.
        closed: The future that is done when the connection has ended; None: it has no end.
        in_order: The lock of a request that is taken up in several turns of the loop, and must not be overtaken meanwhile.
        rest: The function that has no more requests of the connection taken up for so many seconds; those in flight go on.
    """

    __slots__ = ("address", "closed", "in_order", "listener", "principal", "rest")

    def __init__(
        self,
        principal: Principal,
        address: str = "",
        closed: asyncio.Future[None] | None = None,
        listener: str = CLIENT_LISTENER,
        rest: Callable[[float], None] = _nothing,
    ) -> None:
        self.principal = principal
        self.rest = rest
        self.listener = listener
        self.address = address
        self.closed = closed
        self.in_order = asyncio.Lock()


class RequestServer(Struct, frozen=True):
    """Answers the requests of a connection.

    Attributes:
        serve: The function that answers a request, without its size, of a client; None: it has no answer.  It
            raises `MalformedFrameError` where the bytes are no request, and nothing else.
        may_overlap: The function that says whether a request may be in flight beside others.
        carries_records: The function that says whether a request brings records.
    """

    serve: Callable[[memoryview, Caller], Awaitable[Answer | None]]
    may_overlap: Callable[[memoryview], bool]
    carries_records: Callable[[memoryview], bool]


class ConnectionOwner(Protocol):
    """Accepts connections."""

    def admit(self, connection: ServerConnection, address: str) -> str:
        """Takes in a new connection; returns why it has to end at once, or ""."""
        ...

    def note_known(self, connection: ServerConnection) -> None:
        """Hears that it is known who the client of a connection is."""
        ...

    def rest(self, connection: ServerConnection, since_s: float) -> None:
        """Hears that a connection is idle since a time of the loop; it is told when that is for too long."""
        ...

    def wake(self, connection: ServerConnection) -> None:
        """Hears that a connection is not idle, or has ended."""
        ...

    def tell(self, address: str, reason: str) -> None:
        """Hears why a connection ended, where it was not the client that closed it."""
        ...

    def tell_idle(self, address: str, idle_s: float) -> None:
        """Hears that a connection ended over which nothing came or went for so many seconds."""
        ...

    def tell_refused(self, listener: str, address: str, reason: str) -> None:
        """Hears why a client's identity was not believed."""
        ...


class _LeavingAnswer:
    """A large answer that is being written."""

    def __init__(self, connection: ServerConnection, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._connection = connection

    @property
    def moved_bytes(self) -> int:
        """How much of it is with the kernel."""
        return max(0, self.size_bytes - self._connection.unwritten_bytes)

    def give_way(self) -> None:
        """Ends the connection: its client reads an answer too slowly, and others wait for the memory."""
        self._connection.end(LEFT_SLOWLY)


class ServerConnection(asyncio.BufferedProtocol):
    """Serves one client; made for each connection that a listener accepts.

    Args:
        owner: The listener that accepted the connection.
        server: The functions that answer its requests.
        limits: What the connection may cost.
        request_bytes: The bytes of requests that all connections hold together.
        small_bytes: The bytes beside these that are kept for small requests.
        reading_room: The bytes of large requests that have not come yet, of all connections together.
        writing_room: The bytes of large answers that have not left, but for those of records.
        spares: The buffers that they share.
        listener: The name of the listener by which the client comes.
        shows_identity: Whether the client has yet to show who it is (`identify`); until then nothing of it is a request.
        login: The login by which the client says who it is; None: there is none.

    Attributes:
        closed: The future that is done when the connection has ended, and no task of it is left.
        listener: The name of the listener by which the client comes.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        server: RequestServer,
        limits: ConnectionLimits,
        request_bytes: ByteSemaphore,
        small_bytes: ByteSemaphore,
        reading_room: TransferRoom,
        writing_room: TransferRoom,
        spares: SpareBuffers,
        listener: str,
        *,
        shows_identity: bool = False,
        login: Login | None = None,
    ) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._limits = limits
        self._request_bytes = request_bytes
        self._small_bytes = small_bytes
        self._reading_room = reading_room
        self._writing_room = writing_room
        self._reader = FrameReader(limits.frame_bytes_max if login is None else login.frame_bytes_max, spares)
        self._arrived: deque[memoryview] = deque()
        self._answers: OrderedAnswers[Answer] = OrderedAnswers()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room: asyncio.Task[None] | None = None  # waits for room for the next frame
        self._transport: asyncio.Transport | None = None
        self._check: asyncio.TimerHandle | None = None
        self._unmute: asyncio.TimerHandle | None = None
        self._reading_bytes = 0  # of the reading room, for a large frame until its request begins
        self._admitted_bytes = 0  # held for the request that is next
        self._successor: asyncio.Task[None] | None = None
        self._unread: deque[UnreadAnswer] = deque()  # written, and perhaps not read
        self._unsent: deque[Answer] = deque()  # behind a large answer, or one that waits for room
        self._leaving: _LeavingAnswer | None = None  # holds room, or waits for it
        self._waiting_to_leave: asyncio.Task[None] | None = None
        self._is_alone = False  # whether the request in flight is one that may not overlap
        self._is_reading = True
        self._is_writable = True
        self._is_ending = False
        self._has_asked = False
        self._began_s = self._heard_s = self._drained_s = self._loop.time()
        self._unheard_bytes = 0  # that came since `_heard_s`
        self._written_bytes = self._drained_bytes = 0
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.listener = listener
        self._address = "an unknown address"
        self._login = login
        self._refusal: asyncio.TimerHandle | None = None  # is on its way to a client that is not believed
        is_known = not shows_identity and login is None
        self._caller = Caller(ANONYMOUS, "", self.closed, listener, self._mute) if is_known else None

    # ---- what asyncio calls ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self._address = str(peer[0])
        if self._caller is not None:
            self._caller.address = self._address
        if reason := self._owner.admit(self, self._address):
            self.end(reason)
            return
        self._look_later()

    @property
    def is_known(self) -> bool:
        """Whether it is known who the client is."""
        return self._caller is not None

    def identify(self, principal: Principal) -> None:
        """Takes in who the client is: from here on its requests are taken up.  Where it logs in, a certificate is not who it is."""
        if self._login is None:
            self._enter(principal)

    def _enter(self, principal: Principal) -> None:
        self._caller = Caller(principal, self._address, self.closed, self.listener, self._mute)
        self._owner.note_known(self)

    def refuse_identity(self, reason: str) -> None:
        """Ends the connection of a client whose identity is not believed."""
        self._is_ending = True
        self._owner.tell_refused(self.listener, self._address, reason)
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        """Returns where the next bytes go."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Takes in bytes that have come."""
        if self._is_ending:
            return
        if self._check is None:
            self._owner.wake(self)
            self._look_later()
        is_progress = self._reader.is_between_frames
        frames = self._reader.received(nbytes)
        self._unheard_bytes += nbytes
        if is_progress or frames or self._unheard_bytes >= PROGRESS_BYTES:
            self._note_progress()
        if frames and self._reading_bytes:
            self._reading_room.ended(self)
        self._arrived.extend(frames)
        self._take_up()

    def eof_received(self) -> bool:
        """Ends the connection: a client that has closed its half gets no answers."""
        return False

    def pause_writing(self) -> None:
        """Stops taking requests up: the client does not read."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Goes on taking requests up."""
        self._is_writable = True
        self._close_unread()
        self._leave_writing_room()
        self._send()
        self._take_up()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Ends the requests in flight."""
        self._is_ending = True
        let_go(self._transport)
        self._transport = None
        self._owner.wake(self)
        if self._caller is not None:
            self._caller.rest = _nothing  # or the connection and what it read would wait for a look for garbage
        self._close_unread()
        for timer in (self._check, self._unmute, self._refusal):
            if timer is not None:
                timer.cancel()
        self._arrived.clear()
        self._request_bytes.release(self._admitted_bytes)
        self._admitted_bytes = 0
        self._leave_reading_room()
        self._leave_writing_room()
        self._unsent.clear()
        for task in (self._room, self._waiting_to_leave, *self._tasks):
            if task is not None:
                task.cancel()
        self._close_if_done()

    @property
    def unwritten_bytes(self) -> int:
        """How much of the answers is not with the kernel."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # ---- what the reading room asks ----------------------------------------------------------------------------------------

    @property
    def moved_bytes(self) -> int:
        """How much of the large frame has come that is being read."""
        return self._reader.come_bytes

    def give_way(self) -> None:
        """Ends the connection: its frame comes too slowly, and others wait for the memory."""
        self.end(CAME_SLOWLY)

    # ---- taking requests up ----------------------------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Begins the requests that may begin now, and reads on if none waits."""
        while self._arrived and self._may_begin(self._arrived[0]):
            room = self._room_for(self._arrived[0])
            if room is None:
                self._wait_for_room(len(self._arrived[0]))
                break
            self._begin(self._arrived.popleft(), room)
        self._refuse_large()
        if not self._arrived and self._reader.trouble and not self._is_ending:
            self._end_after_answers(self._answers.begin(), self._reader.trouble)
        if not self._arrived and self._reader.wanted_bytes and self._may_take_room() and self._may_read_large():
            self._read_large(self._reader.wanted_bytes)
        is_ahead = sum(map(len, self._arrived)) > READ_AHEAD_BYTES
        self._set_reading(is_reading=not (is_ahead or self._reader.wanted_bytes or self._reader.trouble))

    def _refuse_large(self) -> None:
        """Notes that a frame is too large for one without records."""
        size, most = self._reader.wanted_bytes, self._limits.recordless_bytes_max
        if size > most and not self._server.carries_records(self._reader.wanted_start):
            self._reader.refuse(f"a request without records is said to have {size} bytes, and has at most {most}")

    def _may_read_large(self) -> bool:
        """Whether a large frame could begin as soon as it is whole.

        One that has to wait for the answers before it, perhaps of a fetch that waits for records, would keep room from others.
        """
        is_first = not len(self._answers)
        return is_first or (not self._is_alone and self._server.carries_records(self._reader.wanted_start))

    def _room_for(self, frame: memoryview) -> ByteSemaphore | None:
        """Returns where a frame is held from here on; None: there is no room."""
        size = len(frame)
        if self._admitted_bytes:  # a request that has waited, whose bytes are held already
            self._admitted_bytes = 0
            return self._request_bytes
        rooms = [self._request_bytes]
        if size <= SMALL_BYTES_MAX and not self._server.carries_records(frame):
            rooms.append(self._small_bytes)
        for room in rooms:
            if room.has_room(size):
                room.held_bytes += size
                return room
        return None

    def _may_take_room(self) -> bool:
        """Whether room may be asked for.  A client that is throttled or does not read would keep it from others."""
        is_reader = self._is_writable and not self._unsent
        return not self._is_ending and is_reader and self._room is None and self._unmute is None

    def _may_begin(self, frame: memoryview) -> bool:
        if not self._may_take_room():
            return False
        if self._is_alone or len(self._answers) >= self._limits.in_flight_max:
            return False
        return not len(self._answers) or self._overlaps(frame)

    def _overlaps(self, frame: memoryview) -> bool:
        return self._caller is not None and self._server.may_overlap(frame)

    def _begin(self, frame: memoryview, room: ByteSemaphore) -> None:
        self._has_asked = True
        self._leave_reading_room()
        self._is_alone = not self._overlaps(frame)
        task = self._loop.create_task(self._serve(self._answers.begin(), frame))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, room, len(frame)))

    def _ended(self, room: ByteSemaphore, size: int, task: asyncio.Task[None]) -> None:
        """Gives back the bytes that a request held, even if it was cancelled before it ran."""
        self._tasks.discard(task)
        room.release(size)
        if task.cancelled():  # its answer would be waited for for ever
            self.end("one of its requests was given up by the broker")
        self._close_if_done()

    def _wait_for_room(self, size: int) -> None:
        self._room = self._loop.create_task(self._request_bytes.acquire(size))
        self._room.add_done_callback(partial(self._entered, size))

    def _entered(self, size: int, task: asyncio.Task[None]) -> None:
        """Goes on with the request that has waited for room."""
        self._room = None
        has_room = not task.cancelled() and task.exception() is None
        if has_room and not self._is_ending:
            self._admitted_bytes = size
            self._take_up()
        elif has_room:
            self._request_bytes.release(size)
        self._close_if_done()

    def _read_large(self, size: int) -> None:
        """Reads a large frame, as soon as there is room for one."""
        if self._reading_room.take_at_once(self, size):
            self._reading_bytes = size
            self._reader.admit()
            return
        self._room = self._loop.create_task(self._reading_room.take(self, size))
        self._room.add_done_callback(partial(self._may_read, size))

    def _may_read(self, size: int, task: asyncio.Task[None]) -> None:
        self._room = None
        has_room = not task.cancelled() and task.exception() is None
        if has_room:
            self._reading_bytes = size
        if has_room and not self._is_ending:
            self._reader.admit()
            self._take_up()
        else:
            self._leave_reading_room()
        self._close_if_done()

    def _leave_reading_room(self) -> None:
        if self._reading_bytes:
            size, self._reading_bytes = self._reading_bytes, 0
            self._reading_room.ended(self)
            self._reading_room.give_back(size)

    def _set_reading(self, *, is_reading: bool) -> None:
        if self._transport is None or is_reading == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = is_reading
        if is_reading:
            self._note_progress()  # the time before was ours
            if not self._has_asked:
                self._began_s = self._heard_s
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _note_progress(self) -> None:
        self._heard_s, self._unheard_bytes = self._loop.time(), 0

    # ---- answering -------------------------------------------------------------------------------------------------------

    async def _serve(self, number: int, frame: memoryview) -> None:
        caller, login = self._caller, self._login
        if login is not None and (caller is None or login.takes(frame)):
            await self._log_in(login, number, frame)
            return
        if caller is None:
            self._end_after_answers(number, "a request came before it was known who the client is")
            return
        if login is not None and login.has_run_out:
            self._end_after_answers(number, "its login has run out, and it did not say anew who it is")
            return
        try:
            answer = await self._server.serve(frame, caller)
        except MalformedFrameError as error:
            self._end_after_answers(number, str(error))
        except Exception:  # noqa: BLE001 -- one client's connection ends, and nothing else
            _log.exception("a request of a Kafka client has no answer")
            self._end_after_answers(number, "a bug of ours, which is logged")
        else:
            self._finish(number, answer)

    async def _log_in(self, login: Login, number: int, frame: memoryview) -> None:
        """Takes in a frame of the login; who is believed is known from here on."""
        try:
            step = await login.step(frame)
        except MalformedFrameError as error:
            step = LoginStep(refusal=str(error))
        except Exception:  # noqa: BLE001 -- one client's connection ends, and nothing else
            _log.exception("a login of a Kafka client has no answer")
            step = LoginStep(refusal="a bug of ours, which is logged")
        if step.refusal:
            self._refuse_login(login, number, step)
            return
        if step.principal is not None and self._caller is not None:
            self._caller.principal = step.principal
        elif step.principal is not None and not self._is_ending:
            self._reader.bytes_max = self._limits.frame_bytes_max
            self._enter(step.principal)
        self._finish(number, step.answer)

    def _refuse_login(self, login: Login, number: int, step: LoginStep) -> None:
        """Ends the connection of a client that is not believed, which hears of it late: guesses take their time.

        So it does where the connection ends anyway, for what came behind: the end waits for this answer.
        """
        self._owner.tell_refused(self.listener, self._address, step.refusal)
        self._is_ending = True
        self._arrived.clear()
        answer = (step.answer or Answer())._replace(is_last=True)
        self._refusal = self._loop.call_later(login.failure_delay_s, self._finish, number, answer)

    def _finish(self, number: int, answer: Answer | None) -> None:
        for ready in self._answers.finish(number, answer):
            self._write(ready)
        if not len(self._answers):
            self._is_alone = False
            if self._reader.is_between_frames:
                self._note_progress()
        self._take_up()

    def _write(self, answer: Answer) -> None:
        """Writes an answer, behind those that wait for room."""
        self._unsent.append(answer)
        self._send()

    def _send(self) -> None:
        while self._unsent and self._leaving is None:
            answer = self._unsent[0]
            size = sum(map(len, answer.buffers))
            if size > LARGE_ANSWER_BYTES and answer.unread is None and self._transport is not None:
                self._leaving = _LeavingAnswer(self, size)
                if not self._writing_room.take_at_once(self._leaving, size):
                    self._waiting_to_leave = self._loop.create_task(self._writing_room.take(self._leaving, size))
                    self._waiting_to_leave.add_done_callback(self._may_leave)
                    return
            self._unsent.popleft()
            self._put(answer, size)
            if self._is_writable:  # all of it is with the kernel, or nearly
                self._leave_writing_room()

    def _may_leave(self, task: asyncio.Task[None]) -> None:
        self._waiting_to_leave = None
        leaving = self._leaving
        if task.cancelled() or task.exception() is not None or leaving is None:
            self._leaving = None
        elif self._transport is None or not self._unsent:
            self._leave_writing_room()
        else:
            self._put(self._unsent.popleft(), leaving.size_bytes)
            if self._is_writable:
                self._leave_writing_room()
                self._send()
            self._take_up()
        self._close_if_done()

    def _leave_writing_room(self) -> None:
        if self._leaving is not None and self._waiting_to_leave is None:
            leaving, self._leaving = self._leaving, None
            self._writing_room.ended(leaving)
            self._writing_room.give_back(leaving.size_bytes)

    def _put(self, answer: Answer, size: int) -> None:
        transport = self._transport
        if answer.unread is not None:
            self._unread.append(answer.unread)
            answer.unread.on_give_up = partial(self.end, GIVEN_UP)
        if transport is None or transport.is_closing():
            self._close_unread()
            return
        self._written_bytes += size
        for buffer in (b"".join(answer.buffers),) if size <= JOINED_BYTES_MAX else answer.buffers:
            transport.write(buffer)
        if self._is_writable:  # all of it is with the kernel, or nearly
            self._close_unread()
        if answer.mute_s > 0:
            self._mute(answer.mute_s)
        if answer.is_last:
            self._is_ending = True
            transport.close()
        elif answer.becomes is not None:
            self._hand_over(transport, answer.becomes)

    def _hand_over(self, transport: asyncio.Transport, becomes: Callable[[str], Successor]) -> None:
        """Gives the connection to a successor; from now on this object only notes when it has ended."""
        if self._arrived or not self._reader.is_between_frames:
            self.end("more came before its stream was opened")
            return
        if self._check is not None:
            self._check.cancel()
        self._is_ending = True
        self._set_reading(is_reading=True)
        successor = becomes(self._address)
        transport.set_protocol(successor.stream)
        successor.stream.connection_made(transport)
        successor.closed.add_done_callback(lambda _: self.connection_lost(None))
        self._successor = self._loop.create_task(successor.serve())
        self._successor.add_done_callback(lambda _: self._close_if_done())

    def _close_unread(self) -> None:
        while self._unread:
            self._unread.popleft().close()

    def _mute(self, mute_s: float) -> None:
        """Takes nothing up for a time; a shorter one that comes meanwhile does not end it."""
        if self._transport is None:
            return
        if self._unmute is not None:
            if self._unmute.when() >= self._loop.time() + mute_s:
                return
            self._unmute.cancel()
        self._unmute = self._loop.call_later(mute_s, self._end_mute)

    def _end_mute(self) -> None:
        self._unmute = None
        if self._reader.is_between_frames:
            self._note_progress()  # it was told to wait
        self._take_up()

    # ---- the end ---------------------------------------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Ends the connection at once; answers that are not written are lost.

        Args:
            reason: The reason for the owner; "": none is told.
        """
        if self._transport is None:
            return
        self._is_ending = True
        if reason:
            self._owner.tell(self._address, reason)
        self._transport.abort()
        if self._successor is not None:
            self._successor.cancel()

    def end_idle(self, idle_s: float) -> None:
        """Ends the connection, over which nothing came or went for so many seconds: nothing that was said is lost."""
        if self._transport is not None:
            self._is_ending = True
            self._owner.tell_idle(self._address, idle_s)
            self._transport.close()

    def _end_after_answers(self, number: int, reason: str) -> None:
        """Ends the connection in the place of an answer: those before it are written."""
        if not self._is_ending:
            self._owner.tell(self._address, reason)
        self._is_ending = True
        self._arrived.clear()
        for ready in self._answers.finish(number, Answer(is_last=True)):
            self._write(ready)

    def _close_if_done(self) -> None:
        is_idle = self._room is None and self._waiting_to_leave is None and not self._tasks
        is_done = self._transport is None and is_idle
        if is_done and (self._successor is None or self._successor.done()) and not self.closed.done():
            self.closed.set_result(None)

    def _look_later(self) -> None:
        check_s = min(CHECK_S, self._limits.idle_s)
        step_s = check_s / LOOKS_PER_CHECK
        self._check = self._loop.call_at(math.ceil((self._loop.time() + check_s) / step_s) * step_s, self._look)

    def _look(self) -> None:
        """Ends the connection if a limit of time is passed; an idle one is not looked at until something comes."""
        if reason := self._why_too_slow():
            self.end(reason)
        elif self._is_idle:
            self._check = None
            self._owner.rest(self, self._heard_s)
        else:
            self._look_later()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is asked, is on its way, or is held up by this side."""
        is_waited_for = bool(self._arrived or len(self._answers) or self._unsent or self._room or self._unmute)
        is_quiet = self._reader.is_between_frames and self._drained_bytes == self._written_bytes
        is_served = self._caller is not None and self._has_asked and not self._is_ending
        return is_served and self._is_reading and is_quiet and not is_waited_for

    def _why_too_slow(self) -> str:
        """Returns the limit of time that is passed; "" if none is."""
        now_s, limits = self._loop.time(), self._limits
        if reason := self._why_unread(now_s):
            return reason
        first_request_s = min(limits.first_request_s, limits.idle_s)
        if self._login is not None and self._caller is None:  # also one that is ending: a stranger is held no longer
            waited_s = now_s - self._began_s
            return f"it has not logged in within {waited_s:.0f} s" if waited_s > first_request_s else ""
        if not self._is_reading or self._is_ending or self._unmute is not None:
            return ""
        if not self._has_asked:
            waited_s = now_s - self._began_s
            return f"no request came within {waited_s:.0f} s" if waited_s > first_request_s else ""
        still_s = now_s - self._heard_s
        if self._reader.is_between_frames or still_s <= min(limits.stalled_s, limits.idle_s):
            return ""
        return f"a request stopped in the middle for {still_s:.0f} s"

    def _why_unread(self, now_s: float) -> str:
        """Returns why the client counts as not reading its answers, even if it sends requests; "" if it reads them."""
        unwritten_bytes = self.unwritten_bytes
        drained_bytes = self._written_bytes - unwritten_bytes
        for unread in self._unread:
            unread.shrink(min(unread.held_bytes, unwritten_bytes))
        if not unwritten_bytes or drained_bytes - self._drained_bytes >= PROGRESS_BYTES:
            if drained_bytes > self._drained_bytes and self._reader.is_between_frames:
                self._note_progress()  # what it reads is no silence
            self._drained_s, self._drained_bytes = now_s, drained_bytes
        still_s = now_s - self._drained_s
        if still_s <= self._limits.stalled_s:
            return ""
        return f"{unwritten_bytes} bytes of answers were not read for {still_s:.0f} s"
