"""Arrow batches of Spark to columns of records, by topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from replog.errors import InvalidRecordError
from replog.records import Buffer, Columns
from replog.records.arrow.arrays import number_scalar
from replog.records.arrow.rows import columns_of, int32s


class TopicRows(Struct, frozen=True):
    """Rows for one topic.

    Attributes:
        topic: Its name.
        columns: The rows, in order.
        partitions: The partition of each row, int32, -1 for one to be chosen; None: all are.
    """

    topic: str
    columns: Columns
    partitions: Buffer | None


def pieces(batch: pa.RecordBatch, first_row: int, *, topic: str | None, include_headers: bool) -> Iterator[TopicRows]:
    """Yields the rows of a batch by topic.

    Args:
        batch: The columns that `check_write_schema` let pass.
        first_row: The place of its first row among those of the task, for errors.
        topic: The topic of all rows; None: the column `topic` says it.
        include_headers: Whether the column `headers` is written.

    Raises:
        InvalidRecordError: A row has no topic, a negative partition, a time before 1970 or a header without a name.
    """
    if not batch.num_rows:
        return
    _check_rows(batch, first_row)
    if topic is not None:
        yield _piece(topic, batch, include_headers)
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise _at(first_row, pc.is_null(topics), 'its column "topic" is null, and there is no option "topic"')
    names = pc.unique(topics)
    if len(names) == 1:
        yield _piece(names[0].as_py(), batch, include_headers)
        return
    for name in names:
        yield _piece(name.as_py(), batch.filter(pc.equal(topics, name)), include_headers)


def _check_rows(batch: pa.RecordBatch, first_row: int) -> None:
    if "partition" in batch.schema.names:
        negative = pc.less(batch.column("partition"), number_scalar(pa.int32(), 0))
        if pc.any(negative).as_py():
            raise _at(first_row, negative, 'its column "partition" is negative: give a partition, or null')
    if "timestamp" in batch.schema.names:
        early = pc.less(batch.column("timestamp").cast(pa.int64()), number_scalar(pa.int64(), 0))
        if pc.any(early).as_py():
            raise _at(first_row, early, 'its column "timestamp" is before 1970, which records cannot say')


def _at(first_row: int, mask: Any, reason: str) -> InvalidRecordError:
    row = first_row + pc.index(mask, True).as_py()
    return InvalidRecordError(f"row {row} of the task (counted from 0): {reason}")


def _piece(topic: str, batch: pa.RecordBatch, include_headers: bool) -> TopicRows:
    partitions = int32s(batch.column("partition")) if "partition" in batch.schema.names else None
    return TopicRows(
        topic, columns_of(batch, now_ms=time.time_ns() // 1_000_000, include_headers=include_headers), partitions
    )
