"""Replicas that leave this broker: closed on the driver, their folders taken out of the way in a thread, many at a time.

Why: a new name and an fsync for each folder of a large topic would hold the event loop, and with it the controller of this
node, for minutes.  Until a folder is out of the way no other replica may take its place: see `places`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from typing import TypeAlias

from replog.broker.driver import Driver
from replog.broker.tasks import watched_task
from replog.errors import BrokerClosedError, DiskFullError, StorageError
from replog.log import DirectoryDeletionJob, LogManager, RetiredReplica, RetirementJob

RETRY_S = 1.0
"""The pause before a rename that found no room is tried again."""

REMOVED_TOGETHER = 64
"""Folders whose files a thread removes in one go; others use the thread in between."""

Place: TypeAlias = tuple[str, int]
"""Topic and partition, which the folder of a log is named after."""

_log = logging.getLogger(__name__)


class Retirements:
    """Deletes replicas, or sets them aside.  Runs on the replica manager's driver.

    Args:
        logs: The logs of the node.
        driver: The replica driver.
        executor: Threads for the disk.
        directory_failed: Told about a disk on which folders could not be renamed.
        on_failure: Told about a bug.

    Attributes:
        on_progress: Called when some of their folders are out of the way, or could not be renamed.
    """

    def __init__(
        self,
        logs: LogManager,
        driver: Driver,
        executor: Executor,
        directory_failed: Callable[[str, StorageError], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.on_progress: Callable[[], None] = _nobody_waits
        self._logs = logs
        self._driver = driver
        self._executor = executor
        self._directory_failed = directory_failed
        self._on_failure = on_failure
        self._retired: list[RetiredReplica] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def places(self) -> AbstractSet[Place]:
        """The places of replicas whose folders may still be in the way of others."""
        return self._logs.retiring

    def add(self, place: Place, *, is_kept: bool) -> str | None:
        """Closes a replica; `begin` begins the rest for all that were added since the last call.

        Args:
            place: Its topic and partition.
            is_kept: Whether its files are set aside instead of being removed.

        Returns:
            The name that its folder gets; None: the folder is gone.
        """
        retired = self._logs.retire(*place, is_kept=is_kept)
        self._retired.append(retired)
        return None if retired.is_lost else retired.target

    def begin(self) -> None:
        """Begins to take folders out of the way, those of each log directory for themselves: a disk fails alone."""
        retired, self._retired = self._retired, []
        for job in self._logs.prepare_retirement(retired):
            task = watched_task(self._run(job), name="retire-replicas", on_failure=self._on_failure)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Waits for the new names; files that are not removed by then are removed by the next start.

        Replicas that were added and not begun get theirs too: a folder without its checkpoint line would look changed.
        """
        self._stopping = True
        self.begin()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, job: RetirementJob) -> None:
        loop = asyncio.get_running_loop()
        failure = await self._take_away(job)
        with contextlib.suppress(BrokerClosedError, StorageError):  # the driver has ended
            await self._driver.call(lambda: self._out_of_the_way(job, failure))
        removals = job.removals() if failure is None else []
        while removals and not self._stopping:
            first, removals = removals[:REMOVED_TOGETHER], removals[REMOVED_TOGETHER:]
            await loop.run_in_executor(self._executor, _remove, first)
        if failure is None and not job.is_forgotten:  # there was no room, and there is some now
            await loop.run_in_executor(self._executor, _forget, job)

    async def _take_away(self, job: RetirementJob) -> StorageError | None:
        """Runs the job, again and again while there is no room, until the node stops; returns why it failed."""
        is_told = False
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
            except DiskFullError as error:
                if not is_told:
                    _log.error("%s", error)
                is_told = True
                if self._stopping:
                    return StorageError(str(error))
                await asyncio.sleep(RETRY_S)
            except StorageError as error:
                return error
            else:
                return None

    def _out_of_the_way(self, job: RetirementJob, failure: StorageError | None) -> None:
        self._logs.complete_retirement(job, failure)
        if failure is not None:
            self._directory_failed(job.path, failure)
        self.on_progress()


def _remove(removals: Sequence[DirectoryDeletionJob]) -> None:
    for removal in removals:
        try:
            removal.run()
        except StorageError as error:
            _log.error("%s", error)


def _forget(job: RetirementJob) -> None:
    try:
        job.forget()
    except StorageError as error:  # the next checkpoint finds it, too
        _log.error("%s", error)


def _nobody_waits() -> None:
    return
