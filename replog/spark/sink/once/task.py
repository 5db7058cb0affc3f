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
from replog.spark.sink.task import Sending, send_rows

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

    async def start() -> PreparingSending:
        sending = await PreparingSending.start(
            options, transactional_id=name.transactional_id, transaction_timeout_ms=timeout_ms
        )
        sending.is_wanted = partial(_is_wanted, options, name)
        return sending

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
    """A producer that prepares one transaction.

    Attributes:
        is_wanted: The function that says, just before that, whether anybody will decide about it.
    """

    is_wanted: Callable[[], Awaitable[bool]]

    def __init__(self, producer: Producer) -> None:
        super().__init__(producer)
        self._transaction: Transaction | None = None
        self._by: tuple[int, int] | None = None

    def prepared(self, name: AttemptName) -> Prepared | None:
        """Returns the prepared transaction of an attempt; None: it has none."""
        return None if self._by is None else Prepared(name.number, *self._by)

    async def send(self, piece: TopicRows, first_row: int) -> None:
        if self._transaction is None:
            transaction = self._producer.transaction()
            await transaction.__aenter__()
            self._transaction = transaction
        await super().send(piece, first_row)

    async def finish(self) -> None:
        """Waits until all rows are acknowledged, prepares or aborts, and closes."""
        await self.settle()
        if self._transaction is not None and await self.is_wanted():
            prepared = await self._transaction.prepare()
            self._transaction = None
            self._by = None if prepared is None else (prepared.producer_id, prepared.producer_epoch)
        await self.close()

    async def close(self) -> None:
        """Ends: aborts what was not prepared; a second time it does nothing."""
        transaction, self._transaction = self._transaction, None
        try:
            if transaction is not None:
                error = ReplogError("nobody will decide about it")
                await transaction.__aexit__(type(error), error, None)
        finally:
            await super().close()
