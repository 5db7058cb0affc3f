"""Settings of one log.

Why here: the log does not know topics or config files; the broker turns topic settings into one of these.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from replog.errors import ConfigError

_DAY_MS: Final = 24 * 60 * 60 * 1000
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

UNLIMITED: Final = -1
"""For retention settings: never delete by this rule."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log (kafka-reference 2); the defaults are Kafka's.

    Raises:
        ConfigError: a value out of range.
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

    retention_ms: int = 7 * _DAY_MS
    """Age by largest record timestamp at which a closed segment is deleted, ms; -1 = never."""

    retention_bytes: int = UNLIMITED
    """Log size above which the oldest closed segments are deleted, bytes; -1 = no limit."""

    producer_id_expiration_ms: int = _DAY_MS
    """Time without an append after which an idempotent producer is forgotten, ms, from 1. Too small: a producer that
    retries later than this can write a duplicate."""

    producer_tail_bytes: int = 4 * 1024 * 1024
    """How much of the log's tail is looked at on open to find the last five batches of each producer, bytes, from 0.
    Retries concern recent batches only. Large: slower start."""

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = _RANGES[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise ConfigError(field.name, value, f"{field.name} is {value}; it must be from {low} to {high}")


_RANGES: Final = {
    "segment_bytes": (256, _INT32_MAX),
    "segment_ms": (1, _INT64_MAX),
    "segment_index_bytes": (24, _INT32_MAX),
    "index_interval_bytes": (0, _INT32_MAX),
    "max_message_bytes": (61, _INT32_MAX),
    "retention_ms": (UNLIMITED, _INT64_MAX),
    "retention_bytes": (UNLIMITED, _INT64_MAX),
    "producer_id_expiration_ms": (1, _INT64_MAX),
    "producer_tail_bytes": (0, _INT32_MAX),
}
