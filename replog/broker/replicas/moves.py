"""Replicas that move between this broker's log directories, one at a time, while they are used (KIP-113).

A copy is made in a thread, a mebibyte at a time, no faster than `replica.alter.log.dirs.io.max.bytes.per.second`; the driver only
says which bytes there are.  When little is missing the replica leaves its role, its copy takes its place in a thread, and it
takes its role again, all in some hundredths of a second.  Clients and followers are told that it is not ready, and ask
again.  Changes that the metadata bring meanwhile are made after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from replog.broker.replicas.replica import ReplicaKey
from replog.broker.replicas.replication_throttle import ReplicationThrottle
from replog.broker.replicas.retirements import Retirements
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.tasks import watched_task
from replog.errors import (
    BrokerClosedError,
    DiskFullError,
    InvalidRequestError,
    ReplogError,
    StorageError,
    ThrottledError,
    UnknownTopicOrPartitionError,
)
from replog.log import LogDirectory, LogManager
from replog.log.directories.swap import ReplicaMove, SwapJob
from replog.log.segments.segment_list import LogFiles
from replog.metadata.config_keys import REPLICA_ALTER_LOG_DIRS_RATE
from replog.metadata.delta import LocalPartition
from replog.replication.leader import Leader
from replog.rpc.node_messages import ReplicaMoveStatus

STEP_BYTES = 1 << 20
"""The bytes that are copied at once, and that may be missing when the copy takes the replica's place."""

