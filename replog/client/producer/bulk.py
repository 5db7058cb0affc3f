"""Many records at once: `send_many` takes them in chunks, and a batch takes a whole run of them in one call.

Why: one call per record costs a hundred times what encoding a small record does.  A chunk is small enough that senders
and replies get their turn between two, and that memory is asked for in small steps.

What is unusual goes the way of a single `send`, which knows what to say about it: records that are large or are not
bytes.  A chunk ends before such a record, so that everything before it is sent first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from replog.client.arguments import headers_bytes_bound
from replog.client.producer.batch import BulkDelivery, Delivery, ProducerBatch
from replog.client.producer.partition_queue import PartitionQueue
from replog.client.producer.partitioner import Partitioner, partition_of_key
from replog.client.producer.router import TopicQueues
from replog.client.tracing import with_trace
from replog.client.types import K, V
from replog.records import HEADER_BYTES, Header, RecordInput, batch_bytes_bound

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
