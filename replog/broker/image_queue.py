"""Applies metadata images in order; logs that a new image needs are created in threads before it is applied.

Why: creating a log is a handful of fsyncs, milliseconds each; a topic of two hundred partitions would hold up every
produce and fetch of this broker for more than half a second.  Requests for a partition that is not known yet wait for it
meanwhile: their clients have seen the image already, and would back off for many times as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from replog.broker.replica_manager import ReplicaManager
from replog.broker.tasks import watched_task
from replog.errors import BrokerClosedError
from replog.log import CreateJob, run_together
from replog.metadata.delta import LocalChanges
from replog.metadata.image import MetadataImage

CREATED_TOGETHER = 64
"""Logs that one thread creates in one go: each has three files open then."""

LATER_MAX = 10_000
"""Requests that wait for images."""


@dataclass(frozen=True, slots=True)
class _Pending:
    image: MetadataImage
    changes: LocalChanges
    changed_brokers: tuple[int, ...]


class ImageQueue:
    """The images that wait to be applied to the replicas of one broker.

    Args:
        manager: of the replicas.
        executor: threads for the disk.
        on_applied: called on the driver after each image.
        on_failure: told about a bug.

    Invariants:
        - images are applied in the order in which they came, one at a time.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        executor: Executor,
        on_applied: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._manager = manager
        self._executor = executor
        self._on_applied = on_applied
        self._on_failure = on_failure
        self._waiting: deque[_Pending] = deque()
        self._creating: asyncio.Task[None] | None = None
        self._later: list[Callable[[], None]] = []
        manager.wait_for_image = self.run_later

    def submit(self, image: MetadataImage, changes: LocalChanges, changed_brokers: tuple[int, ...]) -> None:
        """Queues an image."""
        self._waiting.append(_Pending(image, changes, changed_brokers))
        if len(self._waiting) == 1:
            self._manager.driver.submit(self._begin)

    async def stop(self) -> None:
        """Waits for what is being created; applies nothing more."""
        self._waiting.clear()
        self._later.clear()
        if self._creating is not None:
            await asyncio.gather(self._creating, return_exceptions=True)

    # ---- on the driver ------------------------------------------------------------------------------------------------

    def run_later(self, run: Callable[[], None]) -> bool:
        """Has `run` called after the image that is applied next; False: none waits, or too many wait for it."""
        if not self._waiting or len(self._later) >= LATER_MAX:
            return False
        self._later.append(run)
        return True

    def _begin(self) -> None:
        """Takes the first image: applies it, or has its logs created first."""
        if not self._waiting:
            return
        pending = self._waiting[0]
        if not self._manager.image.brokers:  # the first image
            self._manager.local_logs.set_strays_aside(pending.image)
        jobs = self._manager.local_logs.prepare(self._manager.image, pending.image, pending.changes)
        if jobs:
            self._creating = watched_task(self._create(jobs), name="create-logs", on_failure=self._on_failure)
        else:
            self._apply(jobs)

    def _apply(self, jobs: Sequence[CreateJob]) -> None:
        if not self._waiting:
            return
        pending = self._waiting.popleft()
        self._manager.local_logs.complete(jobs)
        self._manager.apply(pending.image, pending.changes, pending.changed_brokers)
        self._on_applied()
        later, self._later = self._later, []
        for run in later:
            run()
        if self._waiting:
            self._manager.driver.submit(self._begin)

    async def _create(self, jobs: Sequence[CreateJob]) -> None:
        loop = asyncio.get_running_loop()
        groups = [jobs[start : start + CREATED_TOGETHER] for start in range(0, len(jobs), CREATED_TOGETHER)]
        await asyncio.gather(*(loop.run_in_executor(self._executor, run_together, group) for group in groups))
        try:
            await self._manager.driver.call(lambda: self._apply(jobs))
        except BrokerClosedError:
            return
