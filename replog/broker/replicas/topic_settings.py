"""The settings in force for a topic on this broker: the topic's own, else those set for this broker, else those of the cluster,
else those of this broker's configuration file."""

from __future__ import annotations

from replog.config.kinds import LONG_MAX
from replog.config.server import ServerConfig
from replog.errors import InvariantViolationError
from replog.log import Cleanup, LogConfig
from replog.metadata import config_keys
from replog.metadata.config_keys import CleanupPolicy, ConfigKey, FlushPolicy, MessageTimestampType
from replog.metadata.image import CLUSTER_DEFAULTS, MetadataImage
from replog.metadata.records import ResourceType
from replog.records import RecordRules, TimestampType

_TIMESTAMP_TYPES = {
    MessageTimestampType.CREATE_TIME: TimestampType.CREATE_TIME,
    MessageTimestampType.LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}


class TopicSettings:
    """Settings of one topic in one image."""

    def __init__(self, topic: str, image: MetadataImage, config: ServerConfig) -> None:
        self._own = image.configs.get((ResourceType.TOPIC, topic), {})
        self._of_broker = image.configs.get((ResourceType.BROKER, str(config.node_id)), {})
        self._defaults = image.configs.get(CLUSTER_DEFAULTS, {})
        self._config = config

    @property
    def min_insync_replicas(self) -> int:
        return self._integer(config_keys.MIN_INSYNC_REPLICAS, self._config.min_insync_replicas)

    @property
    def max_message_bytes(self) -> int:
        return self._integer(config_keys.MAX_MESSAGE_BYTES, self._config.message_max_bytes)

    @property
    def flush_policy(self) -> FlushPolicy:
        text = self._text(config_keys.FLUSH_POLICY)
        return self._config.flush_policy if text is None else FlushPolicy(str(config_keys.FLUSH_POLICY.parse(text)))

    @property
    def message_timestamp_type(self) -> TimestampType:
        text = self._text(config_keys.MESSAGE_TIMESTAMP_TYPE)
        kind = self._config.log_message_timestamp_type
        if text is not None:
            kind = MessageTimestampType(str(config_keys.MESSAGE_TIMESTAMP_TYPE.parse(text)))
        return _TIMESTAMP_TYPES[kind]

    @property
    def cleanup_policy(self) -> tuple[CleanupPolicy, ...]:
        text = self._text(config_keys.CLEANUP_POLICY)
        if text is None:
            return self._config.log_cleanup_policy
        return tuple(CleanupPolicy(word) for word in str(config_keys.CLEANUP_POLICY.parse(text)).split(","))

    def record_rules(self) -> RecordRules:
        """Returns the rules that a leader checks records by, beside their size."""
        config = self._config
        return RecordRules(
            are_keys_required=CleanupPolicy.COMPACT in self.cleanup_policy,
            timestamp_type=self.message_timestamp_type,
            timestamp_before_max_ms=self._integer(
                config_keys.MESSAGE_TIMESTAMP_BEFORE_MAX_MS, config.log_message_timestamp_before_max_ms
            ),
            timestamp_after_max_ms=self._integer(
                config_keys.MESSAGE_TIMESTAMP_AFTER_MAX_MS, config.log_message_timestamp_after_max_ms
            ),
        )

    def log_config(self) -> LogConfig:
        config = self._config
        return LogConfig(
            segment_bytes=self._integer(config_keys.SEGMENT_BYTES, config.log_segment_bytes),
            segment_ms=self._integer(config_keys.SEGMENT_MS, config.log_roll_ms),
            segment_index_bytes=config.log_index_size_max_bytes,
            index_interval_bytes=config.log_index_interval_bytes,
            max_message_bytes=self.max_message_bytes,
            message_timestamp_type=self.message_timestamp_type,
            cleanup_policy=_log_cleanup_policy(self.cleanup_policy),
            min_cleanable_dirty_ratio=self._fraction(
                config_keys.MIN_CLEANABLE_DIRTY_RATIO, config.log_cleaner_min_cleanable_ratio
            ),
            min_compaction_lag_ms=self._integer(
                config_keys.MIN_COMPACTION_LAG_MS, config.log_cleaner_min_compaction_lag_ms
            ),
            max_compaction_lag_ms=self._integer(
                config_keys.MAX_COMPACTION_LAG_MS, config.log_cleaner_max_compaction_lag_ms
            ),
            delete_retention_ms=self._integer(config_keys.DELETE_RETENTION_MS, config.log_cleaner_delete_retention_ms),
            retention_ms=self._integer(config_keys.RETENTION_MS, config.log_retention_ms),
            retention_bytes=self._integer(config_keys.RETENTION_BYTES, config.log_retention_bytes),
            file_delete_delay_ms=self._integer(config_keys.FILE_DELETE_DELAY_MS, config.log_segment_delete_delay_ms),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            flush_messages=self._integer(config_keys.FLUSH_MESSAGES, config.log_flush_interval_messages),
            flush_ms=self._integer(
                config_keys.FLUSH_MS, LONG_MAX if config.log_flush_interval_ms is None else config.log_flush_interval_ms
            ),
            dirty_window_bytes=config.log_dirty_window_bytes,
        )

    def _text(self, key: ConfigKey) -> str | None:
        text = self._own.get(key.name)
        if text is None:
            text = self._of_broker.get(key.cluster_name)
        return self._defaults.get(key.cluster_name) if text is None else text

    def _fraction(self, key: ConfigKey, default: float) -> float:
        text = self._text(key)
        return default if text is None else float(key.parse(text))

    def _integer(self, key: ConfigKey, default: int) -> int:
        text = self._text(key)
        if text is None:
            return default
        value = key.parse(text)
        if not isinstance(value, int):
            raise InvariantViolationError(f"{key.name} is {value!r}, not a number")
        return value


def _log_cleanup_policy(words: tuple[CleanupPolicy, ...]) -> Cleanup:
    policy = Cleanup(0)
    for word in words:
        policy |= Cleanup[word.name]
    return policy
