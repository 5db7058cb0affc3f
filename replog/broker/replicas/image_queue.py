"""Applies metadata images in order and in short steps; logs that a new image needs are created in threads meanwhile.

Why: creating a log is a handful of fsyncs, milliseconds each.  A topic of two hundred partitions would hold up every produce and
fetch of this broker for more than half a second.  The rest of the metadata does not wait for them either: elections must not
be late because a large topic is being created, and this broker must not seem to be behind.  Only changes of a replica
whose log is being created wait for it.  Requests for such a partition wait too: their clients have seen the image already, and
would back off for many times as long.

An image in which thousands of replicas change is applied in many steps, with other work of the driver between them.  Until
the last one a replica may still have the role that it had; the broker tells the controller of the image after that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.broker.replicas.image_steps import ImageSteps, in_steps
from replog.broker.replicas.logs import is_new_replica
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.retirements import Place
from replog.broker.replicas.stepper import REPLICAS_TOGETHER
from replog.broker.tasks import watched_task
from replog.errors import BrokerClosedError
from replog.log import CreateJob, run_together
from replog.metadata.delta import LocalChanges, LocalPartition
from replog.metadata.image import MetadataImage

WaitForImage = Callable[[Callable[[], None]], bool]
"""Has a call made after the next step of an image that is being applied; False: none is, or too many wait."""

CREATED_TOGETHER = 64
"""Logs that one thread creates in one go: each has three files open then."""

CREATING_THREADS = 2
"""Threads that create logs at a time: fewer than there are, for the fsyncs of the metadata log need one, too."""

TAKEN_TOGETHER = 16
"""Replicas that get their roles in one step once their logs are there: with a line told of each, some milliseconds."""

LATER_MAX = 10_000
"""Requests that wait for images."""


class _Pending(Struct, frozen=True):
    image: MetadataImage
    changes: LocalChanges
    changed_brokers: tuple[int, ...]

    @property
    def roles(self) -> Iterator[LocalPartition]:
        """The replicas that get a role, or another one."""
        yield from self.changes.leaders
        yield from self.changes.followers

    def without(self, places: Container[Place]) -> LocalChanges:
        """Returns the image's changes for this broker, but for the roles of replicas in `places`."""
        leaders = tuple(local for local in self.changes.leaders if _place(local) not in places)
        followers = tuple(local for local in self.changes.followers if _place(local) not in places)
        return replace(self.changes, leaders=leaders, followers=followers)


class _Held(Struct, frozen=True):
    """A replica that gets its role, the newest there is for it, when its log has been created."""

    local: LocalPartition
    is_new: bool


