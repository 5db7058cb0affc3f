"""Reading as a member of a group: what the group wants is done between two records, in the task that reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from time import monotonic
from typing import Final

from msgspec import Struct

from replog.client.consumer.group_member import GroupMember, TakenBack
from replog.client.consumer.group_settings import AssignmentListener
from replog.client.consumer.partition_reader import PartitionReader
from replog.client.consumer.start import first_offsets
from replog.client.groups.membership import NO_EPOCH
from replog.client.types import ConsumerRecord, FetchedBatches, TopicPartition
from replog.errors import InvalidRequestError, raised_anew

_log = logging.getLogger(__name__)

PARTING_SHARE: Final = 0.8
"""Of the limit of `close`: what a listener and the last commit may take."""

TURN_S: Final = 0.05
"""How long an application that never waits may keep the event loop from heartbeats and commits, seconds."""


class _Hearing(Struct, eq=False):
    """One time that a listener hears something; `is_of_going`: of partitions that go."""

    is_of_going: bool


_hearing: ContextVar[_Hearing] = ContextVar("replog_listener_hearing")
"""What a listener hears in this task, or whatever task it has begun."""


class GroupReading:
    """Joins a member and a reader.

    Invariants:
        - the listener hears of one thing at a time, but for what it does itself while it hears;
        - nothing is begun with once the end has begun.

    Attributes:
        has_left: Whether the member has left the group for good: nothing can be committed any more.

    Args:
        member: The member.
        reader: The reader, which reads what the member holds.
        listener: What the application wants to hear.
        held_back: The function that returns what a loop in another thread has not asked past; None: there is none.
    """

    def __init__(
        self,
        member: GroupMember,
        reader: PartitionReader,
        listener: AssignmentListener,
        held_back: Callable[[], Mapping[TopicPartition, int]] | None = None,
    ) -> None:
        self.member = member
        self.listener = listener
        self._reader = reader
        self._progress = member.commits.progress
        self._progress.held_back = held_back
        reader.on_reset = self._handle_reset
        self.has_left = False
        self._is_attending = False
        self._is_reading = False
        self._is_leaving = False
        self._left = asyncio.Event()
        self._ear = asyncio.Lock()
        self._hearing: _Hearing | None = None  # what the listener hears; None: nothing
        self._unheard: list[TopicPartition] = []  # begun with, and the listener has not heard of it to the end
        self._now_s = _clock_of(asyncio.get_running_loop())
        self._turn_due_s = 0.0
        self._asked_s = 0.0  # when a record that was polled before was asked for last
        reader.attend = self.attend

    # ---- around a read -----------------------------------------------------------------------------------------------

    def come(self) -> bool:
        """Begins a read: what was handed out is done with.  Returns whether there is something to attend to first."""
        member = self.member
        self._progress.ask()
        member.reader_came()
        return self.is_wanted or member.going is not None or self._now_s() >= self._turn_due_s

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to attend to before the next record."""
        return self.member.needs_reader or bool(self._unheard) or self._is_leaving

    @property
    def is_over(self) -> bool:
        """Whether the leaving has ended, whatever has become of it."""
        return self._left.is_set()

    def is_free_to_go_on(self) -> bool:
        """Counts a record that was polled before as asked for.  Returns whether it may be handed out without attending first.

        For the client without async, which polls many and hands out one at a time; from its thread.
        """
        self.member.watch.count += 1
        now_s = self._now_s()
        was_s, self._asked_s = self._asked_s, now_s
        return not self.is_wanted and (now_s - was_s < TURN_S or not self.member.is_in_doubt)

    async def fill(self, count: int, deadline_s: float | None) -> None:
        """Waits for records as the reader does; an application that waits is not late."""
        with self._waiting():
            await self._reader.fill(count, deadline_s)

    async def wait_for_chunk(self, deadline_s: float | None) -> bool:
        """Waits for a chunk as the reader does."""
        with self._waiting():
            return await self._reader.wait_for_chunk(deadline_s)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if self._is_reading:
            raise InvalidRequestError(
                "another task waits for records of this consumer already; let one task read and pass records on, or give "
                "each task a consumer of its own with the same group_id"
            )
        watch = self.member.watch
        self._is_reading = watch.is_waiting = True
        try:
            yield
        finally:
            self._is_reading = watch.is_waiting = False
            watch.count += 1

    def hand_out(self, record: ConsumerRecord) -> None:
        """Counts a record as in the application's hands."""
        partition = tuple.__new__(TopicPartition, record[:2])  # what TopicPartition(...) does in the end, and quicker
        self._progress.hand_out(partition, record.offset)

    def hand_out_all(self, found: Iterable[ConsumerRecord | FetchedBatches]) -> None:
        """Counts all of a read as in the application's hands."""
        for partition, offset in first_offsets(found).items():
            self._progress.hand_out(partition, offset)

    def _handle_reset(self, partition: TopicPartition, offset: int) -> None:
        self._progress.begin_at_reset(partition, offset)
        self.member.commits.commit_due([partition])

    # ---- what the group wants ----------------------------------------------------------------------------------------

    async def attend(self) -> None:
        """Gives back what is taken, begins with what is new, raises why the group does not take the member.

        Raises:
            InvalidRequestError: The consumer unsubscribes meanwhile, or its listener reads.
        """
        member, watch = self.member, self.member.watch
        if self._now_s() >= self._turn_due_s:
            await self._give_turn()
        self.raise_if_ending()
        if self._is_attending:
            raise InvalidRequestError(
                "a listener may seek and commit, and cannot read: its consumer waits for it, and one task at a time may read"
            )
        self._is_attending = True
        was_waiting, watch.is_waiting = watch.is_waiting, False
        watch.count += 1
        try:
            if member.taken_back is not None:
                await self.give_back(member.taken_back)
                self.raise_if_ending()
            if member.ready or self._unheard:
                await self._begin()
                self.raise_if_ending()
            if member.going is not None:
                await asyncio.sleep(0)  # what goes has its turn also where the application never waits
        finally:
            watch.is_waiting = was_waiting
            self._is_attending = False
        if member.deleted:
            raise self._reader.deleted_error(member.deleted.pop(0))
        if member.failure is not None:
            raise raised_anew(member.failure)

    def raise_if_ending(self) -> None:
        """Raises: BrokerClosedError, InvalidRequestError: The consumer closes or unsubscribes: nothing is begun with any more."""
        self._reader.raise_if_closed()
        if self._is_leaving:
            raise InvalidRequestError(
                "no partition is assigned any more: this consumer unsubscribes; call assign or subscribe when it has"
            )

    async def _give_turn(self) -> None:
        """Lets heartbeats and commits run, beside an application that works on records without ever waiting.

        Where it has kept them from running for long, others may read these partitions: the coordinator says so first.
        """
        await asyncio.sleep(0)
        await self.member.confirm()
        self._turn_due_s = self._now_s() + TURN_S

    async def give_back(self, taken: TakenBack) -> None:
        """Tells the application and stops reading; what stays is read on while the last commit of what goes is under way.

        If that is cancelled, nothing has gone, and it begins anew; an error of the application's keeps nothing back.
        """
        is_lost = taken.is_lost or self.member.epoch == NO_EPOCH
        try:
            await self._tell_of_going(taken.partitions, is_lost=is_lost)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._let_go(taken, None)
            raise
        self._let_go(taken, None if is_lost else self.member.commits.want_last(taken.partitions))

    async def _tell_of_going(self, partitions: Collection[TopicPartition], *, is_lost: bool) -> None:
        hear = self.listener.on_lost if is_lost else self.listener.on_revoked
        await self._tell(hear, partitions, _Hearing(is_of_going=True))

    async def _tell(
        self,
        hear: Callable[[Collection[TopicPartition]], Awaitable[None]],
        partitions: Collection[TopicPartition],
        hearing: _Hearing,
    ) -> None:
        """Lets the listener hear of partitions, when it has heard to the end what another task tells it."""
        outer = self._hearing if self._is_heard_here() else None
        async with self._ear if outer is None else nullcontext():
            self._hearing, token = hearing, _hearing.set(hearing)
            try:
                await hear(partitions)
            finally:
                self._hearing = outer
                _hearing.reset(token)

    def _is_heard_here(self) -> bool:
        """Whether the listener runs, and whoever asks is the listener, or a task that it has begun."""
        return self._hearing is not None and _hearing.get(None) is self._hearing

    def raise_if_heard(self, method: str) -> None:
        """Refuses to end in a listener that hears of partitions that go: the end would wait for it, and it for the end.

        Raises:
            InvalidRequestError: Its listener calls.
        """
        if self._hearing is not None and self._hearing.is_of_going and self._is_heard_here():
            raise InvalidRequestError(
                f"a listener may seek and commit, and cannot {method}: that waits for the listener; let whoever reads do it"
            )

    def _let_go(self, taken: TakenBack, last_commit: int | None) -> None:
        self._unheard = [each for each in self._unheard if each not in taken.partitions]
        for partition in taken.partitions:
            self._reader.remove(partition)
        self.member.release(taken, last_commit)

    async def _begin(self) -> None:
        """Begins with what is new and tells the application; if that is cancelled, nothing is handed out before it is told anew.

        What a seek of the listener's says where to begin must not be read from elsewhere.
        """
        opened = self.member.take_ready()
        for each in opened:
            self._reader.add(each.partition, each.topic_id, each.position, each.error, each.epoch)
            position = self._reader.states[each.partition].position
            self._progress.begin(each.partition, position)
            self._unheard.append(each.partition)
        self._reader.follow()
        try:
            await self._tell(self.listener.on_assigned, list(self._unheard), _Hearing(is_of_going=False))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._unheard.clear()
            raise
        self._unheard.clear()

    async def leave_within(self, limit_ms: float | None) -> None:
        """Leaves as `leave` does; what takes longer than the limit is given up, and told to the log.

        Args:
            limit_ms: The limit, milliseconds, of which a fifth is kept for telling the coordinator; None: none.
        """
        if limit_ms is None:
            await self.leave()
            return
        self.member.leave_deadline_s = asyncio.get_running_loop().time() + limit_ms / 1000
        try:
            async with asyncio.timeout(limit_ms / 1000 * PARTING_SHARE):
                await self.leave()
        except TimeoutError:
            _log.warning(
                "the consumer was closed within %s ms, before its listener or its last commit had ended; records since the last "
                "commit will be read again",
                limit_ms,
            )

    async def leave(self) -> None:
        """Gives everything back and leaves the group; who is cancelled gives up a last commit that is under way, and leaves.

        Of what the reader has let go of before, the application has been told, and the member itself has the last commit.
        Whoever leaves a second time waits for the first.
        """
        if self._is_leaving:
            await self._left.wait()
            return
        self._is_leaving = True
        self._reader.wake.set()  # who waits for records is told that there will be none
        try:
            if not self._is_heard_here():
                async with self._ear:  # what the listener hears may be of partitions that go, or come
                    pass
            if self._reader.states:
                await self._part_from(tuple(self._reader.states))
        finally:
            try:
                await self._end()
            finally:
                self._left.set()

    async def _end(self) -> None:
        self._reader.attend = self._reader.on_reset = None
        self._reader.wake.set()
        for partition in tuple(self._reader.states):
            self._progress.end(partition)
            self._reader.remove(partition)
        await self.member.leave()
        self.has_left = True

    async def _part_from(self, partitions: Collection[TopicPartition]) -> None:
        """Tells the application, and commits what is done with while that is possible."""
        commits, is_lost = self.member.commits, self.member.epoch == NO_EPOCH
        self._reader.is_parting = True
        try:
            await self._tell_of_going(partitions, is_lost=is_lost)
        finally:
            self._reader.is_parting = False
        last_commit = None if is_lost else commits.want_last(partitions)
        if last_commit is not None:
            await commits.wait_for_last(last_commit)


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Returns a clock that goes on while a loop is kept from running: a loop's own one in a simulation, else that of the process.

    Why not always `loop.time`: that of asyncio is the same behind one more call, and that of uvloop says when it ran last.
    """
    is_simulated = isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is not asyncio.BaseEventLoop.time
    return loop.time if is_simulated else monotonic
