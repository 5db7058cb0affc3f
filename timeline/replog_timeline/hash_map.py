"""A dictionary that can also be read as it was at any snapshot.

The present follows the rules of `dict`: reads cost the same, changing the size while iterating is an error.  Iterating the
past is safe while the present changes: the entries are gathered when the iteration begins, each key once.

Order: that of insertion, except that keys which a revert brought back stand last.  Two maps that hold the same may
therefore differ in order; where order matters, sort.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import TypeVar, cast, overload

from replog_timeline.past_mapping import PastMapping
from replog_timeline.snapshot_registry import SnapshotRegistry
from replog_timeline.versioned_table import ABSENT, VersionedTable

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class TimelineHashMap(VersionedTable[K, V], MutableMapping[K, V]):
    """A mutable mapping whose past can be read.

    Methods with an `epoch` answer for the present when it is None, else for the snapshot at exactly that epoch, and raise
    `UnknownEpochError` if there is none.
    """

    __slots__ = ()

    def __init__(self, registry: SnapshotRegistry, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        """Creates a map whose changes `registry` can take back.

        Args:
            registry: The registry of the group of objects that this one belongs to.
            entries: Entries put in like any later change: at older snapshots, and after `reset`, the map is empty.
        """
        super().__init__(registry)
        self.update(entries)

    def __getitem__(self, key: K) -> V:
        return self._current[key]

    # The same functions, not calls of them: a frame more would be a third of the cost of a write.
    __setitem__ = VersionedTable[K, V].put  # pyright: ignore[reportAssignmentType] -- self is both, see the bases
    __delitem__ = VersionedTable[K, V].remove_key  # pyright: ignore[reportAssignmentType] -- as above

    def __contains__(self, key: object) -> bool:
        return key in self._current

    def __iter__(self) -> Iterator[K]:
        return iter(self._current)

    def __len__(self) -> int:
        return len(self._current)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._current!r})"

    def popitem(self) -> tuple[K, V]:
        """Removes and returns the last entry.

        Raises:
            KeyError: The map is empty.
        """
        key = next(reversed(self._current), ABSENT)
        if key is ABSENT:
            raise KeyError("popitem(): the map is empty")
        return key, self.pop(key)

    def clear(self) -> None:
        """Removes every entry."""
        self.remove_all()

    @overload
    def get(self, key: K, default: None = None, /, *, epoch: int | None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V, /, *, epoch: int | None = None) -> V: ...
    @overload
    def get(self, key: K, default: T, /, *, epoch: int | None = None) -> V | T: ...
    def get(self, key: K, default: V | T | None = None, /, *, epoch: int | None = None) -> V | T | None:
        """Returns the value of `key`, or `default`."""
        if epoch is None:
            return self._current.get(key, default)
        value = self.value_at(self._registry.snapshot_or_raise(epoch), key)
        return default if value is ABSENT else value

    def contains(self, key: object, *, epoch: int | None = None) -> bool:
        """Whether there is such a key."""
        if epoch is None:
            return key in self._current
        return self.value_at(self._registry.snapshot_or_raise(epoch), cast("K", key)) is not ABSENT

    def size(self, *, epoch: int | None = None) -> int:
        """Returns the number of entries."""
        return len(self._current) if epoch is None else self.size_at(self._registry.snapshot_or_raise(epoch))

    def at(self, epoch: int) -> PastMapping[K, V]:
        """Returns a read-only mapping of the state at a snapshot.  Copies nothing."""
        return PastMapping(self, self._registry.snapshot_or_raise(epoch))

    def keys(self, *, epoch: int | None = None) -> KeysView[K]:
        """Returns a set-like view of the keys."""
        return self._current.keys() if epoch is None else self.at(epoch).keys()

    def values(self, *, epoch: int | None = None) -> ValuesView[V]:
        """Returns a view of the values."""
        return self._current.values() if epoch is None else self.at(epoch).values()

    def items(self, *, epoch: int | None = None) -> ItemsView[K, V]:
        """Returns a set-like view of the (key, value) pairs."""
        return self._current.items() if epoch is None else self.at(epoch).items()
