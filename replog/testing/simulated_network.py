"""The network between simulated processes: bytes on directed links that are slow, lossy, cut one way, or gone.

Every call is a pair of pipes, one each way.  What a pipe carries keeps its order, pipes overtake each other.  A unary
call that loses a message ends at its time-out; a stream cannot lose one message, so it breaks for both sides, as a TCP
connection does.  What its caller had sent may still arrive, long after the caller was told and has gone on (`late`).  A cut
link delivers nothing; what waits on it for longer than `keepalive_s` breaks its call.

========================== =============================================================================================
the other side             what a caller sees
========================== =============================================================================================
no process at the address  `ConnectionLostError(refused=True)`, after a round trip
no machine at the address  silence: `ConnectionLostError` after `connect_timeout_s`; streams break after `keepalive_s`
process killed             its streams and calls break, after one delay
link cut, one way          requests do not arrive, or were carried out and the answers do not; see above
process paused             nothing is read; senders stop at the window, time-outs do the rest
========================== =============================================================================================
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import TypeAlias

from msgspec import Struct

from replog.errors import ReplogError
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError
from replog.testing.simulated_process import PROCESS
from replog.testing.virtual_loop import VirtualLoop

WINDOW_BYTES = 64 << 10
"""What may be on the way in one pipe before its sender waits; one message is always taken."""


class NetworkConditions(Struct, frozen=True):
    """How bad every link is; probabilities from 0 to 1, each drawn per message unless said otherwise.

    Attributes:
        delay_max_ms: The longest delay of one message, one way; the least is a hundredth of it.
        straggler: The probability that a message takes up to `straggler_max_ms` instead.
        unary_loss: The probability that a request or an answer of a unary call vanishes.
        stream_break: The probability that a message of a stream is where its connection is reset.
        keepalive_s: The time that a connection lives which delivers nothing.
        connect_timeout_s: The time that an attempt to connect waits in silence.
        late: The probability that a stream which breaks, or is given up, delivers what its caller had sent, up to
            `late_max_s` later; drawn per stream.  The other side hears of the end after that, and what it answers goes
            nowhere.
        late_max_s: The longest delay of that, from when the caller knows of the end.
        split: The probability that bytes of a TCP connection are cut into pieces, anywhere; drawn for each piece.
    """

    delay_max_ms: float = 2.0
    straggler: float = 0.0
    straggler_max_ms: float = 300.0
    unary_loss: float = 0.0
    stream_break: float = 0.0
    keepalive_s: float = 3.0
    connect_timeout_s: float = 1.0
    late: float = 0.0
    late_max_s: float = 2.0
    split: float = 0.1


class Message(Struct, frozen=True):
    """Bytes."""

    data: bytes


class CallEnd(Struct, frozen=True):
    """Nothing follows; `error` says why, None: the call ended in order."""

    error: ReplogError | None


Frame: TypeAlias = Message | CallEnd


EVERYTHING = ""
"""Instead of a method: a cut of the whole link."""

NOBODY = Context()
"""The network's steps belong to no process."""


