"""What a broker says is in force, and where it comes from."""

from __future__ import annotations

import pytest
from broker_kit import server_config

from replog.broker.config_description import describe_configs
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import ConfigRecord, ResourceType
from replog.rpc.config_messages import ConfigDescription


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
