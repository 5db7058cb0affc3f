"""Keeps compaction from taking the disk: a token bucket in bytes (`log.cleaner.io.max.bytes.per.second`).

Worked example, 1,000 bytes a second, never more than one second's worth saved up::

    at 0.0 s  take 1000   no wait: the bucket begins full
    at 0.1 s  take  600   100 have come in; 500 are missing: wait 0.5 s
"""

from __future__ import annotations

from collections.abc import Callable


class Throttle:
    """One rate for all jobs that share it.

    Args:
        bytes_per_second: The rate, above 0.
        clock: A function that tells monotonic seconds.
        sleep: A function that waits for seconds, in the thread of the job.

    Attributes:
        slept_seconds: Time slept in all.
    """

    __slots__ = ("_available", "_clock", "_rate", "_sleep", "_updated", "slept_seconds")

    def __init__(self, bytes_per_second: float, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._available = bytes_per_second
        self._updated = clock()
        self.slept_seconds = 0.0

    def take(self, size_bytes: int) -> None:
        """Accounts for bytes that were read or written, and sleeps if they came too early."""
        now = self._clock()
        self._available = min(self._rate, self._available + (now - self._updated) * self._rate) - size_bytes
        self._updated = now
        if self._available < 0:
            seconds = -self._available / self._rate
            self._sleep(seconds)
            self.slept_seconds += seconds
