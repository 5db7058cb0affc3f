"""The pace of records that are sent at a rate."""

from __future__ import annotations

PACE_S = 0.1
"""How long the records take that --rate lets go together."""


class Pace:
    """Lets so many records go in a second, spread over it.

    Args:
        rate: Records a second.
        now_s: The time of now, in seconds, by a clock that is never set.
    """

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._start_s = now_s
        self._count = 0
        self.together_max = max(1, int(rate * PACE_S))

    def pause_s(self, count: int, now_s: float) -> float:
        """Counts records that are to go, and returns how long they have to wait, in seconds; 0: not at all."""
        due_s = self._start_s + self._count / self._rate
        if now_s > due_s + PACE_S:  # what was not sent while there was nothing to send is not sent the faster now
            self._start_s, self._count, due_s = now_s, 0, now_s
        self._count += count
        return max(0.0, due_s - now_s)
