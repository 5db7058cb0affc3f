"""Closing the files of a log, whose jobs in other threads may still use them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

from replog_checkpoints import File


class FileUser(Protocol):
    """A job that uses files in another thread."""

    @property
    def files(self) -> Sequence[File]:
        """The files that must stay open under it."""
        ...


class FileCloser:
    """Closes files, but never under a job that uses them in another thread.

    Invariants:
        - a file that a job holds stays open until the last job that holds it has let go, or that job is gone: its caller may
          have been interrupted before it was run;
        - no call but these closes a file of a log.

    Attributes:
        unwanted: The files to be closed as soon as no job holds them.
    """

    __slots__ = ("_users", "unwanted")

    def __init__(self) -> None:
        self._users: dict[int, weakref.ref[FileUser]] = {}  # by `id`: thousands of reads may wait for the disk
        self.unwanted: set[File] = set()

    def close(self, file: File) -> None:
        """Closes `file` now, or once no job holds it."""
        self.unwanted.add(file)
        self.close_unwanted()

    def hold(self, user: FileUser) -> None:
        """Keeps the files of a job open that is handed out, until its `let_go`."""
        self._users[id(user)] = weakref.ref(user)

    def let_go(self, user: FileUser) -> None:
        """Ends a `hold`: the job's result was taken, or never will be.  Closes files that waited for the last job to end."""
        self._users.pop(id(user), None)
        self.close_unwanted()

    def close_unwanted(self) -> None:
        """Closes files that are unwanted and not held."""
        if not self.unwanted:
            return
        users = [user for user in (known() for known in self._users.values()) if user is not None]
        self._users = {id(user): weakref.ref(user) for user in users}  # without those that are gone
        held = {file for user in users for file in user.files}
        for file in self.unwanted - held:
            file.close()
            self.unwanted.discard(file)
