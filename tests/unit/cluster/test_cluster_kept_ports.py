"""Nobody is given the port of a node that does not run at the moment, and the node gets it back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from replog.cluster import LocalCluster, is_free, local_cluster, processes
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


def test_no_connection_is_given_the_port_of_a_node_that_was_killed() -> None:
    """Who lets a cluster run keeps no ports: a connection had one of them when its node was started again."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = KeptPorts()
    try:
        assert max(ports.take(50)) < first
    finally:
        ports.release()


def test_two_keep_no_port_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_first_port_of_connections", lambda: processes.PORTS_FROM + 20)
    one, other = KeptPorts(), KeptPorts()
    try:
        assert not set(one.take(10)) & set(other.take(10))
    finally:
        one.release()
        other.release()


def test_where_the_kernel_tells_nothing_any_port_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_first_port_of_connections", lambda: 0)
    ports = KeptPorts()
    (port,) = ports.take(1)
    assert is_free(port)
    ports.release()


async def test_the_ports_of_a_cluster_are_kept_until_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalCluster, "_launch", lambda cluster, *_: cluster._known.write())
    cluster = await LocalCluster.start(tmp_path / "c", nodes=2, wait=False)
    cluster.add_node()
    ports = [port for node in cluster.nodes.values() for port in (node.port, node.peer_port)]
    assert len(set(ports)) == 6
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
