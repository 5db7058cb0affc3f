"""What can be made to go wrong on a simulated disk, and when.

A fault waits for the n-th operation of one kind (on paths that contain a given text) and fails it once.  A power cut
counts every operation that changes something, so that a test can stop a procedure at each of its steps in turn.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum


class Operation(Enum):
    """Kinds of operations that can be made to fail."""

    OPEN = "open"  # an existing file, unchanged
    READ = "read"
    CREATE = "create"  # a file or directory, or emptying an existing file
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SYNC_DIR = "sync_dir"
    RENAME = "rename"
    REMOVE = "remove"


_HARMLESS = (Operation.OPEN, Operation.READ)


class PowerCutError(BaseException):
    """The simulated machine has lost power; only `crash` brings it back.

    Not an `Exception`, so that no error handling of the code under test mistakes it for an error it can handle.
    """


@dataclass(slots=True)
class _Fault:
    operation: Operation
    countdown: int
    error_number: int
    path_part: str


class Faults:
    """The faults that are still to come.

    Attributes:
        operation_count: operations so far that change something (all but opening and reading).
        syncs_lie: while True, `sync` and `sync_dir` return without making anything durable.
    """

    def __init__(self) -> None:
        self.operation_count = 0
        self.syncs_lie = False
        self._faults: list[_Fault] = []
        self._power_cut_at: int | None = None

    def fail_next(
        self, operation: Operation, *, nth: int = 1, error_number: int = errno.EIO, path_part: str = ""
    ) -> None:
        """Makes the `nth` operation of this kind from now fail, once.

        Args:
            operation: the kind of operation.
            nth: 1 means the very next one.
            error_number: the `errno` of the `OSError`, such as `errno.EIO` or `errno.ENOSPC`.
            path_part: only operations on paths that contain this text count.
        """
        if nth < 1:
            raise ValueError(f"nth {nth} is below 1")
        self._faults.append(_Fault(operation, nth, error_number, path_part))

    def cut_power_after(self, operation_count: int) -> None:
        """Lets this many more changing operations through; every later operation raises `PowerCutError`."""
        if operation_count < 0:
            raise ValueError(f"operation_count {operation_count} is negative")
        self._power_cut_at = self.operation_count + operation_count

    def clear(self) -> None:
        """Forgets every fault and restores power."""
        self._faults.clear()
        self._power_cut_at = None
        self.syncs_lie = False

    def check(self, operation: Operation, path: str) -> None:
        """Called before each operation takes effect.

        Raises:
            OSError: a fault is due.
            PowerCutError: the power is off.
        """
        if self._power_cut_at is not None and self.operation_count >= self._power_cut_at:
            raise PowerCutError(f"power is off at {operation.value} of {path}")
        if operation not in _HARMLESS:
            self.operation_count += 1
        for fault in self._faults:
            if fault.operation is operation and fault.path_part in path:
                fault.countdown -= 1
        due = next((fault for fault in self._faults if fault.countdown == 0), None)
        if due is not None:
            self._faults.remove(due)
            raise OSError(due.error_number, f"{os.strerror(due.error_number)} (simulated)", path)
