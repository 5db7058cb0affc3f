"""The progress of a start: after a crash it may read gigabytes, and an operator wants to know how long.

The rate is measured in this very run; the time left is what is left at that rate.  Sizes are known before anything is
scanned: the segments at and above each recovery point.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

INTERVAL_MS: Final = 100
"""Least time between two events of a directory, except for the first and the last."""


class RecoveryProgress(Struct, frozen=True):
    """How far the recovery of one directory has come.

    Attributes:
        directory: The path of the log directory.
        logs_done: Replicas that are open, or were found to be unusable.
        logs_total: Replicas in the directory.
        bytes_done: Log bytes that were scanned.
        bytes_total: Log bytes to scan; an estimate, damage can add to it.
        elapsed_ms: Time since the directory was begun.
        eta_ms: Time left at the rate so far; None: not known yet.
    """

    directory: str
    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int
    elapsed_ms: int
    eta_ms: int | None

    def describe(self) -> str:
        """Returns one line for people."""
        scanned = ""
        if self.bytes_total:
            scanned = f", {self.bytes_done / 1e6:,.0f} of {self.bytes_total / 1e6:,.0f} MB checked"
        left = "" if self.eta_ms is None else f", about {self.eta_ms / 1000:,.0f} s left"
        return f"recovering {self.directory}: {self.logs_done:,} of {self.logs_total:,} logs open{scanned}{left}"


class RecoveryMeter:
    """Counts for one directory; its methods may be called by several threads at once.

    Args:
        directory: The path of the log directory, for the events.
        now_ms: A monotonic clock.
        tell: The function that gets the events, one at a time, in the thread that made the progress.
    """

    def __init__(self, directory: str, now_ms: Callable[[], int], tell: Callable[[RecoveryProgress], None]) -> None:
        self._directory = directory
        self._now_ms = now_ms
        self._tell = tell
        self._lock = threading.Lock()
        self._started_ms = now_ms()
        self._told_ms: int | None = None
        self._logs = [0, 0]  # done, total
        self._bytes = [0, 0]

    def begin(self, log_count: int, size_bytes: int) -> None:
        """Sets the size of the work."""
        with self._lock:
            self._logs[1], self._bytes[1] = log_count, size_bytes
            self._maybe_tell()

    def log_opened(self, scanned_bytes: int) -> None:
        """Counts one more log that is open, or was found to be unusable, with so many bytes that were scanned."""
        with self._lock:
            self._bytes[0] += scanned_bytes
            self._logs[0] += 1
            self._maybe_tell()

    def _maybe_tell(self) -> None:
        now_ms = self._now_ms()
        is_done = self._logs[0] >= self._logs[1]
        if self._told_ms is not None and now_ms - self._told_ms < INTERVAL_MS and not is_done:
            return
        self._told_ms = now_ms
        elapsed_ms = now_ms - self._started_ms
        self._tell(
            RecoveryProgress(
                directory=self._directory,
                logs_done=self._logs[0],
                logs_total=self._logs[1],
                bytes_done=self._bytes[0],
                bytes_total=self._bytes[1],
                elapsed_ms=elapsed_ms,
                eta_ms=self._eta(elapsed_ms),
            )
        )

    def _eta(self, elapsed_ms: int) -> int | None:
        done, total = self._bytes if self._bytes[1] else self._logs
        if not (done and elapsed_ms):
            return None
        return max(0, total - done) * elapsed_ms // done
