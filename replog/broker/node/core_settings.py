"""What the cores are told of a node's configuration: they know neither its keys nor its defaults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from replog.access.authorizer import OPEN, Authorizer
from replog.access.standard import StandardAuthorizer
from replog.access.token_key import TokenKey
from replog.broker.quorum.metadata_snapshots import SnapshotLimits
from replog.broker.requests.config_description import DYNAMIC_KEYS
from replog.config.access_keys import principals_of
from replog.config.group_keys import MigrationPolicy
from replog.config.server import ServerConfig
from replog.config.server_keys import KEYS
from replog.controller.config import ControllerConfig
from replog.log import DiskLimits, LogConfig
from replog.log.config import UNLIMITED
from replog.metadata.records import UserScramCredentialRecord
from replog_quorum import QuorumConfig

if TYPE_CHECKING:
    from replog.coordinator.config import TransactionsConfig
    from replog.coordinator.group_machine import GroupsConfig

COMMIT_NOTICE_MS = 10
"""How long other nodes may be without news of a commit, unless the next change brings it."""

METADATA_FETCH_WAIT_MS = 500
"""How long a leader of the quorum holds a fetch that finds nothing new."""

STATIC_NAMES = frozenset(KEYS).difference(key.cluster_name for key in DYNAMIC_KEYS)
"""What only the configuration file of a node says, and `replog configs set` refuses."""


def controller_config(
    config: ServerConfig, first_users: tuple[UserScramCredentialRecord, ...] = ()
) -> ControllerConfig:
    """Returns the settings of the controller, and the users that a new cluster has."""
    return ControllerConfig(
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        default_replication_factor=config.default_replication_factor,
        num_partitions=config.num_partitions,
        min_insync_replicas=config.min_insync_replicas,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        flush_policy=config.flush_policy,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
        metadata_max_idle_interval_ms=config.metadata_max_idle_interval_ms,
        new_authorizer=new_authorizer(config),
        token_key=token_key(config),
        delegation_token_max_lifetime_ms=config.delegation_token_max_lifetime_ms,
        delegation_token_expiry_time_ms=config.delegation_token_expiry_time_ms,
        delegation_token_expiry_check_interval_ms=config.delegation_token_expiry_check_interval_ms,
        static_configs=STATIC_NAMES,
        first_users=first_users,
    )


def token_key(config: ServerConfig) -> TokenKey | None:
    """Makes the key of delegation tokens; None: there are none."""
    secret = config.delegation_token_secret_key
    return None if secret is None else TokenKey(secret.reveal())


def authorizer(config: ServerConfig) -> Authorizer:
    """Makes what decides who may do what."""
    make = new_authorizer(config)
    return OPEN if make is None else make()


def new_authorizer(config: ServerConfig) -> Callable[[], StandardAuthorizer] | None:
    """Returns what makes an authorizer that knows no entry yet; None: everybody may do everything."""
    if config.authorizer_class_name is None:
        return None
    allows_unlisted = config.allow_everyone_if_no_acl_found
    return partial(StandardAuthorizer, principals_of(config.super_users), allows_unlisted=allows_unlisted)


def groups_config(config: ServerConfig) -> GroupsConfig:
    """Returns the settings of consumer groups and their offsets; loads what coordinates them."""
    from replog.coordinator.config import ClassicConfig, ConsumersConfig, ConversionConfig, OffsetsConfig
    from replog.coordinator.group_machine import GroupsConfig

    policy, both = config.group_consumer_migration_policy, MigrationPolicy.BIDIRECTIONAL
    return GroupsConfig(
        offsets=OffsetsConfig(
            metadata_max_chars=config.offset_metadata_max_bytes,
            retention_ms=config.offsets_retention_minutes * 60_000,
            check_interval_ms=config.offsets_retention_check_interval_ms,
        ),
        classic=ClassicConfig(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
        ),
        consumers=ConsumersConfig(
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            max_size=config.group_consumer_max_size,
            hides_topics=config.authorizer_class_name is not None,
        ),
        conversion=ConversionConfig(
            upgrades=policy in {both, MigrationPolicy.UPGRADE},
            downgrades=policy in {both, MigrationPolicy.DOWNGRADE},
        ),
    )


def transactions_config(config: ServerConfig) -> TransactionsConfig:
    """Returns the settings of transactions; loads what coordinates them."""
    from replog.coordinator.config import TransactionsConfig

    return TransactionsConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def quorum_config(config: ServerConfig) -> QuorumConfig:
    """Returns the timers of the quorum; a fetch is answered well before whoever asks gives it up."""
    return QuorumConfig(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_max_wait_ms=min(
            METADATA_FETCH_WAIT_MS,
            config.controller_quorum_fetch_timeout_ms // 2,
            config.controller_quorum_request_timeout_ms // 2,
        ),
        commit_notice_ms=COMMIT_NOTICE_MS,
    )


def metadata_log_config(config: ServerConfig) -> LogConfig:
    """Returns the settings of the metadata log: only snapshots shorten it."""
    return LogConfig(segment_bytes=config.metadata_log_segment_bytes, retention_ms=UNLIMITED, retention_bytes=UNLIMITED)


def snapshot_limits(config: ServerConfig) -> SnapshotLimits:
    """Returns when the metadata is written as a snapshot, and how many snapshots are kept."""
    return SnapshotLimits(
        bytes_between=config.metadata_log_max_record_bytes_between_snapshots,
        interval_ms=config.metadata_log_max_snapshot_interval_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
    )


def disk_limits(config: ServerConfig) -> DiskLimits:
    """Returns when a log directory is short of room."""
    return DiskLimits(config.log_dir_warn_free_bytes, config.log_dir_read_only_free_bytes, config.log_dir_reserve_bytes)