RETRY_S = 0.1
MOVES_MAX = 10_000
"""Moves that wait; more are refused."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class _Move(Struct, eq=False):
    """One that was asked for; `work` is there from its begin on."""

    key: ReplicaKey
    topic: str
    partition_id: int
    path: str
    work: ReplicaMove | None = None
    has_rolled: bool = False


class _CanceledError(Exception):
    """The replica is not here any more, or cannot be used."""


class TakeRole(Protocol):
    """Has a replica take a role."""

    def __call__(self, local: LocalPartition, *, is_new: bool) -> None:
        """Makes a replica lead, follow or wait, as its registration says; `is_new`: no disk can hold it yet."""


class ReplicaMoves:
    """Runs on the replica driver; the copies are made in threads.

    Args:
        stepper: The stepper of this broker's replicas.
        logs: The log directories.
        retirements: The replicas on their way out.
        take_role: Makes a replica take the role that the metadata give it.
        executor: Threads for the disk.
        new_id: Returns ids for the names of folders that are removed.
        on_failure: Told about a bug.

    Attributes:
        throttle: The limit of how fast copies are made.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        logs: LogManager,
        retirements: Retirements,
        take_role: TakeRole,
        executor: Executor,
        new_id: Callable[[], UUID],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.throttle = ReplicationThrottle(REPLICA_ALTER_LOG_DIRS_RATE, stepper.clock)
        self._stepper = stepper
        self._retirements = retirements
        self._take_role = take_role
        self._logs = logs
        self._executor = executor
        self._new_id = new_id
        self._on_failure = on_failure
        self._moves: dict[ReplicaKey, _Move] = {}
        self._swapping: _Move | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # ---- asked for --------------------------------------------------------------------------------------------------------

    async def request(self, topic: str, partition_id: int, path: str) -> None:
        """Notes that a replica is to be moved to another log directory; the move itself comes later.

        Raises:
            UnknownTopicOrPartitionError: This broker has no such replica that can be used.
            InvalidRequestError: The replica is being moved already, or `LogManager.prepare_move` refuses the request.
            LogDirNotFoundError, StorageError, DiskFullError: `LogManager.prepare_move` refuses it, too.
            ThrottledError: Too many moves wait.
            BrokerClosedError: The node stops.
        """
        refused = await self._stepper.driver.call(lambda: self._take_down(topic, partition_id, path))
        if refused is not None:
            raise refused

    def statuses(self) -> tuple[ReplicaMoveStatus, ...]:
        """Returns the moves that are under way or wait, and how far they are."""
        return tuple(self._status(move) for move in self._moves.values())

    def _status(self, move: _Move) -> ReplicaMoveStatus:
        replica = self._stepper.replicas.get(move.key)
        copied, missing = 0, -1
        if move.work is not None and replica is not None:
            copied, missing = move.work.copy.copied_bytes, move.work.copy.missing_bytes(replica.log.files())
        return ReplicaMoveStatus(move.topic, move.partition_id, move.path, copied, missing)

    def _take_down(self, topic: str, partition_id: int, path: str) -> ReplogError | None:
        """Checks and notes a move.  Returns an error instead of raising it: on the driver an error of a disk would end it."""
        name = f"{topic}-{partition_id}"
        known = self._stepper.image.topics_by_name.get(topic)
        if known is None or (key := (known.topic_id, partition_id)) not in self._stepper.replicas:
            return UnknownTopicOrPartitionError(f"this broker has no replica of {name} that can be used")
        if key in self._moves:
            return InvalidRequestError(f"{name} is being moved to {self._moves[key].path} already")
        if len(self._moves) >= MOVES_MAX:
            return ThrottledError(f"{MOVES_MAX} replicas wait to be moved already")
        try:
            self._logs.prepare_move(topic, partition_id, path)
        except ReplogError as error:
            return error
        self._moves[key] = _Move(key, topic, partition_id, path)
        if self._task is None or self._task.done():
            self._task = watched_task(self._run(), name="replica-moves", on_failure=self._on_failure)
        return None

    # ---- while a copy takes the place of its replica ------------------------------------------------------------------------

    def is_swapping(self, local: LocalPartition) -> bool:
        """Whether a copy takes the place of a replica just now: changes by the metadata wait for it."""
        move = self._swapping
        return move is not None and move.key == (local.topic_id, local.partition_id)

    def is_in_the_way(self, local: LocalPartition) -> bool:
        """Whether the same happens to a deleted replica of the same name; it is on its way out after that."""
        move, place = self._swapping, (local.topic_name, local.partition_id)
        return move is not None and (move.topic, move.partition_id) == place and move.key[0] != local.topic_id

    # ---- one after the other ------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Lets a swap end; a copy is given up."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Carries out one move after the other, until none waits any more, or the node stops."""
        while self._moves and not self._stopping.is_set():
            move = next(iter(self._moves.values()))
            try:
                await self._carry_out(move)
            except BrokerClosedError:
                return
            except (_CanceledError, ReplogError, OSError) as error:
                _log.warning("%s-%d: is not moved to %s: %s", move.topic, move.partition_id, move.path, error)
            finally:
                if move.work is not None:
                    await self._in_thread(move.work.copy.abandon)
                self._moves.pop(move.key, None)

    async def _carry_out(self, move: _Move) -> None:
        begun = await self._stepper.driver.call(lambda: self._guarded(lambda: self._begin(move)))
        if not isinstance(begun, ReplicaMove):
            raise begun
        work = move.work = begun
        _log.info("%s-%d: is copied from %s to %s", move.topic, move.partition_id, work.source.path, move.path)
        while not self._stopping.is_set():
            files = await self._stepper.driver.call(lambda: self._guarded(lambda: self._observe(move, work)))
            if isinstance(files, Exception):
                raise files
            room_bytes = min(STEP_BYTES, self.throttle.room_bytes())
            if room_bytes == 0:
                await self._pause()
                continue
            copied_bytes = await self._in_thread(partial(work.copy.step, files, room_bytes))
            self.throttle.count(copied_bytes)
            if copied_bytes < room_bytes:
                if await self._swap(move, work):
                    return
                await self._pause()

    async def _swap(self, move: _Move, work: ReplicaMove) -> bool:
        """Puts the copy in the place of the replica; False: not now."""
        job = await self._stepper.driver.call(lambda: self._guarded(lambda: self._begin_swap(move, work)))
        if isinstance(job, Exception):
            raise job
        if job is None:
            return False
        await self._in_thread(lambda: job.run(self._stepper.clock.wall_ms(), self._new_id()))
        try:
            await self._stepper.driver.call(lambda: self._end_swap(move, job))
        except BrokerClosedError:
            job.give_up()
            raise
        if job.error is not None:
            raise job.error
        await self.checkpoint(job.home)
        if job.retired is not None:
            try:
                await self._in_thread(job.retired.run)
            except StorageError as error:
                _log.warning("%s", error)
        return True

    async def checkpoint(self, home: LogDirectory) -> None:
        """Writes the checkpoints of a log directory: until they know a replica that came to it, a start would check it whole."""
        for prepare in (home.prepare_recovery_points, partial(home.prepare_high_watermarks, {})):
            for job in await self._stepper.driver.call(prepare):
                try:
                    await self._in_thread(job.run)
                except DiskFullError as error:
                    _log.warning("%s", error)
                except StorageError as error:
                    fail = partial(self._stepper.trouble.directory_failed, home.path, error)
                    await self._stepper.driver.call(fail)
                    return

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(RETRY_S):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _in_thread(self, run: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, run)

    # ---- on the driver ------------------------------------------------------------------------------------------------------

    def _guarded(self, run: Callable[[], T]) -> T | ReplogError | _CanceledError:
        """Calls `run`.  An error is returned: raised on the driver, one of a disk would end it."""
        try:
            return run()
        except (ReplogError, _CanceledError) as error:
            return error

    def _begin(self, move: _Move) -> ReplicaMove:
        self._require(move)
        return self._logs.prepare_move(move.topic, move.partition_id, move.path)

    def _observe(self, move: _Move, work: ReplicaMove) -> LogFiles:
        self._require(move)
        files = self._stepper.replicas[move.key].log.files()
        work.target.space.admit(min(STEP_BYTES, work.copy.missing_bytes(files)))
        return files

    def _require(self, move: _Move) -> None:
        replica = self._stepper.replicas.get(move.key)
        if replica is None or replica.log.failed:
            raise _CanceledError("it is not here any more, or cannot be used")

    def _begin_swap(self, move: _Move, work: ReplicaMove) -> SwapJob | None:
        self._require(move)
        replica = self._stepper.replicas[move.key]
        if not move.has_rolled:  # so that little is checked when it is opened again
            move.has_rolled = True
            replica.log.roll(self._stepper.clock.wall_ms())
            return None
        if work.copy.missing_bytes(replica.log.files()) > STEP_BYTES:
            return None
        if isinstance(replica.role, Leader) and not self._is_settled(replica.key, replica.role):
            return None
        high_watermark = replica.high_watermark
        self._stepper.leave_role(replica)
        del self._stepper.replicas[move.key]
        self._swapping = move
        return self._logs.begin_swap(work, high_watermark)

    def _is_settled(self, key: ReplicaKey, role: Leader) -> bool:
        """Whether a new leader, made from the metadata, would know the ISR as well as this one.

        It would not know the pending proposal, nor an answer that the metadata do not have yet.
        """
        registration = self._stepper.image.partition(*key)
        is_known = registration is not None and registration.partition_epoch >= role.partition_epoch
        return is_known and not role.isr_change_pending

    def _end_swap(self, move: _Move, job: SwapJob) -> None:
        self._logs.complete_swap(job)
        self._swapping = None
        registration = self._stepper.image.partition(*move.key)
        if registration is not None and self._stepper.config.node_id in registration.replicas:
            _log.info("%s-%d: is in %s now", move.topic, move.partition_id, job.home.path)
            self._take_role(LocalPartition(move.topic, *move.key, registration), is_new=False)
        else:
            self._retirements.add((move.topic, move.partition_id), is_kept=False)
            self._retirements.begin()
