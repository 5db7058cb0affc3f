"""Ports in a local cluster: each node has one for clients and one for the other nodes, kept in its files."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from replog.cluster import LocalCluster, NodePlace
from replog.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalCluster, "_launch", lambda cluster, _spec: cluster._known.write())


def keys(cluster: LocalCluster, node_id: int) -> dict[str, object]:
    return tomllib.loads(cluster.nodes[node_id].config_file.read_text(encoding="utf-8"))


async def test_every_node_has_two_ports_of_its_own_that_it_keeps(tmp_path: Path) -> None:
    roles = {1: ["controller"], 2: ["broker"]}
    cluster = await LocalCluster.start(tmp_path / "c", nodes=2, roles=roles, wait=False)
    cluster.add_node(roles=["broker"])
    nodes = cluster.nodes.values()
    assert len({*(node.port for node in nodes), *(node.peer_port for node in nodes)}) == 6
    for node in nodes:
        own = keys(cluster, node.node_id)
        assert own["listeners"] == [node.address] == [f"127.0.0.1:{node.port}"]
        assert own["inter.broker.listener"] == node.peer_address == f"127.0.0.1:{node.peer_port}"
        assert own["controller.quorum.voters"] == [f"1@{cluster.nodes[1].peer_address}"]
    loaded = LocalCluster.load(tmp_path / "c")
    assert loaded.bootstrap_servers == cluster.bootstrap_servers == ",".join(node.address for node in nodes)
    assert [node.peer_port for node in loaded.nodes.values()] == [node.peer_port for node in nodes]


async def test_the_first_port_is_the_one_for_clients_of_node_1(tmp_path: Path) -> None:
    cluster = await LocalCluster.start(tmp_path / "c", nodes=2, wait=False, first_port=9092)
    assert cluster.nodes[1].port == 9092
    assert len({9092, cluster.nodes[2].port, *(node.peer_port for node in cluster.nodes.values())}) == 4


async def test_a_node_that_binds_another_address_tells_those_by_which_it_is_known(tmp_path: Path) -> None:
    places = {1: NodePlace("127.0.0.7", "0.0.0.0")}
    cluster = await LocalCluster.start(tmp_path / "c", nodes=1, places=places, wait=False)
    node, own = cluster.nodes[1], keys(cluster, 1)
    assert own["listeners"] == [f"0.0.0.0:{node.port}"]
    assert own["advertised.listeners"] == [f"127.0.0.7:{node.port}"] == [node.address]
    assert own["inter.broker.listener"] == f"0.0.0.0:{node.peer_port}"
    assert own["inter.broker.advertised.listener"] == f"127.0.0.7:{node.peer_port}" == node.peer_address


async def test_a_cluster_of_the_version_with_one_port_says_what_to_change(tmp_path: Path) -> None:
    await LocalCluster.start(tmp_path / "c", nodes=1, wait=False)
    (file,) = (tmp_path / "c").glob("*.json")
    state = json.loads(file.read_text(encoding="utf-8"))
    del state["nodes"][0]["peer_port"]
    file.write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rename listeners to inter\.broker\.listener"):
        LocalCluster.load(tmp_path / "c")
