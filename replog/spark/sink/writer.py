"""What Spark calls: planned in one process, pickled, run in others, and told of the end in a third."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from replog.errors import ConfigError
from replog.spark.options.writing import WriteOptions, parse_write_options
from replog.spark.schema import HEADERS, SchemaField
from replog.spark.sink.outcome import aborted, committed, this_attempt

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
    if is_over:
        return parsed
    from replog.spark.worker_client import find_cluster

    parsed = replace(parsed, cluster_id=find_cluster(parsed.brokers, parsed.topic))
    if parsed.once is not None:
        from replog.spark.sink.once.ledger import require_ledger

        return replace(parsed, once=require_ledger(parsed.brokers, parsed.once))
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


ACCEPTED = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""Column -> types that it may have."""

_BY_BROKER = frozenset({"offset", "timestampType"})


def check_write_schema(schema: Sequence[SchemaField], topic: str | None) -> None:
    """Refuses what cannot be written.

    Args:
        schema: A `StructType`, iterated.
        topic: The topic of all rows; None: the column `topic` says it.

    Raises:
        ConfigError: A column is unknown, missing, there twice or of another type; it names the column and what is accepted.
    """
    names = [field.name for field in schema]
    for field in schema:
        if names.count(field.name) > 1:
            raise ConfigError("schema", field.name, f'the DataFrame has a column "{field.name}" twice')
        _check(field)
    if "value" not in names:
        raise ConfigError(
            "schema", None, f'there is no column "value", binary or string: name one so. Columns are {_listed()}'
        )
    if topic is None and "topic" not in names:
        raise ConfigError(
            "topic", None, 'nothing says which topic: give the option "topic", or a column "topic", string'
        )


def _check(field: SchemaField) -> None:
    accepted = ACCEPTED.get(field.name)
    actual = field.dataType.simpleString()
    if accepted is None:
        raise ConfigError("schema", field.name, f'column "{field.name}" cannot be written. {_advice(field.name)}')
    if actual not in accepted:
        expected = " or ".join(accepted)
        raise ConfigError(
            "schema", actual, f'column "{field.name}" is {actual}; {expected} is accepted: cast it before the write'
        )


def _advice(name: str) -> str:
    if name in _BY_BROKER:
        return f'Brokers assign it: leave it out with `.drop("{name}")`.'
    close = difflib.get_close_matches(name.lower(), ACCEPTED, n=1)
    return f'Did you mean "{close[0]}"?' if close else f"Columns are {_listed()}: select those."


def _listed() -> str:
    return ", ".join(ACCEPTED)