class ImageQueue:
    """The images that wait to be applied to the replicas of one broker.

    Args:
        manager: The replica manager.
        executor: Threads for the disk.
        on_applied: Called on the driver after each image, and when held replicas have got their roles.
        on_failure: Told about a bug.
        was_deleted: Whether the metadata log tells that a topic was deleted, asked for replicas that no image names.
        is_later: Whether a topic was created after the process before this one ended, asked where a folder is another's.

    Invariants:
        - images are applied in the order in which they came, one at a time;
        - a folder of a replica that is deleted is out of the way before another replica takes its place;
        - nothing else touches a log that is being created: its replica's role waits, and an image that deletes the
          replica, or puts another in its place, waits with all later images.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        executor: Executor,
        on_applied: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        was_deleted: Callable[[UUID], bool],
        is_later: Callable[[UUID], bool],
    ) -> None:
        self._manager = manager
        self._stepper = manager.stepper
        self._image_steps = ImageSteps(manager)
        self._executor = executor
        self._on_applied = on_applied
        self._on_failure = on_failure
        self._was_deleted = was_deleted
        self._is_later = is_later
        self._waiting: deque[_Pending] = deque()
        self._steps: Iterator[bool] | None = None  # of the image that is being applied
        self._is_blocked = False
        self._creating: set[asyncio.Task[None]] = set()
        self._creating_threads = asyncio.Semaphore(CREATING_THREADS)
        self._taking = asyncio.Lock()  # one step at a time, however many threads have created logs
        self._held: dict[Place, _Held] = {}
        self._later: list[Callable[[], None]] = []
        manager.retirements.on_progress = self._unblock

    def submit(self, image: MetadataImage, changes: LocalChanges, changed_brokers: tuple[int, ...]) -> None:
        """Queues an image."""
        self._waiting.append(_Pending(image, changes, changed_brokers))
        if len(self._waiting) == 1:
            self._stepper.driver.submit(self._begin)

    async def stop(self) -> None:
        """Waits for the logs that are being created; applies nothing more."""
        self._waiting.clear()
        self._later.clear()
        self._steps = None
        await asyncio.gather(*self._creating, return_exceptions=True)

    # ---- on the driver ------------------------------------------------------------------------------------------------

    def run_later(self, run: Callable[[], None]) -> bool:
        """Keeps `run` to be called after the next image, or the next logs that are created.

        Returns:
            False: no image waits and no log is created, or too many wait for it; `run` is not kept.
        """
        is_idle = not self._waiting and not self._held and self._steps is None
        if is_idle or len(self._later) >= LATER_MAX:
            return False
        self._later.append(run)
        return True

    def retry_roles(self) -> None:
        """Lets replicas that wait for room try again to take their roles, but for those whose logs are being created."""
        self._manager.retry_roles(self._held)

    def _begin(self) -> None:
        """Begins with the first image that waits, unless one is being applied."""
        if self._steps is not None or not self._waiting or self._must_wait(self._waiting[0]):
            return
        self._steps = self._apply(self._waiting.popleft())
        self._go_on()

    def _go_on(self) -> None:
        """Takes the next step of the image that is being applied; asks the driver for the one after it."""
        if self._steps is None:
            return
        for may_go_on in self._steps:
            self._is_blocked = not may_go_on
            if may_go_on:
                self._stepper.driver.submit(self._go_on)
            return
        self._steps = None
        self._after_step()

    def _unblock(self) -> None:
        """Goes on with an image that waited for folders to be out of the way."""
        if self._is_blocked:
            self._is_blocked = False
            self._go_on()

    def _apply(self, pending: _Pending) -> Iterator[bool]:
        """Applies one image; yields after each step, False where the next one must wait for folders to make way."""
        steps = self._image_steps
        before, self._stepper.image = self._stepper.image, pending.image
        if not before.brokers:  # the first image
            yield from _each(steps.retire_strays(self._was_deleted, self._is_later))
        yield from _each(steps.delete(pending.changes.deletes))
        for local in pending.roles:
            if (held := self._held.get(_place(local))) is not None:
                self._held[_place(local)] = replace(held, local=local)
        while any(map(self._is_taken, pending.roles)):
            yield False
        yield from self._create_logs(before, pending)
        yield from _each(steps.apply(before, pending.without(self._held), pending.changed_brokers))

    def _is_taken(self, local: LocalPartition) -> bool:
        """Whether the folder of a deleted replica may still be where this one belongs; `_unblock` is called when it is not."""
        return _place(local) in self._manager.retirements.places or self._manager.moves.is_in_the_way(local)

    def _create_logs(self, before: MetadataImage, pending: _Pending) -> Iterator[bool]:
        """Begins to create the logs that no disk has, and holds the roles of their replicas; yields between steps."""
        jobs: list[CreateJob] = []
        for number, local in enumerate(pending.roles, 1):
            place = _place(local)
            job = None if place in self._held else self._manager.local_logs.prepare(before, pending.image, local)
            if job is not None:
                self._held[place] = _Held(local, is_new_replica(before, local, self._stepper.config.node_id))
                jobs.append(job)
            if len(jobs) == CREATED_TOGETHER:
                self._create(jobs)
                jobs = []
            if number % REPLICAS_TOGETHER == 0:
                yield True
        if jobs:
            self._create(jobs)

    def _must_wait(self, pending: _Pending) -> bool:
        """Whether an image takes a replica away whose log is being created."""
        held = self._held
        if not held:
            return False
        is_other = (_place(one) in held and held[_place(one)].local.topic_id != one.topic_id for one in pending.roles)
        return any(_place(local) in held for local in pending.changes.deletes) or any(is_other)

    def _take_created(self, jobs: Sequence[CreateJob]) -> None:
        """Takes over the logs that have been created, and gives their replicas their roles."""
        self._manager.local_logs.complete(jobs)
        for job in jobs:
            held = self._held.pop(job.replica.key)
            self._manager.take_role(held.local, is_new=held.is_new)
        self._go_on_waiting()

    def _after_step(self) -> None:
        self._on_applied()
        self._go_on_waiting()

    def _go_on_waiting(self) -> None:
        """Calls the functions that `run_later` kept, and lets the driver begin with the next image."""
        later, self._later = self._later, []
        for run in later:
            run()
        if self._waiting:
            self._stepper.driver.submit(self._begin)

    def _create(self, jobs: Sequence[CreateJob]) -> None:
        task = watched_task(self._run(jobs), name="create-logs", on_failure=self._on_failure)
        self._creating.add(task)
        task.add_done_callback(self._creating.discard)

    async def _run(self, jobs: Sequence[CreateJob]) -> None:
        async with self._creating_threads:
            await asyncio.get_running_loop().run_in_executor(self._executor, run_together, jobs)
        async with self._taking:
            await self._take_in_steps(jobs)
        for home in dict.fromkeys(job.home for job in jobs if job.replica.fork is not None):
            with contextlib.suppress(BrokerClosedError):
                await self._manager.moves.checkpoint(home)

    async def _take_in_steps(self, jobs: Sequence[CreateJob]) -> None:
        with contextlib.suppress(BrokerClosedError):
            for first in range(0, len(jobs), TAKEN_TOGETHER):
                await self._stepper.driver.call(partial(self._take_created, jobs[first : first + TAKEN_TOGETHER]))
            await self._stepper.driver.call(self._on_applied)  # once: it may look at every replica


def _each(changes: Iterator[None]) -> Iterator[bool]:
    for _ in in_steps(changes):
        yield True


def _place(local: LocalPartition) -> Place:
    return local.topic_name, local.partition_id
