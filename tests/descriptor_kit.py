"""A disk whose user runs out of descriptors at a chosen moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import File, Lock, OpenMode

T = TypeVar("T")


class FewDescriptors:
    """Lets everything through to a disk, but refuses what takes a descriptor from one moment on.

    Args:
        disk: What is behind it.

    Attributes:
        taken_count: How many descriptors were asked for.
        refused_from: The number of the first request that is refused; None: none is.
        refused_count: How many are refused from there on; None: all.
    """

    def __init__(self, disk: SimulatedFileSystem) -> None:
        self.disk = disk
        self.taken_count = 0
        self.refused_from: int | None = None
        self.refused_count: int | None = None

    def refuse(self, after: int, count: int | None = None) -> None:
        """Lets `after` more requests through and refuses the `count` that follow."""
        self.refused_from, self.refused_count = self.taken_count + after, count

    def allow(self) -> bool:
        """Refuses nothing any more; returns whether anything was."""
        refused_from, self.refused_from = self.refused_from, None
        return refused_from is not None and self.taken_count > refused_from

    def open(self, path: str, mode: OpenMode) -> File:
        return self._take(path, lambda: self.disk.open(path, mode))

    def list_dir(self, path: str) -> list[str]:
        return self._take(path, lambda: self.disk.list_dir(path))

    def sync_dir(self, path: str) -> None:
        self._take(path, lambda: self.disk.sync_dir(path))

    def lock(self, path: str) -> Lock:
        return self._take(path, lambda: self.disk.lock(path))

    def remove_tree(self, path: str) -> None:
        self._take(path, lambda: self.disk.remove_tree(path))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)

    def _take(self, path: str, take: Callable[[], T]) -> T:
        number, self.taken_count = self.taken_count, self.taken_count + 1
        first, count = self.refused_from, self.refused_count
        if first is not None and number >= first and (count is None or number < first + count):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return take()
