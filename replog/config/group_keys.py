"""The configuration keys of consumer groups and their offsets; a part of `ServerKeys`."""

from enum import Enum
from typing import Annotated

from replog.config.keys import Differs
from replog.config.kinds import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    KIB,
    MIB,
    YEAR_MINUTES,
    Choice,
    Number,
    milliseconds,
    size_bytes,
)
from replog.config.transaction_keys import TransactionKeys


class MigrationPolicy(Enum):
    """Which way groups change their protocol while members read (`group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


class GroupKeys(TransactionKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page; `TransactionKeys` are its base because a struct has one base only."""

    # ---- the topic of groups and offsets ----------------------------------------------------------------------------

    offsets_topic_num_partitions: Annotated[int, Number(1, 10_000)] = 50
    """Partitions of `__consumer_offsets`, which is made when a group is first looked for.  They spread the groups over the
    brokers.  What is said here counts only then: a topic that is there keeps its partitions."""

    offsets_topic_replication_factor: Annotated[
        int | None, Number(1, 32_767), Differs("3", "a single node serves groups without a setting")
    ] = None
    """Replicas of `__consumer_offsets`.  Not set: 3, or as many as the cluster has brokers when the topic is made; one that
    was made while there was a single broker keeps one replica, until its partitions are reassigned."""

    offsets_topic_segment_bytes: Annotated[int, size_bytes(MIB, INT_MAX)] = 100 * MIB
    """Size at which a segment of `__consumer_offsets` is closed.  Compaction leaves the last one alone, and a new coordinator
    reads all of them: larger means a longer pause of groups when their coordinator moves."""

    # ---- offsets ----------------------------------------------------------------------------------------------------

    offsets_retention_minutes: Annotated[int, Number(1, 10 * YEAR_MINUTES)] = 7 * 24 * 60
    """How long, in minutes, the offsets of a group are kept after it has lost its last member; of one that has never had
    any, after each was committed."""

    offsets_retention_check_interval_ms: Annotated[int, milliseconds(1, DAY_MS)] = 600_000
    """How often offsets are looked for that have been kept long enough."""

    offset_metadata_max_bytes: Annotated[int, Number(0, 32_767)] = 4 * KIB
    """Characters of the text that a client may keep beside a committed offset."""

    # ---- groups whose members assign (the classic protocol) ---------------------------------------------------------

    group_min_session_timeout_ms: Annotated[int, milliseconds(1, DAY_MS)] = 6_000
    """Shortest session that a member of the classic protocol may ask for (session.timeout.ms of clients)."""

    group_max_session_timeout_ms: Annotated[int, milliseconds(1, DAY_MS)] = 1_800_000
    """Longest session that such a member may ask for.  The partitions of a dead member are not read for so long."""

    group_initial_rebalance_delay_ms: Annotated[int, milliseconds(0, HOUR_MS)] = 3_000
    """How long the first members of a group wait for more, so that a group that is just starting shares once.  0 suits tests."""

    group_max_size: Annotated[
        int, Number(1, 100_000), Differs("2,147,483,647", "each generation of a group is written in one piece")
    ] = 10_000
    """Members that a group of the classic protocol may have."""

    # ---- groups whose coordinator assigns (KIP-848) -----------------------------------------------------------------

    group_consumer_session_timeout_ms: Annotated[int, milliseconds(2, HOUR_MS)] = 45_000
    """How long a member of a group with group.protocol=consumer may be silent before it is put out."""

    group_consumer_heartbeat_interval_ms: Annotated[int, milliseconds(1, HOUR_MS)] = 5_000
    """How often such a member is asked to speak.  A change of the group reaches it with its next heartbeat; our own consumers
    are told beside their heartbeats, at once."""

    group_consumer_max_size: Annotated[
        int, Number(1, 100_000), Differs("2,147,483,647", "each change of a group is written in one piece")
    ] = 1_000
    """Members that such a group may have."""

    group_consumer_migration_policy: Annotated[MigrationPolicy, Choice(MigrationPolicy)] = MigrationPolicy.BIDIRECTIONAL
    """Which way a group changes its protocol while members read.  upgrade: one whose members assign becomes one whose coordinator
    assigns when the first member with group.protocol=consumer joins.  downgrade: it goes back when the last such member has
    gone and others are left.  bidirectional: both; disabled: neither, and the first one is refused."""
