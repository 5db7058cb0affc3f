"""The state machine of transactions: which part handles which request, and owns which timer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import Background, StepTimer
from replog.coordinator.runtime.machine import Moment, Outcome, TimerKey, Timers
from replog.coordinator.runtime.messages import Reply, ReplyError
from replog.coordinator.transactions.checks import check_init, check_room, check_size
from replog.coordinator.transactions.ends import CompletionTimer, Ends, EndsTimer, MarkedTimer, ToldTimer
from replog.coordinator.transactions.held import HeldRequests, HeldTimer
from replog.coordinator.transactions.lists import Lists
from replog.coordinator.transactions.passes import AbortPass, ExpirationPass, Passes
from replog.coordinator.transactions.records import (
    TransactionStatus,
    WrittenTransaction,
    removal_record,
    transaction_record,
)
from replog.coordinator.transactions.requests import (
    AddPartitions,
    AddPartitionsResponse,
    DescribeTransaction,
    EndTransaction,
    EndTransactionResponse,
    ForgetTransactionalId,
    ForgetTransactionalIdResponse,
    InitProducer,
    InitProducerResponse,
    ListTransactions,
    MarkersWritten,
    MarkersWrittenResponse,
    PrepareTransaction,
    PrepareTransactionResponse,
    TransactionPartition,
    WaitForEnds,
)
from replog.coordinator.transactions.state import TransactionState
from replog.coordinator.transactions.transitions import (
    absent,
    check_may_add,
    check_may_forget,
    check_may_take_over,
    completed,
    ended,
    fenced,
    first_of,
    incarnation_of,
    partitions_of,
    prepared,
    producer_after,
    status_of,
    taken_over,
    with_partitions,
)
from replog.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvariantViolationError,
    ReplogError,
    TransactionAbortableError,
)
from replog_timeline import SnapshotRegistry


class TransactionMachine:
    """The transactional ids of a shard, over one timeline."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        timers: Timers,
        config: TransactionsConfig,
        transaction_version: Callable[[], int],
    ) -> None:
        """Makes a machine without transactional ids.

        Args:
            registry: The registry that can take changes back.
            timers: The timers of the shard.
            config: The settings.
            transaction_version: The function that returns the `transaction.version` of the cluster, 0 where it has none.
        """
        self._config = config
        self._transaction_version = transaction_version
        self._ends = Ends(timers)
        self._held = HeldRequests(timers)
        self._state = TransactionState(registry, self._ends.hear)
        self._background = Background(timers)
        self._passes = Passes(self._state, self._ends, self._background, timers, config, transaction_version)
        self._lists = Lists(self._state, self._ends, self._background, config)

    def replay(self, record: CoordinatorRecord, offset: int) -> None:  # noqa: ARG002 - all that counts is the order
        """Takes in a record."""
        self._state.replay(record)

    def replay_encoded(self, key: bytes, value: bytes | None) -> bool:
        """Takes in a record of the usual shape from its bytes, which are what is kept."""
        return self._state.replay_encoded(key, value)

    def start(self, moment: Moment, epoch: int) -> None:
        """Begins to hand over what is decided, and to look for what has been open for too long."""
        self._ends.start(epoch, moment)
        self._passes.start(moment)

    def was_taken_back(self, moment: Moment) -> None:
        """Takes up ends again that are not complete any more."""
        self._ends.look_again(self._state, moment)

    def were_lost(self, request_ids: tuple[int, ...], moment: Moment) -> None:
        """Takes up ends again that nobody has heard of."""
        self._ends.were_lost(request_ids, moment)

    def pause(self) -> tuple[int, ...]:
        """Gives up what needs timers; returns the ids of its requests.  Whoever waits for ends can wait."""
        return (*self._background.give_up_requests(), *self._held.give_up())

    def stop(self) -> tuple[int, ...]:
        """Forgets what has begun; returns the ids of the requests that wait."""
        self._passes.stop()
        return (*self._ends.stop(), *self._background.stop(), *self._held.give_up())

    def take_done(self, key: TimerKey, result: Any, moment: Moment) -> None:  # noqa: ARG002 - it is never called
        """Refuses all: nothing is worked at beside the loop.

        Raises:
            InvariantViolationError: Always.
        """
        raise InvariantViolationError(f"{key!r} was not wanted")

    # ---- requests ---------------------------------------------------------------------------------------------------

    def handle(self, request_id: int, request: Any, moment: Moment) -> Outcome:
        """Handles a request.

        Raises:
            ReplogError: It is refused.
            InvariantViolationError: It is no request to a coordinator of transactions.
        """
        match request:
            case InitProducer():
                return self._init(request_id, request, moment)
            case AddPartitions():
                return self._add(request_id, request, moment)
            case EndTransaction():
                return self._end(request_id, request, moment)
            case PrepareTransaction():
                return self._prepare(request_id, request, moment)
            case ForgetTransactionalId():
                return self._forget(request_id, request)
            case MarkersWritten():
                return self._note_markers(request_id, request, moment)
            case WaitForEnds():
                self._ends.wait(request_id, moment)
                return Outcome()
            case DescribeTransaction():
                return Outcome(answers=(Reply(request_id, self._lists.describe(request)),))
            case ListTransactions():
                return self._background.answer(request_id, self._lists.list(request_id, request), moment)
            case _:
                raise InvariantViolationError(
                    f"{type(request).__name__} is no request to a coordinator of transactions"
                )

    def _init(self, request_id: int, request: InitProducer, moment: Moment) -> Outcome:
        check_init(request, self._config)
        value = self._state.find(request.transactional_id)
        if value is None:
            check_room(len(self._state), self._config)
            taken = first_of(request, moment.wall_ms)
        else:
            check_may_take_over(value, request.known)
            if status_of(value) is TransactionStatus.ONGOING:
                return self._fence(request_id, request, value, moment)
            taken = taken_over(value, request, moment.wall_ms)
        answer = Reply(request_id, InitProducerResponse(incarnation_of(taken)))
        return Outcome(self._written(request.transactional_id, taken), (answer,))

    def _fence(self, request_id: int, request: InitProducer, value: WrittenTransaction, moment: Moment) -> Outcome:
        """Aborts the open transaction; its successor asks again when that is complete."""
        aborted = fenced(value, self._transaction_version(), moment.wall_ms)
        self._ends.look_soon(moment)
        error = ConcurrentTransactionsError(
            f"the open transaction of {request.transactional_id!r} is aborted first; ask again a little later"
        )
        return Outcome(self._written(request.transactional_id, aborted), (ReplyError(request_id, error),))

    def _add(self, request_id: int, request: AddPartitions, moment: Moment) -> Outcome:
        value = self._known(request.transactional_id)
        if status_of(value).is_decided and self._held.hold(request_id, request, moment):
            return Outcome()
        check_may_add(value, request)
        added = absent(value, request.partitions)
        if request.only_verifies:
            return Outcome(answers=(Reply(request_id, _verified(request.partitions, added)),))
        answer = Reply(request_id, AddPartitionsResponse((None,) * len(request.partitions)))
        if not added:
            return Outcome(answers=(answer,))
        check_size(partitions_of(value), added, self._state.size_bytes(request.transactional_id), self._config)
        grown = with_partitions(
            value,
            added,
            bumps=request.bumps_epochs,
            now_ms=moment.wall_ms,
            timeout_ms_max=self._config.max_timeout_ms,
        )
        return Outcome(self._written(request.transactional_id, grown), (answer,))

    def _add_held(self, timer: HeldTimer, moment: Moment) -> Outcome:
        """Handles a request that has waited for the end of the last transaction."""
        request = self._held.take(timer)
        if request is None:
            return Outcome()
        try:
            return self._add(timer.request_id, request, moment)
        except ReplogError as refused:
            return Outcome(answers=(ReplyError(timer.request_id, refused),))

    def _end(self, request_id: int, request: EndTransaction, moment: Moment) -> Outcome:
        value = self._known(request.transactional_id)
        decided = ended(value, request, moment.wall_ms)
        if decided is None:
            return Outcome(answers=(Reply(request_id, EndTransactionResponse(incarnation_of(value))),))
        self._ends.look_soon(moment)
        answer = Reply(request_id, EndTransactionResponse(producer_after(decided)))
        return Outcome(self._written(request.transactional_id, decided), (answer,))

    def _prepare(self, request_id: int, request: PrepareTransaction, moment: Moment) -> Outcome:
        answers = (Reply(request_id, PrepareTransactionResponse()),)
        changed = prepared(self._known(request.transactional_id), request.producer, moment.wall_ms)
        if changed is None:
            return Outcome(answers=answers)
        return Outcome(self._written(request.transactional_id, changed), answers)

    def _forget(self, request_id: int, request: ForgetTransactionalId) -> Outcome:
        answers = (Reply(request_id, ForgetTransactionalIdResponse()),)
        value = self._state.find(request.transactional_id)
        if value is None:
            return Outcome(answers=answers)
        check_may_forget(request.transactional_id, value)
        return Outcome((removal_record(request.transactional_id),), answers)

    def _note_markers(self, request_id: int, request: MarkersWritten, moment: Moment) -> Outcome:
        complete: dict[str, WrittenTransaction] = {}
        for each in request.ends:
            transactional_id = each.end.transactional_id
            value = self._state.find(transactional_id)
            if value is not None and self._ends.note_markers(each):
                complete[transactional_id] = completed(value, moment.wall_ms)
                self._held.wake(transactional_id, moment)
        records = tuple(record for one, value in complete.items() for record in self._written(one, value))
        return Outcome(records, (Reply(request_id, MarkersWrittenResponse()),))

    def _known(self, transactional_id: str) -> WrittenTransaction:
        """Returns what the log says of a transactional id.

        Raises:
            InvalidRequestError: It is empty.
            InvalidProducerIdMappingError: There is no such transactional id.
        """
        if not transactional_id:
            raise InvalidRequestError("the transactional id is empty: name one")
        value = self._state.find(transactional_id)
        if value is None:
            raise InvalidProducerIdMappingError(
                f"there is no transactional id {transactional_id!r}, or it has expired: begin with InitProducerId"
            )
        return value

    def _written(self, transactional_id: str, value: WrittenTransaction) -> tuple[CoordinatorRecord, ...]:
        return (transaction_record(transactional_id, value, self._transaction_version()),)

    # ---- timers -----------------------------------------------------------------------------------------------------

    def handle_timer(self, key: TimerKey, moment: Moment) -> Outcome:
        """Hands over what is decided, or makes a step of something that takes long.

        Raises:
            InvariantViolationError: Nobody has set such a timer.
        """
        match key:
            case EndsTimer():
                return self._ends.hand_over(self._state, moment)
            case CompletionTimer():
                return Outcome(self._complete(moment))
            case HeldTimer():
                return self._add_held(key, moment)
            case ToldTimer():
                self._ends.note_told(key)
            case MarkedTimer():
                self._ends.note_complete(key)
            case AbortPass() | ExpirationPass():
                self._passes.begin(key, moment)
            case StepTimer():
                return self._background.step(moment)
            case _:
                raise InvariantViolationError(f"nobody has set the timer {key!r}")
        return Outcome()

    def _complete(self, moment: Moment) -> tuple[CoordinatorRecord, ...]:
        """Returns the records that complete decided transactions of which no partition lacks its marker."""
        complete = self._ends.without_partitions(self._state, moment)
        version = self._transaction_version()
        for transactional_id, _ in complete:
            self._held.wake(transactional_id, moment)
        return tuple(transaction_record(each, completed(value, moment.wall_ms), version) for each, value in complete)


def _verified(
    partitions: Sequence[TransactionPartition], missing: Collection[TransactionPartition]
) -> AddPartitionsResponse:
    missing = set(missing)
    return AddPartitionsResponse(
        tuple(
            TransactionAbortableError(
                f"partition {each.topic}-{each.partition} is no part of the open transaction: abort it"
            )
            if each in missing
            else None
            for each in partitions
        )
    )
