"""Goes through many partitions, some in each round of a task, so that no round holds the controller up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import Struct

from replog.controller.state.partition_map import PartitionKey
from replog.metadata.records import MetadataRecord


class LookedAt(Struct, frozen=True):
    """What a round makes of some partitions.

    Attributes:
        changes: What changes.
        is_all: Whether all partitions have been looked at since the first round.
    """

    changes: tuple[MetadataRecord, ...]
    is_all: bool


class PartitionWalk:
    """Goes through partitions, some at a time, and then from the first one on again.

    Args:
        begin: The function that yields the partitions, which may change in between.
        is_there: The function that says whether a partition is there still.
    """

    def __init__(self, begin: Callable[[], Iterator[PartitionKey]], is_there: Callable[[PartitionKey], bool]) -> None:
        self._begin = begin
        self._is_there = is_there
        self._left: Iterator[PartitionKey] | None = None

    def next(self, count_max: int) -> tuple[list[PartitionKey], bool]:
        """Returns the next partitions, at most so many, and whether they are the last ones."""
        if self._left is None:
            self._left = self._begin()
        passed = list(islice(self._left, count_max))
        is_last = len(passed) < count_max
        if is_last:
            self._left = None
        return [key for key in passed if self._is_there(key)], is_last

    def begin_again(self) -> None:
        """Forgets how far it has come."""
        self._left = None
