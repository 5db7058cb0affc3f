"""The keys and values behind the maps and sets: a plain dictionary now, old values per snapshot.

    current      {"a": 3, "b": 2}
    delta of 20  size 1, old {"a": 2, "b": absent}
    delta of 10  size 1, old {"a": 1}

At epoch 20 the table is {"a": 2}, at epoch 10 {"a": 1}: of the deltas from an epoch on, the oldest that knows a key decides.

Cost, with D deltas from an epoch on: change O(1); a value at an epoch O(D); size at an epoch O(log D); all entries at an
epoch O(entries + changed keys); revert O(changed keys).  Memory: one old value per key changed between two snapshots.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, TypeVar

from replog_timeline.snapshot_registry import Delta, Snapshot, SnapshotRegistry, Versioned

K = TypeVar("K")
V = TypeVar("V")


class Absent(Enum):
    """The type of `ABSENT`, the old value of a key that was not there."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class TableDelta(Delta, Generic[K, V]):
    """Old values of the keys first changed after a snapshot.

    Attributes:
        size: Number of entries at the snapshot.
        old: Key -> value at the snapshot, or `ABSENT`.
    """

    __slots__ = ("old", "size")

    def __init__(self, epoch: int, size: int) -> None:
        super().__init__(epoch)
        self.size = size
        self.old: dict[K, V | Absent] = {}


class VersionedTable(Versioned[TableDelta[K, V]], Generic[K, V]):
    """Keys and values with a past.  Methods that take a snapshot want one of the same registry, not deleted."""

    __slots__ = ("_current",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        super().__init__(registry)
        self._current: dict[K, V] = {}

    @property
    def registry(self) -> SnapshotRegistry:
        """The group of objects this one belongs to."""
        return self._registry

    @property
    def current(self) -> dict[K, V]:
        """The present, for reading only."""
        return self._current

    def put(self, key: K, value: V) -> None:
        """Adds or replaces the value of a key."""
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            deltas = self._deltas
            if deltas and (delta := deltas[-1]).epoch == snapshot.epoch:  # `_delta_to_fill` without the call
                old = delta.old
            else:
                old = self._delta_to_fill(snapshot).old
            if key not in old:
                old[key] = self._current.get(key, ABSENT)
        self._current[key] = value

    def remove_key(self, key: K) -> None:
        """Removes a key and its value.

        Raises:
            KeyError: There is no such key.
        """
        value = self._current[key]
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            self._delta_to_fill(snapshot).old.setdefault(key, value)
        del self._current[key]

    def remove_all(self) -> None:
        """Removes every entry."""
        snapshot = self._registry.latest_snapshot
        if snapshot is not None and self._current:
            old = self._delta_to_fill(snapshot).old
            for key, value in self._current.items():
                old.setdefault(key, value)
        self._current.clear()

    def value_at(self, snapshot: Snapshot, key: K) -> V | Absent:
        """Returns the value at a snapshot, or `ABSENT`."""
        for position in range(self._first_delta_from(snapshot.epoch), len(self._deltas)):
            old = self._deltas[position].old
            if key in old:
                return old[key]
        return self._current.get(key, ABSENT)

    def size_at(self, snapshot: Snapshot) -> int:
        """Returns the number of entries at a snapshot."""
        position = self._first_delta_from(snapshot.epoch)
        return self._deltas[position].size if position < len(self._deltas) else len(self._current)

    def entries_at(self, snapshot: Snapshot) -> list[tuple[K, V]]:
        """Returns all entries at a snapshot, each key once, in a new list."""
        old: dict[K, V | Absent] = {}
        for position in range(len(self._deltas) - 1, self._first_delta_from(snapshot.epoch) - 1, -1):
            old.update(self._deltas[position].old)  # newest first, so that the oldest decides
        if not old:
            return list(self._current.items())
        entries = [entry for entry in self._current.items() if entry[0] not in old]
        entries.extend((key, value) for key, value in old.items() if value is not ABSENT)
        return entries

    def _make_delta(self, epoch: int) -> TableDelta[K, V]:
        return TableDelta(epoch, len(self._current))

    def _restore(self, delta: TableDelta[K, V]) -> None:
        for key, value in delta.old.items():
            if value is ABSENT:
                self._current.pop(key, None)
            else:
                self._current[key] = value

    def _merge(self, earlier: TableDelta[K, V], later: TableDelta[K, V]) -> None:
        for key, value in later.old.items():
            earlier.old.setdefault(key, value)

    def _restore_initial(self) -> None:
        self._current.clear()
