"""A read that may wait for the disk, for a thread of its own.

Why a job: a read beyond the page cache takes from 0.1 ms to a second, and the owner of a log must not wait.  The owner
prepares it (`Log.prepare_read`), any thread runs it while the owner goes on appending, rolling, deleting or cutting, the
owner takes the result (`Log.complete_read`).

| meanwhile the owner           | the job                                                                       |
|-------------------------------|-------------------------------------------------------------------------------|
| appends, rolls                | sees the log as it was when it was prepared                                   |
| deletes or compacts segments  | reads on: its files stay open until it is completed                           |
| truncates                     | may read anything, or fail: its result is thrown away                         |
| closes or deletes the log     | reads on; completing it says that the log is closed, and closes the files     |
"""

from __future__ import annotations

from replog.log.reading.captured_read import CapturedRead, ReadOutcome
from replog_checkpoints import File


class ReadJob:
    """One read.

    Attributes:
        generation: Generation of the log when the job was prepared; a truncation since then makes the result worthless.
        finished: Whether `run` has returned.
        error: The error that the read met; raised when the job is completed, unless the log was cut meanwhile.
        outcome: The outcome of the read; None: there is none.
    """

    __slots__ = ("__weakref__", "captured", "error", "finished", "generation", "outcome")

    def __init__(self, captured: CapturedRead, generation: int) -> None:
        self.captured = captured
        self.generation = generation
        self.finished = False
        self.error: Exception | None = None
        self.outcome: ReadOutcome | None = None

    @property
    def offset(self) -> int:
        """The offset where it begins."""
        return self.captured.request.offset

    @property
    def files(self) -> tuple[File, ...]:
        """The files it reads; open until the job is completed."""
        return self.captured.files

    def raise_error(self) -> None:
        """Raises the error of the read, if there was one, and does not keep it."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it has passed this frame

    def run(self) -> None:
        """Reads, in any thread, once; keeps an error for the owner and raises nothing."""
        try:
            self.outcome = self.captured.read()
        except Exception as error:  # noqa: BLE001 -- after a truncation anything can be in the way; the owner judges
            self.error = error
        self.finished = True
