"""Nobody is given the port of a node that does not run at the moment, and the node gets it back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from replog.cluster import LocalCluster, is_free, local_cluster
from replog.cluster.processes import KeptPorts


def is_given_away(port: int) -> bool:
    """Whether who asks without SO_REUSEADDR gets it, as the kernel chooses ports for connections and for port 0."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_kept_port_is_given_to_who_names_it_and_to_nobody_else() -> None:
    ports = KeptPorts()
    taken = [*ports.take(3), *ports.take(2), *ports.take(0)]
    assert len(set(taken)) == 5
    assert not any(map(is_given_away, taken))
    assert all(map(is_free, taken))
    with socket.create_server(("127.0.0.1", taken[0])) as node:  # with SO_REUSEADDR, as gRPC and Java have it
        assert node.getsockname()[1] == taken[0]
        assert not is_free(taken[0])
    ports.release()
    ports.release()
    assert all(map(is_given_away, taken))


async def test_the_ports_of_a_cluster_are_kept_until_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalCluster, "start_node", lambda *_args: None)
    cluster = await LocalCluster.start(tmp_path / "c", nodes=2, wait=False)
    cluster.add_node()
    ports = [node.port for node in cluster.nodes.values()]
    assert len(set(ports)) == 3
    assert not any(map(is_given_away, ports))
    await cluster.kill_all()
    assert all(map(is_given_away, ports))


async def test_a_cluster_that_cannot_be_written_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[KeptPorts] = []

    class Noted(KeptPorts):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    def disk_is_full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_cluster, "KeptPorts", Noted)
    monkeypatch.setattr(LocalCluster, "_write_configs", disk_is_full)
    with pytest.raises(OSError, match="No space left"):
        await LocalCluster.start(tmp_path / "c", nodes=2)
    assert [ports._sockets for ports in made] == [[]]
