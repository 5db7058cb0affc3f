"""What can be made to go wrong on a simulated disk, and when.

A fault waits for the n-th operation of one kind (on paths that contain a given text) and fails it once, or every one from
then on.  A power cut counts every operation that changes something, so that a test can stop a procedure at each of its
steps in turn; `fail_change_after` and `fail_read_after` make each of them fail in turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from enum import Enum

from msgspec import Struct


class Operation(Enum):
    """Kinds of operations that can be made to fail."""

    OPEN = "open"  # an existing file, unchanged
    READ = "read"
    LIST = "list"  # the names in a directory
    STAT = "stat"  # size or time of change by name
    CREATE = "create"  # a file or directory, or emptying an existing file
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    WRITE_BACK = "write_back"
    SYNC_DIR = "sync_dir"
    RENAME = "rename"
    REMOVE = "remove"


_HARMLESS = (Operation.OPEN, Operation.READ, Operation.LIST, Operation.STAT)


class PowerCutError(BaseException):
    """The simulated machine has lost power; only `crash` brings it back.

    Not an `Exception`, so that no error handling of the code under test mistakes it for an error it can handle.
    """


class _Fault(Struct):
    operation: Operation
    countdown: int
    error_number: int
    path_part: str
    is_lasting: bool = False

    def is_due(self) -> bool:
        return self.countdown <= 0 if self.is_lasting else self.countdown == 0


class Faults:
    """The faults that are still to come.

    Attributes:
        operation_count: The number of operations so far that change something (all but opening, reading and listing).
        read_count: The number of operations so far that only look.
        syncs_lie: Whether `sync` and `sync_dir` return without making anything durable.
        on_power_cut: A function called when an operation meets the cut, before it raises: the disk's user is dead now.
    """

    def __init__(self) -> None:
        self.operation_count = 0
        self.read_count = 0
        self.syncs_lie = False
        self.on_power_cut: Callable[[], None] | None = None
        self._faults: list[_Fault] = []
        self._power_cut_at: int | None = None
        self._failing_read: tuple[int, int] | None = None  # number of the operation, errno
        self._failing_change: tuple[int, int] | None = None

    def fail_next(
        self, operation: Operation, *, nth: int = 1, error_number: int = errno.EIO, path_part: str = ""
    ) -> None:
        """Makes the `nth` operation of this kind from now fail, once.

        Args:
            operation: The kind of operation.
            nth: The number of the operation that fails; 1 means the very next one.
            error_number: The `errno` of the `OSError`, such as `errno.EIO` or `errno.ENOSPC`.
            path_part: The text that a path must contain; operations on other paths do not count.
        """
        if nth < 1:
            raise ValueError(f"nth {nth} is below 1")
        self._faults.append(_Fault(operation, nth, error_number, path_part))

    def fail_always(self, operation: Operation, *, error_number: int = errno.EIO, path_part: str = "") -> None:
        """Makes every operation of this kind from now on fail, until `clear`: a part of the disk is dead."""
        self._faults.append(_Fault(operation, 1, error_number, path_part, is_lasting=True))

    def fail_read_after(self, read_count: int, *, error_number: int = errno.EIO) -> None:
        """Lets this many operations that only look through; the next one fails, once."""
        if read_count < 0:
            raise ValueError(f"read_count {read_count} is negative")
        self._failing_read = (self.read_count + read_count, error_number)

    def fail_change_after(self, operation_count: int, *, error_number: int = errno.ENOSPC) -> None:
        """Lets this many changing operations through; the next one fails, once."""
        if operation_count < 0:
            raise ValueError(f"operation_count {operation_count} is negative")
        self._failing_change = (self.operation_count + operation_count, error_number)

    @property
    def is_failing(self) -> bool:
        """Whether a failure that was asked for has not come yet."""
        return bool(self._faults) or self._failing_read is not None or self._failing_change is not None

    def cut_power_after(self, operation_count: int) -> None:
        """Lets this many more changing operations through; every later operation raises `PowerCutError`."""
        if operation_count < 0:
            raise ValueError(f"operation_count {operation_count} is negative")
        self._power_cut_at = self.operation_count + operation_count

    def clear(self) -> None:
        """Forgets every fault and restores power."""
        self._faults.clear()
        self._power_cut_at = None
        self._failing_read = self._failing_change = None
        self.syncs_lie = False

    def check(self, operation: Operation, path: str) -> None:
        """Raises the fault that is due; called before each operation takes effect.

        Raises:
            OSError: A fault is due.
            PowerCutError: The power is off.
        """
        if self._power_cut_at is not None and self.operation_count >= self._power_cut_at:
            if self.on_power_cut is not None:
                self.on_power_cut()
            raise PowerCutError(f"power is off at {operation.value} of {path}")
        if operation in _HARMLESS:
            self._failing_read = self._count_down(self._failing_read, self.read_count, path)
            self.read_count += 1
        else:
            self.operation_count += 1
            self._failing_change = self._count_down(self._failing_change, self.operation_count - 1, path)
        if self._faults:
            self._check_faults(operation, path)

    def _check_faults(self, operation: Operation, path: str) -> None:
        for fault in self._faults:
            if fault.operation is operation and fault.path_part in path:
                fault.countdown -= 1
        matching = (fault for fault in self._faults if fault.operation is operation and fault.path_part in path)
        due = next((fault for fault in matching if fault.is_due()), None)
        if due is not None:
            if not due.is_lasting:
                self._faults.remove(due)
            raise _error(due.error_number, path)

    def _count_down(self, failing: tuple[int, int] | None, count: int, path: str) -> tuple[int, int] | None:
        """Raises when operation number `count` is the failing one; else what is still to come."""
        if failing is None or failing[0] != count:
            return failing
        self._failing_read = self._failing_change = None
        raise _error(failing[1], path)


def _error(error_number: int, path: str) -> OSError:
    return OSError(error_number, f"{os.strerror(error_number)} (simulated)", path)
