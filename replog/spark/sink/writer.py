"""What Spark calls: planned in one process, pickled, run in others, and told of the end in a third."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from replog.errors import ConfigError
from replog.spark.options.writing import WriteOptions, parse_write_options
from replog.spark.schema import SchemaField
from replog.spark.sink.outcome import aborted, committed, this_attempt
from replog.spark.sink.schema import check_write_schema

if TYPE_CHECKING:
    import pyarrow as pa


def plan_write(
    options: Mapping[str, str], schema: Sequence[SchemaField], *, overwrite: bool, mode: str, is_over: bool = False
) -> WriteOptions:
    """Returns the options of a write that can be done.

    Args:
        options: What the user wrote.
        schema: The DataFrame's columns.
        overwrite: Whether Spark asks to replace what is there.
        mode: The words for that, for the error.
        is_over: Whether the rows have been written, and Spark only wants to tell so: nobody is asked for the topic then.

    Raises:
        ConfigError: The options, the columns or the mode do not fit, or no broker answers.
        UnknownTopicOrPartitionError: The option `topic` names one that does not exist.
        UnsupportedCompressionError: The library for the compression is not installed here.
    """
    if overwrite:
        raise ConfigError(
            "mode", mode, f'a topic is appended to, never replaced: mode "{mode}" is refused. Use "append"'
        )
    parsed = parse_write_options(options)
    check_write_schema(schema, parsed.topic)
    if parsed.topic is not None and not is_over:
        from replog.spark.worker_client import require_topic

        require_topic(parsed.bootstrap_servers, parsed.topic)
    return parsed


class ReplogWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task; see `write_rows`."""
        from replog.spark.sink.task import write_rows

        return write_rows(iterator, self._options, this_attempt())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends a write that has succeeded."""
        committed(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends a write that has failed."""
        aborted(messages, None)


class ReplogStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task; see `write_rows`."""
        from replog.spark.sink.task import write_rows

        return write_rows(iterator, self._options, this_attempt())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's signature
        """Ends a micro-batch that has succeeded."""
        committed(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's signature
        """Ends a micro-batch that has failed."""
        aborted(messages, batchId)
