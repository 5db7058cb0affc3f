"""The table of configurations refuses what it does not know, and says what was meant."""

from __future__ import annotations

import pytest

from replog.errors import ConfigError
from replog.metadata.config_keys import (
    BROKER_KEYS,
    CLUSTER_WIDE,
    CONFIG_KEYS,
    CONTROLLER_KEYS,
    ConfigKey,
    config_key_or_raise,
)
from replog.metadata.records import ResourceType


def test_every_default_is_valid() -> None:
    for key in (*CONFIG_KEYS, *BROKER_KEYS, *CONTROLLER_KEYS):
        assert key.parse(str(key.default)) == key.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("min.insync.replicas", "2", 2),
        ("retention.ms", "-1", -1),
        ("unclean.leader.election.enable", "TRUE", True),
        ("flush.policy", "always", "always"),
        ("cleanup.policy", "delete, compact", "compact,delete"),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("message.timestamp.type", "CreateTime", "CreateTime"),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert config_key_or_raise(ResourceType.TOPIC, name).parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "many"),
        ("min.insync.replicas", "1_0"),
        ("min.insync.replicas", "٣"),
        ("segment.bytes", "100"),
        ("cleanup.policy", "compacted"),
        ("cleanup.policy", "delete,delete"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("flush.policy", "sometimes"),
        ("unclean.leader.election.enable", "1"),
    ],
)
def test_values_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_key_or_raise(ResourceType.TOPIC, name).parse(text)
    assert caught.value.field == name
    assert "expected" in str(caught.value)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r'Did you mean "min\.insync\.replicas"\?'):
        config_key_or_raise(ResourceType.TOPIC, "min.isr")
    with pytest.raises(ConfigError, match=r'Did you mean "retention\.ms"\?'):
        config_key_or_raise(ResourceType.TOPIC, "retention.msec")


def test_an_unknown_name_that_is_near_to_none_gets_no_guess() -> None:
    for name in ("color", "nothing.known", "x" * 60, "retention.ms" * 10_000):
        with pytest.raises(ConfigError, match="unknown configuration") as caught:
            config_key_or_raise(ResourceType.TOPIC, name)
        assert "Did you mean" not in str(caught.value)
        assert len(str(caught.value)) < 200


def test_what_only_files_of_nodes_say_is_told_to_be_static() -> None:
    with pytest.raises(
        ConfigError, match=r'"node.id" is static: .* file of a node.*`replog configs describe --node ID node.id`'
    ):
        config_key_or_raise(ResourceType.BROKER, "node.id", static_names={"node.id"})


@pytest.mark.parametrize(
    ("name", "text", "stored"),
    [
        ("retention.ms", "1" + " " * 9_000_000, "1"),
        ("retention.ms", "000" * 100 + "7", "out of range"),
        ("retention.ms", " -1 ", "-1"),
        ("cleanup.policy", " delete , compact ", "compact,delete"),
        ("min.cleanable.dirty.ratio", "5e-1", "0.5"),
        ("min.cleanable.dirty.ratio", "1.000", "1"),
        ("unclean.leader.election.enable", " TRUE ", "true"),
        ("flush.policy", " always\n", "always"),
    ],
)
def test_what_is_stored_is_the_value_and_not_how_it_was_written(name: str, text: str, stored: str) -> None:
    key = config_key_or_raise(ResourceType.TOPIC, name)
    if stored == "out of range":
        with pytest.raises(ConfigError, match=stored):
            key.canonical(text)
    else:
        assert key.canonical(text) == stored
        assert key.parse(stored) == key.parse(text)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", ""),
        (" 10.0.0.7:5 , [2001:DB8::7]:0", "10.0.0.7:5,[2001:db8::7]:0"),
        ("10.0.0.7:5,10.0.0.7:6", "names an address twice"),
        ("10.0.0.7", "has no count"),
        ("host:5", "has no address"),
        (",".join(f"10.0.{n // 256}.{n % 256}:1" for n in range(1_001)), "names 1001 addresses"),
    ],
)
def test_counts_of_addresses(text: str, stored: str) -> None:
    key = config_key_or_raise(ResourceType.BROKER, "max.connections.per.ip.overrides")
    if " " in stored:
        with pytest.raises(ConfigError, match=stored):
            key.canonical(text)
    else:
        assert key.canonical(text) == stored


def test_cluster_defaults_have_kafkas_broker_names() -> None:
    assert config_key_or_raise(ResourceType.BROKER, "log.retention.ms").name == "retention.ms"
    with pytest.raises(ConfigError):
        config_key_or_raise(ResourceType.BROKER, "retention.ms")


@pytest.mark.parametrize("key", CONTROLLER_KEYS, ids=lambda key: key.name)
def test_what_the_controller_goes_by_is_set_for_the_cluster_alone(key: ConfigKey) -> None:
    assert config_key_or_raise(ResourceType.BROKER, key.name) is key
    for resource_type, resource_name in ((ResourceType.TOPIC, "t"), (ResourceType.BROKER, "1")):
        with pytest.raises(ConfigError):
            config_key_or_raise(resource_type, key.name, resource_name)


@pytest.mark.parametrize("key", BROKER_KEYS, ids=lambda key: key.name)
def test_what_brokers_go_by_is_not_set_for_topics(key: ConfigKey) -> None:
    for resource_name in ("", "1"):
        assert config_key_or_raise(ResourceType.BROKER, key.name, resource_name) is key
    with pytest.raises(ConfigError):
        config_key_or_raise(ResourceType.TOPIC, key.name, "t")


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("listener.name.outside.max.connections", 1_000_000),
        ("listener.name.a.b.max.connection.creation.rate", 2**31 - 1),
    ],
)
def test_a_listener_has_limits_of_its_own(name: str, most: int) -> None:
    """KIP-402, KIP-612: of all brokers, and of one."""
    for resource_name in ("", "1"):
        key = config_key_or_raise(ResourceType.BROKER, name, resource_name)
        assert (key.name, key.cluster_name, key.default) == (name, name, most)
        assert key.canonical(" 5 ") == "5"
        with pytest.raises(ConfigError, match="out of range"):
            key.parse("0")


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.OUTSIDE.max.connections",
        "listener.name..max.connections",
        "listener.name.max.connections",
        f"listener.name.{65 * 'a'}.max.connections",
        "listener.name.outside.ssl.client.auth",
        "listener.name.outside.max.connections.per.ip",
    ],
)
def test_nothing_else_of_a_listener_is_set_while_the_cluster_runs(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown configuration"):
        config_key_or_raise(ResourceType.BROKER, name)


@pytest.mark.parametrize("key", CONFIG_KEYS, ids=lambda key: key.name)
def test_what_elections_depend_on_is_not_set_per_broker(key: ConfigKey) -> None:
    assert config_key_or_raise(ResourceType.BROKER, key.cluster_name) is key
    if key in CLUSTER_WIDE:
        with pytest.raises(ConfigError, match="for the whole cluster, not for one broker"):
            config_key_or_raise(ResourceType.BROKER, key.cluster_name, "1")
    else:
        assert config_key_or_raise(ResourceType.BROKER, key.cluster_name, "1") is key
