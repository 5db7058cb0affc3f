"""The batch reader: planned in one process, pickled, run in others."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from replog.client.ranges.offset_range import OffsetRange
from replog.spark.options import ReadOptions
from replog.spark.planning import TaskSizes, plan_tasks
from replog.spark.python_worker import tune_worker
from replog.spark.schema import Column
from replog.spark.snapshot import PinnedOffsets

if TYPE_CHECKING:
    import pyarrow as pa

    from replog.client.ranges.read_ahead import Stop


class RangePartition(InputPartition):
    """One task: ranges of one or several partitions."""

    def __init__(self, value: tuple[OffsetRange, ...]) -> None:
        super().__init__(value)

    def __repr__(self) -> str:
        return f"RangePartition({', '.join(map(str, self.value))})"


class ReplogReader(DataSourceReader):
    """Reads a snapshot.  Holds plain data only: Spark pickles it into every task.

    It takes no filters (`pushFilters`) although ranges could be dropped by them.  Spark 4.3 keeps the tasks of the last filtered
    query with the DataFrame and gives them to the next query, or the other side of a join, whose filters are not the same: rows
    would be missing without a word.  The options say what to read instead.

    Args:
        options: The checked options.
        snapshot: The ranges to read.
        columns: The columns to hand over, in order.
    """

    def __init__(self, options: ReadOptions, snapshot: PinnedOffsets, columns: Sequence[Column]) -> None:
        self._options = options
        self._snapshot = snapshot
        self._columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks of `plan_tasks`; asks no broker."""
        options = self._options
        sizes = TaskSizes(options.target_bytes_per_partition, options.min_partitions, options.max_records_per_partition)
        tune_worker()
        return [RangePartition(ranges) for ranges in plan_tasks(self._snapshot.parts, sizes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the task's records.  Spark makes up a partition without a value when there is no task at all."""
        from replog.client.ranges.read_ahead import read_ahead

        ranges: Sequence[OffsetRange] = partition.value or ()
        if ranges:
            yield from read_ahead(lambda stop: self._batches(ranges, stop))

    def _batches(self, ranges: Sequence[OffsetRange], stop: Stop) -> Generator[pa.RecordBatch, None, None]:
        for each in ranges:
            yield from self._read_range(each, stop)

    def _read_range(self, wanted: OffsetRange, stop: Stop) -> Iterator[pa.RecordBatch]:
        from replog.spark.arrow_batches import ArrowConverter
        from replog.spark.worker_client import client_for

        converter = ArrowConverter(self._columns, wanted.topic, wanted.partition)
        client = client_for(self._options.brokers, self._snapshot.cluster_id)
        tune_worker()
        with client.open_range(wanted, self._options, stop) as pieces:
            for encoded in pieces:
                yield from converter.convert(encoded, end_offset=wanted.end_offset)
