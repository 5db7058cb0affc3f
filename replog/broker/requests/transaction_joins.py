"""Batches that wait until a coordinator has said that they belong to a transaction (KIP-890).

Runs on the replica driver.  The leader asks before the first batch of a transaction in a partition; later batches of the producer
wait behind it, and nobody else does.  While the transaction is open in the log nothing is asked.  A producer whose client adds its
partitions itself is looked up; for others the coordinator makes the partition part of the transaction with the same question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.open_produces import ReadyBatch
from replog.broker.tasks import watched_task
from replog.errors import ConcurrentTransactionsError, ErrorCode, ReplogError, RetriableError
from replog.records import BatchHeader
from replog.rpc.messages import ProducedTransaction
from replog.rpc.transaction_messages import (
    JoinTransactionRequest,
    JoinTransactionResponse,
    NamedPartitions,
    PartitionRefusal,
)

ANSWER_WAIT_MIN_MS: Final = 1000
"""The shortest time that a coordinator has to answer, even if the client waits less: another one's question would take as long."""

_UNANSWERED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
_TO_BE_SENT_AGAIN: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS})

Refuse = Callable[[ReadyBatch, ErrorCode, str], None]


class JoinsTransactions(Protocol):
    """What asks the coordinator of a transactional id, here or on another broker."""

    async def join(self, request: JoinTransactionRequest, timeout_ms: int) -> JoinTransactionResponse:
        """Returns which partitions are no part of the transaction; raises what refuses all of them."""
        ...


