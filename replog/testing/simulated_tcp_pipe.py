"""One direction of a simulated TCP connection: bytes that were written, are on the way, have come and were not read.

What is written arrives in order and in any pieces.  A sender is held back by who does not read: so much is on the way or
unread (`WINDOW_BYTES`), the rest is with the sender and lost with its process.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from replog.rpc.tcp.wire import StreamKind
from replog.testing.simulated_network import NOBODY, RETRANSMIT_S, SimulatedNetwork

WINDOW_BYTES = 64 << 10
"""How many bytes may be on the way, or have come and wait to be read, before the sender keeps the rest."""

PIECE_BYTES_MAX = 16 << 10


class Reset(Struct, frozen=True):
    """Nothing follows: the connection is gone.

    Attributes:
        error: What the one who hears of it is told.
    """

    error: OSError


class Finish(Struct, frozen=True):
    """Nothing follows: the sender has closed its half."""


Segment: TypeAlias = bytes | Finish | Reset

_FINISH = Finish()


class PipeEnds(Protocol):
    """The connection of a pipe, as the pipe knows it."""

    kind: StreamKind | None

    def begins(self, pipe: BytePipe, first: bytes) -> None:
        """Hears what is written first."""
        ...

    def is_deaf(self, pipe: BytePipe) -> bool:
        """Whether nobody is left at the end of the pipe, on a machine that says so."""
        ...

    def refuse(self, pipe: BytePipe) -> None:
        """Tells the sender that nobody is left at the end."""
        ...

    def break_on_the_way(self, pipe: BytePipe) -> None:
        """Resets the connection for both: it breaks behind what is on the way in `pipe`."""
        ...

    def give_up(self, reason: str) -> None:
        """Ends the connection for both: nothing has passed for too long."""
        ...


class BytePipe:
    """One direction.

    Args:
        network: The network.
        source, target: The ends of the link.
        ends: The connection.

    Attributes:
        unsent_bytes: How many bytes are still with the sender.
        arrived: What has come and was not read.
        end: What follows behind that; None: more may come.
        on_arrival: The function that is called when something has come.
        on_sent: The function that is called when bytes have left the sender.
    """

    def __init__(self, network: SimulatedNetwork, source: str, target: str, ends: PipeEnds) -> None:
        self.unsent_bytes = 0
        self.arrived = bytearray()
        self.end: Finish | Reset | None = None
        self.on_arrival: Callable[[], None] = _nothing
        self.on_sent: Callable[[], None] = _nothing
        self._network = network
        self._source = source
        self._target = target
        self._ends = ends
        self._unsent: deque[memoryview] = deque()
        self._on_the_way: deque[Segment] = deque()
        self._open_bytes = 0
        self._arrives_at = 0.0
        self._stuck_since: float | None = None
        self._has_begun = False
        self._is_finishing = False
        self._is_finished = False
        self._is_reset = False
        self._is_held = False

    # ---- who sends -------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Takes bytes to be sent."""
        if data and not self._is_finishing and not self._is_reset:
            if not self._has_begun:
                self._has_begun = True
                self._ends.begins(self, data)
            self._unsent.append(memoryview(data))
            self.unsent_bytes += len(data)
            self._push()

    def finish(self) -> None:
        """Closes this half, behind what was written."""
        self._is_finishing = True
        self._push()

    def reset(self, error: OSError, *, loses: bool = False) -> None:
        """Ends it for the receiver, behind what is on the way; what is still with the sender is lost.

        Args:
            error: What the receiver is told.
            loses: Whether what is on the way is lost too.
        """
        self.drop_unsent()
        if self._is_reset:
            return
        self._is_reset = True
        if loses:
            self._on_the_way.clear()
        self._put(Reset(error))

    def drop_unsent(self) -> None:
        """Forgets what is still with the sender."""
        self._unsent.clear()
        self.unsent_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on the way."""
        return not self._on_the_way

    def hold(self, until: float) -> None:
        """Lets all that is on the way, and what is put behind it, arrive at the time `until`."""
        self._is_held = True
        self._network.loop.call_at(until, self._deliver_held, context=NOBODY)

    # ---- who receives ----------------------------------------------------------------------------------------------------

    def read(self, count: int) -> bytes:
        """Returns the next bytes that have come, `count` at most, and makes room for more."""
        found = bytes(self.arrived[:count])
        del self.arrived[: len(found)]
        self._open_bytes -= len(found)
        self._push()
        return found

    def break_off(self, error: OSError) -> None:
        """Ends it for the receiver now; what is on the way is lost."""
        self.drop_unsent()
        self._is_reset = True
        self._on_the_way.clear()
        self._take(Reset(error))

    # ---- the way ---------------------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Sends what there is room for."""
        had_bytes = self.unsent_bytes
        while self._unsent and self._open_bytes + min(len(self._unsent[0]), PIECE_BYTES_MAX) <= WINDOW_BYTES:
            data = self._unsent.popleft()
            whole = min(len(data), PIECE_BYTES_MAX)
            size = self._piece(whole)
            if size < len(data):
                self._unsent.appendleft(data[size:])
            self.unsent_bytes -= size
            self._send(bytes(data[:size]))
            if size < whole:
                self._arrives_at += self._network.delay_s()  # the rest travels behind it
        if self._is_finishing and not self._unsent and not self._is_finished and not self._is_reset:
            self._is_finished = True
            self._put(_FINISH)
        if self.unsent_bytes < had_bytes:
            self.on_sent()

    def _piece(self, size: int) -> int:
        """Draws how many of `size` bytes travel together."""
        network = self._network
        return network.rng.randint(1, size) if network.happens(network.conditions.split) else size

    def _send(self, data: bytes) -> None:
        network = self._network
        is_broken = network.happens(network.conditions.stream_break)
        kept = data[: network.rng.randint(0, len(data))] if is_broken else data
        if kept:
            self._open_bytes += len(kept)
            self._put(kept)
        if is_broken:
            self._ends.break_on_the_way(self)

    def _put(self, segment: Segment) -> None:
        network = self._network
        if not self._on_the_way:
            self._stuck_since = None
        self._on_the_way.append(segment)
        self._arrives_at = max(self._arrives_at, network.loop.time() + network.delay_s())
        network.loop.call_at(self._arrives_at, self._arrive, context=NOBODY)

    def _arrive(self) -> None:
        if not self._on_the_way or self._is_held:
            return
        if self._network.is_cut(self._source, self._target, self._ends.kind):
            self._wait_for_link()
            return
        self._stuck_since = None
        self._take(self._on_the_way.popleft())

    def _deliver_held(self) -> None:
        self._is_held = False
        for segment in list(self._on_the_way):
            self._network.delivered_late += isinstance(segment, bytes)
            self._arrive()

    def _take(self, segment: Segment) -> None:
        """Takes in what has come through."""
        if isinstance(self.end, Reset):
            return
        if isinstance(segment, bytes):
            self._network.delivered += 1
            note = f"{self._source}>{self._target}:{len(segment)}:{zlib.crc32(segment)}"
            self._network.loop.note(note.encode())
            if self._ends.is_deaf(self):
                self._open_bytes -= len(segment)
                self._ends.refuse(self)
                return
            self.arrived += segment
        else:
            self.end = segment
        self.on_arrival()

    def _wait_for_link(self) -> None:
        network, now = self._network, self._network.loop.time()
        if self._stuck_since is None:
            self._stuck_since = now
        if now - self._stuck_since > network.conditions.keepalive_s:
            self._ends.give_up(f"nothing passes from {self._source} to {self._target}")
            return
        network.loop.call_at(now + RETRANSMIT_S, self._arrive, context=NOBODY)


def _nothing() -> None:
    pass
