"""A set that can also be read as it was at any snapshot; a map without values (see `hash_map` for cost and order)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from collections.abc import Set as AbstractSet
from typing import TypeVar, cast

from replog_timeline.past_mapping import PastMapping
from replog_timeline.snapshot_registry import SnapshotRegistry
from replog_timeline.versioned_table import ABSENT, VersionedTable

T = TypeVar("T")


class TimelineHashSet(VersionedTable[T, None], MutableSet[T]):
    """A mutable set whose past can be read.

    Methods with an `epoch` answer for the present when it is None, else for the snapshot at exactly that epoch, and raise
    `UnknownEpochError` if there is none.  The results of set operators are plain sets.
    """

    __slots__ = ()

    def __init__(self, registry: SnapshotRegistry, values: Iterable[T] = ()) -> None:
        """Creates a set whose changes `registry` can take back.

        Args:
            registry: The registry of the group of objects that this one belongs to.
            values: Values added like any later change: at older snapshots, and after `reset`, the set is empty.
        """
        super().__init__(registry)
        for value in values:
            self.add(value)

    def __contains__(self, value: object) -> bool:
        return value in self._current

    def __iter__(self) -> Iterator[T]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._current)!r})"

    def add(self, value: T) -> None:
        """Adds a value; one that is there changes nothing and costs no delta."""
        if value not in self._current:
            self.put(value, None)

    def discard(self, value: T) -> None:
        """Removes a value if it is there."""
        if value in self._current:
            self.remove_key(value)

    def remove(self, value: T) -> None:
        """Removes a value.

        Raises:
            KeyError: The value is not there.
        """
        self.remove_key(value)

    def clear(self) -> None:
        """Removes every value."""
        self.remove_all()

    def contains(self, value: object, *, epoch: int | None = None) -> bool:
        """Whether the value is there."""
        if epoch is None:
            return value in self._current
        return self.value_at(self._registry.snapshot_or_raise(epoch), cast("T", value)) is not ABSENT

    def size(self, *, epoch: int | None = None) -> int:
        """Returns the number of values."""
        return len(self._current) if epoch is None else self.size_at(self._registry.snapshot_or_raise(epoch))

    def at(self, epoch: int) -> AbstractSet[T]:
        """Returns a read-only set of the state at a snapshot; copies nothing (see `PastMapping` for its life)."""
        return PastMapping(self, self._registry.snapshot_or_raise(epoch)).keys()

    @classmethod
    def _from_iterable(cls, values: Iterable[T]) -> set[T]:  # type: ignore[override]  # `a | b` has no registry
        return set(values)
