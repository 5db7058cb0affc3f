"""Ports for Kafka's clients in a local cluster: one for each broker, kept in its files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from replog.cluster import LocalCluster, NodePlace
from replog.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalCluster, "start_node", lambda self, _node_id: self._save())


def keys(cluster: LocalCluster, node_id: int) -> dict[str, object]:
    return tomllib.loads(cluster.nodes[node_id].config_file.read_text(encoding="utf-8"))


async def test_every_broker_has_a_port_of_its_own_that_it_keeps(tmp_path: Path) -> None:
    cluster = await LocalCluster.start(tmp_path / "c", nodes=2, wait=False, kafka=True)
    cluster.start_node(1)
    ports = [node.kafka_port for node in cluster.nodes.values()]
    assert len({*ports, *(node.port for node in cluster.nodes.values())}) == 4
    assert [keys(cluster, node_id)["kafka.listener"] for node_id in (1, 2)] == [f"127.0.0.1:{port}" for port in ports]
    loaded = LocalCluster.load(tmp_path / "c")
    assert loaded.kafka_bootstrap_servers == f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"


async def test_a_controller_alone_has_none_and_a_broker_that_is_added_gets_one(tmp_path: Path) -> None:
    roles = {1: ["controller"], 2: ["broker"]}
    cluster = await LocalCluster.start(tmp_path / "c", nodes=2, roles=roles, wait=False, kafka=True)
    controller, broker = cluster.add_node(roles=["controller"]), cluster.add_node(roles=["broker"])
    for node_id in (1, controller):
        assert cluster.nodes[node_id].kafka_address is None
        assert "kafka.listener" not in keys(cluster, node_id)
    assert keys(cluster, broker)["kafka.listener"] == cluster.nodes[broker].kafka_address
    addresses = [cluster.nodes[node_id].kafka_address for node_id in (2, broker)]
    assert cluster.kafka_bootstrap_servers.split(",") == addresses


async def test_a_broker_that_binds_another_address_tells_the_one_by_which_it_is_known(tmp_path: Path) -> None:
    places = {1: NodePlace("127.0.0.7", "0.0.0.0")}
    cluster = await LocalCluster.start(tmp_path / "c", nodes=1, places=places, wait=False, kafka=True)
    port = cluster.nodes[1].kafka_port
    assert keys(cluster, 1)["kafka.listener"] == f"0.0.0.0:{port}"
    assert keys(cluster, 1)["kafka.advertised.listener"] == f"127.0.0.7:{port}" == cluster.nodes[1].kafka_address


async def test_a_cluster_without_them_says_how_to_have_them(tmp_path: Path) -> None:
    cluster = await LocalCluster.start(tmp_path / "c", nodes=1, wait=False)
    assert not any(key.startswith("kafka") for key in keys(cluster, 1))
    with pytest.raises(ConfigError, match=r"kafka=True"):
        _ = cluster.kafka_bootstrap_servers
    cluster.add_node()
    assert not cluster.serves_kafka
