"""What a broker says is in force, and where it comes from."""

from __future__ import annotations

import pytest
from broker_kit import registered, server_config
from msgspec.structs import replace

from replog.access.secret import HIDDEN
from replog.broker.requests import config_description
from replog.broker.requests.config_description import describe_configs, describe_node_configs
from replog.config.server_keys import KEYS
from replog.errors import InvalidRequestError
from replog.metadata.config_keys import BROKER_KEYS, CONFIG_KEYS, CONTROLLER_KEYS
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import ConfigRecord, ResourceType
from replog.rpc.node_messages import ConfigDescription


def described(name: str, *records: ConfigRecord, **file: object) -> ConfigDescription:
    """The cluster-wide value on a node with these lines in its file."""
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    found = describe_configs(delta.apply(len(records), 1), server_config(**file), ResourceType.BROKER, "")
    (one,) = (one for one in found if one.name == name)
    return one


@pytest.mark.parametrize("in_file", [True, False])
def test_unclean_elections_are_what_the_controller_says(in_file: bool) -> None:
    """A cluster that is older than its file elects by its metadata, and by the default where there is nothing."""
    name = "unclean.leader.election.enable"
    assert described(name, unclean_leader_election_enable=in_file) == ConfigDescription(name, "false", "default")
    record = ConfigRecord(ResourceType.BROKER, "", name, "true")
    assert described(name, record, unclean_leader_election_enable=in_file) == ConfigDescription(name, "true", "cluster")


def test_others_are_those_of_the_file() -> None:
    assert described("log.retention.bytes", log_retention_bytes=7) == ConfigDescription(
        "log.retention.bytes", "7", "node"
    )


