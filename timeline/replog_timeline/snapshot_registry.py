"""Snapshots of many objects at once, kept as the differences that came after them.

Why: a controller applies its own records before they are committed, answers reads from the committed past, and must be
able to take everything back when it loses leadership (docs/KAFKA.md 6.2, 7).  Copying all state for every batch of
records would cost far more than the batch.

How: every object holds its current state plainly.  Making a snapshot writes down nothing but an epoch.  The first change
of a value after a snapshot puts the old value into that snapshot's delta of that object; later changes need nothing.

    epoch 10            epoch 20            now
    a=1 b=1             a=2 b=1             a=3 b=2 c=1
    delta: a was 1      delta: a was 2, b was 1, c was absent

- The value at an epoch is the first one found in the deltas from that epoch on, else the current one.
- Reverting walks the deltas from the newest back, putting old values in place: the cost is what changed.
- Deleting a snapshot hands its delta to the one before it, which keeps its own value where both have one; the oldest
  snapshot's delta is dropped.

Single-threaded by design: one owner makes all changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from operator import attrgetter
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from replog_timeline.errors import EpochOrderError, UnknownEpochError


class Delta:
    """What one object looked like at one snapshot, as far as it differs from what came next.

    Attributes:
        epoch: The epoch of the snapshot it belongs to; changes when that snapshot is deleted.
    """

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class Snapshot:
    """A moment that can be read and returned to.

    Attributes:
        epoch: The number under which it is known to its registry.
        changed: Objects that have a delta here, each once.
        deleted: Whether it has gone away, so that views of the past notice.
    """

    __slots__ = ("changed", "deleted", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.changed: list[Versioned[Any]] = []
        self.deleted = False


D = TypeVar("D", bound=Delta)
_epoch_of = attrgetter("epoch")


class Versioned(ABC, Generic[D]):
    """An object with a current state and deltas.  The methods without underscore are for the registry.

    Invariants:
        - deltas are in ascending order of epoch, at most one per snapshot;
        - a snapshot lists this object exactly if this object has a delta for it.
    """

    __slots__ = ("__weakref__", "_deltas", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._deltas: list[D] = []  # oldest first
        registry.register(self)

    def revert_newest_delta(self) -> None:
        """Puts the old values of the newest delta back and forgets it."""
        self._restore(self._deltas.pop())

    def drop_oldest_delta(self) -> None:
        """Forgets the oldest delta: nobody can read it any more."""
        del self._deltas[0]

    def move_delta(self, epoch: int, earlier_epoch: int) -> bool:
        """Hands the delta of `epoch` to the snapshot before it.

        Returns:
            Whether that snapshot had none of this object so far.
        """
        position = self._first_delta_from(epoch)
        delta = self._deltas[position]
        if position == 0 or self._deltas[position - 1].epoch != earlier_epoch:
            delta.epoch = earlier_epoch
            return True
        self._merge(self._deltas[position - 1], delta)
        del self._deltas[position]
        return False

    def reset_to_initial(self) -> None:
        """Makes the current state that of a new object, and forgets all deltas."""
        self._deltas.clear()
        self._restore_initial()

    def _delta_to_fill(self, snapshot: Snapshot) -> D:
        """Returns the delta of `snapshot`, the latest one; makes it if this is the first change since."""
        deltas = self._deltas
        if deltas and deltas[-1].epoch == snapshot.epoch:
            return deltas[-1]
        delta = self._make_delta(snapshot.epoch)
        deltas.append(delta)
        snapshot.changed.append(self)
        return delta

    def _first_delta_from(self, epoch: int) -> int:
        """Returns the position of the first delta at or after `epoch`; the number of deltas if there is none."""
        return bisect_left(self._deltas, epoch, key=_epoch_of)

    @abstractmethod
    def _make_delta(self, epoch: int) -> D:
        """Returns an empty delta of the state as it is now."""

    @abstractmethod
    def _restore(self, delta: D) -> None:
        """Makes the current state what it was at the delta's snapshot."""

    @abstractmethod
    def _merge(self, earlier: D, later: D) -> None:
        """Adds to `earlier` what only `later` knows."""

    @abstractmethod
    def _restore_initial(self) -> None:
        """Makes the current state that of a new object."""


