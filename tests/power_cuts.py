"""Where a power cut can stop an operation on a simulated disk, and which of the disks that it leaves are alike."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from typing import TypeVar

from replog.testing.simulated_faults import Faults, Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem

T = TypeVar("T")


class _Watched(Faults):
    """No faults; calls a function before each change, and before the first look after one."""

    def __init__(self, before_operation: Callable[[], None]) -> None:
        super().__init__()
        self._before_operation = before_operation
        self._seen_count = -1

    def check(self, operation: Operation, path: str) -> None:
        before_count = self.operation_count
        super().check(operation, path)
        if self._seen_count < before_count or before_count < self.operation_count:
            self._seen_count = before_count
            self._before_operation()


def stops(disk: SimulatedFileSystem, run: Callable[[], object], copied: Callable[[], T]) -> list[T]:
    """Runs an operation and makes copies wherever a power cut could stop it: before each change to the disk, after the last one, and
    where what has changed is looked at, as more may be promised by the next change.
    """
    found: list[T] = []
    disk.faults = _Watched(lambda: found.append(copied()))
    run()
    disk.faults = Faults()
    return [*found, copied()]


class Once:
    """Lets each state of a stopped machine through once.

    Most steps of an operation, and most faults, leave a disk in a state that another one has left before, with the same promises
    about it: what a start makes of it is the same, too.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def is_first(self, disk: SimulatedFileSystem, *others: Hashable) -> bool:
        """Tells whether no disk in this state came before.

        Args:
            disk: What was written, what is durable, and what is in between count; nothing is open, and no fault is to come.
            others: All else that the check depends on: what is promised of the disk, which check it is.
        """
        return self._is_new(hash((pickle.dumps((disk._disk, disk.capacity_bytes)), others)))

    def is_first_image(self, disk: SimulatedFileSystem, *others: Hashable) -> bool:
        """Tells whether no disk with these files came before.

        Args:
            disk: What was written counts, for a check that cuts no power: it cannot know what of it is durable.
            others: All else that the check depends on.
        """
        return self._is_new(hash((frozenset(disk.image().items()), others)))

    def _is_new(self, state: int) -> bool:
        is_new = state not in self._seen
        self._seen.add(state)
        return is_new
