"""Time as a seam: monotonic for decisions, wall clock for timestamps, so that a simulation can own both."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Returns monotonic milliseconds, which never go back and mean nothing outside this process."""
        ...

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970, for record timestamps and file ages."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
