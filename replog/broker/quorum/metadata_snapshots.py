"""Snapshots of a node's metadata: written while it serves, so that the metadata log stays short and a start is quick.

Every node writes its own, when enough has been applied since the last one or enough time has passed: the image is
immutable, so a thread can write it while the loop goes on to the next.  Then what snapshots make superfluous is dropped:
first the log start moves, durably, then older snapshots and segments go (see `replog.log.snapshots.store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from msgspec import Struct

from replog.broker.clock import Clock
from replog.broker.quorum.driver import QuorumDriver
from replog.broker.quorum.voter_records import to_records
from replog.broker.tasks import watched_task
from replog.errors import DiskFullError, StorageError
from replog.log import CheckpointJob, is_disk_full
from replog.log.snapshots.files import SnapshotContext, SnapshotId
from replog.log.snapshots.store import SnapshotAge, log_start_after_cleaning
from replog.metadata.image import MetadataImage, image_records
from replog.rpc.metadata_records import encode_metadata_record
from replog.waiting.task_ends import end_tasks

CLEANING_INTERVAL_S = 60.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class SnapshotLimits(Struct, frozen=True):
    """When snapshots are written and dropped; Kafka's `metadata.*` settings.

    Attributes:
        bytes_between: The bytes of records applied since the last snapshot after which another one is written.
        interval_ms: The time since the last snapshot after which another one is written, if anything was applied since.
        retention_bytes: The size of log and snapshots above which the oldest goes; negative for no limit.
        retention_ms: The age at which the oldest snapshot goes; negative for no limit.
    """

    bytes_between: int
    interval_ms: int
    retention_bytes: int
    retention_ms: int


class MetadataSnapshots:
    """Writes and drops the snapshots of one node.

    Args:
        limits: The limits that say when a snapshot is written or dropped.
        quorum: The owner of the metadata log.
        clock: The clock of the node.
        executor: The threads for the disk.
        prepare_log_starts: The function that returns the jobs that make the log start durable.
        on_failure: The function that is told about a bug or a failed disk; the node stops then.
    """

    def __init__(
        self,
        limits: SnapshotLimits,
        quorum: QuorumDriver,
        clock: Clock,
        executor: Executor,
        prepare_log_starts: Callable[[], list[CheckpointJob]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._limits = limits
        self._quorum = quorum
        self._clock = clock
        self._executor = executor
        self._prepare_log_starts = prepare_log_starts
        self._on_failure = on_failure
        self._bytes_at_last = 0
        self._last_ms = clock.now_ms()
        self._writing: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begins to look after old snapshots."""
        self._cleaning = watched_task(self._clean_for_ever(), name="metadata-cleaning", on_failure=self._on_failure)

    async def stop(self) -> None:
        """Waits for a snapshot that is being written; it cannot be left half done by a thread.  None is begun any more."""
        self._is_stopped = True
        await end_tasks(self._cleaning)
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def image_published(self, image: MetadataImage) -> None:
        """Writes a snapshot of a new image if one is due and none is being written; the image holds everything applied.

        An image that ends inside a transaction is left out: half of it is no state.
        """
        may_write = self._writing is None and not self._is_stopped
        if may_write and image.open_transaction is None and self._is_due():
            self._write_soon(image)

    def _is_due(self) -> bool:
        applied_bytes = self._quorum.committed.applied_bytes - self._bytes_at_last
        is_late = applied_bytes > 0 and self._clock.now_ms() - self._last_ms >= self._limits.interval_ms
        return applied_bytes >= self._limits.bytes_between or is_late

    def _write_soon(self, image: MetadataImage) -> None:
        self._bytes_at_last = self._quorum.committed.applied_bytes
        self._last_ms = self._clock.now_ms()
        self._writing = watched_task(self._write(image), name="metadata-snapshot", on_failure=self._on_failure)

    async def _write(self, image: MetadataImage) -> None:
        try:
            snapshot_id = SnapshotId(image.end_offset, image.epoch)
            log, committed = self._quorum.log, self._quorum.committed
            if image.end_offset <= log.log_start_offset:
                return
            log.check_snapshot(snapshot_id, committed.applied)
            voters = log.voters_at(image.end_offset)
            job = log.snapshots.prepare_write(
                snapshot_id,
                SnapshotContext(committed.applied_timestamp_ms, () if voters is None else to_records(voters)),
                _values(image),
                timestamp_ms=self._clock.wall_ms(),
            )
            if job is None:
                return
            try:
                await self._in_thread(job.run)
            except OSError as error:
                if not is_disk_full(error):
                    raise StorageError(f"snapshot {snapshot_id.stem} cannot be written: {error}") from error
                _log.warning("snapshot %s is left out: the disk is full", snapshot_id.stem)
                return
            log.snapshots.add(snapshot_id)
            if snapshot_id.end_offset < log.log_start_offset:  # a fetched one was installed meanwhile
                await self._in_thread(log.snapshots.drop_below(log.log_start_offset).run)
                return
            _log.info("snapshot %s written", snapshot_id.stem)
            await self.clean()
        finally:
            self._writing = None

    async def clean(self) -> None:
        """Drops snapshots and log that retention does not keep."""
        log, snapshots = self._quorum.log.log, self._quorum.log.snapshots
        ages = [
            SnapshotAge(found.end_offset, snapshots.size_bytes(found), self._timestamp_ms(found))
            for found in snapshots.ids
        ]
        start_offset = log_start_after_cleaning(
            ages,
            log_size_bytes=log.size_bytes,
            now_ms=self._clock.wall_ms(),
            retention_bytes=self._limits.retention_bytes,
            retention_ms=self._limits.retention_ms,
        )
        if start_offset is None or start_offset <= log.log_start_offset:
            return
        log.set_log_start_offset(start_offset)
        try:
            for job in self._prepare_log_starts():
                await self._in_thread(job.run)
        except DiskFullError as error:
            _log.warning("old metadata snapshots stay for now: %s", error)
            return
        removal = snapshots.drop_below(log.log_start_offset)
        await self._in_thread(removal.run)
        log.delete_old_segments(self._clock.wall_ms(), self._quorum.committed.applied)
        deletion = log.prepare_file_deletion(self._clock.wall_ms())
        if deletion is not None:
            await self._in_thread(deletion.run)

    def _timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        return self._quorum.log.snapshots.context(snapshot_id).last_contained_timestamp_ms

    async def _clean_for_ever(self) -> None:
        while True:
            await asyncio.sleep(CLEANING_INTERVAL_S)
            if self._writing is None:
                await self.clean()

    async def _in_thread(self, run: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, run)


def _values(image: MetadataImage) -> Iterator[bytes]:
    return map(encode_metadata_record, image_records(image))
