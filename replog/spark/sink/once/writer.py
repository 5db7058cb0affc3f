"""What Spark calls where rows are to be there exactly once."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from replog.errors import ReplogError
from replog.spark.options.writing import OnceOptions, WriteOptions
from replog.spark.sink.once.names import (
    AttemptName,
    Version,
    application_writer,
    new_run,
    query_writer,
    single_writer,
    unnamed_writer,
)
from replog.spark.sink.once.settling import Settled
from replog.spark.sink.once.task import TaskPrepared, write_once
from replog.spark.sink.outcome import TaskAttempt, this_attempt

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


def version_of(once: OnceOptions) -> Version:
    """Returns which write a batch is; one without a name is one that nobody repeats."""
    if once.application is not None and once.version is not None:
        return Version(application_writer(once.application), once.version)
    return Version(unnamed_writer() if once.write_id is None else single_writer(once.write_id), 0)


class OnceWriter(DataSourceArrowWriter):
    """Writes a DataFrame, all of it or nothing.

    Args:
        options: The options of the write.
        once: Those of them that say how it is there once.
    """

    def __init__(self, options: WriteOptions, once: OnceOptions) -> None:
        self._options = options
        self._timeout_ms = once.timeout_ms
        self._version = version_of(once)
        self._run = new_run()
        self._is_written = False
        from replog.spark.sink.once import others

        others.look_after(options.brokers)
        if once.application is not None or once.write_id is not None:
            from replog.spark.sink.once.ledger import is_written

            self._is_written = is_written(options, self._version)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task; see `write_once`."""
        attempt = this_attempt()
        name = AttemptName(self._version, self._run, attempt.task_attempt_id)
        if self._is_written:
            deque(iterator, maxlen=0)
            return TaskPrepared(attempt, 0, name, None)
        return write_once(iterator, self._options, attempt, name, self._timeout_ms)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decides for what the tasks have written."""
        end_version(self._options, self._version, self._run, prepared_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 -- Spark's signature
        """Aborts what the tasks have written."""
        give_up_version(self._options, self._version, self._run)


class OnceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, each of them once.

    Args:
        options: The options of the write.
        once: Those of them that say how it is there once.
    """

    def __init__(self, options: WriteOptions, once: OnceOptions) -> None:
        self._options = options
        self._timeout_ms = once.timeout_ms
        self._run = new_run()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task; see `write_once`."""
        attempt = this_attempt()
        name = AttemptName(batch_of(attempt), self._run, attempt.task_attempt_id)
        return write_once(iterator, self._options, attempt, name, self._timeout_ms)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's signature
        """Decides for what the tasks have written."""
        prepared = prepared_of(messages)
        if prepared:
            version, run = _plan_of(prepared, batchId)
            end_version(self._options, version, run, prepared)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's signature
        """Aborts what the tasks have written that have told of it; what is left the next decision of the query does."""
        prepared = prepared_of(messages)
        if prepared:
            give_up_version(self._options, *_plan_of(prepared, batchId))


def batch_of(attempt: TaskAttempt) -> Version:
    """Returns which write a task of a stream is of.

    Raises:
        ReplogError: Spark has not said.
    """
    if not attempt.query_id or not attempt.batch_id:
        raise ReplogError(
            f'{attempt}: Spark does not say which query and which batch it is of, and "delivery" "exactlyOnce" is by them: write in '
            '`foreachBatch`, with "txnAppId" and "txnVersion"'
        )
    return Version(query_writer(attempt.query_id), int(attempt.batch_id))


def prepared_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskPrepared]:
    """Returns what tasks have told; those that have failed tell nothing."""
    return [message for message in messages if isinstance(message, TaskPrepared)]


def _plan_of(prepared: Sequence[TaskPrepared], batch_id: int) -> tuple[Version, str]:
    """Returns the version and the run that all tasks of a batch are of.

    Raises:
        ReplogError: They are of several, or of another batch.
    """
    plans = {(each.name.version, each.name.run) for each in prepared}
    version, run = prepared[0].name.version, prepared[0].name.run
    if len(plans) > 1 or version.number != batch_id:
        raise ReplogError(
            f"batch {batch_id} has tasks of {len(plans)} plans, the first of {version}: nothing was decided. Start the query again"
        )
    return version, run


def end_version(options: WriteOptions, version: Version, run: str, tasks: Sequence[TaskPrepared]) -> None:
    """Decides for what tasks have written; see `commit_version`."""
    from replog.spark.sink.once.ledger import commit_at_brokers

    attempts = [each.prepared for each in tasks if each.prepared is not None]
    settled = commit_at_brokers(options, version, run, attempts)
    if settled is Settled.WAS_WRITTEN:
        _log.warning("replog write: %s %s; nothing was written again", version, settled.value)
        return
    records_count = sum(each.records_count for each in tasks)
    _log.info("replog write: %s %s: %d records of %d tasks", version, settled.value, records_count, len(tasks))


def give_up_version(options: WriteOptions, version: Version, run: str) -> None:
    """Aborts what tasks have written; see `abort_version`."""
    from replog.spark.sink.once.ledger import abort_at_brokers

    settled = abort_at_brokers(options, version, run)
    if settled is None:
        _log.warning("replog write: %s failed, and what its tasks have written was aborted", version)
    else:
        _log.warning("replog write: Spark takes %s for failed, but it %s", version, settled.value)
