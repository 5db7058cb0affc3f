"""Compaction on a broker: one task that takes the dirtiest log, has a thread compact it, and takes the next.

Why one at a time: a pass takes memory for its keys (`log.cleaner.dedupe.buffer.size`) and as much of the disk as it may
get; two of them would only share.  Logs whose `cleanup.policy` does not say `compact` are not looked at, nor the metadata
log, which has snapshots.

A failure concerns one partition: it is not tried again until the broker restarts, one line says why, and everything else goes
on.  If the disk is full, the pass waits for room.  A failed fsync takes the replica offline, as elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.tasks import watched_task
from replog.config.server import ServerConfig
from replog.errors import BrokerClosedError, DiskFullError, ReplogError, StorageError
from replog.log import CompactionJob, CompactionSettings, CompactionStats, LogManager, Throttle
from replog.waiting.task_ends import end_tasks

_log = logging.getLogger(__name__)


class LogCleaner:
    """The compaction of all logs of a broker.

    Args:
        config: The node's configuration, with the `log.cleaner` settings.
        logs: The log directories.
        stepper: The stepper of this broker's replicas.
        on_failure: Told about a bug.

    Attributes:
        uncleanable: The replicas that are not tried again, and why.
    """

    def __init__(
        self,
        config: ServerConfig,
        logs: LogManager,
        stepper: ReplicaStepper,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.uncleanable: dict[ReplicaKey, str] = {}
        self._logs = logs
        self._stepper = stepper
        self._on_failure = on_failure
        self._backoff_s = config.log_cleaner_backoff_ms / 1000
        self._settings = CompactionSettings(
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            dedupe_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=config.log_cleaner_io_buffer_size,
        )
        rate = config.log_cleaner_io_max_bytes_per_second
        self._throttle = None if rate is None else Throttle(rate, clock=time.monotonic, sleep=time.sleep)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replog-cleaner")
        self._job: CompactionJob | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = watched_task(self._run(), name="log-cleaner", on_failure=self._on_failure)

    async def stop(self) -> None:
        """Ends the pass that runs; the next one sweeps its files."""
        await end_tasks(self._task)
        if self._job is not None:
            self._job.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def clean_dirtiest(self) -> bool:
        """Compacts the log that needs it most, in one pass; returns whether one was compacted."""
        replica = await self._dirtiest()
        if replica is None:
            return False
        job = await self._stepper.driver.call(lambda: self._prepare(replica))
        if job is None:
            return False
        self._job = job
        await asyncio.get_running_loop().run_in_executor(self._thread, job.run, self._throttle)
        stats = await self._stepper.driver.call(lambda: self._complete(replica, job))
        self._job = None
        if stats is None:
            return False
        _log.info("%s: %s", replica.name, stats.describe())
        await self._checkpoint(replica)
        return True

    async def _run(self) -> None:
        """Compacts log after log, with a pause when there was none, until cancelled or until the driver has ended."""
        while True:
            try:
                if not await self.clean_dirtiest():
                    await asyncio.sleep(self._backoff_s)
            except BrokerClosedError:
                return

    async def _dirtiest(self) -> Replica | None:
        """Finds the replica whose log needs compaction most: an overdue one first, then the largest dirty share.

        Looks at one log after the other, with other work of the driver in between.

        Returns:
            None where no log needs it.
        """
        best: tuple[bool, float] = (False, 0.0)
        found: Replica | None = None
        for replica in list(self._stepper.replicas.values()):
            if replica.log.config.compacts and replica.key not in self.uncleanable:
                need = await self._stepper.driver.call(partial(self._need, replica))
                if need is not None and need > best:
                    best, found = need, replica
        return found

    # ---- on the driver ------------------------------------------------------------------------------------------------

    def _need(self, replica: Replica) -> tuple[bool, float] | None:
        if self._stepper.replicas.get(replica.key) is not replica:
            return None
        try:
            self._stepper.flushes.roll_if_due(replica)
            dirtiness = replica.log.dirtiness(self._stepper.clock.wall_ms(), replica.high_watermark)
        except ReplogError as error:
            self._note_error(replica, error)
            return None
        return (dirtiness.is_overdue, dirtiness.ratio) if dirtiness.is_due(replica.log.config) else None

    def _prepare(self, replica: Replica) -> CompactionJob | None:
        if self._stepper.replicas.get(replica.key) is not replica:
            return None
        try:
            return replica.log.prepare_compaction(self._stepper.clock.wall_ms(), replica.high_watermark, self._settings)
        except ReplogError as error:
            self._note_error(replica, error)
            return None

    def _complete(self, replica: Replica, job: CompactionJob) -> CompactionStats | None:
        try:
            return replica.log.complete_compaction(job, self._stepper.clock.wall_ms())
        except ReplogError as error:
            self._note_error(replica, error)
            return None

    def _note_error(self, replica: Replica, error: ReplogError) -> None:
        if isinstance(error, BrokerClosedError):
            return  # the replica was deleted, or the node is stopping
        if isinstance(error, DiskFullError):
            _log.warning("%s: not compacted for now: %s", replica.name, error)
        elif isinstance(error, StorageError) and replica.log.failed:
            self._stepper.trouble.log_failed(replica.log, error)
        else:
            self.uncleanable[replica.key] = str(error)
            _log.error("%s: is not compacted until the broker restarts: %s", replica.name, error)

    # ---- after a pass -------------------------------------------------------------------------------------------------

    async def _checkpoint(self, replica: Replica) -> None:
        """Checkpoints how far logs are compacted, for the whole log directory of the replica.

        Without the checkpoint the next start would compact everything again; that costs time, not data.
        """
        home = self._logs.home_of(replica.topic, replica.partition_id)
        if home is None:
            return
        for job in await self._stepper.driver.call(home.prepare_cleaner_offsets):
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, job.run)
            except DiskFullError as error:
                _log.warning("%s", error)
            except StorageError as error:
                await self._stepper.driver.call(partial(self._stepper.trouble.directory_failed, home.path, error))
