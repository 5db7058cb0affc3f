"""`Transaction`: records and offsets that are read together or not at all; what `Producer.transaction` returns.

The end of a transaction is a task of its own: a caller that is cancelled (Ctrl-C, a time-out) waits for it for a while and goes, and
the next transaction begins when it has ended.  So an abort is sent at whichever await the cancellation comes, and a commit that is
under way is not left half done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

from msgspec import Struct

from replog.client.arguments import checked_offsets, numbers_by_partition, wrong_type
from replog.client.producer.accumulator import Accumulator
from replog.client.producer.batch import ProducerIdentity
from replog.client.producer.router import Router
from replog.client.producer.transaction_partitions import TransactionPartitions
from replog.client.producer.transactions import (
    Phase,
    is_certainly_not_committed,
    is_fencing,
    is_fencing_who_goes_on,
)
from replog.client.types import GroupMetadata, MemberOffset, MemberOffsets
from replog.errors import (
    CommitStaleError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    IllegalGenerationError,
    InvalidRequestError,
    ReplogError,
    RequestTimedOutError,
    RetriableError,
    StaleMemberEpochError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
    UnknownMemberIdError,
    raised_anew,
)
from replog.waiting.task_ends import end_tasks

END_LIMIT_S: Final = 5.0
"""How long a caller that has failed, or is cancelled, waits for the end of its transaction; it goes on without it."""

IN_FLIGHT_LIMIT_S: Final = 1.0
"""How long an abort waits for answers to what is under way: what arrives after the end is refused, and says so to nobody."""

MOVED_ATTEMPTS: Final = 5
"""How often a commit of offsets is tried as the epoch of the member changes, and its partitions do not."""

_MOVED = (StaleMemberEpochError, IllegalGenerationError)
"""Refusals of a member that may have moved on to another epoch with the same partitions."""

_PUT_OUT = (*_MOVED, UnknownMemberIdError, FencedMemberEpochError, FencedInstanceIdError)

_log = logging.getLogger(__name__)


class PreparedTransaction(Struct, frozen=True):
    """A transaction that waits for a decision: whoever decides names all of this."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class OffsetsSource(Protocol):
    """A consumer, as far as a transaction commits its offsets."""

    def member_offsets(self, offsets: Mapping[tuple[str, int], int] | None = None) -> MemberOffsets: ...


