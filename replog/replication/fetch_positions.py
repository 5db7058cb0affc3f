"""What a reader asks for, what it was told, and what has moved since: so each of its fetches costs what moved (KIP-227).

A follower's stream, a consumer's fetch session, a watch of offsets and a fetch that waits are such readers; a change of a
partition is told to the readers that ask for it.  Nothing here waits, reads a log or knows a clock.  One task owns all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

P = TypeVar("P")

PartitionKey: TypeAlias = tuple[UUID, int]
"""A topic's id and a partition of it."""


class Movements:
    """The readers of each partition."""

    def __init__(self) -> None:
        self._readers: dict[PartitionKey, dict[FetchPositions[Any], None]] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def tell(self, keys: Iterable[PartitionKey]) -> None:
        """Tells each reader, once, which of its partitions are among these, to which something has happened."""
        concerned: dict[FetchPositions[Any], list[PartitionKey]] = {}
        for key in keys:
            for reader in self._readers.get(key, ()):
                concerned.setdefault(reader, []).append(key)
        for reader, own in concerned.items():
            reader.note(own)

    def add(self, key: PartitionKey, reader: FetchPositions[Any]) -> None:
        """Adds a reader of a partition."""
        self._readers.setdefault(key, {})[reader] = None

    def remove(self, key: PartitionKey, reader: FetchPositions[Any]) -> None:
        """Removes a reader of a partition; does nothing if it is none."""
        readers = self._readers.get(key, {})
        readers.pop(reader, None)
        if not readers:
            self._readers.pop(key, None)


class FetchPositions(Generic[P]):
    """The partitions of one reader.

    Args:
        movements: The readers of all partitions.

    Attributes:
        asked: The position in each partition, as the reader said it last.
        told: The state of each partition that the reader was told last.
        moved: The partitions to look at next, in the order of their turn: those that were asked for anew, that moved, or that
            have more than was told.
        on_moved: The function that is told which partitions moved; None: nobody waits.
    """

    __slots__ = ("_movements", "asked", "moved", "on_moved", "told")

    def __init__(self, movements: Movements) -> None:
        self._movements = movements
        self.asked: dict[PartitionKey, P] = {}
        self.told: dict[PartitionKey, Hashable] = {}
        self.moved: dict[PartitionKey, None] = {}
        self.on_moved: Callable[[Sequence[PartitionKey]], None] | None = None

    def to_look_at(self) -> tuple[P, ...]:
        """Returns the positions of the partitions to look at, in their order."""
        return tuple(self.asked[key] for key in self.moved)

    def ask(self, key: PartitionKey, position: P) -> None:
        """Takes in a new partition or another position; the partition keeps its place in the line."""
        if key not in self.asked:
            self._movements.add(key, self)
        self.asked[key] = position
        self.moved[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Takes a partition out; does nothing if it is not in."""
        if key in self.asked:
            del self.asked[key]
            self._movements.remove(key, self)
            self.told.pop(key, None)
            self.moved.pop(key, None)

    def clear(self) -> None:
        """Takes all partitions out: the reader has gone."""
        self.on_moved = None
        for key in list(self.asked):
            self.forget(key)

    def note(self, keys: Sequence[PartitionKey]) -> None:
        """Notes that partitions have moved."""
        self.moved.update(dict.fromkeys(keys))
        if self.on_moved is not None:
            self.on_moved(keys)

    def tell(self, key: PartitionKey, state: Hashable, *, goes_on: bool, has_records: bool = False) -> bool:
        """Notes the state of a partition that the reader is about to be told.

        Args:
            key: The partition, which is asked for.
            state: Its state, without its records.
            goes_on: Whether it is looked at again even if it does not move.
            has_records: Whether the reader gets records: then the others have their turn first.

        Returns:
            Whether the state is another one than was told before.
        """
        if has_records or not goes_on:
            self.moved.pop(key, None)
        if goes_on:
            self.moved[key] = None
        is_new = self.told.get(key) != state
        self.told[key] = state
        return is_new
