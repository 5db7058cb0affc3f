"""The settings of committed offsets."""

from __future__ import annotations

from msgspec import Struct

from replog.errors import ConfigError


class OffsetsConfig(Struct, frozen=True):
    """How long offsets are kept, and how large they may be.

    Attributes:
        offsets_per_commit: How many offsets one request may commit: as many as fit into one change with short names.
        metadata_max_chars: The characters of the text beside an offset (`offset.metadata.max.bytes`, which Kafka counts so).
        retention_ms: How long the offsets of a group without members are kept (`offsets.retention.minutes`).
        check_interval_ms: How often offsets are looked for that have been kept long enough
            (`offsets.retention.check.interval.ms`).
        removals_per_step: How many offsets are removed in one step, so that a large group does not hold a loop.
        removal_bytes_per_step: How many bytes of keys are removed in one step, so that they fit into one change
            (`ShardConfig.max_batch_bytes`) whatever the names of groups and topics are.
        visits_per_step: How many offsets are looked at in one step.
    """

    offsets_per_commit: int = 10_000
    metadata_max_chars: int = 4096
    retention_ms: int = 7 * 24 * 3_600_000
    check_interval_ms: int = 600_000
    removals_per_step: int = 500
    removal_bytes_per_step: int = 250_000
    visits_per_step: int = 2_000

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for field, least in (
            ("offsets_per_commit", 1),
            ("metadata_max_chars", 0),
            ("retention_ms", 1),
            ("check_interval_ms", 1),
            ("removals_per_step", 1),
            ("removal_bytes_per_step", 1),
            ("visits_per_step", 1),
        ):
            value = getattr(self, field)
            if value < least:
                raise ConfigError(field, value, f"{field} is {value}; it must be at least {least}")
