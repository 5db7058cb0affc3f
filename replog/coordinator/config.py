"""The settings of a coordinator: of a shard, of groups of both kinds, of their conversion, of committed
offsets, and of transactions.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from replog.coordinator.assignors import Assignor, assign_ranges, assign_uniformly
from replog.errors import ConfigError
from replog.errors.choices import require_at_least


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
        for name in self.__struct_fields__:
            require_at_least(name, getattr(self, name), 1)


def default_max_batch_bytes() -> int:
    """Returns what one change may have where nobody has set it."""
    return ShardConfig().max_batch_bytes


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
        for name in self.__struct_fields__:
            require_at_least(name, getattr(self, name), 0 if name == "initial_rebalance_delay_ms" else 1)
        if self.max_session_timeout_ms < self.min_session_timeout_ms:
            reason = f"the longest session is shorter than the shortest one, {self.min_session_timeout_ms} ms"
            raise ConfigError("max_session_timeout_ms", self.max_session_timeout_ms, reason)


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
        hides_topics: Whether there are topics that members may not describe: a pattern matches them for nobody who was not asked.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 1_000
    max_patterns: int = 100
    pattern_refresh_ms: int = 10_000
    max_change_bytes: int = field(default_factory=default_max_batch_bytes)
    assignors: Mapping[str, Assignor] = field(default_factory=_assignors)
    hides_topics: bool = False

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name in self.__struct_fields__:
            if name not in {"assignors", "hides_topics"}:
                require_at_least(name, getattr(self, name), 1)
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            reason = f"a session of {self.session_timeout_ms} ms ends before the next heartbeat is due"
            raise ConfigError("session_timeout_ms", self.session_timeout_ms, reason)
        if not self.assignors:
            raise ConfigError("assignors", {}, "there has to be an assignor")


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
        require_at_least("max_change_bytes", self.max_change_bytes, 1)


class OffsetsConfig(Struct, frozen=True):
    """How long offsets are kept, and how large they may be.

    Attributes:
        offsets_per_commit: How many offsets one request may commit: as many as fit into one change with short names.
        pending_per_producer: How many offsets one transaction may keep in one shard: its end is one step.
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
    pending_per_producer: int = 10_000
    metadata_max_chars: int = 4096
    retention_ms: int = 7 * 24 * 3_600_000
    check_interval_ms: int = 600_000
    removals_per_step: int = 500
    removal_bytes_per_step: int = 250_000
    visits_per_step: int = 2_000

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name in self.__struct_fields__:
            require_at_least(name, getattr(self, name), 0 if name == "metadata_max_chars" else 1)


class TransactionsConfig(Struct, frozen=True):
    """How long transactions may be open, how long transactional ids are kept, and how large all of it may be.

    Attributes:
        max_timeout_ms: The longest time-out that a producer may ask for (`transaction.max.timeout.ms`).
        id_expiration_ms: How long a transactional id is kept that nobody uses (`transactional.id.expiration.ms`).
        abort_interval_ms: How often transactions are looked for that have been open for too long
            (`transaction.abort.timed.out.transaction.cleanup.interval.ms`).
        expiration_interval_ms: How often transactional ids are looked for that nobody uses
            (`transaction.remove.expired.transaction.cleanup.interval.ms`).
        max_partitions: The partitions of one transaction.  Each partition that comes writes all of them anew, so that the work
            grows with the square of them; with long names of topics, `max_record_bytes` is reached before.
        max_ids: The transactional ids of one shard; each takes about 300 bytes of memory.
        max_id_bytes: The bytes of a transactional id.
        max_record_bytes: The bytes of the record of a transactional id: it has to fit into one change
            (`ShardConfig.max_batch_bytes`) beside what its end adds to it.
        visits_per_step: How many transactional ids are looked at in one step.
        records_per_step: How many of them are changed in one step.
        bytes_per_step: How many bytes of records one step makes that looks at many transactional ids, unless one alone has more.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    abort_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000
    max_partitions: int = 10_000
    max_ids: int = 1_000_000
    max_id_bytes: int = 1_000
    max_record_bytes: int = 950_000
    visits_per_step: int = 1_000
    records_per_step: int = 200
    bytes_per_step: int = 100_000

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name in self.__struct_fields__:
            require_at_least(name, getattr(self, name), 1)
