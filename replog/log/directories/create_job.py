"""New replicas that are made in threads, for an owner that goes on meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from replog.errors import ReplogError
from replog.log.directories.creation import NewReplica
from replog.log.directories.loaded_replica import LoadedReplica
from replog.log.directories.log_directory import LogDirectory


class CreateJob:
    """The creation of one replica; see `LogManager.prepare_create`.  Run once, in any thread.

    Attributes:
        home: The log directory that the replica is made in.
        replica: The replica that is to be made.
        result: The replica that was made; None: the job has not run, or failed.
        error: The error with which it failed; None: it did not.
    """

    def __init__(self, home: LogDirectory, replica: NewReplica, now_ms: int) -> None:
        self.home = home
        self.replica = replica
        self.now_ms = now_ms
        self.result: LoadedReplica | None = None
        self.error: ReplogError | None = None

    def run(self) -> None:
        """Makes the replica; an error is kept for the owner."""
        run_together([self])


def run_together(jobs: Sequence[CreateJob]) -> None:
    """Runs all jobs, those of one directory in one go, which costs far less than one by one."""
    for home in dict.fromkeys(job.home for job in jobs):
        here = [job for job in jobs if job.home is home]
        for job, made in zip(here, home.create([job.replica for job in here], here[0].now_ms), strict=True):
            job.error = made.error
            job.result = None if made.error is not None else made
