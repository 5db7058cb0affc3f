"""What a worker knows of one partition that it has: which records are under way, and up to where all are done."""

from __future__ import annotations

import asyncio
from collections import deque

from replog.client.types import TopicPartition


class Assigned:
    """One assignment of a partition.  When it goes and comes back, that is another one: what is done late counts for nothing.

    Args:
        partition: The partition.

    Attributes:
        is_gone: Set when the partition is this member's no more, or the worker ends: nothing of it begins any more.
        is_idle: Set while no handler works on a record of it.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_gone = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._running_count = 0
        self._under_way: deque[int] = deque()  # offsets that were handed out, in order, from the first that is not done
        self._done: set[int] = set()
        self._next_offset = -1
        self._committed = -1

    def take(self, offset: int) -> None:
        """Notes a record that was handed out; they come in order."""
        self._under_way.append(offset)

    def begin(self) -> None:
        """Notes that a handler begins to work on a record."""
        self._running_count += 1
        self.is_idle.clear()

    def end(self) -> None:
        """Notes that a handler has ended, in whatever way."""
        self._running_count -= 1
        if not self._running_count:
            self.is_idle.set()

    def finish(self, offset: int) -> None:
        """Notes that a record is done with: handled, or written to the topic of dead letters."""
        self._done.add(offset)
        while self._under_way and self._under_way[0] in self._done:
            done = self._under_way.popleft()
            self._done.discard(done)
            self._next_offset = done + 1

    @property
    def to_commit(self) -> int | None:
        """The offset up to which all records are done with, if it is another one than was committed.

        It may be below: a log that an unclean election has cut is read again from there.
        """
        return self._next_offset if self._next_offset != self._committed else None

    def commit(self, offset: int) -> None:
        """Notes what was committed."""
        self._committed = offset