class TransactionDriver:
    """Steps the book of one producer: begins and ends its transactions, one at a time.

    Invariants:
        - nothing joins a transaction once its commit has begun to wait for what has: it would be acknowledged, or not, behind that.

    Args:
        router: The queues and senders.
        accumulator: The batches.
        partitions: What gives partitions their identity.
        bar: A function that lets the producer refuse records.
        admit: A function that lets it accept them.
    """

    def __init__(
        self,
        router: Router,
        accumulator: Accumulator,
        partitions: TransactionPartitions,
        *,
        bar: Callable[[], None],
        admit: Callable[[], None],
    ) -> None:
        self._router = router
        self._accumulator = accumulator
        self._book = partitions.book
        self._calls = partitions.calls
        self._partitions = partitions
        self._bar = bar
        self._admit = admit
        self._open: Transaction | None = None
        self._is_complete = False  # nothing joins the open one any more
        self._end: asyncio.Task[None] | None = None
        self._taking_over = asyncio.Lock()
        accumulator.on_failed = self._handle_failed

    def new_transaction(self) -> Transaction:
        """Returns a transaction that has not begun."""
        return Transaction(self)

    def current(self) -> Transaction:
        """Returns the open transaction.  Raises: As `TransactionBook.raise_if_not_open`."""
        self._book.raise_if_not_open()
        if self._open is None:
            raise InvalidRequestError("the transaction is being begun; send once `async with` has entered its block")
        if self._is_complete:
            raise InvalidRequestError(
                "the transaction is being committed, and nothing can be added to it any more: wait in its block for the tasks that send"
            )
        return self._open

    def require(self, transaction: Transaction) -> None:
        """Refuses what is not of the open transaction.

        Raises:
            InvalidRequestError: It has ended meanwhile.
            ReplogError: As `current`.
        """
        if self.current() is not transaction:
            raise InvalidRequestError("this transaction has ended; nothing can be added to it any more")

    def _handle_failed(self, error: ReplogError) -> None:
        if is_fencing(error) and self._book.phase in {Phase.OPEN, Phase.FAILED}:
            self._book.fail(error)
            self._book.fence(error)
            self._bar()
        elif self._book.fail(error):
            self._bar()

    # ---- begin -----------------------------------------------------------------------------------------------------

    async def begin(self, transaction: Transaction) -> None:
        """Begins a transaction; takes over the transactional id first where `take_over` has not, or again after an error (KIP-360)."""
        if self._open is not None:  # one that is being ended is not
            raise InvalidRequestError(
                "this producer is in a transaction already: one at a time. Leave its block first, or give each task a producer "
                "with a transactional_id of its own"
            )
        self._open, self._is_complete = transaction, False
        try:
            if self._end is not None:
                await asyncio.wait([self._end])
            book = self._book
            book.raise_if_fenced()
            await self.take_over()
            book.open()
        except BaseException:
            self._open = None
            raise
        self._admit()

    async def take_over(self) -> None:
        """Takes over the transactional id, unless this producer has it: what another one has left open is aborted.

        Raises:
            ProducerFencedError: Another producer has it by now.
            ReplogError: Its coordinator refuses, or has not answered in time.
        """
        async with self._taking_over:
            await self._take_over()

    async def _take_over(self) -> None:
        book = self._book
        if book.phase is not Phase.NEW:
            return
        try:
            identity, version = await self._calls.take_over(book.identity)
        except ReplogError as error:
            if book.identity is not None and is_fencing_who_goes_on(error):
                book.fence(error)
                book.raise_if_fenced()
            raise
        book.take_over(identity, version)

    async def rename(self, transactional_id: str) -> None:
        """Goes on with another transactional id, and takes that over.

        Raises:
            InvalidRequestError: A transaction is open.
            ReplogError: As `take_over`.
        """
        if self._end is not None:
            await asyncio.wait([self._end])
        async with self._taking_over:  # what another task asks for now is answered for the name of now
            if self._open is not None:
                raise InvalidRequestError(
                    "a transaction is open: leave its block before you take over another transactional_id"
                )
            self._calls.rename(transactional_id)
            self._book.rename(transactional_id)
            await self._take_over()

    # ---- end -------------------------------------------------------------------------------------------------------

    async def commit(self, transaction: Transaction) -> None:
        """Waits for the acknowledgements of all records, and commits.  Raises: As `Transaction`."""
        if transaction.offset_commits_count:
            self._handle_failed(
                InvalidRequestError(
                    "a commit of offsets was under way at the end of the block: wait for it in the block"
                )
            )
        try:
            if self._book.phase is Phase.OPEN:
                await self._complete()
        except BaseException:
            await self.abort(transaction)
            raise
        if self._open is not transaction:
            raise TransactionAbortableError("the transaction was aborted, because its producer was closed")
        if self._book.phase is not Phase.OPEN:
            await self.abort(transaction)
            self._book.raise_if_fenced()
            raise self._book.aborted_error()
        await self._see_through(self._commit())

    async def prepare(self, transaction: Transaction) -> PreparedTransaction | None:
        """Waits for the acknowledgements of all records, and prepares.  Raises: As `Transaction.prepare`."""
        self.require(transaction)
        await self._complete()
        book = self._book
        book.raise_if_not_open()
        identity = book.identity
        if identity is None or not book.is_reached:
            return None
        await self._calls.prepare(identity)
        self._open = None
        self._let_go(None)
        return PreparedTransaction(self._book.name, identity.producer_id, identity.producer_epoch)

    async def _complete(self) -> None:
        """Waits until what has joined the transaction is acknowledged, or something of it has failed."""
        self._is_complete = True
        self._bar()
        await self._router.flush(until_failure=True)

    async def abort(self, transaction: Transaction) -> None:
        """Aborts, and waits for that for `END_LIMIT_S`; what is left to do then goes on."""
        if self._open is transaction and self._book.phase in {Phase.OPEN, Phase.FAILED, Phase.FENCED}:  # not: it begins
            self._begin_end(self._abort())
        if self._end is not None:
            await asyncio.wait([self._end], timeout=END_LIMIT_S)

    async def _see_through(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._begin_end(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=END_LIMIT_S)
            raise

    def _begin_end(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._bar()
        if self._open is not None and self._open.offset_commits_count:
            self._book.was_given_up = True
        self._open = None
        if self._book.phase is not Phase.FENCED:
            self._book.begin_end()
        self._end = asyncio.create_task(work, name="replog-transaction-end")
        self._end.add_done_callback(_look_at)
        return self._end

    async def _commit(self) -> None:
        book = self._book
        identity = book.identity
        if identity is None or not book.is_reached:
            self._let_go(identity)
            return
        arrivals: list[RetriableError] = []
        try:
            after = await self._calls.decide(identity, book.version, is_commit=True, arrivals=arrivals)
        except ReplogError as error:
            if not is_certainly_not_committed(error, may_have_arrived=bool(arrivals)):
                self._let_go(None)
                if is_fencing(error):
                    book.fence(error)
                raise _unknown_outcome(error) from error
            book.failure = raised_anew(error)
            if is_fencing(error):
                book.fence(error)
            await self._abort()
            book.raise_if_fenced()
            raise book.aborted_error() from error
        book.note_arrivals(arrivals)
        self._let_go(after)

    async def _abort(self) -> None:
        book = self._book
        await self._partitions.end()
        await self._give_up_records()
        if book.phase is Phase.FENCED:
            return
        identity = book.identity
        if identity is None or not book.is_reached:
            self._let_go(identity)
            return
        arrivals: list[RetriableError] = []
        try:
            after = await self._calls.decide(identity, book.version, is_commit=False, arrivals=arrivals)
        except ReplogError as error:
            self._let_go(None)
            if is_fencing(error):
                book.fence(error)
            else:
                _log.warning("%s. Its coordinator aborts the transaction when the next one begins, or in time", error)
            return
        book.note_arrivals(arrivals)
        self._let_go(after)

    async def _give_up_records(self) -> None:
        """Fails what is not acknowledged: what was not sent at once, what is under way after a moment."""
        error = TransactionAbortableError(
            "the records were not sent, or not acknowledged: their transaction was aborted"
        )
        for queue in self._router.queues():
            queue.fail_waiting(error)
        flying = self._accumulator.unresolved()
        if flying:
            await asyncio.wait([batch.future for batch in flying], timeout=IN_FLIGHT_LIMIT_S)
        if self._accumulator.unresolved():
            self._book.was_given_up = True
        for queue in self._router.queues():
            queue.end_transaction(error)
        self._accumulator.unseen_failure()  # of records that are in no log, and the end of the transaction tells of them

    def _let_go(self, after: ProducerIdentity | None) -> None:
        """Ends the transaction here: what comes next belongs to another one."""
        error = TransactionAbortableError("the transaction has ended")
        for queue in self._router.queues():
            queue.end_transaction(error)
        self._book.end(after)

    async def close(self) -> None:
        """Aborts what is open, and waits for what is being ended, for `END_LIMIT_S`."""
        if self._open is not None and self._book.phase in {Phase.OPEN, Phase.FAILED}:
            self._begin_end(self._abort())
        if self._end is not None:
            await asyncio.wait([self._end], timeout=END_LIMIT_S)

    async def release(self) -> None:
        """Leaves what is being ended to the coordinator."""
        await end_tasks(self._end)

    # ---- offsets ---------------------------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        transaction: Transaction,
        source: OffsetsSource | GroupMetadata,
        offsets: Mapping[tuple[str, int], int] | None,
    ) -> None:
        """Commits offsets of a group in the open transaction.  Raises: As `Transaction.commit_offsets`."""
        self.require(transaction)
        _require_source(source, offsets)
        transaction.offset_commits_count += 1
        try:
            wanted = _group_offsets(source, offsets)
            if wanted.offsets:
                await self._commit_offsets(wanted, None if isinstance(source, GroupMetadata) else source, offsets)
        except ReplogError as error:
            self._handle_failed_offsets(transaction, error)
            if isinstance(error, _PUT_OUT) and not isinstance(error, CommitStaleError):
                raise _stale(error) from error
            raise
        except BaseException:
            given_up = RequestTimedOutError("a commit of offsets was given up before it was answered")
            self._handle_failed_offsets(transaction, given_up)
            raise
        finally:
            transaction.offset_commits_count -= 1

    def _handle_failed_offsets(self, transaction: Transaction, error: ReplogError) -> None:
        """Lets the transaction be one that can only be aborted, unless it has ended meanwhile: the next one has not failed."""
        if self._open is transaction:
            self._handle_failed(error)

    async def _commit_offsets(
        self, wanted: MemberOffsets, member: OffsetsSource | None, offsets: Mapping[tuple[str, int], int] | None
    ) -> None:
        book, group_id = self._book, wanted.group.group_id
        identity = book.identity
        if identity is None:
            raise InvalidRequestError("there is no open transaction")
        book.is_reached = True
        if not book.is_bumping and group_id not in book.joined:
            await self._calls.add_group(identity, group_id)
            book.joined.add(group_id)
        for number in range(MOVED_ATTEMPTS):
            try:
                await self._calls.commit_offsets(identity, book.version, *wanted)
            except _MOVED:
                last, is_last = wanted.group, number + 1 == MOVED_ATTEMPTS
                if member is None or is_last or (wanted := member.member_offsets(offsets)).group == last:
                    raise
            else:
                return


class Transaction:
    """What is written in its block, by `Producer.send` and its like, is read together or not at all.

    ::

        async with producer.transaction() as txn:
            await producer.send("payments", b"...")
            await txn.commit_offsets(consumer)

    It is committed at the end of the block, and aborted where that is left by an exception or a cancellation.  A record that was
    accepted and is not acknowledged lets it be aborted in the place of a commit.  docs/TRANSACTIONS.md says what is promised.

    Raises, at the beginning:
        InvalidRequestError: The producer is in a transaction, or has no `transactional_id`; or this one has begun before.
        ProducerFencedError: Another producer has taken over the transactional id; this one cannot go on.
        InvalidTransactionTimeoutError: `transaction_timeout_ms` is more than the brokers allow.
        RequestTimedOutError: No coordinator has answered within `delivery_timeout_ms`; it names the last cause.

    Raises, at the end of the block:
        TransactionAbortableError: It was aborted, because something of it has failed; its cause says what.  The producer goes on.
        ProducerFencedError: As above; nothing of it is committed.
        TransactionOutcomeUnknownError: It may or may not be committed: the coordinator has not said, or not in time.

    Attributes:
        offset_commits_count: The commits of offsets that are under way.
    """

    def __init__(self, driver: TransactionDriver) -> None:
        self.offset_commits_count = 0
        self._driver = driver
        self._has_begun = self._is_prepared = False

    async def __aenter__(self) -> Self:
        if self._has_begun:
            raise InvalidRequestError("this transaction has begun before; producer.transaction() makes the next one")
        await self._driver.begin(self)
        self._has_begun = True
        return self

    async def __aexit__(
        self, cls: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_prepared:
            return
        if error is None:
            await self._driver.commit(self)
        else:
            await self._driver.abort(self)

    async def prepare(self) -> PreparedTransaction | None:
        """Leaves the transaction to whoever decides about it, together with others: no time-out ends it any more.

        Everything that was sent is acknowledged then, and the end of the block neither commits nor aborts.  Brokers of Apache Kafka
        cannot do it.  What holds of readers holds here: records behind those of the transaction wait for its end.

        Returns:
            What it is ended by; None: nothing was sent in it, so that there is nothing to end.

        Raises:
            TransactionAbortableError: Something of it has failed, and the end of the block aborts it.
            ProducerFencedError: Another producer has its transactional id, or its time-out has come first.
            UnsupportedVersionError: The broker cannot prepare transactions.
            ReplogError: The coordinator has not answered in time; it may be prepared, or be aborted by its time-out.
        """
        prepared = await self._driver.prepare(self)
        self._is_prepared = prepared is not None
        return prepared

    def require_open(self) -> None:
        """Refuses what comes after the end.  Raises: As `TransactionDriver.require`."""
        self._driver.require(self)

    async def commit_offsets(
        self, group: OffsetsSource | GroupMetadata, offsets: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Commits offsets of a group with the transaction: they count once it is committed.

        Args:
            group: The consumer that is subscribed, with `enable_auto_commit=False`; or what its `group_metadata()` returned, with
                `offsets`.
            offsets: The offset of the record to be read next, of each partition; None: the positions of all partitions that are
                assigned to the consumer, so that everything that was handed out counts as done with.

        Raises:
            CommitStaleError: A partition is not the member's any more: another one reads it (KIP-447).
            InvalidRequestError: The consumer is not subscribed, or commits by itself; or there is no open transaction.
            ReplogError: The coordinator refuses, or has not answered in time.
            TypeError: An argument is of another type; the transaction goes on.

        After each other one the transaction can only be aborted.
        """
        await self._driver.commit_offsets(self, group, offsets)


def _look_at(task: asyncio.Task[None]) -> None:
    """Looks at what has ended a task: who has left by a cancellation does not ask for it."""
    if not task.cancelled():
        task.exception()


def _require_source(source: object, offsets: Mapping[tuple[str, int], int] | None) -> None:
    """Refuses what has no offsets to commit, and what are none.  Raises: TypeError."""
    if not isinstance(source, GroupMetadata) and not hasattr(source, "member_offsets"):
        raise wrong_type("group", source, "the consumer, or what its group_metadata() returned")
    if offsets is not None:
        numbers_by_partition("offsets", offsets)


def _group_offsets(
    source: OffsetsSource | GroupMetadata, offsets: Mapping[tuple[str, int], int] | None
) -> MemberOffsets:
    if not isinstance(source, GroupMetadata):
        return source.member_offsets(offsets)
    if offsets is None:
        raise InvalidRequestError(
            "offsets is missing: a group's metadata do not say what is done with; or give the consumer"
        )
    given = checked_offsets(offsets)
    return MemberOffsets(source, {each: MemberOffset(offset) for each, offset in given.items()})


def _stale(error: ReplogError) -> CommitStaleError:
    return CommitStaleError(
        f"the offsets were not committed, because this member of the group was put out, or has another epoch: {error}. The "
        "transaction can only be aborted; what was read is read again by whoever has the partitions now"
    )


def _unknown_outcome(error: ReplogError) -> TransactionOutcomeUnknownError:
    return TransactionOutcomeUnknownError(
        f"the transaction may or may not be committed: its coordinator was asked to, and has not said whether it is: {error}. "
        "Read its records, as committed ones, before you do its work again"
    )
