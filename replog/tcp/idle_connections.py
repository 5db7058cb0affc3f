"""Connections over which nothing comes or goes: one timer for all of them, since thousands may have nothing to say for minutes."""

from __future__ import annotations

import asyncio
import math
from itertools import islice
from typing import Final, Protocol

ENDS_PER_TURN: Final = 100
"""How many end before others have their turn: some milliseconds over TLS, which says good-bye."""


class IdleConnection(Protocol):
    """Ends when it has been idle for long."""

    def end_idle(self, idle_s: float) -> None:
        """Hears that nothing came or went for so many seconds, and ends the connection."""
        ...


class IdleConnections:
    """Ends the connections that are idle for longer than they may be.  Of one event loop.

    Args:
        idle_max_s: The time after which one ends; `math.inf`: never.
    """

    def __init__(self, idle_max_s: float) -> None:
        self._idle_max_s = idle_max_s
        self._loop = asyncio.get_running_loop()
        self._since_s: dict[IdleConnection, float] = {}  # about in this order: they are added when they are looked at
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since_s)

    def add(self, connection: IdleConnection, since_s: float) -> None:
        """Notes that a connection is idle.

        Args:
            connection: The connection.
            since_s: The loop's time when something came or went last.
        """
        self._since_s[connection] = since_s
        if self._timer is None and self._idle_max_s < math.inf:
            self._timer = self._loop.call_at(since_s + self._idle_max_s, self._end_due)

    def discard(self, connection: IdleConnection) -> None:
        """Notes that a connection is not idle, or has ended."""
        self._since_s.pop(connection, None)

    def stop(self) -> None:
        """Ends no connection any more."""
        self._idle_max_s = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def _end_due(self) -> None:
        """Ends those that are due, the one first that is idle for longest; comes again for the next one."""
        self._timer = None
        now_s = self._loop.time()
        for connection, since_s in list(islice(self._since_s.items(), ENDS_PER_TURN)):
            if now_s < since_s + self._idle_max_s:
                break
            self.discard(connection)
            connection.end_idle(now_s - since_s)
        since_s = next(iter(self._since_s.values()), math.inf)
        if since_s + self._idle_max_s < math.inf:
            self._timer = self._loop.call_at(since_s + self._idle_max_s, self._end_due)
