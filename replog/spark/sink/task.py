"""One task's rows on their way: Arrow batches in, acknowledged records out.

The rows of an attempt go through one idempotent producer: a retry within the attempt writes no row twice, a new attempt of the task
writes all of its rows again.  The process keeps the producer for its next task, unless this one has failed: what a producer still holds
then is no part of another task.  Spark hands over the next Arrow batch only when the rows of
the last one have room in the producer's memory, so a task holds one Arrow batch and that memory at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from replog.client import BulkDelivery, Producer
from replog.client.ranges.range_client import CONNECT_TIMEOUT_MS
from replog.errors import ReplogError
from replog.spark.options.writing import WriteOptions, in_options
from replog.spark.python_worker import tune_worker
from replog.spark.sink.columns import TopicRows, pieces
from replog.spark.sink.outcome import TaskAttempt, TaskWritten
from replog.spark.worker_client import CLIENT_ID, keep_producer, lent_producer, loop_thread

if TYPE_CHECKING:
    import pyarrow as pa

S = TypeVar("S", bound="Sending")

STAY = "stay in their topics"


def write_rows(batches: Iterable[pa.RecordBatch], options: WriteOptions, attempt: TaskAttempt) -> TaskWritten:
    """Writes the rows of a task and returns when all are acknowledged.

    Raises:
        ReplogError: A row could not be written; it names the first error and how many rows were acknowledged.
    """
    sending = send_rows(batches, options, attempt, lambda: Sending.start(options), STAY)
    return TaskWritten(attempt, sending.sent_count)


def send_rows(
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    attempt: TaskAttempt,
    start: Callable[[], Coroutine[Any, Any, S]],
    fate: str,
) -> S:
    """Sends the rows of a task, and returns what has sent them, and has finished.

    Args:
        batches: The rows.
        options: The options of the write.
        attempt: The attempt, for errors.
        start: The function that connects.
        fate: What becomes of rows that were acknowledged when the task fails, for errors.

    Raises:
        ReplogError: As `write_rows`.
    """
    thread = loop_thread()
    sending = thread.run(start)
    tune_worker()
    rows_count = 0
    try:
        for batch in batches:
            for piece in pieces(batch, rows_count, topic=options.topic, include_headers=options.include_headers):
                thread.run(partial(sending.send, piece, rows_count))
            rows_count += batch.num_rows
        thread.run(sending.finish)
    except ReplogError as error:
        thread.run(sending.close)
        raise ReplogError(
            f"{attempt}: {sending.acknowledged_count} of {sending.sent_count} rows sent were acknowledged, and {fate}. "
            f"First error: {type(error).__name__}{sending.where}: {in_options(str(error))}"
        ) from error
    except BaseException:
        thread.run(sending.close)
        raise
    return sending


def new_producer(options: WriteOptions, **settings: Any) -> Producer:
    """Returns a producer that has not connected yet.

    Args:
        options: The options of the write.
        settings: Further settings of the producer.
    """
    return Producer(
        options.bootstrap_servers,
        security=options.security,
        client_id=CLIENT_ID,
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        **options.producer,
        **settings,
    )


class Sending:
    """A producer, and what became of what it was given; in the loop's thread.

    Args:
        producer: The producer.
        keep: The function that takes it back when all went well.

    Attributes:
        sent_count: The number of rows that it was given.
        where: Which rows are just being given to it, for errors.
    """

    def __init__(self, producer: Producer, keep: Callable[[Producer], Awaitable[None]]) -> None:
        self._producer = producer
        self._keep = keep
        self._open: deque[BulkDelivery] = deque()
        self._settled_count = 0
        self.sent_count = 0
        self.where = ""

    @classmethod
    async def start(cls, options: WriteOptions) -> Self:
        """Connects, unless this process has done so for a task before.  Raises: ReplogError: No broker answers."""
        terms = options.brokers, options.cluster_id, dict(options.producer)
        producer = await lent_producer(terms, lambda: new_producer(options))
        try:
            await producer.start()
        except BaseException:
            await producer.close(timeout_ms=0)
            raise
        return cls(producer, partial(keep_producer, terms))

    @property
    def acknowledged_count(self) -> int:
        """The number of rows that are acknowledged so far."""
        return self._settled_count + sum(delivery.acknowledged_count for delivery in self._open)

    async def send(self, piece: TopicRows, first_row: int) -> None:
        """Puts rows into batches; waits for room.

        Args:
            piece: The rows.
            first_row: The place among the task's rows of the Arrow batch that they are from, for errors.

        Raises:
            ReplogError: One of these rows, or of those before, cannot be written.
        """
        while self._open and self._open[0].done():
            await self._settle_first()
        self.where = f" (among the rows for {piece.topic} from row {first_row} of the task on)"
        delivery = await self._producer.send_columns(piece.topic, piece.columns, partitions=piece.partitions)
        self.where = ""
        self.sent_count += delivery.records_count
        self._open.append(delivery)

    async def finish(self) -> None:
        """Waits until all rows are acknowledged, and lets the producer be kept.

        Raises:
            ReplogError: The first error among them.
        """
        await self.settle()
        await self._keep(self._producer)

    async def settle(self) -> None:
        """Waits until all rows are acknowledged.

        Raises:
            ReplogError: The first error among them.
        """
        await self._producer.flush()
        while self._open:
            await self._settle_first()

    async def close(self) -> None:
        """Ends after an error; rows that are on their way may still be written."""
        await self._producer.close(timeout_ms=0)

    async def _settle_first(self) -> None:
        await self._open[0]
        self._settled_count += self._open.popleft().records_count
