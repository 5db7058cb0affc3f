"""The network between simulated machines: links that are slow, lossy, cut one way, or gone.

What passes on them is the bytes of TCP connections, of clients and of nodes alike (`replog.testing.simulated_tcp`).
"""

from __future__ import annotations

from contextvars import Context
from random import Random

from msgspec import Struct

from replog.rpc.tcp.wire import StreamKind
from replog.testing.virtual_loop import VirtualLoop

RETRANSMIT_S = 0.1
"""The time after which bytes are sent again that did not arrive."""


class NetworkConditions(Struct, frozen=True):
    """How bad every link is; probabilities from 0 to 1, each drawn for each packet unless said otherwise.

    Attributes:
        delay_max_ms: The longest delay of a packet, one way; the least is a hundredth of it.
        straggler: The probability that a packet takes up to `straggler_max_ms` instead.
        loss: The probability that a packet is lost.  It is sent again, and what is behind it on its connection waits.
        stream_break: The probability that a packet is where its connection is reset.
        keepalive_s: The time that a connection lives which delivers nothing.
        connect_timeout_s: The time that an attempt to connect waits in silence.
        late: The probability that a connection which breaks, or is given up, delivers what its caller had sent, up to
            `late_max_s` later; drawn per connection.  The other side hears of the end after that, and what it answers goes
            nowhere.
        late_max_s: The longest delay of that, from when the caller knows of the end.
        split: The probability that what is written travels in several packets, cut anywhere; drawn for each of them.
    """

    delay_max_ms: float = 2.0
    straggler: float = 0.0
    straggler_max_ms: float = 300.0
    loss: float = 0.0
    stream_break: float = 0.0
    keepalive_s: float = 3.0
    connect_timeout_s: float = 1.0
    late: float = 0.0
    late_max_s: float = 2.0
    split: float = 0.1


NOBODY = Context()
"""The network's steps belong to no process."""


class SimulatedNetwork:
    """All links.  Machines have names; a link is (from, to).

    Attributes:
        conditions: The conditions of all links; may be replaced at any time.
        delivered: The number of packets so far.
        delivered_late: The number of those whose connection had ended for who connected.
    """

    def __init__(self, loop: VirtualLoop, rng: Random, conditions: NetworkConditions | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.conditions = conditions or NetworkConditions()
        self.delivered = 0
        self.delivered_late = 0
        self._cuts: set[tuple[str, str, StreamKind | None]] = set()

    def cut(self, source: str, target: str, kind: StreamKind | None = None) -> None:
        """Cuts a link in one direction: nothing passes there any more.

        Args:
            source, target: The ends of the link.
            kind: The kind of the streams of nodes that alone hang; None: all that is on the link.
        """
        self._cuts.add((source, target, kind))

    def mend(self, source: str, target: str) -> None:
        """Mends a link in one direction."""
        self._cuts = {cut for cut in self._cuts if cut[:2] != (source, target)}

    def mend_all(self) -> None:
        """Mends all links."""
        self._cuts.clear()

    def is_cut(self, source: str, target: str, kind: StreamKind | None = None) -> bool:
        """Whether nothing passes, of a stream of a kind."""
        cuts = self._cuts
        return bool(cuts) and ((source, target, None) in cuts or (source, target, kind) in cuts)

    def delay_s(self) -> float:
        """Draws the delay of one packet, in seconds; one that is lost is sent again."""
        conditions, rng = self.conditions, self.rng
        straggles = conditions.straggler and rng.random() < conditions.straggler
        longest_ms = conditions.straggler_max_ms if straggles else conditions.delay_max_ms
        delay_s = rng.uniform(longest_ms / 100, longest_ms) / 1000
        while self.happens(conditions.loss):
            delay_s += RETRANSMIT_S
        return delay_s

    def happens(self, probability: float) -> bool:
        """Draws whether something happens that has this probability."""
        return probability > 0 and self.rng.random() < probability
