"""A dictionary of dictionaries that can go back to any snapshot.

Why not a map of maps: each inner one is an object with deltas, known to the registry.  Of a hundred thousand with an entry
each that makes half a million objects for Python's garbage collector, which walks over all of them in every full pass.  Here
the inner dictionaries are plain, and the collector leaves alone those that hold nothing but texts, numbers, bytes and tuples
of them.

    current      {"g": {"a": 3, "b": 2}, "h": {"a": 1}}
    delta of 20  ("g", "a") was 2;  ("h", "a") was absent;  "i" was removed, and was {"c": 4} then

An inner dictionary that is removed as a whole goes into the delta as it is; what changed in it since the snapshot stands beside
it, and what comes after it needs no notes.

Cost: change O(1), also the removal of an inner dictionary of any size; revert O(changed keys).  Memory: one old value per key
changed between two snapshots.  The past is read as a whole, by a copy of all that there is.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from replog_timeline.snapshot_registry import Delta, SnapshotRegistry, Versioned
from replog_timeline.versioned_table import ABSENT, Absent

K1 = TypeVar("K1")
K2 = TypeVar("K2")
V = TypeVar("V")


class NestedDelta(Delta, Generic[K1, K2, V]):
    """What there was at a snapshot, as far as it has changed since.

    Attributes:
        size: The number of values at the snapshot.
        old: Outer and inner key -> value at the snapshot, or `ABSENT`; of changes before the removal of the inner dictionary.
        removed: Outer key -> the inner dictionary as it was when it was removed first.
    """

    __slots__ = ("old", "removed", "size")

    def __init__(self, epoch: int, size: int) -> None:
        super().__init__(epoch)
        self.size = size
        self.old: dict[tuple[K1, K2], V | Absent] = {}
        self.removed: dict[K1, dict[K2, V]] = {}

    def note(self, outer: K1, inner: K2, value: V | Absent) -> None:
        """Keeps the value of a key that is about to change, unless it has changed since the snapshot."""
        if not (self.removed and outer in self.removed):
            self.old.setdefault((outer, inner), value)


class TimelineNestedMap(Versioned[NestedDelta[K1, K2, V]], Generic[K1, K2, V]):
    """Values by an outer and an inner key.

    Invariants:
        - no inner dictionary is empty.

    Args:
        registry: The registry of the group of objects that this one belongs to.
    """

    __slots__ = ("_current", "_size")

    def __init__(self, registry: SnapshotRegistry) -> None:
        super().__init__(registry)
        self._current: dict[K1, dict[K2, V]] = {}
        self._size = 0

    @property
    def current(self) -> dict[K1, dict[K2, V]]:
        """The present, for reading only; an inner dictionary may be another one after a change."""
        return self._current

    @property
    def size(self) -> int:
        """The number of values in all inner dictionaries together."""
        return self._size

    def at(self, epoch: int) -> dict[K1, dict[K2, V]]:
        """Returns a copy of the state at a snapshot; costs a walk over all that there is.

        Raises:
            UnknownEpochError: There is no snapshot at this epoch.
        """
        first = self._first_delta_from(self._registry.snapshot_or_raise(epoch).epoch)
        past = {outer: dict(table) for outer, table in self._current.items()}
        for delta in reversed(self._deltas[first:]):
            past |= {outer: dict(table) for outer, table in delta.removed.items()}
            _put_back(past, delta)
        return past

    def put(self, outer: K1, inner: K2, value: V) -> None:
        """Adds or replaces a value."""
        table = self._current.get(outer)
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            deltas = self._deltas
            if not deltas or (delta := deltas[-1]).epoch != snapshot.epoch:  # `_delta_to_fill` without the call
                delta = self._delta_to_fill(snapshot)  # with the size before anything is added
            if not delta.removed or outer not in delta.removed:  # `note` without the call
                delta.old.setdefault((outer, inner), ABSENT if table is None else table.get(inner, ABSENT))
        if table is None:
            self._current[outer] = {inner: value}
            self._size += 1
        else:
            size = len(table)
            table[inner] = value
            self._size += len(table) - size

    def discard(self, outer: K1, inner: K2) -> None:
        """Removes a value if it is there."""
        table = self._current.get(outer)
        if table is None or inner not in table:
            return
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            self._delta_to_fill(snapshot).note(outer, inner, table[inner])
        del table[inner]
        self._size -= 1
        if not table:
            del self._current[outer]

    def remove(self, outer: K1) -> None:
        """Removes an inner dictionary if it is there, however large it is."""
        table = self._current.get(outer)
        if table is None:
            return
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            self._delta_to_fill(snapshot).removed.setdefault(outer, table)
        del self._current[outer]
        self._size -= len(table)

    def _make_delta(self, epoch: int) -> NestedDelta[K1, K2, V]:
        return NestedDelta(epoch, self._size)

    def _restore(self, delta: NestedDelta[K1, K2, V]) -> None:
        self._current |= delta.removed
        _put_back(self._current, delta)
        self._size = delta.size

    def _merge(self, earlier: NestedDelta[K1, K2, V], later: NestedDelta[K1, K2, V]) -> None:
        for key, value in later.old.items():
            if key[0] not in earlier.removed:
                earlier.old.setdefault(key, value)
        earlier.removed = {**later.removed, **earlier.removed}

    def _restore_initial(self) -> None:
        self._current.clear()
        self._size = 0


def _put_back(tables: dict[K1, dict[K2, V]], delta: NestedDelta[K1, K2, V]) -> None:
    """Puts the values of a delta in place of those that came later."""
    for (outer, inner), value in delta.old.items():
        table = tables.setdefault(outer, {})
        if value is not ABSENT:
            table[inner] = value
        else:
            table.pop(inner, None)
        if not table:
            del tables[outer]
