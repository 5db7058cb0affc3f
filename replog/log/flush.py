"""Flushing: the part of durability that may run in another thread.

Why a job: an fsync takes from 0.2 ms to seconds, and the owner of a log must not wait.  The owner captures what is dirty
(`Log.prepare_flush`), any thread runs the job, the owner takes the result (`Log.complete_flush`).

A failed fsync is never retried: the kernel may have dropped the dirty pages and would report success the second time.
The log refuses every later append from the moment the job fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replog_checkpoints import File, FileSystem


class FileCloser:
    """Closes files, but never beside a flush that may be syncing them in another thread."""

    __slots__ = ("_in_flight", "_waiting")

    def __init__(self) -> None:
        self._in_flight = 0
        self._waiting: list[File] = []

    def close(self, file: File) -> None:
        """Closes `file` now, or once no flush is in flight."""
        if self._in_flight:
            self._waiting.append(file)
        else:
            file.close()

    def flush_started(self) -> None:
        """A job was handed out."""
        self._in_flight += 1

    def flush_ended(self) -> None:
        """A job's result was taken."""
        self._in_flight = max(0, self._in_flight - 1)
        if not self._in_flight:
            self.close_waiting()

    def close_waiting(self) -> None:
        """Closes what is left, or leaves it to the end of the flush that is in flight (a log deleted meanwhile)."""
        if self._in_flight:
            return
        waiting, self._waiting = self._waiting, []
        for file in waiting:
            file.close()


class FlushJob:
    """Everything that must reach stable storage for `end_offset` to count.

    Attributes:
        end_offset: log end offset when the job was prepared, exclusive.
        generation: of the log when it was prepared; a truncation in between makes the result worthless.
        beside: those of the files that belong to this flush alone (indexes, snapshots) and are closed after it.
        directory_changes: count of changes of names in the directory that the job covers.
        finished: `run` returned without an error.
    """

    __slots__ = (
        "_directory",
        "_files",
        "_fs",
        "_on_error",
        "beside",
        "directory_changes",
        "end_offset",
        "finished",
        "generation",
    )

    def __init__(
        self,
        fs: FileSystem,
        files: Sequence[File],
        directory: str | None,
        *,
        end_offset: int,
        generation: int,
        beside: tuple[File, ...],
        directory_changes: int,
        on_error: Callable[[OSError], None],
    ) -> None:
        self._fs = fs
        self._files = files
        self._directory = directory
        self._on_error = on_error
        self.end_offset = end_offset
        self.generation = generation
        self.beside = beside
        self.directory_changes = directory_changes
        self.finished = False

    def run(self) -> None:
        """Syncs the files, then the directory if names in it changed.  Any thread; once.

        Raises:
            OSError: what is on disk is unknown; the log directory must go offline.  Never run it again.
        """
        try:
            for file in self._files:
                file.sync()
            if self._directory is not None:
                self._fs.sync_dir(self._directory)
        except OSError as error:
            self._on_error(error)
            raise
        self.finished = True
