"""Closing the files of a log, whose jobs in other threads may still use them."""

from __future__ import annotations

from collections.abc import Iterable

from replog_checkpoints import File


class FileCloser:
    """Closes files, but never under a job that uses them in another thread.

    Invariants:
        - a file that a job holds stays open until the last job that holds it has let go;
        - no call but these closes a file of a log.
    """

    __slots__ = ("_holds", "_waiting")

    def __init__(self) -> None:
        self._holds: dict[File, int] = {}
        self._waiting: set[File] = set()

    def close(self, file: File) -> None:
        """Closes `file` now, or once no job holds it."""
        if file in self._holds:
            self._waiting.add(file)
        else:
            file.close()

    def hold(self, files: Iterable[File]) -> None:
        """Keeps these files open for a job that is handed out; each call needs its `let_go`."""
        for file in files:
            self._holds[file] = self._holds.get(file, 0) + 1

    def let_go(self, files: Iterable[File]) -> None:
        """Ends a `hold`: the job's result was taken, or never will be.  Closes what waited for the last job to end."""
        for file in files:
            left = self._holds.pop(file) - 1
            if left:
                self._holds[file] = left
            elif file in self._waiting:
                self._waiting.remove(file)
                file.close()
