"""Rows of columns on their way into batches: `send_columns` takes them in chunks and spreads them over partitions.

A chunk is small for the reasons of `bulk`: memory is asked for in small steps, and others get their turn in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from replog.client.producer.partitioner import DefaultPartitioner, Partitioner
from replog.client.producer.router import TopicQueues
from replog.errors import InvalidRecordError
from replog.records import Buffer, Columns, RowSource, group_rows

NO_PARTITION = -1
_NOTHING = memoryview(b"").cast("i")


class ColumnRows:
    """The rows of one call of `send_columns`.

    Args:
        columns: The records.
        partitions: The partition of each row, int32; -1, and None for all: it is chosen.
        timestamp_ms: The time of rows that have none.
        partitioner: The object that chooses.

    Raises:
        InvalidRecordError: A column is too short for its rows.
    """

    def __init__(
        self, columns: Columns, partitions: Buffer | None, timestamp_ms: int, partitioner: Partitioner
    ) -> None:
        self.source = RowSource(columns, timestamp_ms)
        self._columns = columns
        self._given = partitions
        self._partitioner = partitioner
        self._is_by_key = type(partitioner) is DefaultPartitioner
        self._numbers = _NOTHING
        self._partitions_count = 0

    def chunks(self, bytes_max: int) -> Iterator[tuple[int, int, int]]:
        """Yields the start and the end of rows that take about `bytes_max` bytes, and a bound of what they take."""
        start = 0
        while start < self.source.count:
            end, size_bytes = self.source.within(start, bytes_max)
            yield start, end, size_bytes
            start = end

    def groups(self, start: int, end: int, size_bytes: int, queues: TopicQueues) -> list[tuple[int, Buffer]]:
        """Returns the rows [start, end) by partition: the numbers of the rows, int32, in order.

        Raises:
            InvalidRecordError: A row has a partition that there is not.
        """
        count = len(queues.queues)
        if count != self._partitions_count:  # the first time, or partitions were added meanwhile
            self._numbers = memoryview(bytearray(self.source.partitions(count, self._given, self._is_by_key))).cast("i")
            self._partitions_count = count
        instead = 0
        if NO_PARTITION in self._numbers[start:end]:
            if self._is_by_key:
                queues.end_full_batch(size_bytes, is_run=True)
                instead = queues.queue_for(self._partitioner, None, None, size_bytes).partition_id
            else:
                self._ask_for_each(start, end, queues)
        return group_rows(self._numbers, start, end, count, instead)

    def partitions_count_least(self, partitions_count: int) -> int:
        """Returns how many partitions a topic has at least that has those of the rows.

        Args:
            partitions_count: What it has as far as is known: returned, without a look at each row, where that is enough.
        """
        given = memoryview(self._given or b"").cast("B")[: 4 * self.source.count]
        numbers = given[: len(given) // 4 * 4].cast("i")
        try:
            group_rows(numbers, 0, len(numbers), partitions_count, 0)
        except InvalidRecordError:
            return 1 + max(numbers)
        return partitions_count

    def _ask_for_each(self, start: int, end: int, queues: TopicQueues) -> None:
        for row in range(start, end):
            if self._numbers[row] == NO_PARTITION:
                size_bytes = self.source.within(row, 0)[1]
                self._numbers[row] = self._partitioner.partition(
                    queues.name, _key(self._columns, row), size_bytes, len(queues.queues), queues.available
                )


def _key(columns: Columns, row: int) -> bytes | None:
    """Returns the key of a row whose bounds were checked."""
    validity = columns.key_validity
    if not len(columns.key_offsets) or (validity is not None and not memoryview(validity)[row >> 3] >> (row & 7) & 1):
        return None
    offsets = memoryview(columns.key_offsets).cast("B").cast("i")
    return bytes(memoryview(columns.key_data)[offsets[row] : offsets[row + 1]])
