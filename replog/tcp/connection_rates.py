"""How often clients may connect: to a broker, to one of its listeners, and from an address (KIP-402, KIP-612).

| a connection comes | what happens |
|---|---|
| before its listener or the broker may have another one (`max.connection.creation.rate`) | it is taken in late, in order, or refused if it would wait longer than `WAIT_MAX_S` |
| before its address may have another one (the quota `connection_creation_rate`) | it is ended late, after `ENDS_LATE_S` at most, and counts for nothing else |

One that waits is not read.  No more wait than `HELD_MAX`; half of them may be from one address.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, cast

from msgspec import Struct, field

from replog.waiting.token_buckets import TokenBucket, TokenBuckets

BURST_S: Final = 10.0
"""How many seconds' worth may come at once, as Kafka's ten whole windows of a second allow."""

WAIT_MAX_S: Final = 10.0
"""The longest wait of a connection before it is taken in: clients give up a connection that says nothing for longer."""

ENDS_LATE_S: Final = 1.0
"""The longest wait of a connection that is ended, as Kafka's."""

HELD_MAX: Final = 1_000
"""How many connections wait at most; what comes meanwhile and would have to wait ends at once."""

UNLIMITED: Final = (1 << 31) - 1
"""Stands for a rate without a limit, Kafka's default."""

LISTENER, ADDRESS = "listener", "address"
"""What held a connection up."""


class Verdict(Struct, frozen=True):
    """What becomes of a new connection.

    Attributes:
        wait_s: The seconds for which it is held.
        refused: Why it ends behind that; "": it is taken in.
    """

    wait_s: float = 0.0
    refused: str = ""


AT_ONCE: Final = Verdict()
"""It is taken in at once."""


class ConnectionRateLimits(Struct, frozen=True):
    """How many connections may come in a second.

    Attributes:
        together: To all listeners.
        by_listener: To each listener, by its name.
        of_address: The function that returns how many may come from an address; None: any number.
    """

    together: int = UNLIMITED
    by_listener: Mapping[str, int] = field(default_factory=dict[str, int])
    of_address: Callable[[str], float | None] = lambda _: None


class ConnectionRates:
    """Judges connections as they come.  Of one event loop.

    Args:
        limits: The limits.
        clock: The clock, in seconds.

    Attributes:
        limits: The limits in force; they may be replaced.
        held_counts: The connections that were taken in or ended late, by what held them up.
    """

    def __init__(self, limits: ConnectionRateLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._shared: dict[str, TokenBucket] = {}  # "": of all listeners
        self._addresses: TokenBuckets[str] = TokenBuckets(BURST_S)
        self._held: dict[HeldConnection, str] = {}
        self._held_by_address: Counter[str] = Counter()
        self.held_counts: Counter[str] = Counter()

    def judge(self, listener: str, address: str) -> Verdict:
        """Counts a connection, and returns what becomes of it.

        Args:
            listener: The name of the listener.
            address: The address that it comes from.
        """
        now_s = self._clock()
        limits = self.limits
        rate = limits.of_address(address)
        if rate is not None and (wait_s := self._addresses.take(address, 1, rate, now_s)):
            self._addresses.take(address, -1, rate, now_s)
            reason = f"{address} has come more often than its quota lets it, {rate:g} connections a second"
            return self._held_up(ADDRESS, address, Verdict(min(wait_s, ENDS_LATE_S), reason))
        rates = (("", limits.together), (listener, limits.by_listener.get(listener, UNLIMITED)))
        buckets = [(rate, self._bucket(name, rate, now_s)) for name, rate in rates if rate < UNLIMITED]
        wait_s = max((bucket.take(1, rate, now_s) for rate, bucket in buckets), default=0.0)
        if not wait_s:
            return AT_ONCE
        verdict = self._held_up(LISTENER, address, Verdict(wait_s))
        if verdict.refused:
            for rate, bucket in buckets:
                bucket.take(-1, rate, now_s)
        return verdict

    def hold(self, connection: HeldConnection, address: str) -> None:
        """Notes that a connection waits."""
        self._held[connection] = address
        self._held_by_address[address] += 1

    def drop(self, connection: HeldConnection) -> None:
        """Notes that a connection waits no more."""
        address = self._held.pop(connection, None)
        if address is not None:
            self._held_by_address[address] -= 1
            if not self._held_by_address[address]:
                del self._held_by_address[address]

    def end_held(self) -> None:
        """Ends the connections that wait."""
        for connection in list(self._held):
            connection.end()

    def _bucket(self, name: str, rate: int, now_s: float) -> TokenBucket:
        found = self._shared.get(name)
        if found is None:
            found = self._shared[name] = TokenBucket(rate, BURST_S, now_s)
        return found

    def _held_up(self, what: str, address: str, verdict: Verdict) -> Verdict:
        """Returns the verdict, or, where too many wait already, that it ends at once."""
        self.held_counts[what] += 1
        if (
            len(self._held) >= HELD_MAX
            or self._held_by_address[address] >= HELD_MAX // 2
            or verdict.wait_s > WAIT_MAX_S
        ):
            return Verdict(0.0, verdict.refused or "more connections come than max.connection.creation.rate lets in")
        return verdict


class HeldConnection(asyncio.Protocol):
    """A new connection until it is judged and has waited.

    Args:
        rates: What judges it.
        listener: The name of its listener.
        served: The protocol that serves it then.
        tell: The function that is told an address, and why a connection from it ends.
    """

    def __init__(
        self,
        rates: ConnectionRates,
        listener: str,
        served: asyncio.BufferedProtocol,
        tell: Callable[[str, str], None],
    ) -> None:
        self._rates = rates
        self._listener = listener
        self._served = served
        self._tell = tell
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks what becomes of the connection."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        address = plain_address(str(peer[0])) if peer else ""
        verdict = self._rates.judge(self._listener, address)
        if verdict.refused:
            self._tell(address, verdict.refused)
        if not verdict.wait_s:
            self._waited(verdict)
            return
        self._transport.pause_reading()
        self._rates.hold(self, address)
        self._timer = asyncio.get_running_loop().call_later(verdict.wait_s, self._waited, verdict)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Gives the place among those that wait back."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._rates.drop(self)

    def end(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _waited(self, verdict: Verdict) -> None:
        self._rates.drop(self)
        transport, self._transport = self._transport, None
        if transport is None or transport.is_closing():
            return
        if verdict.refused:
            transport.abort()
            return
        transport.set_protocol(self._served)
        self._served.connection_made(transport)
        if verdict.wait_s and not transport.is_closing():
            transport.resume_reading()


def plain_address(address: str) -> str:
    """Returns an address as quotas name it: one of IPv4 that comes to a socket of IPv6 in its own form."""
    mapped = address.removeprefix("::ffff:")
    return mapped if "." in mapped else address
