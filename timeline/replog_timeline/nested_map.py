"""A dictionary of dictionaries that can go back to any snapshot; its past cannot be read.

Why not a map of maps: each inner one is an object with deltas, known to the registry.  Of a hundred thousand with an entry
each that makes half a million objects for Python's garbage collector, which walks over all of them in every full pass.  Here
the inner dictionaries are plain, and the collector leaves alone those that hold nothing but texts, numbers, bytes and tuples
of them.

    current      {"g": {"a": 3, "b": 2}, "h": {"a": 1}}
    delta of 20  ("g", "a") was 2, ("h", "a") was absent

Cost: change O(1); revert O(changed keys).  Memory: one old value per key changed between two snapshots.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from replog_timeline.snapshot_registry import Delta, SnapshotRegistry, Versioned
from replog_timeline.versioned_table import ABSENT, Absent

K1 = TypeVar("K1")
K2 = TypeVar("K2")
V = TypeVar("V")


class NestedDelta(Delta, Generic[K1, K2, V]):
    """Old values of the keys first changed after a snapshot.

    Attributes:
        old: Outer and inner key -> value at the snapshot, or `ABSENT`.
    """

    __slots__ = ("old",)

    def __init__(self, epoch: int) -> None:
        super().__init__(epoch)
        self.old: dict[tuple[K1, K2], V | Absent] = {}


class TimelineNestedMap(Versioned[NestedDelta[K1, K2, V]], Generic[K1, K2, V]):
    """Values by an outer and an inner key.

    Invariants:
        - no inner dictionary is empty.

    Args:
        registry: The registry of the group of objects that this one belongs to.
    """

    __slots__ = ("_current",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        super().__init__(registry)
        self._current: dict[K1, dict[K2, V]] = {}

    @property
    def current(self) -> dict[K1, dict[K2, V]]:
        """The present, for reading only; an inner dictionary may be another one after a change."""
        return self._current

    def put(self, outer: K1, inner: K2, value: V) -> None:
        """Adds or replaces a value."""
        table = self._current.get(outer)
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            old, key = self._delta_to_fill(snapshot).old, (outer, inner)
            if key not in old:
                old[key] = ABSENT if table is None else table.get(inner, ABSENT)
        if table is None:
            self._current[outer] = {inner: value}
        else:
            table[inner] = value

    def discard(self, outer: K1, inner: K2) -> None:
        """Removes a value if it is there."""
        table = self._current.get(outer)
        if table is None or inner not in table:
            return
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            self._delta_to_fill(snapshot).old.setdefault((outer, inner), table[inner])
        del table[inner]
        if not table:
            del self._current[outer]

    def _make_delta(self, epoch: int) -> NestedDelta[K1, K2, V]:
        return NestedDelta(epoch)

    def _restore(self, delta: NestedDelta[K1, K2, V]) -> None:
        current = self._current
        for (outer, inner), value in delta.old.items():
            table = current.setdefault(outer, {})
            if value is not ABSENT:
                table[inner] = value
            else:
                table.pop(inner, None)
            if not table:
                del current[outer]

    def _merge(self, earlier: NestedDelta[K1, K2, V], later: NestedDelta[K1, K2, V]) -> None:
        for key, value in later.old.items():
            earlier.old.setdefault(key, value)

    def _restore_initial(self) -> None:
        self._current.clear()
