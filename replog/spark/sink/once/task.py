"""One task's rows in one transaction: begun with the first row, prepared behind the last one, left to the driver."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from replog.client import Producer, Transaction
from replog.errors import ReplogError
from replog.spark.options.writing import WriteOptions
from replog.spark.sink.columns import TopicRows
from replog.spark.sink.once.decisions import Prepared
from replog.spark.sink.once.ledger import is_untouched, read_standing
from replog.spark.sink.once.names import AttemptName
from replog.spark.sink.outcome import TaskAttempt
from replog.spark.sink.task import Sending, new_producer, send_rows
from replog.spark.worker_client import keep_producer, lent_producer

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

ABORTED = "no reader of committed records will see them"


@dataclass(frozen=True, slots=True)
class TaskPrepared(WriterCommitMessage):
    """What a task has written.

    Attributes:
        attempt: The attempt, as Spark names it.
        records_count: The number of rows.
        name: The attempt's name among writes that are there once.
        prepared: The transaction; None: there were no rows, or they are not wanted.
    """

    attempt: TaskAttempt
    records_count: int
    name: AttemptName
    prepared: Prepared | None


def write_once(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, attempt: TaskAttempt, name: AttemptName, timeout_ms: int
) -> TaskPrepared:
    """Writes the rows of a task, and returns when its transaction is prepared; or aborted, where they come too late.

    Args:
        batches: The rows.
        options: The options of the write.
        attempt: The attempt, as Spark names it.
        name: Its name among writes that are there once.
        timeout_ms: How long it may take.

    Raises:
        ReplogError: A row could not be written, or it took too long; the transaction is aborted.
    """

    terms = options.brokers, options.cluster_id, dict(options.producer), timeout_ms
    tid = name.transactional_id

    async def start() -> PreparingSending:
        producer = await lent_producer(
            terms, lambda: new_producer(options, transactional_id=tid, transaction_timeout_ms=timeout_ms)
        )
        return PreparingSending(producer, partial(keep_producer, terms), tid, partial(_is_wanted, options, name))

    sending = send_rows(batches, options, attempt, start, ABORTED)
    return TaskPrepared(attempt, sending.sent_count, name, sending.prepared(name))


async def _is_wanted(options: WriteOptions, name: AttemptName) -> bool:
    """Whether an attempt may be decided for: its version is not decided, and its run not given up.

    Of another one nobody would end the transaction: whoever looked for it may have done so before it began.
    """
    writer, brokers = name.version.writer, options.brokers
    if options.once is not None and await is_untouched(brokers, writer, options.once.planned_ends):
        return True
    standing = await read_standing(brokers, writer)
    if standing.is_decided(name.version) or standing.is_given_up(name.version, name.run):
        _log.warning("%s is aborted: %s is there already, or was given up", name.transactional_id, name.version)
        return False
    return True


class PreparingSending(Sending):
    """A producer that prepares one transaction, and is kept for the next task; with no rows it asks nobody.

    Args:
        producer: The producer, which has not sent in this transaction yet.
        keep: The function that takes it back when all went well.
        transactional_id: The name of the transaction.
        is_wanted: The function that says, just before it is prepared, whether anybody will decide about it.
    """

    def __init__(
        self,
        producer: Producer,
        keep: Callable[[Producer], Awaitable[None]],
        transactional_id: str,
        is_wanted: Callable[[], Awaitable[bool]],
    ) -> None:
        super().__init__(producer, keep)
        self._transactional_id = transactional_id
        self._is_wanted = is_wanted
        self._transaction: Transaction | None = None
        self._by: tuple[int, int] | None = None

    def prepared(self, name: AttemptName) -> Prepared | None:
        """Returns the prepared transaction of an attempt; None: it has none."""
        return None if self._by is None else Prepared(name.number, *self._by)

    async def send(self, piece: TopicRows, first_row: int) -> None:
        if self._transaction is None:
            await self._producer.take_over(self._transactional_id)
            transaction = self._producer.transaction()
            await transaction.__aenter__()
            self._transaction = transaction
        await super().send(piece, first_row)

    async def finish(self) -> None:
        """Waits until all rows are acknowledged, and prepares or aborts."""
        await self.settle()
        if self._transaction is not None and not await self._is_wanted():
            await self.close()
            return
        if self._transaction is not None:
            prepared = await self._transaction.prepare()
            self._transaction = None
            self._by = None if prepared is None else (prepared.producer_id, prepared.producer_epoch)
        await self._keep(self._producer)

    async def close(self) -> None:
        """Ends: aborts what was not prepared; a second time it does nothing."""
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None:
                error = ReplogError("nobody will decide about it")
                await transaction.__aexit__(type(error), error, None)
        finally:
            await super().close()
