"""A node's clocks over the virtual time of the loop: each begins somewhere else, and can be made to go wrong."""

from __future__ import annotations

from replog.testing.virtual_loop import VirtualLoop

WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """See `replog.broker.clock.Clock`.

    Args:
        loop: The loop that owns the time.
        monotonic_start_ms: The value of `now_ms` at the loop's time 0; another number for each process start.
        wall_offset_ms: The error of the wall clock from the start.
    """

    def __init__(self, loop: VirtualLoop, *, monotonic_start_ms: int = 0, wall_offset_ms: int = 0) -> None:
        self._loop = loop
        self._monotonic_start_ms = monotonic_start_ms
        self._wall_offset_ms = wall_offset_ms
        self._stands_at_ms: int | None = None
        self._stands_until_ms = 0

    def now_ms(self) -> int:
        now_ms = self._elapsed_ms()
        if self._stands_at_ms is not None:
            if now_ms < self._stands_until_ms:
                return self._monotonic_start_ms + self._stands_at_ms
            self._stands_at_ms = None
        return self._monotonic_start_ms + now_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self._elapsed_ms() + self._wall_offset_ms

    def of_new_process(self, monotonic_start_ms: int) -> SimulatedClock:
        """Returns what the next process sees: the same wall clock, another monotonic one."""
        return SimulatedClock(self._loop, monotonic_start_ms=monotonic_start_ms, wall_offset_ms=self._wall_offset_ms)

    def jump_wall(self, ms: int) -> None:
        """Sets the wall clock, as somebody does: forward by `ms`, which may be negative."""
        self._wall_offset_ms += ms

    def stall(self, ms: int) -> None:
        """Lets the monotonic clock stand still for so long, then leap to where it should be."""
        if self._stands_at_ms is None:
            self._stands_at_ms = self._elapsed_ms()
        self._stands_until_ms = max(self._stands_until_ms, self._elapsed_ms() + ms)

    def _elapsed_ms(self) -> int:
        return self._loop.now_us // 1000