class _Asker(Struct, frozen=True):
    """Whose batches one question is about."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds_partitions: bool


class _Question(Struct):
    """A question that waits for its answer, or for the end of the step in which it came up."""

    asker: _Asker
    timeout_ms: int
    replicas: dict[ReplicaKey, Replica]


_Place = tuple[ReplicaKey, int]  # a producer in a partition


class TransactionJoins:
    """The batches of this broker that wait for coordinators.

    Args:
        stepper: The stepper of this broker's replicas.
        verifier: What asks the coordinators.
        refuse: The function that answers a batch that is refused.
        go_on: The function that checks batches again, in their order, and appends them.
    """

    def __init__(
        self,
        stepper: ReplicaStepper,
        verifier: JoinsTransactions,
        refuse: Refuse,
        go_on: Callable[[Sequence[ReadyBatch]], None],
    ) -> None:
        self._stepper = stepper
        self._verifier = verifier
        self._refuse = refuse
        self._go_on = go_on
        self._waiting: dict[_Place, list[ReadyBatch]] = {}
        self._questions: dict[_Asker, _Question] = {}  # of this step
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, replica: Replica, one: ReadyBatch, transaction: ProducedTransaction) -> bool:
        """Takes over a batch that has to wait, or answers it; False: it may be appended.

        Args:
            replica: The replica of its partition, which leads.
            one: The batch, which is transactional.
            transaction: The transaction that its client names.
        """
        header, guards = one.header, replica.log.producers.guards
        place = (replica.key, header.producer_id)
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.append(one)
            if _asker(waiting[0]) == _asker(one):
                one.guard = guards.begin(header, bumps_epochs=transaction.adds_partitions, now_ms=self._wall_ms())
            return True
        if _needs_no_guard(replica, one):
            return False
        if one.guard is not None:
            if guards.get(header.producer_id) is one.guard:
                return False
            self._refuse(
                one, ErrorCode.INVALID_TXN_STATE, "the transaction was ended before the batch could be appended"
            )
            return True
        one.guard = guards.begin(header, bumps_epochs=transaction.adds_partitions, now_ms=self._wall_ms())
        self._waiting[place] = [one]
        self._note(replica, one, transaction)
        return True

    def ask(self) -> None:
        """Asks what came up since the last call: one question for all partitions of a producer."""
        questions, self._questions = self._questions, {}
        for question in questions.values():
            task = watched_task(self._ask(question), name="transaction-join", on_failure=self._stepper.on_failure)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Gives up all questions; who waits for an answer loses its connection with the node."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wall_ms(self) -> int:
        return self._stepper.clock.wall_ms()

    def _note(self, replica: Replica, one: ReadyBatch, transaction: ProducedTransaction) -> None:
        asker = _asker_of(transaction, one.header)
        wait_ms = max(ANSWER_WAIT_MIN_MS, one.open.request.timeout_ms)
        question = self._questions.setdefault(asker, _Question(asker, 0, {}))
        question.timeout_ms = max(question.timeout_ms, min(wait_ms, self._stepper.config.request_timeout_ms))
        question.replicas[replica.key] = replica

    async def _ask(self, question: _Question) -> None:
        outcome: JoinTransactionResponse | ReplogError
        try:
            async with asyncio.timeout(question.timeout_ms / 1000):
                outcome = await self._answer(question)
        except TimeoutError:
            outcome = RetriableError(f"there was no answer within {question.timeout_ms} ms")
        except ReplogError as error:
            outcome = error
        self._stepper.driver.submit(partial(self._answered, question, outcome))

    async def _answer(self, question: _Question) -> JoinTransactionResponse:
        asker = question.asker
        request = JoinTransactionRequest(
            asker.transactional_id,
            asker.producer_id,
            asker.producer_epoch,
            not asker.adds_partitions,
            _named(list(question.replicas.values())),
        )
        return await self._verifier.join(request, question.timeout_ms)

    def _answered(self, question: _Question, outcome: JoinTransactionResponse | ReplogError) -> None:
        refusals = _refusals(question, outcome)
        going_on: list[ReadyBatch] = []
        for key, replica in question.replicas.items():
            for one in self._waiting.pop((key, question.asker.producer_id)):
                refusal = refusals.get(key) if _asker(one) == question.asker else None
                if refusal is None:
                    going_on.append(one)
                else:
                    self._refuse_for(replica, one, refusal)
        self._go_on(going_on)

    def _refuse_for(self, replica: Replica, one: ReadyBatch, refusal: PartitionRefusal) -> None:
        code, message = told(refusal, one.open.request.transaction)
        guards, header = replica.log.producers.guards, one.header
        guard = guards.get(header.producer_id)
        is_own = guard is not None and guard is one.guard and guard.producer_epoch == header.producer_epoch
        if is_own and code not in _TO_BE_SENT_AGAIN:
            guards.drop(header.producer_id)
        self._refuse(one, code, message)


def told(refusal: PartitionRefusal, transaction: ProducedTransaction | None) -> tuple[ErrorCode, str]:
    """Returns what a client is told for a coordinator's refusal: codes that its version handles as they are meant.

    NOT_ENOUGH_REPLICAS has every client send the batch again, without looking for another leader first.
    """
    adds_partitions = transaction is not None and transaction.adds_partitions
    text = f"it is not known whether the partition is part of the transaction ({refusal.error.name})"
    text = f"{text}: {refusal.message}" if refusal.message else text
    match refusal.error:
        case code if code in _UNANSWERED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds_partitions):
            return ErrorCode.NOT_ENOUGH_REPLICAS, text
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH, refusal.message
        case ErrorCode.TRANSACTION_ABORTABLE if transaction is not None and not transaction.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE, refusal.message
        case code:
            return code, refusal.message


def _needs_no_guard(replica: Replica, one: ReadyBatch) -> bool:
    """Whether the log itself decides about a batch: its transaction is open there, or its producer is fenced."""
    producers, header = replica.log.producers, one.header
    if producers.is_in_transaction(header.producer_id, header.producer_epoch):
        return True
    entry = producers.producers.get(header.producer_id)
    return entry is not None and header.producer_epoch < entry.producer_epoch


def _asker(one: ReadyBatch) -> _Asker | None:
    transaction = one.open.request.transaction
    return None if transaction is None else _asker_of(transaction, one.header)


def _asker_of(transaction: ProducedTransaction, header: BatchHeader) -> _Asker:
    return _Asker(transaction.transactional_id, header.producer_id, header.producer_epoch, transaction.adds_partitions)


def _named(replicas: Sequence[Replica]) -> tuple[NamedPartitions, ...]:
    by_topic: dict[str, list[int]] = {}
    for replica in replicas:
        by_topic.setdefault(replica.topic, []).append(replica.partition_id)
    return tuple(NamedPartitions(topic, tuple(ids)) for topic, ids in by_topic.items())


def _refusals(
    question: _Question, outcome: JoinTransactionResponse | ReplogError
) -> Mapping[ReplicaKey, PartitionRefusal]:
    """Returns the partitions of a question that are refused; all of them where nobody has answered."""
    if isinstance(outcome, ReplogError):
        is_refusal = isinstance(outcome, ConcurrentTransactionsError) or not isinstance(outcome, RetriableError)
        error = outcome.code if is_refusal else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {
            key: PartitionRefusal(replica.topic, replica.partition_id, error, str(outcome))
            for key, replica in question.replicas.items()
        }
    by_name = {(one.topic, one.partition_id): one for one in outcome.refusals}
    return {
        key: refusal
        for key, replica in question.replicas.items()
        if (refusal := by_name.get((replica.topic, replica.partition_id))) is not None
    }
