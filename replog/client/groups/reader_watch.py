"""Whether an application still asks for records: it may work on one for a while, and not for ever.  Pure.

Why a count: a reader asks for each of a million records a second, and must not look at a clock each time.
"""

from __future__ import annotations

LOOK_MS_MAX = 1_000


class ReaderWatch:
    """Attributes:
        count: The number of reads that have begun; whoever reads counts it up.
        is_waiting: Whether a read waits for records: then nobody is late.

    Args:
        limit_ms: How long the application may take between two reads.
    """

    def __init__(self, limit_ms: int) -> None:
        self.count = 0
        self.is_waiting = False
        self._limit_ms = limit_ms
        self._seen = -1
        self._since_ms = 0

    @property
    def look_ms(self) -> int:
        """How often to look: a reader is late by at most this much longer than the limit."""
        return max(1, min(LOOK_MS_MAX, self._limit_ms // 4))

    def late_ms(self, now_ms: int) -> int | None:
        """Returns for how long nobody has asked for records; None while that is not too long."""
        if self.is_waiting or self.count != self._seen:
            self._seen = self.count
            self._since_ms = now_ms
            return None
        late_ms = now_ms - self._since_ms
        return late_ms if late_ms > self._limit_ms else None
