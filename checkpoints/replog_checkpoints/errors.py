"""What can go wrong with a checkpoint, as one tree; replog wraps it at its boundary.

::

    CheckpointError
    └── CorruptCheckpointError(path, line, reason)    the file is there but cannot be trusted

A file that is absent is no error: readers return None, and the caller decides whether absence is harmless.
Errors of the disk itself stay `OSError`.
"""

from __future__ import annotations


class CheckpointError(Exception):
    """Base of everything this library raises on purpose."""


class DamagedCheckpointError(CheckpointError):
    """A file that cannot be read.  Never taken as empty or as zero: that could throw data away.

    Attributes:
        path: The file.
        line: The 1-based line of the first problem, 0 when the file as a whole is meant.
        reason: The fault that was found.
    """

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path} line {line}: {reason}" if line else f"{path}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason

    def __reduce__(self) -> tuple[type[DamagedCheckpointError], tuple[str, int, str]]:
        return type(self), (self.path, self.line, self.reason)  # the default would pass the message alone
