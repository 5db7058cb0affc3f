"""Tables with and without a past: the timeline's map, a plain dict, and a dict that is copied at each snapshot."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from bench.model import System
from replog_timeline import SnapshotRegistry, TimelineHashMap

SNAPSHOTS_MAX = 4
"""Snapshots kept; older ones go, as those below the committed offset do on a controller."""


class TableSystem(System):
    """A table of numbers.  `table` is the present; the rest is what there is of a past."""

    has_past = True
    table: MutableMapping[int, int]

    def start(self, directory: Path) -> None:  # noqa: ARG002 -- nothing is written to disk
        self.clear()

    def stop(self) -> None:
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """An empty table without snapshots."""

    def snapshot(self, epoch: int) -> None:
        """Keeps this moment; of those before, the last `SNAPSHOTS_MAX` - 1 stay."""
        raise NotImplementedError

    def past(self, epoch: int) -> Mapping[int, int]:
        """The table at a snapshot."""
        raise NotImplementedError

    def revert(self, epoch: int) -> None:
        """Back to a snapshot."""
        raise NotImplementedError


class Timeline(TableSystem):
    name = "replog"

    def clear(self) -> None:
        self._registry = SnapshotRegistry()
        self.table = self._map = TimelineHashMap[int, int](self._registry)
        self._epochs: deque[int] = deque()

    def snapshot(self, epoch: int) -> None:
        self._registry.create_snapshot(epoch)
        self._epochs.append(epoch)
        if len(self._epochs) > SNAPSHOTS_MAX:
            self._epochs.popleft()
            self._registry.delete_snapshots_up_to(self._epochs[0])

    def past(self, epoch: int) -> Mapping[int, int]:
        return self._map.at(epoch)

    def revert(self, epoch: int) -> None:
        self._registry.revert_to_snapshot(epoch)


class PlainDict(TableSystem):
    """What a table costs that has no past at all."""

    name = "dict"
    has_past = False

    def clear(self) -> None:
        self.table = {}


class CopiedDict(TableSystem):
    """The simplest way to a past: the whole table is copied at each snapshot."""

    name = "copy-on-snapshot"

    def clear(self) -> None:
        self.table = self._dict = dict[int, int]()
        self._copies: dict[int, dict[int, int]] = {}

    def snapshot(self, epoch: int) -> None:
        self._copies[epoch] = self._dict.copy()
        if len(self._copies) > SNAPSHOTS_MAX:
            del self._copies[next(iter(self._copies))]

    def past(self, epoch: int) -> Mapping[int, int]:
        return self._copies[epoch]

    def revert(self, epoch: int) -> None:
        self.table = self._dict = self._copies[epoch].copy()
