"""Folders for the scripts by which Spark starts Java and Python: each is there as long as the process that made it, and its forks.

A process that ends removes its folder; one that is killed cannot.  So it holds a lock on the folder, which ends with the process,
and whoever makes a folder removes those that nobody holds.

::

    TMPDIR/.replog-spark-scripts-k3x9/     being made, not locked yet: nobody touches it
    TMPDIR/replog-spark-scripts-k3x9/      locked, from its first moment under this name
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "replog-spark-scripts-"


class ScriptFolder:
    """A new folder, which this process holds.

    Args:
        parent: The folder to make it in; what killed processes have left there is removed.

    Attributes:
        path: Where it is.
    """

    def __init__(self, parent: Path) -> None:
        for left in parent.glob(f"{PREFIX}*"):
            _remove_abandoned(left)
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=parent))
        self._owner_pid = os.getpid()
        self._descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # a file system without locks: nobody else gets this one either
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = made.rename(parent / made.name.removeprefix("."))

    def remove(self) -> None:
        """Removes it when the process that made it ends, and not when a fork of it does."""
        if os.getpid() == self._owner_pid:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Removes a folder that no process holds; leaves one that is another user's, or gone by now."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
