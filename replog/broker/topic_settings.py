"""The settings in force for a topic: its own, else the cluster's default, else this broker's configuration."""

from __future__ import annotations

from replog.broker.config import ServerConfig
from replog.errors import InvariantViolationError
from replog.log import LogConfig
from replog.metadata import config_keys
from replog.metadata.config_keys import ConfigKey, FlushPolicy
from replog.metadata.image import CLUSTER_DEFAULTS, MetadataImage
from replog.metadata.records import ResourceType


class TopicSettings:
    """Settings of one topic in one image."""

    def __init__(self, topic: str, image: MetadataImage, config: ServerConfig) -> None:
        self._own = image.configs.get((ResourceType.TOPIC, topic), {})
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

    def log_config(self) -> LogConfig:
        config = self._config
        return LogConfig(
            segment_bytes=self._integer(config_keys.SEGMENT_BYTES, config.log_segment_bytes),
            segment_ms=self._integer(config_keys.SEGMENT_MS, config.log_roll_ms),
            segment_index_bytes=config.log_index_size_max_bytes,
            index_interval_bytes=config.log_index_interval_bytes,
            max_message_bytes=self.max_message_bytes,
            retention_ms=self._integer(config_keys.RETENTION_MS, config.log_retention_ms),
            retention_bytes=self._integer(config_keys.RETENTION_BYTES, config.log_retention_bytes),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )

    def _text(self, key: ConfigKey) -> str | None:
        text = self._own.get(key.name)
        return self._defaults.get(key.cluster_name) if text is None else text

    def _integer(self, key: ConfigKey, default: int) -> int:
        text = self._text(key)
        if text is None:
            return default
        value = key.parse(text)
        if not isinstance(value, int):
            raise InvariantViolationError(f"{key.name} is {value!r}, not a number")
        return value