def test_listeners_and_what_they_have_for_themselves_are_told_as_they_are_written() -> None:
    told = {
        one.name: one.value
        for one in describe_node_configs(
            MetadataImage(),
            server_config(
                listeners="127.0.0.1:1,A://127.0.0.1:3",
                listener_security_protocol_map="PLAINTEXT:PLAINTEXT,a:SSL",
                listener_name={"a.ssl.client.auth": "none", "A.ssl.keystore.location": "/a.pem"},
            ),
        )
    }
    assert told["listeners"] == "127.0.0.1:1,A://127.0.0.1:3"
    assert told["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,A:SSL"
    assert told["listener.name"] == 'a.ssl.client.auth="none",a.ssl.keystore.location="/a.pem"'


def test_only_a_broker_itself_tells_what_its_file_says() -> None:
    """Another would tell what its own file says, as that broker's."""
    delta = MetadataDelta(MetadataImage())
    for broker_id in (1, 2):
        delta.replay(registered(broker_id))
    image, config = delta.apply(2, 1), server_config(node_id=1, log_retention_bytes=7)
    own = {one.name: one for one in describe_configs(image, config, ResourceType.BROKER, "1")}
    assert (own["log.retention.bytes"].value, own["log.retention.bytes"].source) == ("7", "node")
    with pytest.raises(InvalidRequestError, match="what the file of broker 2 says: ask that broker"):
        describe_configs(image, config, ResourceType.BROKER, "2")
    with pytest.raises(InvalidRequestError, match='there is no broker "3"'):
        describe_configs(image, config, ResourceType.BROKER, "3")


def of_node(*records: ConfigRecord, **file: object) -> dict[str, tuple[str | None, str]]:
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    found = describe_node_configs(delta.apply(len(records), 1), server_config(**file))
    assert [one.name for one in found] == sorted(one.name for one in found)
    return {one.name: (one.value, one.source) for one in found}


def test_a_node_tells_every_key_with_its_place() -> None:
    node_id = server_config().node_id
    changed = [
        ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", "5"),
        ConfigRecord(ResourceType.BROKER, str(node_id), "log.retention.bytes", "6"),
        ConfigRecord(ResourceType.BROKER, str(node_id + 1), "log.roll.ms", "7"),
    ]
    found = of_node(*changed, log_retention_bytes=9, broker_rack="a", log_dirs=("/one", "/two"))
    assert set(KEYS) <= set(found)
    assert set(found) - set(KEYS) <= {key.cluster_name for key in (*BROKER_KEYS, *CONTROLLER_KEYS, *CONFIG_KEYS)}
    assert found["log.retention.ms"] == ("5", "cluster")
    assert found["log.retention.bytes"] == ("6", "broker")
    assert found["log.roll.ms"][1] == "default", "what is set for another node is none of this one's"
    assert found["broker.rack"] == ("a", "node")
    assert found["log.dirs"] == ("/one,/two", "node")
    assert found["metrics.listener"] == (None, "default")
    assert found["request.timeout.ms"] == ("30000", "default")


def test_limits_of_single_listeners_are_told_where_they_are_set() -> None:
    names = [f"listener.name.{listener}.max.connections" for listener in ("a", "b", "c", "d")]
    own, node_id = {"a.max.connections": 1, "b.max.connections": 2, "d.max.connections": 4}, server_config().node_id
    changed = [
        ConfigRecord(ResourceType.BROKER, "", names[1], "5"),
        ConfigRecord(ResourceType.BROKER, str(node_id), names[1], "6"),
        ConfigRecord(ResourceType.BROKER, "", names[2], "7"),
    ]
    found = of_node(*changed, listener_name=own)
    assert [found.get(name) for name in names] == [("1", "node"), ("6", "broker"), ("7", "cluster"), ("4", "node")]
    delta = MetadataDelta(MetadataImage())
    for record in (registered(node_id), *changed):
        delta.replay(record)
    config = replace(server_config(listener_name=own), references=((names[3], "${env:LIMIT}"),))
    image = delta.apply(4, 1)
    known = {
        one.name: one for one in config_description.known_configs(image, config, ResourceType.BROKER, str(node_id))
    }
    assert [(each.value, each.source) for each in known[names[1]].values] == [
        ("6", "broker"),
        ("5", "cluster"),
        ("2", "node"),
        ("1000000", "default"),
    ]
    assert [known[name].is_sensitive for name in names] == [False, False, False, True]
    of_cluster = config_description.known_configs(image, config, ResourceType.BROKER, "")
    assert [one.name for one in of_cluster] == names[1:3]


def test_every_key_of_a_node_that_holds_a_secret_is_hidden() -> None:
    words = ("password", "secret", "credential", "private")
    named = [key for key in KEYS.values() if any(word in key.name for word in words)]
    assert [key.name for key in named if not key.kind.is_secret] == []
    assert "ssl.key.password" in [key.name for key in named]


def test_no_secret_is_described() -> None:
    own = {"inside.ssl.key.password": "canary"}
    config = server_config(ssl_key_password="canary", broker_rack="canary", listener_name=own)
    config = replace(config, references=(("broker.rack", "${env:RACK}"),))
    image = MetadataImage()
    assert "canary" not in repr(describe_node_configs(image, config))
    found = {each.name: each for each in describe_node_configs(image, config)}
    for name in ("ssl.key.password", "broker.rack"):
        assert found[name] == ConfigDescription(name, HIDDEN, "node")
    assert found["listener.name"].value == f"inside.ssl.key.password={HIDDEN}"


def test_the_source_is_read_only_for_whoever_asks_what_a_key_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to each CreateTopics has the topic's configuration: to read the source held the first one up for 14 ms."""
    read: list[str] = []
    monkeypatch.setattr(config_description, "_meanings", lambda: read.append("read") or {})
    image = MetadataImage()
    found = config_description.known_configs(
        image, server_config(), ResourceType.TOPIC, "t", {"segment.bytes": "2000000"}
    )
    assert read == []
    (one,) = (one for one in found if one.name == "segment.bytes")
    assert (one.value, one.source) == ("2000000", "topic")
    assert "2,147,483,647" in one.document()
    assert read == ["read"]
