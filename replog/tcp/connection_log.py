"""What the log says of connections that a port ended: seldom enough that nobody fills the disk by connecting."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

TELL_AGAIN_S: Final = 60.0
"""How often at most a line is logged about one address."""

TOLD_MAX: Final = 1_000
"""How many addresses are remembered as told about, and how many lines there are in that time: whoever has a network of IPv6 has addresses without end."""

_log = logging.getLogger(__name__)


class ToldAddresses:
    """Remembers of which addresses the log has just told.  Of one event loop."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}  # the oldest first

    def is_due(self, address: str) -> bool:
        """Returns whether a line about an address is due, and takes it as logged then; not where `TOLD_MAX` others have just been told."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s.get(address, -math.inf) < TELL_AGAIN_S:
            return False
        self._told_s.pop(address, None)
        if len(self._told_s) >= TOLD_MAX:
            oldest = next(iter(self._told_s))
            if now_s - self._told_s[oldest] < TELL_AGAIN_S:
                return False
            del self._told_s[oldest]
        self._told_s[address] = now_s
        return True


class ConnectionLog:
    """Says why connections ended: one line an address and minute.  Of one event loop.

    Attributes:
        ended_count: The connections that were ended from this side, for any reason.
        refused_counts: The connections whose other side was not believed, by the name of the listener.
    """

    def __init__(self) -> None:
        self._told = ToldAddresses()
        self.ended_count = 0
        self.refused_counts: Counter[str] = Counter()

    def tell(self, address: str, reason: str, parts: Mapping[str, object] | None = None) -> None:
        """Says why a connection ended."""
        self.ended_count += 1
        if self._told.is_due(address):
            _log.warning("a connection from %s was ended: %s", address, reason, extra=parts)

    def tell_idle(self, address: str, idle_s: float) -> None:
        """Counts the end of a connection over which nothing came or went: there may be many, and nobody need do anything."""
        self.ended_count += 1
        _log.debug("a connection from %s was ended: no request came for %.0f s", address, idle_s)

    def tell_refused(self, listener: str, address: str, reason: str) -> None:
        """Counts a caller that was not believed, and says why."""
        self.refused_counts[listener] += 1
        parts = {"event": "authentication_failed", "listener": listener, "address": address, "reason": reason}
        self.tell(address, f"listener {listener} does not know who it is: {reason}", parts)
