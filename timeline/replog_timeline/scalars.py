"""Single values that can also be read as they were at any snapshot."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from replog_timeline.snapshot_registry import Delta, SnapshotRegistry, Versioned

T = TypeVar("T")


class _ValueDelta(Delta, Generic[T]):
    """The value at a snapshot, before the first change after it."""

    __slots__ = ("old",)

    def __init__(self, epoch: int, old: T) -> None:
        super().__init__(epoch)
        self.old = old


class TimelineObject(Versioned[_ValueDelta[T]], Generic[T]):
    """One value of any type.  The value itself should be immutable: only `set` is seen by the timeline."""

    __slots__ = ("_initial", "_value")

    def __init__(self, registry: SnapshotRegistry, initial: T) -> None:
        """Creates a value whose changes `registry` can take back.

        Args:
            registry: The registry of the group of objects that this one belongs to.
            initial: The value that `reset` goes back to, and that snapshots older than this object read.
        """
        super().__init__(registry)
        self._initial = initial
        self._value = initial

    def get(self, *, epoch: int | None = None) -> T:
        """Returns the value now, or at the snapshot of exactly this epoch.

        Raises:
            UnknownEpochError: There is no such snapshot.
        """
        if epoch is None:
            return self._value
        position = self._first_delta_from(self._registry.snapshot_or_raise(epoch).epoch)
        return self._deltas[position].old if position < len(self._deltas) else self._value

    def set(self, value: T) -> None:
        """Replaces the value."""
        snapshot = self._registry.latest_snapshot
        if snapshot is not None:
            self._delta_to_fill(snapshot)
        self._value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value!r})"

    def _make_delta(self, epoch: int) -> _ValueDelta[T]:
        return _ValueDelta(epoch, self._value)

    def _restore(self, delta: _ValueDelta[T]) -> None:
        self._value = delta.old

    def _merge(self, earlier: _ValueDelta[T], later: _ValueDelta[T]) -> None:
        """Leaves `earlier` as it is: its value is the one that counts at the earlier snapshot."""

    def _restore_initial(self) -> None:
        self._value = self._initial


class _TimelineWholeNumber(TimelineObject[int]):
    """A whole number in the range of its record field: a value that cannot be written must not be kept either."""

    __slots__ = ()
    _BITS: ClassVar[int]

    def __init__(self, registry: SnapshotRegistry, initial: int = 0) -> None:
        self._check(initial)
        super().__init__(registry, initial)

    def set(self, value: int) -> None:
        """Replaces the value.

        Raises:
            OverflowError: The value is out of range; nothing was changed.
        """
        self._check(value)
        super().set(value)

    def increment(self) -> int:
        """Adds one and returns the new value.  Raises as `set` does."""
        self.set(self._value + 1)
        return self._value

    def decrement(self) -> int:
        """Subtracts one and returns the new value.  Raises as `set` does."""
        self.set(self._value - 1)
        return self._value

    def _check(self, value: int) -> None:
        limit = 1 << (self._BITS - 1)
        if not -limit <= value < limit:
            raise OverflowError(f"{value} does not fit {self._BITS} bits")


class TimelineInteger(_TimelineWholeNumber):
    """A whole number of 32 bits, signed."""

    __slots__ = ()
    _BITS = 32


class TimelineLong(_TimelineWholeNumber):
    """A whole number of 64 bits, signed."""

    __slots__ = ()
    _BITS = 64
