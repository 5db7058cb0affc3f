"""Many records at once: `send_many` takes them in chunks, and a batch takes a whole run of them in one call.

Why: one call per record costs a hundred times what encoding a small record does.  A chunk is small enough that senders
and replies get their turn between two, and that memory is asked for in small steps.

What is unusual goes the way of a single `send`, which knows what to say about it: records that are large or are not
bytes.  A chunk ends before such a record, so that everything before it is sent first.

Rows of columns on their way into batches: `send_columns` takes them in chunks and spreads them over partitions.

A chunk is small for the reasons of `bulk`: memory is asked for in small steps, and others get their turn in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from replog.client.arguments import headers_bytes_bound
from replog.client.producer.batch import BulkDelivery, Delivery, ProducerBatch
from replog.client.producer.partition_queue import PartitionQueue
from replog.client.producer.partitioner import DefaultPartitioner, Partitioner, partition_of_key
from replog.client.producer.router import TopicQueues
from replog.client.tracing import with_trace
from replog.client.types import K, V
from replog.errors import InvalidRecordError
from replog.records import HEADER_BYTES, Buffer, Columns, Header, RecordInput, RowSource, batch_bytes_bound, group_rows

RecordLike: TypeAlias = V | tuple[V | None, K | None] | tuple[V | None, K | None, Sequence[Header]] | None
"""What `send_many` takes for one record: a value, (value, key), or (value, key, headers)."""

OddRecord: TypeAlias = tuple[bytes | None, bytes | None, Sequence[Header]]

CHUNK_BYTES_MAX = 64 * 1024
RECORD_BYTES_MAX = 16 * 1024
"""A larger record is sent alone: a call more is nothing beside its bytes."""

RECORD_OVERHEAD_BYTES = 10
"""What a record usually takes beyond key and value: for choosing partitions, where a guess will do."""

RECORD_OVERHEAD_BYTES_MAX = batch_bytes_bound(None, None) - HEADER_BYTES


class Chunk(Struct):
    """Consecutive ordinary records, and what comes after them.

    Attributes:
        rows: The records, for `BatchBuilder.extend`.
        size_bytes: An upper bound of what they take in batches, without the batches' headers.
        has_keys: Whether some have a key.
        odd: The record after them, when it is one for `send`.
        error: What the caller's iterator raised after them.
        is_last: Whether the iterator has ended.
    """

    rows: list[RecordInput] = field(default_factory=list)
    size_bytes: int = 0
    has_keys: bool = False
    odd: OddRecord | None = None
    error: Exception | None = None
    is_last: bool = False

    def raise_error(self) -> None:
        """Raises what the records' iterator raised, if it did, and does not keep it."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it has passed this frame, and its traceback has the records


def take_chunk(records: Iterator[RecordLike], timestamp_ms: int, bytes_max: int) -> Chunk:
    """Takes the next records, about `bytes_max` bytes of them at most, and what the iterator raises after them."""
    chunk = Chunk()
    try:
        _fill(chunk, records, timestamp_ms, bytes_max)
    except Exception as error:  # noqa: BLE001 -- the caller raises it again, once what came before is sent
        chunk.error = error
    return chunk


def _fill(chunk: Chunk, records: Iterator[RecordLike], timestamp_ms: int, bytes_max: int) -> None:
    """Adds records until the chunk is full, one comes that is for `send`, or the iterator ends.

    One turn a record: what stands in this loop is most of what a small record costs.
    """
    record_bytes_max = min(bytes_max, RECORD_BYTES_MAX)
    append = chunk.rows.append
    for record in records:
        headers: Sequence[Header] = ()
        if type(record) is bytes:
            value, key = record, None
        else:
            value, key, headers = _parts(record)
        size_bytes = RECORD_OVERHEAD_BYTES_MAX
        if type(value) is bytes:
            size_bytes += len(value)
        elif value is not None:
            chunk.odd = (value, key, headers)
            return
        if type(key) is bytes:
            size_bytes += len(key)
            chunk.has_keys = True
        elif key is not None:
            chunk.odd = (value, key, headers)
            return
        if type(headers) is not tuple or headers:
            size_bytes += headers_bytes_bound(headers)
            headers = tuple(headers)  # the caller may change its list while this waits for room
        if size_bytes > record_bytes_max:
            chunk.odd = (value, key, headers)
            return
        append((timestamp_ms, key, value, headers))
        chunk.size_bytes += size_bytes
        if chunk.size_bytes >= bytes_max:
            return
    chunk.is_last = True


def spread(
    chunk: Chunk, queues: TopicQueues, partition: int | None, partitioner: Partitioner
) -> Iterable[tuple[PartitionQueue, Sequence[RecordInput]]]:
    """Groups the chunk's records by partition, in order within each.

    Args:
        chunk: The records.
        queues: The topic.
        partition: The partition of all of them; None: by key, and one for all that have none.
        partitioner: The object that chooses partitions for records without a key.
    """
    if partition is not None or not chunk.has_keys:
        size_bytes = chunk.size_bytes - len(chunk.rows) * (RECORD_OVERHEAD_BYTES_MAX - RECORD_OVERHEAD_BYTES)
        if partition is None:
            queues.end_full_batch(chunk.size_bytes, is_run=True)
        return ((queues.queue_for(partitioner, None, partition, size_bytes), chunk.rows),)
    groups: dict[int, list[RecordInput]] = {}
    partitions_count = len(queues.queues)
    for row in chunk.rows:
        key = row[1]
        if key is None:
            number = partitioner.partition(queues.name, None, len(row[2] or b""), partitions_count, queues.available)
        else:
            number = partition_of_key(key, partitions_count)
        groups.setdefault(number, []).append(row)
    return ((queues.queues[number], rows) for number, rows in groups.items())


def _parts(record: Any) -> tuple[Any, Any, Any]:
    """Returns value, key and headers; what these are is for the caller to look at."""
    if not isinstance(record, (tuple, list)):
        return record, None, ()
    if not 2 <= len(record) <= 3:
        raise TypeError(
            f"a record of send_many is a value, (value, key) or (value, key, headers), not {len(record)} things; use send "
            "for more"
        )
    value, key, *rest = record
    return value, key, rest[0] if rest else ()


def traced(records: Iterable[Any], trace: Sequence[Header]) -> Iterator[OddRecord]:
    """Yields each record of `send_many` with the headers of a trace, unless it has one already."""
    for record in records:
        value, key, headers = _parts(record)
        headers_bytes_bound(headers)  # refuses what are no headers
        yield value, key, with_trace(headers, trace)


class Runs:
    """Puts what goes side by side into one batch together again, chunk after chunk."""

    def __init__(self) -> None:
        self._bulk = BulkDelivery()
        self._open: dict[ProducerBatch, tuple[int, int]] = {}

    def add(self, batch: ProducerBatch, first: int, count: int) -> None:
        """Notes that `count` records stand in `batch` from relative offset `first` on."""
        before = self._open.get(batch)
        if before is None:
            self._open[batch] = (first, count)
        elif before[0] + before[1] == first:
            self._open[batch] = (before[0], before[1] + count)
        else:  # somebody else sends to the same partition at the same time
            self._bulk.add(batch, *before)
            self._open[batch] = (first, count)

    def add_one(self, delivery: Delivery) -> None:
        self.add(*delivery.place, 1)

    def finish(self) -> BulkDelivery:
        for batch, run in self._open.items():
            self._bulk.add(batch, *run)
        self._open.clear()
        return self._bulk


# ---- rows of columns on their way into batches: `send_columns` takes them in chunks and spreads them over partitions


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
