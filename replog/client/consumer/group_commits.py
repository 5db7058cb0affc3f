"""Commits of a group: what is done with goes to the coordinator, by itself or when the application says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol
from uuid import UUID

from replog.client.backoff import Backoff, timed_out
from replog.client.consumer.group_settings import GroupSettings
from replog.client.groups.commits import CommitBook, Finished, Offset, Progress, errors_of, topics_to_commit
from replog.client.groups.coordinator import Coordinator
from replog.client.groups.membership import NO_EPOCH, PUT_OUT
from replog.client.types import GroupMetadata, MemberOffset, MemberOffsets, TopicPartition
from replog.coordinator.classic.subscription import assigned_partitions
from replog.coordinator.describing.requests import (
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedMember,
    DescribeGroup,
)
from replog.coordinator.offsets.requests import (
    CommitOffsets,
)
from replog.errors import (
    BrokerClosedError,
    CommitStaleError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    InvalidRequestError,
    ReplogError,
    RetriableError,
    StaleMemberEpochError,
    UnsupportedVersionError,
)

OWNER_S = 1.0
"""How long an error waits to hear who has a partition."""

_log = logging.getLogger(__name__)


class Holder(Protocol):
    """The member, as its commits see it."""

    held: dict[TopicPartition, UUID]

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    def doubt(self) -> None: ...

    def topic_id(self, topic: str) -> UUID | None: ...


class GroupCommits:
    """Invariants:
        - a request names only partitions that the member holds when it is made, with its epoch of then;
        - what is committed by itself was handed out and asked past.

    Args:
        coordinator: The way to the coordinator.
        settings: The settings of the group.
        holder: The member.
        position: The function that returns the offset after the last record that was handed out.
        epoch_before: The function that returns the leader epoch of the record before an offset; -1 where it is not known.
        backoff: The pauses after errors.

    Attributes:
        progress: How far the application has come.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        settings: GroupSettings,
        holder: Holder,
        position: Callable[[TopicPartition], int],
        epoch_before: Callable[[TopicPartition, int], int],
        backoff: Backoff,
    ) -> None:
        self.progress = Progress()
        self._coordinator = coordinator
        self._settings = settings
        self._holder = holder
        self._position = position
        self._epoch_before = epoch_before
        self._backoff = backoff
        self._book = CommitBook()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._wanted = asyncio.Event()

    # ---- what the reader asks for ------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commits offsets; returns when they are kept.

        Raises:
            CommitStaleError: A partition is not the member's any more.
            RequestTimedOutError: The coordinator has not answered in time; they may be kept all the same.
        """
        if offsets:
            await self._wait(self._want(offsets))

    def _want(self, offsets: Mapping[TopicPartition, Offset]) -> int:
        """Lets offsets wait to be sent; returns the ticket, for which somebody must `_wait`."""
        ticket = self._book.want(offsets)
        self._waiters[ticket] = asyncio.get_running_loop().create_future()
        self._wanted.set()
        return ticket

    async def _wait(self, ticket: int) -> None:
        """Returns when what a ticket is for is kept; raises as `commit` does."""
        limit_ms = self._settings.commit_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._waiters[ticket]
        except TimeoutError:
            raise timed_out(f"commit offsets of group {self._settings.group_id}", limit_ms, None) from None
        finally:
            self._waiters.pop(ticket, None)

    async def commit_told(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits what the application says; raises as `commit` does."""
        before = self.progress.settle(
            offsets
        )  # first: what is committed by itself meanwhile must not go back behind it
        try:
            await self.commit({each: self._offset(each, offset) for each, offset in offsets.items()})
        except BaseException as error:
            self.progress.take_back(offsets, before)
            if isinstance(error, CommitStaleError) and (owner := await self._owner(error.partition)):
                raise CommitStaleError(f"{error} {owner}", error.partition) from None
            raise

    def metadata(self) -> GroupMetadata:
        """Returns which member this is now."""
        settings, holder = self._settings, self._holder
        generation = holder.epoch if holder.epoch != NO_EPOCH else -1
        return GroupMetadata(settings.group_id, holder.member_id, generation, settings.instance_id)

    def for_transaction(self, offsets: Mapping[TopicPartition, int]) -> MemberOffsets:
        """Returns offsets that a transaction commits in the place of this member.

        Raises:
            CommitStaleError: A partition is not the member's.
            InvalidRequestError: The member commits by itself, also what a transaction that is aborted has read.
        """
        if self._settings.auto_commit:
            raise InvalidRequestError(
                "this consumer commits by itself, also what a transaction has read that is aborted: make it with "
                "enable_auto_commit=False where transactions commit its offsets"
            )
        is_member = self._holder.epoch != NO_EPOCH
        lost = next((each for each in offsets if not is_member or each not in self._holder.held), None)
        if lost is not None:
            raise self._stale_error(lost)
        return MemberOffsets(
            self.metadata(),
            {each: MemberOffset(offset, self._epoch_before(each, offset)) for each, offset in offsets.items()},
        )

    async def _owner(self, partition: tuple[str, int] | None) -> str:
        """Says who has a partition now; "" where nobody has it, or that is not told within a moment."""
        if partition is None:
            return ""
        try:
            async with asyncio.timeout(OWNER_S):
                found = await self._owning(*partition)
        except (ReplogError, TimeoutError):
            return ""
        if found is None:
            return ""
        return f"It is read by member {found.member_id} now: client {found.client_id!r} at {found.client_host}."

    async def _owning(self, topic: str, partition: int) -> DescribedConsumer | DescribedMember | None:
        """Returns the member that has a partition; None where nobody has.  Raises: ReplogError: That is not told."""
        group, limit_ms, topic_id = self._settings.group_id, int(OWNER_S * 1000), self._holder.topic_id(topic)
        try:
            found = await self._coordinator.call(DescribeConsumerGroup(group), limit_ms)
        except (GroupIdNotFoundError, UnsupportedVersionError):  # it is a group of the classic protocol
            told = await self._coordinator.call(DescribeGroup(group), limit_ms)
            place = (topic, partition)
            return next((each for each in told.members if place in assigned_partitions(each.assignment)), None)
        if topic_id is None:
            return None
        return next((each for each in found.members if partition in each.assignment.get(topic_id, ())), None)

    def want_last(self, partitions: Collection[TopicPartition]) -> int | None:
        """Lets the last commit of partitions wait to be sent: all that is not settled yet, and what is done with, if the settings
        say so.  Nothing that is handed out of them from now on counts.

        Returns:
            The ticket, for which `wait_for_last` waits; None: nothing is to be committed, or nobody would take it.
        """
        offsets = {each: pending for each in partitions if (pending := self._book.pending(each)) is not None}
        if self._settings.auto_commit:
            offsets |= self._due(partitions)
        for each in partitions:
            self.progress.end(each)
        if offsets and self._holder.epoch == NO_EPOCH:
            self._warn(self._stale_error(next(iter(offsets))))
            return None
        return self._want(offsets) if offsets else None

    async def wait_for_last(self, ticket: int) -> None:
        """Returns when a last commit has ended.  An error is told to the log: what was not committed is read again."""
        try:
            await self._wait(ticket)
        except ReplogError as error:
            self._warn(error)

    def _warn(self, error: ReplogError) -> None:
        _log.warning("%s; records since the last commit will be read again", error)

    def kept(self, partition: TopicPartition) -> int | None:
        """Returns the last offset that this member has committed; None where it has none."""
        return self._book.committed.get(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Forgets a partition that is not the member's any more: what waits of it, or is under way, fails."""
        self.progress.end(partition)
        self._finish(self._book.forget(partition, self._stale_error))

    def close(self) -> None:
        """Fails what still waits; the task has ended."""
        closed = BrokerClosedError("this consumer was closed before the commit was answered")
        self._finish(self._book.fail_all(lambda _: closed))

    def _due(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        done = self.progress.done(self._position)
        return {
            each: self._offset(each, done[each])
            for each in partitions
            if each in done and done[each] != self._book.latest(each)
        }

    def _offset(self, partition: TopicPartition, offset: int) -> Offset:
        return Offset(offset, self._epoch_before(partition, offset))

    # ---- the task ----------------------------------------------------------------------------------------------------

    def commit_due(self, partitions: Iterable[TopicPartition]) -> None:
        """Lets what is done with of partitions wait to be sent, unless the application commits by itself."""
        is_member = self._holder.epoch != NO_EPOCH  # else it would be refused, again and again
        if self._settings.auto_commit and is_member and (offsets := self._due(partitions)):
            self._book.want(offsets)
            self._wanted.set()

    async def run(self) -> None:
        """Sends what waits, and what is done with at every interval, until it is cancelled."""
        loop = asyncio.get_running_loop()
        interval_s = self._settings.auto_commit_interval_ms / 1000
        due_s = loop.time() + interval_s
        while True:
            try:
                async with asyncio.timeout_at(due_s if self._settings.auto_commit else None):
                    await self._wanted.wait()
            except TimeoutError:
                due_s = loop.time() + interval_s
                self.commit_due(self._holder.held)
            self._wanted.clear()
            while self._book.has_waiting:
                await self._send()

    async def _send(self) -> None:
        if self._holder.epoch == NO_EPOCH:
            self._finish(self._book.fail_all(self._stale_error))
            return
        held = self._holder.held
        offsets, finished = self._book.take(held.__contains__, self._stale_error)
        self._finish(finished)
        if not offsets:
            return
        member = self._holder.member_id, self._holder.epoch
        try:
            response = await self._coordinator.call(self._request(offsets, self._holder.epoch))
        except ReplogError as error:
            await self._handle_refused(error, member)
            return
        self._backoff.reset()
        self._finish(self._book.answered(errors_of(response)))

    async def _handle_refused(self, error: ReplogError, member: tuple[str, int]) -> None:
        """Tries again, unless that does not help.

        Args:
            error: The answer.
            member: The id and the epoch in which it was asked.
        """
        is_of_now = self._holder.epoch == NO_EPOCH or member == (self._holder.member_id, self._holder.epoch)
        if isinstance(error, (*PUT_OUT, FencedInstanceIdError)) and not is_of_now:
            self._book.put_back()  # it has moved on meanwhile; what is not its own any more has failed already
        elif isinstance(error, StaleMemberEpochError | RetriableError):
            self._book.put_back()
            if not isinstance(error, RetriableError):
                self._holder.doubt()
            await asyncio.sleep(self._backoff.next_s())
        elif isinstance(error, (*PUT_OUT, FencedInstanceIdError)):
            self._holder.doubt()
            self._finish(self._book.fail_all(self._stale_error))
        else:
            self._finish(self._book.fail_all(lambda _: error))

    def _request(self, offsets: Mapping[TopicPartition, Offset], epoch: int) -> CommitOffsets:
        settings, topics = self._settings, topics_to_commit(offsets, self._holder.held)
        return CommitOffsets(settings.group_id, topics, self._holder.member_id, settings.instance_id, epoch)

    def _finish(self, finished: Iterable[Finished]) -> None:
        for ticket, error in finished:
            waiter = self._waiters.get(ticket)
            if waiter is None:
                if error is not None:
                    _log.warning("%s", error)
            elif not waiter.done():
                if error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(error)

    def _stale_error(self, partition: TopicPartition) -> CommitStaleError:
        return CommitStaleError(
            f"{partition}: the offset was not committed, because the partition is not this member's: it was never assigned to "
            f"it, or another member of group {self._settings.group_id!r} has it by now, and reads again what was not committed.",
            partition,
        )
