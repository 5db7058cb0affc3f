"""What a producer asks the coordinator of its transactions, and of a group, each until there is an answer or no time is left."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TypeVar

from replog.client.backoff import Backoff, retry
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS, VISIBLE_WITHIN_MS, ClusterView
from replog.client.groups.coordinator import Coordinator
from replog.client.producer.batch import ProducerIdentity
from replog.client.protocol.questions.group_members import TRANSACTION
from replog.client.protocol.questions.transactions import (
    AddGroupToTransaction,
    AddToTransaction,
    BeginProducing,
    CommitInTransaction,
    DecideTransaction,
)
from replog.client.types import GroupMetadata, MemberOffset, TopicPartition
from replog.coordinator.offsets.requests import NO_TOPIC_ID, OffsetToCommit, TopicToCommit
from replog.coordinator.transactions.requests import Incarnation, PrepareTransaction
from replog.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    RetriableError,
    UnknownTopicOrPartitionError,
)
from replog.waiting.asks import Asks

A = TypeVar("A")

BACKOFF_MS_MIN = 10
"""The first pause: most often the transaction before is being ended, which takes as long as its markers do."""

_UNDONE = (ConcurrentTransactionsError, CoordinatorLoadInProgressError)
"""Answers that say for certain that nothing was done."""


class TransactionCalls:
    """Owns the ways to the coordinators.

    Args:
        view: The open cluster view of the producer.
        transactional_id: The transactional id.
        limit_ms: How long each question may take, with all attempts.
        transaction_timeout_ms: How long a transaction may be open.
    """

    def __init__(self, view: ClusterView, transactional_id: str, limit_ms: int, transaction_timeout_ms: int) -> None:
        self._view = view
        self.rename(transactional_id)
        self._limit_ms = limit_ms
        self._transaction_timeout_ms = transaction_timeout_ms
        self._group = Coordinator(view, "")
        self._group_id = ""

    def rename(self, transactional_id: str) -> None:
        """Asks for another transactional id from now on."""
        self._name = transactional_id
        self._coordinator = Coordinator(self._view, transactional_id, TRANSACTION)

    async def take_over(self, known: ProducerIdentity | None) -> tuple[ProducerIdentity, int]:
        """Asks for a producer id and an epoch; returns them, and the level of `transaction.version` in the cluster.

        Args:
            known: What was given last, by which a producer that was fenced is refused; None: nothing.
        """
        question = BeginProducing(
            self._name, self._transaction_timeout_ms, None if known is None else _incarnation(known)
        )
        found = await self._ask(self._coordinator, question, f"take over transactional id {self._name}")
        return _identity(found.producer), found.transaction_version

    async def add(self, identity: ProducerIdentity, partitions: Collection[TopicPartition]) -> None:
        """Makes partitions part of the transaction."""
        question = AddToTransaction(self._name, _incarnation(identity), tuple(partitions))
        await self._ask(self._coordinator, question, f"add partitions to a transaction of {self._name}")

    async def add_group(self, identity: ProducerIdentity, group_id: str) -> None:
        """Makes the offsets of a group part of the transaction."""
        question = AddGroupToTransaction(self._name, _incarnation(identity), group_id)
        await self._ask(self._coordinator, question, f"add group {group_id} to a transaction of {self._name}")

    async def commit_offsets(
        self,
        identity: ProducerIdentity,
        version: int,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, MemberOffset],
    ) -> None:
        """Commits offsets of a group in the transaction."""
        if group.group_id != self._group_id:
            self._group, self._group_id = Coordinator(self._view, group.group_id), group.group_id
        topics: dict[str, list[OffsetToCommit]] = {}
        for each, offset in offsets.items():
            topics.setdefault(each.topic, []).append(OffsetToCommit(each.partition, *offset))
        question = CommitInTransaction(
            self._name,
            _incarnation(identity),
            group.group_id,
            group.member_id,
            group.generation,
            group.instance_id,
            tuple(TopicToCommit(name, NO_TOPIC_ID, tuple(found)) for name, found in topics.items()),
            version,
        )
        await self._ask(self._group, question, f"commit offsets of group {group.group_id} in a transaction")

    async def decide(
        self, identity: ProducerIdentity, version: int, *, is_commit: bool, arrivals: list[RetriableError]
    ) -> ProducerIdentity:
        """Commits or aborts the transaction; returns what the next one is written with.

        Args:
            identity: What this one was written with.
            version: The level of `transaction.version`.
            is_commit: Whether it is committed.
            arrivals: Where the errors are put after which it may have been decided all the same.
        """
        question = DecideTransaction(self._name, _incarnation(identity), is_commit, version)
        what = f"{'commit' if is_commit else 'abort'} a transaction of {self._name}"
        return _identity(await self._ask(self._coordinator, question, what, arrivals))

    async def prepare(self, identity: ProducerIdentity) -> None:
        """Lets no time-out end the transaction any more."""
        question = PrepareTransaction(self._name, _incarnation(identity))
        await self._ask(self._coordinator, question, f"prepare a transaction of {self._name}")

    async def _ask(
        self, coordinator: Coordinator, question: Asks[A], what: str, arrivals: list[RetriableError] | None = None
    ) -> A:
        visible_until_s = asyncio.get_running_loop().time() + VISIBLE_WITHIN_MS / 1000

        async def attempt(remaining_ms: int) -> A:
            try:
                return await coordinator.call(question, min(remaining_ms, ATTEMPT_TIMEOUT_MS))
            except UnknownTopicOrPartitionError as error:
                if asyncio.get_running_loop().time() >= visible_until_s:
                    raise
                raise CoordinatorNotAvailableError(
                    f"the coordinator may not have heard of a topic yet: {error}"
                ) from error
            except RetriableError as error:
                if arrivals is not None and not isinstance(error, _UNDONE):
                    arrivals.append(error)
                raise

        backoff = Backoff(self._view.rng, min_ms=BACKOFF_MS_MIN)
        return await retry(attempt, timeout_ms=self._limit_ms, what=what, backoff=backoff)


def _incarnation(identity: ProducerIdentity) -> Incarnation:
    return Incarnation(identity.producer_id, identity.producer_epoch)


def _identity(producer: Incarnation) -> ProducerIdentity:
    return ProducerIdentity(producer.producer_id, producer.producer_epoch, is_transactional=True)
