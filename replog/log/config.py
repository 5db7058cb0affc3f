"""Settings of one log.

Why here: the log does not know topics or config files; the broker turns topic settings into one of these.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from msgspec import Struct

from replog.errors import ConfigError
from replog.records import TimestampType

_DAY_MS: Final = 24 * 60 * 60 * 1000
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

UNLIMITED: Final = -1
"""Value of a retention setting that never deletes by its rule."""


class Cleanup(IntFlag):
    """The way in which old records go (`cleanup.policy`); both may be in force."""

    DELETE = 1
    """Whole segments go, by age or by size of the log."""
    COMPACT = 2
    """Records go that a newer one of the same key supersedes."""


class LogConfig(Struct, frozen=True):
    """Settings of one log (docs/KAFKA.md 2); the defaults are Kafka's.

    Raises:
        ConfigError: A value is out of range.
    """

    segment_bytes: int = 1 << 30
    """Size at which a new segment begins, bytes, 256 to 2^31 - 1. Small: many files. Large: coarse retention, and a
    longer scan after a crash."""

    segment_ms: int = 7 * _DAY_MS
    """Age at which a new segment begins, by record timestamps, ms, from 1. Large: old data is kept longer on quiet
    partitions, because only whole segments are deleted."""

    segment_index_bytes: int = 10 * 1024 * 1024
    """Size limit of each index file, bytes, from 24; a full index begins a new segment."""

    index_interval_bytes: int = 4096
    """Log bytes between two index entries, from 0 (every batch). Small: larger indexes in memory, shorter scans."""

    max_message_bytes: int = 1_048_588
    """Largest batch, bytes, from 61. Checked where a client's batch comes in, not by the log."""

    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    """Whose clock readers see: CREATE_TIME, the producer's, or LOG_APPEND_TIME, the leader's at the append. The latter
    copies each batch once more, because its header and checksum change."""

    cleanup_policy: Cleanup = Cleanup.DELETE
    """Retention, compaction or both. Without DELETE, `retention_ms` and `retention_bytes` do nothing."""

    min_cleanable_dirty_ratio: float = 0.5
    """Share of the bytes not compacted yet, above which a log is compacted, 0 to 1. Small: more is read and written again
    and again. Large: more superseded records wait."""

    min_compaction_lag_ms: int = 0
    """How long a record is at least left alone, by its timestamp, ms, from 0. Large: readers that lag see more of the
    versions between."""

    max_compaction_lag_ms: int = _INT64_MAX
    """Age at which a record is compacted for any ratio, ms, from 1. A segment is rolled at this age too. Small:
    compaction all the time."""

    delete_retention_ms: int = _DAY_MS
    """How long a tombstone, or the marker of a transaction, is kept after the pass that first met it, ms, from 0. Too
    small: a reader that is slower than this misses the deletion."""

    retention_ms: int = 7 * _DAY_MS
    """Age by largest record timestamp at which a segment is deleted, ms; -1 = never."""

    retention_bytes: int = UNLIMITED
    """Log size above which the oldest segments are deleted, bytes; -1 = no limit."""

    file_delete_delay_ms: int = 60_000
    """How long the files of a segment that left the log wait under `.deleted` names, ms, from 0. Too small: a slow reader
    in another thread finds its file gone. Large: space comes back later."""

    producer_id_expiration_ms: int = _DAY_MS
    """Time without an append after which an idempotent producer is forgotten, ms, from 1. Too small: a producer that
    retries later than this can write a duplicate."""

    producer_tail_bytes: int = 4 * 1024 * 1024
    """How much of the log's tail is looked at on open to find the last five batches of each producer, bytes, from 0.
    Retries concern recent batches only. Large: slower start."""

    flush_messages: int = _INT64_MAX
    """Records after which the host flushes without any other reason, from 1; the default is never."""

    flush_ms: int = _INT64_MAX
    """Age of unflushed records at which the host flushes, ms, from 0; the default is never."""

    dirty_window_bytes: int = 0
    """Bytes appended after which the older half is written back and its pages are used again, from 0 (off: the kernel
    decides). Too small: many small writes. Large: more memory, and a burst of writes at the next flush. The host of the
    log must do its part: see `dirty_window`."""

    @property
    def compacts(self) -> bool:
        """Whether the log is compacted."""
        return self.cleanup_policy >= Cleanup.COMPACT  # alone or with DELETE; asked at every append

    @property
    def deletes(self) -> bool:
        """Whether retention applies."""
        return bool(self.cleanup_policy & Cleanup.DELETE)

    @property
    def roll_ms(self) -> int:
        """Age at which a new segment begins: the active one is never compacted, so it must not outlive the lag."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            low, high = _RANGES[name]
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(name, value, f"{name} is {value}; it must be from {low} to {high}")


_RANGES: Final = {
    "segment_bytes": (256, _INT32_MAX),
    "segment_ms": (1, _INT64_MAX),
    "segment_index_bytes": (24, _INT32_MAX),
    "index_interval_bytes": (0, _INT32_MAX),
    "max_message_bytes": (61, _INT32_MAX),
    "message_timestamp_type": (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME),
    "cleanup_policy": (Cleanup.DELETE, Cleanup.DELETE | Cleanup.COMPACT),
    "min_cleanable_dirty_ratio": (0, 1),
    "min_compaction_lag_ms": (0, _INT64_MAX),
    "max_compaction_lag_ms": (1, _INT64_MAX),
    "delete_retention_ms": (0, _INT64_MAX),
    "retention_ms": (UNLIMITED, _INT64_MAX),
    "retention_bytes": (UNLIMITED, _INT64_MAX),
    "file_delete_delay_ms": (0, _INT64_MAX),
    "producer_id_expiration_ms": (1, _INT64_MAX),
    "producer_tail_bytes": (0, _INT32_MAX),
    "flush_messages": (1, _INT64_MAX),
    "flush_ms": (0, _INT64_MAX),
    "dirty_window_bytes": (0, _INT64_MAX),
}
