"""What a worker knows of one partition that it has: which records are under way, and up to where all are done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from replog.client.types import TopicPartition
from replog.worker.results import ResultRecord

GiveUp: TypeAlias = Callable[[BaseException], Sequence[ResultRecord]]
"""Returns what is committed with a record in the place of its results, which their topic has refused."""


class FinishedRecord(Struct):
    """A record that is done with, and what is to be committed with it.

    Attributes:
        end_offset: The offset behind it.
        results: What is to be committed with it.
        give_up: What is called where a topic refuses that; None: the worker ends.
        held_bytes: The bytes that are kept for it.
    """

    end_offset: int
    results: Sequence[ResultRecord]
    give_up: GiveUp | None
    held_bytes: int


class Assigned:
    """One assignment of a partition.  When it goes and comes back, that is another one: what is done late counts for nothing.

    Args:
        partition: The partition.

    Attributes:
        is_gone: Set when the partition is this member's no more, or the worker ends: nothing of it begins any more.
        is_idle: Set while no handler works on a record of it.
        is_lost: Whether it went without a word, so that others may read it since: nothing of it is committed any more.
        ready: The records with results that are done with, as are all before them, in order; none where there are no transactions.
        held_bytes: The bytes of all results that are not committed, and of their records.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_gone = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self.is_lost = False
        self._running_count = 0
        self._under_way: deque[int] = deque()  # offsets that were handed out, in order, from the first that is not done
        self._done: set[int] = set()
        self.ready: deque[FinishedRecord] = deque()
        self.held_bytes = 0
        self._results: dict[int, FinishedRecord] = {}  # of what is done with, behind a record that is not
        self._next_offset = -1
        self._committed = -1

    def take(self, offset: int) -> None:
        """Notes a record that was handed out; they come in order."""
        self._under_way.append(offset)

    def is_first(self, offset: int) -> bool:
        """Whether all records before this one are done with."""
        return bool(self._under_way) and self._under_way[0] == offset

    def begin(self) -> None:
        """Notes that a handler begins to work on a record."""
        self._running_count += 1
        self.is_idle.clear()

    def end(self) -> None:
        """Notes that a handler has ended, in whatever way."""
        self._running_count -= 1
        if not self._running_count:
            self.is_idle.set()

    def finish(
        self, offset: int, results: Sequence[ResultRecord] = (), give_up: GiveUp | None = None, record_bytes: int = 0
    ) -> None:
        """Notes that a record is done with: handled, or written to the topic of dead letters.

        Args:
            offset: The offset of the record.
            results: What is to be committed with it.
            give_up: What is called where a topic refuses a result; None: the worker ends.
            record_bytes: The bytes of the record, which `give_up` holds.
        """
        if results:
            held_bytes = record_bytes + sum(each.size_bytes for each in results)
            self._results[offset] = FinishedRecord(offset + 1, results, give_up, held_bytes)
            self.held_bytes += held_bytes
        self._done.add(offset)
        while self._under_way and self._under_way[0] in self._done:
            done = self._under_way.popleft()
            self._done.discard(done)
            self._next_offset = done + 1
            if done in self._results:
                self.ready.append(self._results.pop(done))

    @property
    def to_commit(self) -> int | None:
        """The offset up to which all records are done with, if it is another one than was committed.

        It may be below: a log that an unclean election has cut is read again from there.
        """
        return self._next_offset if self._next_offset != self._committed else None

    def commit(self, offset: int, ready_count: int = 0) -> None:
        """Notes what was committed.

        Args:
            offset: The offset up to which all records are done with.
            ready_count: The number of records whose results were committed with it, from the first that was ready.
        """
        self._committed = offset
        for _ in range(ready_count):
            self.held_bytes -= self.ready.popleft().held_bytes
