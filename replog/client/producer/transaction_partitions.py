"""How partitions get the producer id of the open transaction: with `transaction.version` 0 and 1 the coordinator hears of them first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from replog.client.cluster.view import ClusterView
from replog.client.producer.config import ProducerConfig
from replog.client.producer.identity import no_queues
from replog.client.producer.partition_queue import PartitionQueue
from replog.client.producer.transaction_calls import TransactionCalls
from replog.client.producer.transactions import Phase, TransactionBook
from replog.errors import ReplogError
from replog.rpc.messages import ProducedTransaction
from replog.waiting.task_ends import end_tasks


class TransactionPartitions:
    """Gives partitions the identity of the open transaction (see `replog.client.producer.identity.Identities`).

    Args:
        book: Where the producer is.
        calls: The questions to the coordinators.
    """

    def __init__(self, book: TransactionBook, calls: TransactionCalls) -> None:
        self.book = book
        self.calls = calls
        self.on_arrived: Callable[[list[PartitionQueue]], None] = no_queues
        self._waiting: dict[PartitionQueue, None] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, view: ClusterView, config: ProducerConfig) -> Self:
        """Returns those of a producer, whose settings have a transactional id.

        Args:
            view: The open cluster view of the producer.
            config: The settings.
        """
        name = config.transactional_id or ""
        calls = TransactionCalls(view, name, config.delivery_timeout_ms, config.transaction_timeout_ms)
        return cls(TransactionBook(name), calls)

    @property
    def transaction(self) -> ProducedTransaction:
        """The transaction that batches belong to."""
        return ProducedTransaction(self.book.name, self.book.is_bumping)

    def give(self, queue: PartitionQueue) -> None:
        """Sets the queue's identity, now or when the coordinator has taken note of the partition; nothing once the transaction has failed."""
        book = self.book
        if book.phase is not Phase.OPEN or book.identity is None:
            return
        book.is_reached = True
        if book.is_bumping or queue.topic_partition in book.joined:
            queue.set_identity(book.identity)
            return
        self._waiting[queue] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._add(), name="replog-transaction-partitions")

    async def end(self) -> None:
        """Adds no more partitions to this transaction."""
        self._waiting.clear()
        task, self._task = self._task, None
        if task is not None and not task.done():
            self.book.was_given_up = True  # the coordinator may add them after the end
        await end_tasks(task)

    async def close(self) -> None:
        """Gives no more."""
        await self.end()

    async def _add(self) -> None:
        while self._waiting and (identity := self.book.identity) is not None:
            queues = list(self._waiting)
            self._waiting.clear()
            partitions = [queue.topic_partition for queue in queues]
            try:
                await self.calls.add(identity, partitions)
            except ReplogError as error:
                for queue in queues:
                    queue.fail_waiting(error.with_traceback(None))
                continue
            self.book.joined.update(partitions)
            for queue in queues:
                queue.set_identity(identity)
            self.on_arrived(queues)
