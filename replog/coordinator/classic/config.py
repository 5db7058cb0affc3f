"""The settings of groups of the classic protocol."""

from __future__ import annotations

from msgspec import Struct

from replog.errors import ConfigError


class ClassicConfig(Struct, frozen=True):
    """How groups meet, and how large they may be.

    Attributes:
        min_session_timeout_ms: The shortest session that a member may ask for (`group.min.session.timeout.ms`).
        max_session_timeout_ms: The longest one (`group.max.session.timeout.ms`).
        initial_rebalance_delay_ms: How long the first generation of an empty group waits for more members
            (`group.initial.rebalance.delay.ms`); put off again by as much while they come.
        new_member_timeout_ms: How long a member that is new in a group may wait for its generation: it has no heartbeats yet.
        max_size: The members of one group (`group.max.size`).
        max_group_bytes: The bytes of what all members of one group tell, in all their protocols.
        max_record_bytes: The bytes of the record of a group, with what each member wants and gets: it has to fit into one change
            (`ShardConfig.max_batch_bytes`).
        max_pending_members: The members of all groups of a shard that have an id and have not come back with it.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    new_member_timeout_ms: int = 300_000
    max_size: int = 10_000
    max_group_bytes: int = 16_000_000
    max_record_bytes: int = 950_000
    max_pending_members: int = 10_000

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for field, least in (
            ("min_session_timeout_ms", 1),
            ("initial_rebalance_delay_ms", 0),
            ("new_member_timeout_ms", 1),
            ("max_size", 1),
            ("max_group_bytes", 1),
            ("max_record_bytes", 1),
            ("max_pending_members", 1),
        ):
            value = getattr(self, field)
            if value < least:
                raise ConfigError(field, value, f"{field} is {value}; it must be at least {least}")
        if self.max_session_timeout_ms < self.min_session_timeout_ms:
            reason = f"the longest session is shorter than the shortest one, {self.min_session_timeout_ms} ms"
            raise ConfigError("max_session_timeout_ms", self.max_session_timeout_ms, reason)
