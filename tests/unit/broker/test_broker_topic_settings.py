"""Which setting is in force; and that no setting the controller accepts can stop a broker."""

from __future__ import annotations

import pytest
from broker_kit import TOPIC, server_config, topic

from replog.broker.replicas.topic_settings import TopicSettings
from replog.metadata.config_keys import (
    CONFIG_KEYS,
    BooleanType,
    ChoicesType,
    ChoiceType,
    ConfigKey,
    FlushPolicy,
    FractionType,
    IntegerType,
)
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import ConfigRecord, ResourceType


def settings(*configs: tuple[str, str, str], **server: object) -> TopicSettings:
    """`configs`: (resource name, key, value); "" is the cluster's default."""
    delta = MetadataDelta(MetadataImage())
    for record in topic():
        delta.replay(record)
    for name, key, value in configs:
        delta.replay(ConfigRecord(ResourceType.TOPIC if name else ResourceType.BROKER, name, key, value))
    return TopicSettings(TOPIC, delta.apply(1, 1), server_config(**server))


def test_the_topics_own_value_then_the_clusters_then_the_brokers() -> None:
    server = {"log_retention_ms": 5}
    cluster, own = ("", "log.retention.ms", "6"), (TOPIC, "retention.ms", "7")
    assert settings(**server).log_config().retention_ms == 5
    assert settings(cluster, **server).log_config().retention_ms == 6
    assert settings(cluster, own, **server).log_config().retention_ms == 7


def test_the_flush_policy() -> None:
    assert settings(flush_policy="os").flush_policy is FlushPolicy.OS
    assert settings((TOPIC, "flush.policy", "always"), flush_policy="os").flush_policy is FlushPolicy.ALWAYS


def extremes(key: ConfigKey) -> list[str]:
    """Texts at the borders of what `key` accepts, as clients may write them."""
    match key.type:
        case IntegerType():
            texts = [str(key.type.minimum), str(key.type.maximum)]
        case ChoiceType():
            texts = list(key.type.choices)
        case ChoicesType():
            texts = [*key.type.choices, ", ".join(key.type.choices)]
        case FractionType():
            texts = ["0", "1.0"]
        case BooleanType():
            texts = ["true", "FALSE"]
    return [*texts, *(f" {text} " for text in texts)]


@pytest.mark.parametrize(("key", "text"), [(key, text) for key in CONFIG_KEYS for text in extremes(key)])
def test_what_the_controller_accepts_no_broker_stumbles_over(key: ConfigKey, text: str) -> None:
    """A setting is in the metadata log: what raised here would stop every broker, and again at each start."""
    key.parse(text)
    for name, config in ((TOPIC, key.name), ("", key.cluster_name)):
        found = settings((name, config, text))
        assert found.log_config().segment_bytes > 0
        assert found.min_insync_replicas > 0
        assert isinstance(found.flush_policy, FlushPolicy)
