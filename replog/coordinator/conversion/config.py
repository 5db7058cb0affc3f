"""The settings of conversions."""

from __future__ import annotations

from msgspec import Struct, field

from replog.coordinator.runtime.config import default_max_batch_bytes
from replog.errors import ConfigError


class ConversionConfig(Struct, frozen=True):
    """Which way groups may go (`group.consumer.migration.policy`).

    Attributes:
        upgrades: Whether a group of the classic protocol becomes one of KIP-848 when a member of that joins.
        downgrades: Whether a group of KIP-848 goes back when its last member of that has gone.
        max_change_bytes: The bytes of a conversion, which is one change (`ShardConfig.max_batch_bytes`).
    """

    upgrades: bool = True
    downgrades: bool = True
    max_change_bytes: int = field(default_factory=default_max_batch_bytes)

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.max_change_bytes < 1:
            value = self.max_change_bytes
            raise ConfigError("max_change_bytes", value, f"max_change_bytes is {value}; it must be at least 1")
