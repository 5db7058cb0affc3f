"""The settings of groups of KIP-848."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from replog.coordinator.assignors.model import Assignor
from replog.coordinator.assignors.range import assign_ranges
from replog.coordinator.assignors.uniform import assign_uniformly
from replog.coordinator.runtime.config import default_max_batch_bytes
from replog.errors import ConfigError


def _assignors() -> dict[str, Assignor]:
    return {"uniform": assign_uniformly, "range": assign_ranges}


class ConsumersConfig(Struct, frozen=True):
    """How groups are kept together.

    Attributes:
        session_timeout_ms: How long a member may be silent (`group.consumer.session.timeout.ms`).
        heartbeat_interval_ms: How often a member is asked to speak (`group.consumer.heartbeat.interval.ms`).
        max_size: The members of one group (`group.consumer.max.size`).
        max_patterns: The patterns of topics that the members of one group may name together.
        pattern_refresh_ms: How long a group waits before it looks again which topics match its patterns.
        max_change_bytes: The bytes of a decision, which is one change (`ShardConfig.max_batch_bytes`).
        assignors: The assignors by name; the first one where no member wants another.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 1_000
    max_patterns: int = 100
    pattern_refresh_ms: int = 10_000
    max_change_bytes: int = field(default_factory=default_max_batch_bytes)
    assignors: Mapping[str, Assignor] = field(default_factory=_assignors)

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name in (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "max_size",
            "max_patterns",
            "pattern_refresh_ms",
            "max_change_bytes",
        ):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(name, value, f"{name} is {value}; it must be at least 1")
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            reason = f"a session of {self.session_timeout_ms} ms ends before the next heartbeat is due"
            raise ConfigError("session_timeout_ms", self.session_timeout_ms, reason)
        if not self.assignors:
            raise ConfigError("assignors", {}, "there has to be an assignor")
