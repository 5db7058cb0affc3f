"""Flushing: the part of durability that may run in another thread.

Why a job: an fsync takes from 0.2 ms to seconds, and the owner of a log must not wait.  The owner captures what is dirty
(`Log.prepare_flush`), any thread runs the job, the owner takes the result (`Log.complete_flush`).

A failed fsync is never retried: the kernel may have dropped the dirty pages and would report success the second time.
The log refuses every later append from the moment the job fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from replog.log.disk_space import is_out_of_files
from replog_checkpoints import File, FileSystem


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


class FlushJob:
    """Everything that must reach stable storage for `end_offset` to count.

    Attributes:
        files: The files that it syncs; they stay open until the job is completed.
        end_offset: Log end offset when the job was prepared, exclusive.
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        beside: Those of the files that belong to this flush alone (indexes, snapshots) and are closed after it.
        directory_changes: Number of changes of names in the directory that the job covers.
        window_end: End of the dirty window that the job covers.
        era: Era of the log's `flushed-offset` file when the job was prepared.
        finished: Whether `run` returned without an error.
        refused: The error with which the directory could not be opened because too many files are open; None: there is
            none.
    """

    __slots__ = (
        "_directory",
        "_fs",
        "_gate",
        "_on_error",
        "_on_flushed",
        "beside",
        "directory_changes",
        "end_offset",
        "era",
        "files",
        "finished",
        "generation",
        "refused",
        "window_end",
    )

    def __init__(
        self,
        fs: FileSystem,
        files: Sequence[File],
        directory: str | None,
        *,
        end_offset: int,
        generation: int,
        era: int,
        beside: tuple[File, ...],
        directory_changes: int,
        window_end: int,
        on_error: Callable[[OSError], None],
        on_flushed: Callable[[FlushJob], None],
        gate: threading.Lock,
    ) -> None:
        self._fs = fs
        self.files = files
        self._directory = directory
        self._on_error = on_error
        self._on_flushed = on_flushed
        self._gate = gate
        self.end_offset = end_offset
        self.generation = generation
        self.era = era
        self.beside = beside
        self.directory_changes = directory_changes
        self.window_end = window_end
        self.finished = False
        self.refused: OSError | None = None

    def run(self) -> None:
        """Syncs the files, then the directory if names in it changed.  Any thread; once.

        Raises:
            OSError: What is on disk is unknown; the log directory must go offline.  Never run it again.
        """
        try:
            for file in self.files:
                file.sync()
            if self._directory is not None:
                self._fs.sync_dir(self._directory)
        except OSError as error:
            if is_out_of_files(error):  # no fsync was tried on what could not be opened: the next flush does
                self.refused = error
            else:
                self._on_error(error)
            raise
        with self._gate:  # a write-back under way may have been told the error instead: then it is noted now
            try:
                self._on_flushed(self)
            except OSError as error:
                self._on_error(error)
                raise
            self.finished = True
