"""A map as it was at a snapshot: read-only, computed on demand, nothing copied until it is iterated."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TypeVar, cast

from replog_timeline.errors import UnknownEpochError
from replog_timeline.snapshot_registry import Snapshot
from replog_timeline.versioned_table import ABSENT, VersionedTable

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class PastMapping(Mapping[K, V_co]):
    """A mapping of the state at one snapshot.

    It stays right while the present changes and after a revert to its epoch.  An iteration that has begun stays right
    even if the snapshot is deleted; any other use then raises `UnknownEpochError`, also when a new snapshot has the epoch.
    """

    __slots__ = ("_snapshot", "_table")

    def __init__(self, table: VersionedTable[K, V_co], snapshot: Snapshot) -> None:
        self._table = table
        self._snapshot = snapshot

    @property
    def epoch(self) -> int:
        """The epoch of the snapshot."""
        return self._snapshot.epoch

    def __getitem__(self, key: K) -> V_co:
        value = self._table.value_at(self._alive(), key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._table.value_at(self._alive(), cast("K", key)) is not ABSENT

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.entries())

    def __len__(self) -> int:
        return self._table.size_at(self._alive())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epoch={self.epoch}, {dict(self.entries())!r})"

    def items(self) -> ItemsView[K, V_co]:
        """Returns a set-like view of the (key, value) pairs."""
        return _PastItems(self)

    def values(self) -> ValuesView[V_co]:
        """Returns a view of the values."""
        return _PastValues(self)

    def entries(self) -> list[tuple[K, V_co]]:
        """Returns all (key, value) pairs in a new list, each key once."""
        return self._table.entries_at(self._alive())

    def _alive(self) -> Snapshot:
        if self._snapshot.deleted:
            raise UnknownEpochError(self._snapshot.epoch, self._table.registry.epochs())
        return self._snapshot


class _PastItems(ItemsView[K, V_co]):
    """Iterates without looking every key up again."""

    __slots__ = ()
    _mapping: PastMapping[K, V_co]

    def __iter__(self) -> Iterator[tuple[K, V_co]]:
        return iter(self._mapping.entries())


class _PastValues(ValuesView[V_co]):
    """Iterates without looking every key up again."""

    __slots__ = ()
    _mapping: PastMapping[object, V_co]

    def __iter__(self) -> Iterator[V_co]:
        return (value for _, value in self._mapping.entries())
