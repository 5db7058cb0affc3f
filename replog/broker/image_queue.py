"""Applies metadata images in order; logs that a new image needs are created in threads meanwhile.

Why: creating a log is a handful of fsyncs, milliseconds each; a topic of two hundred partitions would hold up every
produce and fetch of this broker for more than half a second.  Nor does the rest of the metadata wait for them: elections
must not be late because a large topic is being created, nor may this broker seem to be behind.  Only what concerns a
replica whose log is being created waits for it.  Requests for such a partition wait too: their clients have seen the
image already, and would back off for many times as long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TypeAlias

from replog.broker.replica_logs import is_new_replica
from replog.broker.replica_manager import ReplicaManager
from replog.broker.tasks import watched_task
from replog.errors import BrokerClosedError
from replog.log import CreateJob, run_together
from replog.metadata.delta import LocalChanges, LocalPartition
from replog.metadata.image import MetadataImage

CREATED_TOGETHER = 64
"""Logs that one thread creates in one go: each has three files open then."""

LATER_MAX = 10_000
"""Requests that wait for images."""


Place: TypeAlias = tuple[str, int]
"""Topic and partition: what the folder of a log is named after."""


@dataclass(frozen=True, slots=True)
class _Pending:
    image: MetadataImage
    changes: LocalChanges
    changed_brokers: tuple[int, ...]

    @property
    def roles(self) -> Iterator[LocalPartition]:
        """The replicas that get a role, or another one."""
        yield from self.changes.leaders
        yield from self.changes.followers

    def without(self, places: Container[Place]) -> LocalChanges:
        """Its changes here, but for roles in `places`."""
        leaders = tuple(local for local in self.changes.leaders if _place(local) not in places)
        followers = tuple(local for local in self.changes.followers if _place(local) not in places)
        return replace(self.changes, leaders=leaders, followers=followers)


@dataclass(frozen=True, slots=True)
class _Held:
    """A replica that gets its role, the newest there is for it, when its log has been created."""

    local: LocalPartition
    is_new: bool


class ImageQueue:
    """The images that wait to be applied to the replicas of one broker.

    Args:
        manager: of the replicas.
        executor: threads for the disk.
        on_applied: called on the driver after each image, and when held replicas have got their roles.
        on_failure: told about a bug.

    Invariants:
        - images are applied in the order in which they came, one at a time;
        - a log that is being created is touched by nobody else: its replica's role waits, and an image that deletes the
          replica, or puts another in its place, waits with all that follow it.
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
        self._creating: set[asyncio.Task[None]] = set()
        self._held: dict[Place, _Held] = {}
        self._later: list[Callable[[], None]] = []
        manager.wait_for_image = self.run_later
        manager.is_being_created = lambda local: _place(local) in self._held

    def submit(self, image: MetadataImage, changes: LocalChanges, changed_brokers: tuple[int, ...]) -> None:
        """Queues an image."""
        self._waiting.append(_Pending(image, changes, changed_brokers))
        if len(self._waiting) == 1:
            self._manager.driver.submit(self._begin)

    async def stop(self) -> None:
        """Waits for what is being created; applies nothing more."""
        self._waiting.clear()
        self._later.clear()
        await asyncio.gather(*self._creating, return_exceptions=True)

    # ---- on the driver ------------------------------------------------------------------------------------------------

    def run_later(self, run: Callable[[], None]) -> bool:
        """Has `run` called after the next step; False: no image waits and no log is created, or too many wait for it."""
        if not (self._waiting or self._held) or len(self._later) >= LATER_MAX:
            return False
        self._later.append(run)
        return True

    def _begin(self) -> None:
        """Applies the first image, but for the replicas whose logs have to be created first."""
        if not self._waiting or self._must_wait(self._waiting[0]):
            return
        pending = self._waiting.popleft()
        before = self._manager.image
        if not before.brokers:  # the first image
            self._manager.local_logs.set_strays_aside(pending.image)
        for local in pending.roles:
            if (held := self._held.get(_place(local))) is not None:
                self._held[_place(local)] = replace(held, local=local)
        jobs = self._manager.local_logs.prepare(before, pending.image, pending.without(self._held))
        if jobs:
            self._hold({job.replica.key for job in jobs}, pending)
            task = watched_task(self._create(jobs), name="create-logs", on_failure=self._on_failure)
            self._creating.add(task)
            task.add_done_callback(self._creating.discard)
        self._manager.apply(pending.image, pending.without(self._held), pending.changed_brokers)
        self._after_step()

    def _must_wait(self, pending: _Pending) -> bool:
        """Whether it takes a replica away whose log is being created."""
        held = self._held
        is_other = (_place(one) in held and held[_place(one)].local.topic_id != one.topic_id for one in pending.roles)
        return any(_place(local) in held for local in pending.changes.deletes) or any(is_other)

    def _hold(self, places: Container[Place], pending: _Pending) -> None:
        broker_id, before = self._manager.config.node_id, self._manager.image
        for local in pending.roles:
            if _place(local) in places:
                self._held[_place(local)] = _Held(local, is_new_replica(before, local, broker_id))

    def _take_created(self, jobs: Sequence[CreateJob]) -> None:
        """The logs are there: their replicas get their roles."""
        self._manager.local_logs.complete(jobs)
        for job in jobs:
            held = self._held.pop(job.replica.key)
            self._manager.take_role(held.local, is_new=held.is_new)
        self._after_step()

    def _after_step(self) -> None:
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
        with contextlib.suppress(BrokerClosedError):
            await self._manager.driver.call(lambda: self._take_created(jobs))


def _place(local: LocalPartition) -> Place:
    return local.topic_name, local.partition_id
