"""What tasks tell the driver of a write, and the one place where it hears of all of them.

A row is in its topic once its broker has acknowledged it, whatever becomes of the task, the batch or the query: nothing is left to be
done at the end, and nothing can be taken back.  So a write is done at least once, as with Spark's own Kafka sink.  Where rows are to
be there exactly once, `replog.spark.sink.once` has the same places, and something to do in them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from pyspark.sql.datasource import WriterCommitMessage

_log = logging.getLogger(__name__)


class TaskAttempt(Struct, frozen=True):
    """One attempt of one task.

    Attributes:
        query_id: The id of the streaming query; "" for a batch write.
        batch_id: The number of the micro-batch; "" for a batch write.
        partition_id: The task's number among those of its stage.
        attempt_number: How often it was tried before.
        task_attempt_id: Spark's number of this attempt, of which there is one in the application.
    """

    query_id: str = ""
    batch_id: str = ""
    partition_id: int = 0
    attempt_number: int = 0
    task_attempt_id: int = 0

    def __str__(self) -> str:
        stream = f" of batch {self.batch_id} of query {self.query_id}" if self.query_id else ""
        return f"task {self.partition_id}, attempt {self.attempt_number}{stream}"


@dataclass(frozen=True, slots=True)
class TaskWritten(WriterCommitMessage):
    """What a task has written, all of it acknowledged."""

    attempt: TaskAttempt
    records_count: int


def this_attempt() -> TaskAttempt:
    """Returns the attempt that runs in this process."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskAttempt()
    return TaskAttempt(
        context.getLocalProperty("sql.streaming.queryId") or "",
        context.getLocalProperty("streaming.sql.batchId") or "",
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
    )


def committed(messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Ends a write all of whose tasks have succeeded."""
    written = [message for message in messages if isinstance(message, TaskWritten)]
    _log.info("%s: %d records of %d tasks written", _title(written, batch_id), _records(written), len(written))


def aborted(messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Ends a write that has failed: what its tasks have written stays."""
    written = [message for message in messages if isinstance(message, TaskWritten)]
    _log.warning(
        "%s failed: %d of %d tasks have written %d records, which stay in their topics; the others may have written some",
        _title(written, batch_id),
        len(written),
        len(messages),
        _records(written),
    )


def _records(written: Sequence[TaskWritten]) -> int:
    return sum(message.records_count for message in written)


def _title(written: Sequence[TaskWritten], batch_id: int | None) -> str:
    if batch_id is None:
        return "replog write"
    query_id = written[0].attempt.query_id if written else "?"
    return f"replog write of batch {batch_id} of query {query_id}"
