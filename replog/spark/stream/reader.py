"""The stream reader: called by Spark in the driver's Python process, and pickled into the tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from replog.client.ranges.offset_range import OffsetRange
from replog.spark.options import StreamOptions
from replog.spark.planning import TaskSizes, plan_tasks
from replog.spark.reader import RangePartition, ReplogReader
from replog.spark.schema import Column
from replog.spark.snapshot import PinnedOffsets

if TYPE_CHECKING:
    import pyarrow as pa

    from replog.spark.stream.planner import BatchPlanner
    from replog.spark.stream.runner import StreamRunner


TELL_AGAIN_S = 60.0
"""How often an idle query tells a group the same."""


class StreamPartition(InputPartition):
    """One task of a batch: ranges of some partitions.

    Args:
        cluster_id: The cluster they are in.
        ranges: The ranges, none of them empty.
    """

    def __init__(self, cluster_id: str, ranges: Sequence[OffsetRange]) -> None:
        super().__init__((cluster_id, tuple(ranges)))

    def __repr__(self) -> str:
        return f"StreamPartition({', '.join(map(str, self.value[1]))})"


class ReplogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch.  Holds plain data only until Spark asks for an offset.

    Args:
        options: The checked options.
        columns: The columns to hand over, in order.
    """

    def __init__(self, options: StreamOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._runner: StreamRunner | None = None
        self._made_planner: BatchPlanner | None = None
        self._told: dict[str, Any] | None = None  # what the group was told last, and when
        self._told_s = 0.0

    # ---- in the driver's process -----------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name, here and below
        """Returns where a new query starts."""
        return dict(self._planner().initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Returns the end of the next batch; `start` itself where there is none.

        Spark asks this when all below `start` is done with, and again and again while there is nothing: so it is here that a
        group is told, if one is named.
        """
        end = dict(self._planner().latest(start, ignore_limits=isinstance(limit, ReadAllAvailable)))
        if self._options.group_id is not None:
            self._tell_group(start)
        return end

    def _tell_group(self, start: dict[str, Any]) -> None:
        """Tells the group where the query stands; now and then also if that is as before, since a commit may have failed."""
        now_s = time.monotonic()
        if self._runner is not None and (start != self._told or now_s - self._told_s >= TELL_AGAIN_S):
            from replog.spark.stream.offset import from_json

            self._runner.tell_group(from_json(start).end)
            self._told, self._told_s = start, now_s

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns one of the limits that were given: Spark has no words for several, and `latestOffset` heeds them all."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadMinRows(limits.min_offsets) if limits.min_offsets else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Returns the high watermarks, for the progress of the query."""
        report = self._planner().report()
        return None if report is None else dict(report)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes the end of the run."""
        self._planner().set_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the tasks of a batch."""
        read = self._options.read
        sizes = TaskSizes(read.target_bytes_per_partition, read.min_partitions, read.max_records_per_partition)
        tasks = plan_tasks(self._planner().ranges(start, end), sizes)
        return [StreamPartition(end["cluster"], task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Keeps nothing: where the query stands is in Spark's checkpoint alone.

        Spark says this of a batch when it plans another one, so that the last one is told of only when more comes.
        """

    def stop(self) -> None:
        """Ends the watches."""
        runner, self._runner, self._made_planner = self._runner, None, None
        if runner is not None:
            runner.close()

    def _planner(self) -> BatchPlanner:
        if self._made_planner is None:
            from replog.spark.stream.planner import BatchPlanner
            from replog.spark.stream.runner import StreamRunner

            self._runner = StreamRunner(self._options)
            self._made_planner = BatchPlanner(
                self._runner,
                self._options.limits,
                fail_on_data_loss=self._options.read.fail_on_data_loss,
                clock_ms=lambda: time.monotonic() * 1000,
            )
        return self._made_planner

    # ---- in the tasks ----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the ranges of a task, one after the other, as the batch reader does."""
        if not isinstance(partition, StreamPartition):
            return
        cluster_id, ranges = partition.value
        reader = ReplogReader(self._options.read, PinnedOffsets(cluster_id, ranges, ()), self._columns)
        yield from reader.read(RangePartition(ranges))
