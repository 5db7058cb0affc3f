"""The guard before every change of a log.

It refuses changes once the log has failed, was closed, or was opened for reading only; and it ends a change that began and
was kept from its end, by an interrupt (Ctrl-C) or for want of descriptors, before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from replog.errors import BrokerClosedError, ReplogError, StorageError
from replog.log.disk_space import is_out_of_files, left_unfinished


class ChangeGuard:
    """Whether one log may be changed.

    Attributes:
        refusal: The error that every change meets; None: the log may be changed.

    Invariants:
        - nothing is appended after a write or an fsync failed;
        - no change begins before the last one has ended.
    """

    __slots__ = ("_directory", "_rest", "_topic_partition", "refusal")

    def __init__(self, directory: str, topic_partition: str) -> None:
        self._directory = directory
        self._topic_partition = topic_partition
        self._rest: Callable[[], None] | None = None  # of a change that has begun; before the next one
        self.refusal: ReplogError | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or deleted."""
        return isinstance(self.refusal, BrokerClosedError)

    @property
    def has_failed(self) -> bool:
        """Whether a write or an fsync failed, so that only reads work."""
        return isinstance(self.refusal, StorageError)

    def check(self) -> None:
        """Raises the error that every change meets, if there is one, and ends an interrupted change."""
        refusal = self.refusal
        if refusal is not None:
            raise type(refusal)(str(refusal))
        if self._rest is not None:
            self.end("the last change", self._rest)

    def begin(self, rest: Callable[[], None]) -> None:
        """Begins a change.

        Args:
            rest: A function that ends or undoes it where it is interrupted; it does no harm where parts are done already.
        """
        self._rest = rest

    def done(self) -> None:
        """Ends a change of which nothing is left to do."""
        self._rest = None

    def end(self, action: str, rest: Callable[[], None]) -> None:
        """Ends a change that has begun; where no file can be opened, the next change ends it first.

        Args:
            action: The change as messages call it, such as "a truncation".
            rest: A function that does the rest, and no harm where parts of it are done already.

        Raises:
            TooManyOpenFilesError: The rest is still to be done.
            StorageError: The disk failed.
        """
        self._rest = rest
        try:
            rest()
        except OSError as error:
            if is_out_of_files(error):
                raise left_unfinished(f"{action} has not ended", self._directory, error) from error
            self.fail(f"{action} failed", error)
        except StorageError as error:
            self.note_failure(error)
            raise
        self._rest = None

    def refuse(self, refusal: ReplogError) -> None:
        """Refuses every change from now on, unless a failure does already."""
        if self.refusal is None:
            self.refusal = refusal

    def note_failure(self, error: Exception) -> None:
        """Marks the log as failed, unless it is closed: then the error of a late flush does not matter.

        May run in the thread of a flush.
        """
        if self.is_closed:
            return
        self.refusal = StorageError(
            f"{self._directory}: {error}. What is on disk is unknown now, so nothing more is appended: "
            "check the disk, then open the log again (restart the broker whose log it is), which verifies it"
        )

    def fail(self, action: str, error: OSError | StorageError) -> NoReturn:
        """Marks the log as failed, because the content of the disk is unknown, and raises."""
        self.note_failure(error)
        raise StorageError(f"{self._topic_partition}: {action}: {self.refusal}") from error