class SnapshotRegistry:
    """The snapshots of a group of objects.  Epochs are any integers that rise, such as log offsets.

    Objects register themselves when they are made and are held weakly, except while a snapshot has a delta of theirs.
    An object made after a snapshot reads at that snapshot as it was when it was new.

    Attributes:
        latest_snapshot: The snapshot that changes are recorded for; None while there are no snapshots.
    """

    __slots__ = ("_epochs", "_object_count", "_objects", "_snapshots", "latest_snapshot")

    def __init__(self) -> None:
        self.latest_snapshot: Snapshot | None = None
        self._epochs: list[int] = []  # ascending
        self._snapshots: dict[int, Snapshot] = {}
        self._objects: WeakValueDictionary[int, Versioned[Any]] = WeakValueDictionary()
        self._object_count = 0

    @property
    def latest_epoch(self) -> int | None:
        """Epoch of the latest snapshot; None while there are none."""
        return self._epochs[-1] if self._epochs else None

    def epochs(self) -> tuple[int, ...]:
        """Returns the epochs of all snapshots, ascending."""
        return tuple(self._epochs)

    def has_snapshot(self, epoch: int) -> bool:
        """Whether there is a snapshot at exactly this epoch."""
        return epoch in self._snapshots

    def create_snapshot(self, epoch: int) -> None:
        """Makes this moment readable and returnable under `epoch`.  Copies nothing.

        Raises:
            EpochOrderError: `epoch` is not above the latest one.
        """
        if self._epochs and epoch <= self._epochs[-1]:
            raise EpochOrderError(epoch, self._epochs[-1])
        self.latest_snapshot = Snapshot(epoch)
        self._snapshots[epoch] = self.latest_snapshot
        self._epochs.append(epoch)

    def get_or_create_snapshot(self, epoch: int) -> bool:
        """Makes a snapshot like `create_snapshot`; if the latest one has this epoch it stays, later changes or not.

        Returns:
            Whether a snapshot was made.

        Raises:
            EpochOrderError: `epoch` is below the latest one.
        """
        if epoch == self.latest_epoch:
            return False
        self.create_snapshot(epoch)
        return True

    def snapshot_or_raise(self, epoch: int) -> Snapshot:
        """Returns the snapshot at exactly this epoch, for objects that read the past.

        Raises:
            UnknownEpochError: There is no such snapshot.
        """
        snapshot = self._snapshots.get(epoch)
        if snapshot is None:
            raise UnknownEpochError(epoch, self._epochs)
        return snapshot

    def delete_snapshot(self, epoch: int) -> None:
        """Forgets one snapshot; what other epochs read does not change.  Costs the size of its deltas.

        Raises:
            UnknownEpochError: There is no snapshot at this epoch.
        """
        snapshot = self.snapshot_or_raise(epoch)
        position = bisect_left(self._epochs, epoch)
        if position == 0:
            self._drop_oldest(1)
            return
        earlier = self._snapshots[self._epochs[position - 1]]
        for changed in snapshot.changed:
            if changed.move_delta(epoch, earlier.epoch):
                earlier.changed.append(changed)
        self._forget(epoch)
        del self._epochs[position]
        self.latest_snapshot = self._snapshots[self._epochs[-1]]

    def delete_snapshots_up_to(self, epoch: int) -> None:
        """Forgets all snapshots strictly below `epoch`, which needs no snapshot of its own and keeps it if it has."""
        self._drop_oldest(bisect_left(self._epochs, epoch))

    def revert_to_snapshot(self, epoch: int) -> None:
        """Makes every object what it was at `epoch` and forgets all later snapshots.  The one at `epoch` stays.

        Costs the number of values that changed since, however large the objects are.

        Raises:
            UnknownEpochError: There is no snapshot at this epoch; nothing was changed.
        """
        target = self.snapshot_or_raise(epoch)
        while (latest := self._epochs[-1]) != epoch:
            _revert_changes(self._snapshots[latest])
            self._forget(latest)
            self._epochs.pop()
        _revert_changes(target)
        self.latest_snapshot = target

    def reset(self) -> None:
        """Forgets all snapshots and makes every object what it was when it was new."""
        for epoch in self._epochs:
            self._forget(epoch)
        self._epochs.clear()
        self.latest_snapshot = None
        for versioned in list(self._objects.values()):
            versioned.reset_to_initial()

    def register(self, versioned: Versioned[Any]) -> None:
        """Adds an object to the group; each calls this when it is made."""
        self._objects[self._object_count] = versioned
        self._object_count += 1

    def _drop_oldest(self, count: int) -> None:
        for epoch in self._epochs[:count]:
            for changed in self._snapshots[epoch].changed:
                changed.drop_oldest_delta()
            self._forget(epoch)
        del self._epochs[:count]
        if not self._epochs:
            self.latest_snapshot = None

    def _forget(self, epoch: int) -> None:
        snapshot = self._snapshots.pop(epoch)
        snapshot.deleted = True
        snapshot.changed = []


def _revert_changes(snapshot: Snapshot) -> None:
    """Takes back everything since the latest snapshot, which this must be."""
    for changed in snapshot.changed:
        changed.revert_newest_delta()
    snapshot.changed = []
