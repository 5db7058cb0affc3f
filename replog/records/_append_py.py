"""One record to the open batch of its partition, in pure Python: the twin of what `_codec_append.pxi` compiles.

Why it is here: for a producer that is given one record at a time each Python call costs as much as encoding the record.
This is one call for what nearly every record needs; whatever needs a look, it leaves to its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from replog.records.key_hash import murmur2
from replog.records.model import CHARACTER_BYTES_MAX, NO_TIMESTAMP, RECORD_HEADER_OVERHEAD_BYTES_MAX, Header

_INT64_MAX = 2**63 - 1
_NANOSECONDS_PER_MS = 1_000_000


class ByteMeter:
    """Counts the bytes of many batches.

    Attributes:
        held_bytes: What batches have added as they grew, less what their owner has taken off.
    """

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class RecordPlace:
    """Where a record stands in a batch that is being filled.

    Args:
        batch: The batch.
        relative_offset: The place of the record in it, from 0.
        timestamp_ms: The record's.
    """

    __slots__ = ("_batch", "_relative_offset", "_timestamp_ms")

    def __init__(self, batch: Any, relative_offset: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._relative_offset = relative_offset
        self._timestamp_ms = timestamp_ms


P = TypeVar("P", bound=RecordPlace)


class StickyPartition:
    """The partition of a topic's records without a key, for a while (KIP-480, KIP-794).

    It is left at the end of a batch, so that none is left behind half full: once three quarters of `stint_bytes` have gone
    there, and at the latest after twice as much.

    Args:
        stint_bytes: About how much goes to one partition before it is another one's turn.

    Attributes:
        partition: Its number; -1: none was chosen yet.
        left_bytes: What may still go there; 0 or less: it is time for another one.
    """

    __slots__ = ("_stint_bytes", "left_bytes", "partition")

    def __init__(self, stint_bytes: int) -> None:
        self.partition = -1
        self.left_bytes = 0
        self._stint_bytes = stint_bytes

    def begin(self, partition: int) -> None:
        """Sticks to a partition from now on."""
        self.partition = partition
        self.left_bytes = 2 * self._stint_bytes

    def end_batch(self, partition: int) -> None:
        """Takes in that a batch of a partition takes no more records."""
        if partition == self.partition and self.left_bytes <= self._stint_bytes + self._stint_bytes // 4:
            self.left_bytes = 0


class _Builder(Protocol):
    """What is used of a `BatchBuilder`."""

    @property
    def size_bytes(self) -> int: ...

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> int | None: ...


class OpenBatches:
    """The batches of one topic that take records, by partition.

    Args:
        sticky: The partition of records without a key; None: partitions are chosen neither by key nor so.
    """

    __slots__ = ("_batches", "_builders", "sticky")

    def __init__(self, sticky: StickyPartition | None = None) -> None:
        self._batches: list[object] = []
        self._builders: list[_Builder | None] = []
        self.sticky = sticky

    def add_partition(self) -> None:
        """Makes room for one partition more."""
        self._batches.append(None)
        self._builders.append(None)

    def put(self, partition: int, batch: object, builder: _Builder | None) -> None:
        """Sets the open batch of a partition and what fills it; None: there is none.

        Raises:
            IndexError: There is no such partition.
        """
        if not 0 <= partition < len(self._builders):
            raise IndexError(f"there is no partition {partition} among {len(self._builders)}")
        if self._builders[partition] is not None and self.sticky is not None:
            self.sticky.end_batch(partition)
        self._batches[partition] = batch
        self._builders[partition] = builder


class Appender(Generic[P]):
    """Appends records to open batches, a call each, as long as nobody has to look at anything else.

    Args:
        kind: What `append` returns, made without its `__init__`.
        meter: The meter of the batches' builders.
        wall_ns: The clock for records without a timestamp, nanoseconds since 1970.
        limit_bytes: The most that the meter may show.
        record_bytes_max: The largest record, its overhead included.
        overhead_bytes: What a record takes beyond key and value, at most.
        topics: The open batches by the name of the topic, as they are at any time.

    Attributes:
        turn_bytes: What may still be appended before somebody must look, `overhead_bytes` counted for each record.
        blocked_count: The reasons why somebody must look at each record.
    """

    __slots__ = (
        "_kind",
        "_limit_bytes",
        "_meter",
        "_overhead_bytes",
        "_record_bytes_max",
        "_topics",
        "_wall_ns",
        "blocked_count",
        "turn_bytes",
    )

    def __init__(
        self,
        kind: type[P],
        meter: ByteMeter,
        wall_ns: Callable[[], int],
        *,
        limit_bytes: int,
        record_bytes_max: int,
        overhead_bytes: int,
        topics: dict[str, OpenBatches],
    ) -> None:
        if not issubclass(kind, RecordPlace):
            raise TypeError(f"{kind!r} is not a subclass of RecordPlace")
        self.turn_bytes = 0
        self.blocked_count = 0
        self._topics = topics
        self._kind = kind
        self._meter = meter
        self._wall_ns = wall_ns
        self._limit_bytes = limit_bytes
        self._record_bytes_max = record_bytes_max
        self._overhead_bytes = overhead_bytes

    def append(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
    ) -> P | None:
        """Appends a record if that needs nothing but an open batch with room for it.

        Args:
            topic, value, key, partition, timestamp_ms, headers: Whatever the caller was given.

        Returns:
            Where the record stands now, or None: somebody has to look first, and nothing has changed.

        Raises:
            InvalidRecordError: A header name is not valid Unicode; nothing has changed.
        """
        headers_bytes = -1 if self.blocked_count else _plain_headers_bound(headers)
        if headers_bytes < 0:
            return None
        if (value is not None and type(value) is not bytes) or (key is not None and type(key) is not bytes):
            return None
        size_bytes = self._overhead_bytes + headers_bytes + len(value or b"") + len(key or b"")
        if size_bytes > self._record_bytes_max or size_bytes > self.turn_bytes:
            return None
        if self._meter.held_bytes > self._limit_bytes - size_bytes:
            return None
        timestamp = self._wall_ns() // _NANOSECONDS_PER_MS if timestamp_ms is None else timestamp_ms
        if type(timestamp) is not int or not NO_TIMESTAMP <= timestamp <= _INT64_MAX:
            return None
        places = self._topics.get(topic) if type(topic) is str else None
        number = -1 if places is None else self._number_of(places, key, partition)
        if places is None or not 0 <= number < len(places._builders):  # noqa: SLF001 -- one class with two names
            return None
        builder = places._builders[number]  # noqa: SLF001 -- see above
        if builder is None:
            return None
        before_bytes = builder.size_bytes
        relative_offset = builder.append(timestamp, key, value, headers)
        if relative_offset is None:
            return None
        self.turn_bytes -= size_bytes
        if partition is None and key is None and places.sticky is not None:
            places.sticky.left_bytes -= builder.size_bytes - before_bytes
        place = self._kind.__new__(self._kind)
        RecordPlace.__init__(place, places._batches[number], relative_offset, timestamp)  # noqa: SLF001 -- see above
        return place

    @staticmethod
    def _number_of(places: OpenBatches, key: bytes | None, partition: Any) -> int:
        """Returns the record's partition; -1 where somebody has to look."""
        if partition is not None:
            return partition if type(partition) is int else -1
        if places.sticky is None or not places._builders:  # noqa: SLF001 -- see above
            return -1
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % len(places._builders)  # noqa: SLF001 -- see above
        return places.sticky.partition if places.sticky.left_bytes > 0 else -1


def _plain_headers_bound(headers: Any) -> int:
    """Returns the most that headers of exact types take; -1: some are of others."""
    if type(headers) is not tuple and type(headers) is not list:
        return -1
    size_bytes = 0
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return -1
        name, value = header
        if type(name) is not str or not (value is None or type(value) is bytes):
            return -1
        size_bytes += RECORD_HEADER_OVERHEAD_BYTES_MAX + CHARACTER_BYTES_MAX * len(name) + len(value or b"")
    return size_bytes
