"""Deadlines that are usually taken back before they come: the buckets of our purgatory, and a hierarchical timing wheel."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from bench.model import System
from replog.waiting.deadlines import Deadlines

TICK_MS = 1
BUCKETS = 20
"""Of each wheel, as in Kafka."""

Bucket: TypeAlias = dict[int, int]
"""Operation id -> deadline."""


class DeadlineQueue(Protocol):
    """Deadlines by integer id, in ms; times never go back, and begin at 0."""

    def add(self, operation_id: int, deadline_ms: int) -> None:
        """Sets a deadline."""

    def discard(self, operation_id: int) -> None:
        """Takes it back."""

    def next_deadline_ms(self) -> int | None:
        """When to look next: no deadline comes before it."""

    def pop_expired(self, now_ms: int) -> Sequence[int]:
        """Ids whose deadline has come."""


class TimingWheels:
    """Wheels of `BUCKETS` buckets each, whose ticks are as long as the whole wheel below turns.

    Adding and taking back cost the same however many wait: a bucket is found by division.  A bucket of an upper wheel that
    comes up is spread over the wheels below.  As in Kafka a heap of the buckets that are in use tells when the next comes,
    so that the wheel does not turn where nothing waits.
    """

    def __init__(self) -> None:
        self._wheels: list[dict[int, Bucket]] = [{}]
        self._bucket_of: dict[int, Bucket] = {}
        self._due: list[tuple[int, int]] = []  # when a bucket begins, and its wheel; the first is never empty
        self._now_ms = 0

    def add(self, operation_id: int, deadline_ms: int) -> None:
        tick_ms, level = TICK_MS, 0
        while deadline_ms - self._now_ms >= tick_ms * BUCKETS:
            tick_ms *= BUCKETS
            level += 1
            if level == len(self._wheels):
                self._wheels.append({})
        wheel, begins_ms = self._wheels[level], deadline_ms - deadline_ms % tick_ms
        bucket = wheel.get(begins_ms)
        if bucket is None:
            bucket = wheel[begins_ms] = {}
            heapq.heappush(self._due, (begins_ms, level))
        bucket[operation_id] = deadline_ms
        self._bucket_of[operation_id] = bucket

    def discard(self, operation_id: int) -> None:
        bucket = self._bucket_of.pop(operation_id, None)
        if bucket is not None:
            del bucket[operation_id]

    def next_deadline_ms(self) -> int | None:
        while self._due and not self._wheels[self._due[0][1]][self._due[0][0]]:
            begins_ms, level = heapq.heappop(self._due)
            del self._wheels[level][begins_ms]
        return self._due[0][0] if self._due else None

    def pop_expired(self, now_ms: int) -> Sequence[int]:
        expired: list[int] = []
        while self._due and self._due[0][0] <= now_ms:
            begins_ms, level = heapq.heappop(self._due)
            self._now_ms = max(self._now_ms, begins_ms)
            for operation_id, deadline_ms in self._wheels[level].pop(begins_ms).items():
                del self._bucket_of[operation_id]
                if deadline_ms <= now_ms:
                    expired.append(operation_id)
                else:
                    self.add(operation_id, deadline_ms)
        self._now_ms = max(self._now_ms, now_ms)
        return expired


class DeadlineSystem(System):
    """Makes queues of one kind."""

    def __init__(self, name: str, kind: type[DeadlineQueue]) -> None:
        self.name = name
        self._kind = kind

    def start(self, directory: Path) -> None:
        """Nothing is written to disk, and nothing runs between measurements."""

    def new_queue(self) -> DeadlineQueue:
        return self._kind()


SYSTEMS = (DeadlineSystem("replog", Deadlines[int]), DeadlineSystem("timing-wheel", TimingWheels))
