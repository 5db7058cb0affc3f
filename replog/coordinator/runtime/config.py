"""The settings of a shard."""

from __future__ import annotations

from msgspec import Struct

from replog.errors import ConfigError


class ShardConfig(Struct, frozen=True):
    """The bounds of a shard.

    Attributes:
        max_batch_bytes: The bytes of the records of one change; a batch of the log has to hold them.
        max_parked_requests: The number of requests that may wait for commits at a time.
        commit_timeout_ms: How long an answer waits for a commit whose request has no deadline, such as a join
            (`offsets.commit.timeout.ms`).
    """

    max_batch_bytes: int = 1_000_000
    max_parked_requests: int = 100_000
    commit_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for field in ("max_batch_bytes", "max_parked_requests", "commit_timeout_ms"):
            value = getattr(self, field)
            if value < 1:
                raise ConfigError(field, value, f"{field} is {value}; it must be at least 1")


def default_max_batch_bytes() -> int:
    """Returns what one change may have where nobody has set it."""
    return ShardConfig().max_batch_bytes
