"""The periodic upkeep of the logs: checkpoints, retention, files of deleted segments, room on the disks.

No job may hold up the loop, for any number of partitions.  Its data are gathered on the driver, and a thread writes the disk.
Work that needs the driver for each log goes log by log, with other work in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from replog.broker.process import descriptor_limit, open_descriptors
from replog.broker.replicas.replica import Replica
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.tasks import watched_task
from replog.config.kinds import LONG_MAX
from replog.config.server import ServerConfig
from replog.errors import BrokerClosedError, DiskFullError, StorageError
from replog.log import CheckpointJob, DiskState, LogManager
from replog.waiting.task_ends import end_tasks

FILE_DELETION_INTERVAL_MS = 1_000
DESCRIPTOR_INTERVAL_MS = 1_000
PRODUCER_EXPIRY_INTERVAL_MS = 600_000
"""Kafka's producer.id.expiration.check.interval.ms."""

LOGS_TOGETHER = 1_000
"""Logs that are looked at in one go: some milliseconds."""

_NEVER_MS = 1 << 62

T = TypeVar("T")

_log = logging.getLogger(__name__)


class LogKeeper:
    """The upkeep of all logs of a broker.

    Args:
        config: The node's configuration, with the intervals.
        logs: The log directories.
        stepper: The stepper of this broker's replicas.
        retry_roles: Lets replicas that wait for room try again to take their roles.
        executor: Threads for the disk.
        on_failure: Told about a bug, or a disk without which the node cannot go on.
    """

    def __init__(
        self,
        config: ServerConfig,
        logs: LogManager,
        stepper: ReplicaStepper,
        retry_roles: Callable[[], None],
        executor: Executor,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._stepper = stepper
        self._retry_roles = retry_roles
        self._executor = executor
        self._on_failure = on_failure
        self._states: dict[str, DiskState] = {}
        self._turn = 0
        self._shortest_flush_ms = LONG_MAX
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        config = self._config
        work: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            (config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_start_offsets),
            (config.log_retention_check_interval_ms, self.apply_retention),
            (config.log_dir_space_check_interval_ms, self.check_disks),
            (FILE_DELETION_INTERVAL_MS, self.remove_deleted_files),
            (DESCRIPTOR_INTERVAL_MS, self.bound_descriptors),
            (PRODUCER_EXPIRY_INTERVAL_MS, self.expire_producers),
        ]
        self._tasks = [
            watched_task(_every(ms, run), name=f"every-{run.__name__}", on_failure=self._on_failure) for ms, run in work
        ]
        self._tasks.append(watched_task(self._flush_on_schedule(), name="flush-schedule", on_failure=self._on_failure))

    async def stop(self) -> None:
        """Starts nothing new; jobs that run in a thread end there."""
        await end_tasks(*self._tasks)

    # ---- checkpoints --------------------------------------------------------------------------------------------------

    async def checkpoint_high_watermarks(self) -> None:
        seen: list[tuple[Replica, int]] = []
        for some in self._some_together():
            await self._stepper.driver.call(partial(self._note_moved, some, seen))
        await self._write(lambda: self._logs.prepare_high_watermarks(self._still_ours(seen)))

    def _still_ours(self, seen: Iterable[tuple[Replica, int]]) -> dict[tuple[str, int], int]:
        """Returns (topic, partition) -> high watermark, without replicas that are gone: another one may have taken the name."""
        ours = self._stepper.replicas
        return {
            (replica.topic, replica.partition_id): mark for replica, mark in seen if ours.get(replica.key) is replica
        }

    def _note_moved(self, replicas: Iterable[Replica], seen: list[tuple[Replica, int]]) -> None:
        """Notes the high watermarks that are not those of the checkpoint: in most replicas nothing happens."""
        for replica in replicas:
            place, mark = (replica.topic, replica.partition_id), replica.high_watermark
            home = self._logs.home_of(*place)
            if home is None or home.high_watermarks.get(place) != mark:
                seen.append((replica, mark))

    async def checkpoint_recovery_points(self) -> None:
        await self._write(self._logs.prepare_recovery_points)

    async def checkpoint_log_start_offsets(self) -> None:
        await self._write(self._logs.prepare_log_start_offsets)

    async def _write(self, prepare: Callable[[], Mapping[str, list[CheckpointJob]]]) -> None:
        for path, jobs in (await self._stepper.driver.call(prepare)).items():
            for job in jobs:
                try:
                    await self._in_thread(job.run)
                except DiskFullError as error:
                    _log.warning("%s", error)  # the older file costs time after a crash, not data
                except StorageError as error:
                    await self._directory_failed(path, error)
                    break

    # ---- disks --------------------------------------------------------------------------------------------------------

    async def check_disks(self) -> None:
        """Looks at every disk and logs changes of state; when none is full, replicas that wait for room try again."""
        for path, found in (await self._in_thread(self._logs.check_disks)).items():
            if isinstance(found, StorageError):
                await self._directory_failed(path, found)
                continue
            before = self._states.get(path, DiskState.OK)
            self._states[path] = found
            if found is not before:
                level = logging.ERROR if found is DiskState.READ_ONLY else logging.WARNING
                _log.log(level, "%s", self._logs.directories[path].space.describe())
        if self._stepper.trouble.waiting_for_room and DiskState.READ_ONLY not in self._states.values():
            await self._stepper.driver.call(self._retry_roles)

    # ---- log by log ---------------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        await self._each(self._stepper.delete_old_segments)

    async def expire_producers(self) -> None:
        now_ms = self._stepper.clock.wall_ms()
        await self._each(
            lambda replica: replica.log.producers.expire(now_ms, replica.log.config.producer_id_expiration_ms)
        )

    async def remove_deleted_files(self) -> None:
        """Removes the files of deleted segments that are due; on a disk without room, all of them at once."""
        for path, directory in self._logs.directories.items():
            is_full = directory.space.state is DiskState.READ_ONLY
            now_ms = _NEVER_MS if is_full else self._stepper.clock.wall_ms()
            for number, (key, log) in enumerate(list(directory.logs.items()), 1):
                if number % LOGS_TOGETHER == 0:
                    await asyncio.sleep(0)
                due_ms = log.next_file_deletion_ms
                if due_ms is None or due_ms > now_ms or directory.logs.get(key) is not log:
                    continue
                job = log.prepare_file_deletion(now_ms)
                if job is not None:
                    try:
                        await self._in_thread(job.run)
                    except OSError as error:
                        await self._directory_failed(path, StorageError(f"{path}: {error}. Check the disk"))

    async def _flush_on_schedule(self) -> None:
        """Asks for the flushes that log.flush.interval.ms and flush.ms make due, until the driver has ended.

        How often it looks follows the settings of the topics.
        """
        while True:
            await asyncio.sleep(self._stepper.flushes.check_interval_ms(self._shortest_flush_ms) / 1000)
            try:
                await self.request_due_flushes()
            except BrokerClosedError:
                return

    async def request_due_flushes(self) -> None:
        shortest_ms = LONG_MAX
        for some in self._some_together():
            due = partial(self._stepper.flushes.request_due, some)
            shortest_ms = min(shortest_ms, await self._stepper.driver.call(due))
        self._shortest_flush_ms = shortest_ms

    async def bound_descriptors(self) -> None:
        """Closes files of logs in turn while this process has more than half of its descriptors open.

        Logs with unflushed writes are flushed instead, and closed in the next round.
        """
        excess = await self._in_thread(open_descriptors) - descriptor_limit() // 2
        replicas = list(self._stepper.replicas.values())
        for replica in replicas[self._turn :] + replicas[: self._turn]:
            if excess <= 0:
                return
            excess -= await self._stepper.driver.call(partial(self._release_files, replica))
            self._turn = (self._turn + 1) % len(replicas)

    def _release_files(self, replica: Replica) -> int:
        """Returns 1 if files are closed, or will be after a flush."""
        if self._stepper.replicas.get(replica.key) is not replica or replica.log.failed:
            return 0
        if not replica.log.release_files():
            self._stepper.flushes.request(replica)
        return 1

    def _some_together(self) -> Iterator[list[Replica]]:
        """Yields the replicas there are now, `LOGS_TOGETHER` at a time."""
        replicas = list(self._stepper.replicas.values())
        for first in range(0, len(replicas), LOGS_TOGETHER):
            yield replicas[first : first + LOGS_TOGETHER]

    async def _each(self, work: Callable[[Replica], object]) -> None:
        for replica in list(self._stepper.replicas.values()):
            await self._stepper.driver.call(partial(self._if_ours, replica, work))

    def _if_ours(self, replica: Replica, work: Callable[[Replica], object]) -> None:
        if self._stepper.replicas.get(replica.key) is replica:
            work(replica)

    async def _directory_failed(self, path: str, error: StorageError) -> None:
        await self._stepper.driver.call(lambda: self._stepper.trouble.directory_failed(path, error))

    async def _in_thread(self, run: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, run)


def known_high_watermarks(replicas: Iterable[Replica]) -> dict[tuple[str, int], int]:
    """Returns (topic, partition) -> high watermark, for the checkpoint."""
    return {(replica.topic, replica.partition_id): replica.high_watermark for replica in replicas}


async def _every(interval_ms: int, run: Callable[[], Awaitable[None]]) -> None:
    """Calls `run` again and again, `interval_ms` after its last end, until cancelled or until the driver has ended."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await run()
        except BrokerClosedError:
            return