class SimulatedNetwork:
    """All links.  Hosts are names; a link is (from, to).

    Attributes:
        conditions: The conditions of all links; may be replaced at any time.
        delivered: The number of messages so far.
        delivered_late: The number of those whose caller had been told that the stream is broken, or had given up.
    """

    def __init__(self, loop: VirtualLoop, rng: Random, conditions: NetworkConditions | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.conditions = conditions or NetworkConditions()
        self.delivered = 0
        self.delivered_late = 0
        self._cuts: set[tuple[str, str, str]] = set()

    def cut(self, source: str, target: str, method: str = EVERYTHING) -> None:
        """Cuts a link in one direction: nothing passes there any more.

        Args:
            source, target: The ends of the link.
            method: The method, such as "Quorum", whose calls alone hang, as when one of several connections does.
        """
        self._cuts.add((source, target, method))

    def mend(self, source: str, target: str) -> None:
        self._cuts = {cut for cut in self._cuts if cut[:2] != (source, target)}

    def mend_all(self) -> None:
        self._cuts.clear()

    def is_cut(self, source: str, target: str, method: str = EVERYTHING) -> bool:
        cuts = self._cuts
        return bool(cuts) and ((source, target, EVERYTHING) in cuts or (source, target, method) in cuts)

    def delay_s(self) -> float:
        """Draws the delay of one message, in seconds."""
        conditions, rng = self.conditions, self.rng
        straggles = conditions.straggler and rng.random() < conditions.straggler
        longest_ms = conditions.straggler_max_ms if straggles else conditions.delay_max_ms
        return rng.uniform(longest_ms / 100, longest_ms) / 1000

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability


class Pipe:
    """One direction of one call, and the queue at its end.

    Args:
        source, target: The ends of the link.
        call: The call, which breaks when the pipe does.
    """

    RETRANSMIT_S = 0.1

    def __init__(self, network: SimulatedNetwork, source: str, target: str, call: SimulatedCall) -> None:
        self._network = network
        self._loop = network.loop
        self._source = source
        self._target = target
        self._call = call
        self._arrives_at = 0.0
        self._on_the_way: deque[Frame] = deque()
        self._arrived: deque[Frame] = deque()
        self._open_bytes = 0
        self._stuck_since: float | None = None
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._error: ReplogError | None = None
        self._sender_error: ReplogError | None = None
        self._is_torn = False
        self._is_mute = False
        self._is_held = False

    async def send(self, data: bytes) -> None:
        """Returns when there is room on the way.

        Raises:
            ReplogError: The call has ended; this is what ended it.
        """
        while self._open_bytes >= WINDOW_BYTES and self._sender_error is None:
            self._writable.clear()
            await self._writable.wait()
        if self._is_mute:
            return
        if self._sender_error is not None:
            raise self._sender_error
        self._open_bytes += len(data)
        self._put(Message(data))

    def end(self, error: ReplogError | None) -> None:
        """Sends the last frame; what was sent before arrives before."""
        if self._sender_error is None:
            self._put(CallEnd(error))

    async def receive(self) -> Frame:
        """Waits for the next frame and returns it; raises what broke the call."""
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._readable.clear()
            await self._readable.wait()
        frame = self._arrived[0]
        if isinstance(frame, Message):
            self._arrived.popleft()
            self._open_bytes -= len(frame.data)
            self._writable.set()
        return frame  # an end stays: whoever asks again hears it again

    def fail(self, error: ReplogError, *, drop: bool) -> None:
        """Breaks it; `drop`: what has arrived and was not read is lost too."""
        if self._error is not None:
            return
        self._error = error
        self._on_the_way.clear()
        if drop:
            self._arrived.clear()
        self._readable.set()
        self.fail_sender(error)

    def fail_sender(self, error: ReplogError) -> None:
        """Lets nothing more be sent; what is on the way is not lost by that."""
        self._sender_error = self._sender_error or error
        self._writable.set()

    def mute(self) -> None:
        """Drops what is sent from now on; the sender does not notice."""
        self._is_mute = True
        self._writable.set()

    @property
    def is_empty(self) -> bool:
        """Nothing is on the way."""
        return not self._on_the_way

    def hold(self, until: float) -> None:
        """Lets all that is on the way arrive at the time `until`."""
        self._is_held = True
        self._call.at(until, self._deliver_held)

    def _deliver_held(self) -> None:
        self._is_held = False
        for frame in list(self._on_the_way):
            self._network.delivered_late += isinstance(frame, Message)
            self._arrive()

    def _put(self, frame: Frame) -> None:
        network, process = self._network, PROCESS.get()
        if process is not None and process.is_dead:
            return  # what its `finally` blocks would say
        if self._is_torn or (isinstance(frame, Message) and self._loses()):
            return
        if not self._on_the_way:
            self._stuck_since = None
        self._on_the_way.append(frame)
        self._arrives_at = max(self._arrives_at, self._loop.time() + network.delay_s())
        self._call.at(self._arrives_at, self._arrive)

    def _loses(self) -> bool:
        """Whether the message that is being sent never arrives."""
        network = self._network
        if self._call.is_unary:
            return network.happens(network.conditions.unary_loss)
        if network.happens(network.conditions.stream_break):
            self._call.break_soon(f"connection reset on the way to {self._target}")
            if self._call.will_be_late(self):
                self._is_held = True  # until both sides are told
            else:
                self._is_torn = True  # nothing behind it arrives either: the order is kept to the end
        return self._is_torn

    def _arrive(self) -> None:
        if not self._on_the_way or self._is_held:
            return
        if self._network.is_cut(self._source, self._target, self._call.method):
            self._wait_for_link()
            return
        self._stuck_since = None
        frame = self._on_the_way.popleft()
        if isinstance(frame, Message):
            self._network.delivered += 1
            checksum = zlib.crc32(frame.data)
            self._loop.note(f"{self._source}>{self._target}:{len(frame.data)}:{checksum}".encode())
        self._arrived.append(frame)
        self._readable.set()
        self._call.arrived(self, frame)

    def _wait_for_link(self) -> None:
        now = self._loop.time()
        if self._stuck_since is None:
            self._stuck_since = now
        conditions = self._network.conditions
        patience_s = conditions.keepalive_s if self._call.is_open else conditions.connect_timeout_s
        if now - self._stuck_since > patience_s:
            self._call.break_off(f"nothing passes from {self._source} to {self._target}")
            return
        self._call.at(now + self.RETRANSMIT_S, self._arrive)


class SimulatedCall:
    """One call between two processes; it is open once its first message has arrived.

    Args:
        method: The method that is called.
        on_open: The function that the network calls when the call is open.
        is_unary: Whether a lost message is only lost; a stream breaks.

    Attributes:
        up: The pipe from the caller.
        down: The pipe to the caller.
        is_over: Whether nothing can happen any more.
        on_cancel: A function called when the caller gives up, or the call breaks: the handler is to be stopped.
        hello: Who calls, where no message of the call says it; the real transports say it once a stream.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        caller: str,
        server: str,
        method: str = EVERYTHING,
        *,
        is_unary: bool,
        on_open: Callable[[SimulatedCall], None],
    ) -> None:
        self.caller = caller
        self.server = server
        self.method = method
        self.up = Pipe(network, caller, server, self)
        self.down = Pipe(network, server, caller, self)
        self.is_unary = is_unary
        self.is_open = False
        self.is_over = False
        self._is_late = False
        self.on_cancel: Callable[[], object] = _nothing
        self.hello: Hello | None = None
        self._on_open = on_open
        self._network = network

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Schedules a step of the network: it belongs to no process, and outlives both."""
        self._network.loop.call_at(when, callback, context=NOBODY)

    def cancel(self) -> None:
        """Gives up for the caller, who wants no answer any more; the server hears of it, if the link lets it."""
        if self.is_over:
            return
        is_late = self.will_be_late(self.up)
        self.up.end(ConnectionLostError(f"{self.caller} gave up"))
        if is_late:
            self.up.hold(self._late_until())

    def will_be_late(self, pipe: Pipe) -> bool:
        """Whether what is on the way in `pipe` outlives the end of the call for its sender; once it does, it does."""
        network = self._network
        if pipe is self.up and self.is_open and not self.is_unary and not self._is_late:
            self._is_late = network.happens(network.conditions.late)
        return self._is_late and pipe is self.up

    def _late_until(self) -> float:
        network = self._network
        return network.loop.time() + network.rng.uniform(0, network.conditions.late_max_s)

    def arrived(self, pipe: Pipe, frame: Frame) -> None:
        """Takes note of a frame that has come through: the call may be open now, or over."""
        if pipe is self.down:
            self.is_over = self.is_over or self.is_unary or isinstance(frame, CallEnd)
        elif isinstance(frame, CallEnd) and self._is_late:
            self.break_soon("the caller gave up")  # what came with it is read first
        elif isinstance(frame, CallEnd):
            self.break_off("the caller gave up")
        elif not self.is_open:
            self.is_open = True
            self._on_open(self)

    def break_soon(self, reason: str, *, refused: bool = False, after_s: float | None = None) -> None:
        """Breaks the call off, one message's time from now unless `after_s` says otherwise."""
        delay_s = self._network.delay_s() if after_s is None else after_s
        self.at(self._network.loop.time() + delay_s, lambda: self.break_off(reason, refused=refused))

    def break_off(self, reason: str, *, refused: bool = False) -> None:
        """Breaks the call off: both sides see the end; what was on the way is lost."""
        if self.is_over:
            return
        self.is_over = True
        drop = self._network.rng.random() < 0.5
        error = ConnectionLostError(f"{self.caller} to {self.server}: {reason}", refused=refused)
        if self.will_be_late(self.up) and not self.up.is_empty:
            self._end_late(error, drop=drop)
            return
        for pipe in (self.up, self.down):
            pipe.fail(error, drop=drop)
        self.on_cancel()

    def _end_late(self, error: ReplogError, *, drop: bool) -> None:
        """Ends the call for the caller now; the other side first gets what was on the way."""
        self.up.fail_sender(error)
        self.down.mute()
        self.down.fail(error, drop=drop)
        until = self._late_until()
        self.up.hold(until)

        def end() -> None:
            self.up.fail(error, drop=False)
            self.on_cancel()

        self.at(until + self._network.delay_s(), end)


def _nothing() -> None:
    pass
