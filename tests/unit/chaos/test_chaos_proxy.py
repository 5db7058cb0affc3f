"""The proxies between nodes: who has connected, and what a cut link does with bytes and ends of connections."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replog.cluster import LocalCluster
from replog.cluster.node_spec import NodeSpec
from replog.cluster.processes import ProcessId
from replog.testing.machines.network import CLIENT
from replog.testing.machines.proxies import Proxies, connection_inode, owner

DEADLINE_S = 20

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Node:
    """What stands behind both proxies of node 1: it keeps the connections that arrive.

    `writers`: of both ends of every connection; closed at the end of the test.
    `is_for_clients`: whether it is the node's port for clients.
    """

    def __init__(self) -> None:
        self.is_for_clients = True
        self.arrived: asyncio.Queue[Connection] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        await self.arrived.put((reader, writer))


@pytest.fixture
async def network() -> AsyncIterator[Proxies]:
    async with asyncio.timeout(DEADLINE_S), Proxies([1, 2]) as found:
        yield found


@pytest.fixture(params=["for clients", "for nodes"])
async def node(request: pytest.FixtureRequest, network: Proxies, tmp_path: Path) -> AsyncIterator[Node]:
    """Behind the proxies of node 1; `connected` goes to the one that the parameter names."""
    behind, other = Node(), Node()
    behind.is_for_clients = request.param == "for clients"
    servers = [await asyncio.start_server(one, "127.0.0.1", 0) for one in (behind, other)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    if not behind.is_for_clients:
        ports.reverse()
    network.connect(cluster(tmp_path, *ports, ProcessId(0, 0)))
    yield behind
    assert other.arrived.empty(), "a connection went to the wrong port of the node"
    for server in servers:
        server.close()
    for writer in behind.writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in behind.writers), return_exceptions=True)


def cluster(directory: Path, port: int, peer_port: int, process: ProcessId) -> LocalCluster:
    specs = {1: NodeSpec(1, port, peer_port, directory), 2: NodeSpec(2, 1, 1, directory, process)}
    return LocalCluster(directory, "id", specs, die_with_parent=True)


async def connected(network: Proxies, node: Node) -> Connection:
    addresses = network.addresses if node.is_for_clients else network.peer_addresses
    host, _, port = addresses[1].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    node.writers.append(writer)
    return reader, writer


async def silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing, not even an end, can be read after the loop has gone round many times."""
    reading = asyncio.ensure_future(reader.read(1))
    for _ in range(200):
        await asyncio.sleep(0)
    is_silent = not reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return is_silent


async def test_bytes_go_both_ways_and_ends_are_passed_on(network: Proxies, node: Node) -> None:
    reader, writer = await connected(network, node)
    writer.write(b"question")
    there, back = await node.arrived.get()
    assert await there.readexactly(8) == b"question"
    back.write(b"answer")
    assert await reader.readexactly(6) == b"answer"
    back.close()
    assert await reader.read() == b""


async def test_a_cut_link_holds_bytes_in_its_direction_until_it_is_mended(network: Proxies, node: Node) -> None:
    reader, writer = await connected(network, node)
    there, back = await node.arrived.get()
    network.cut((CLIENT, 1))
    writer.write(b"question")
    back.write(b"heard")
    assert await reader.readexactly(5) == b"heard", "the other direction is open"
    assert await silent(there)
    network.mend()
    assert await there.readexactly(8) == b"question"


async def test_the_end_of_a_connection_does_not_pass_a_cut_link(network: Proxies, node: Node) -> None:
    _, writer = await connected(network, node)
    there, _ = await node.arrived.get()
    network.isolate(1)
    writer.close()
    assert await silent(there)
    network.mend()
    assert await there.read() == b""


async def test_a_new_connection_through_a_cut_link_waits(network: Proxies, node: Node) -> None:
    network.cut((CLIENT, 1))
    reader, writer = await connected(network, node)
    writer.write(b"question")
    assert await silent(reader)
    assert node.arrived.empty()
    network.mend()
    there, _back = await node.arrived.get()
    assert await there.readexactly(8) == b"question"


async def test_links_of_others_stay_open(network: Proxies, node: Node) -> None:
    network.isolate(2)
    network.isolate(1, clients=False)
    _, writer = await connected(network, node)
    there, _back = await node.arrived.get()
    writer.write(b"question")
    assert await there.readexactly(8) == b"question"


async def test_a_connection_belongs_to_the_node_whose_process_holds_it(
    network: Proxies, node: Node, tmp_path: Path
) -> None:
    _, writer = await connected(network, node)
    await node.arrived.get()
    port: int = writer.get_extra_info("sockname")[1]
    proxy_port: int = writer.get_extra_info("peername")[1]
    assert owner(cluster(tmp_path, 1, 1, ProcessId.of(os.getpid())), port, proxy_port) == 2
    assert owner(cluster(tmp_path, 1, 1, ProcessId.of(os.getppid())), port, proxy_port) == CLIENT
    assert owner(cluster(tmp_path, 1, 1, ProcessId.of(os.getpid())), port, port) == CLIENT


async def test_each_node_tells_clients_and_nodes_an_address_of_its_own(network: Proxies) -> None:
    config = network.node_config()
    assert len({*network.addresses.values(), *network.peer_addresses.values()}) == 4
    voters = [f"{number}@{network.peer_addresses[number]}" for number in (1, 2)]
    for number in (1, 2):
        assert config[number]["advertised.listeners"] == [network.addresses[number]]
        assert config[number]["inter.broker.advertised.listener"] == network.peer_addresses[number]
        assert config[number]["controller.quorum.voters"] == voters


def test_one_local_port_may_have_several_connections() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
        from_port(0, first) as one,
        from_port(one.getsockname()[1], second) as other,
    ):
        port = one.getsockname()[1]
        found = [connection_inode(port, server.getsockname()[1]) for server in (first, second)]
        assert found == [os.fstat(end.fileno()).st_ino for end in (one, other)]


def test_a_connection_is_found_whichever_family_its_socket_has_and_none_where_there_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as end:
        port = server.getsockname()[1]
        end.connect(("::ffff:127.0.0.1", port))
        assert connection_inode(end.getsockname()[1], port) == os.fstat(end.fileno()).st_ino
        assert connection_inode(end.getsockname()[1], end.getsockname()[1]) == 0


def from_port(port: int, server: socket.socket) -> socket.socket:
    end = socket.socket()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    end.bind(("127.0.0.1", port))
    end.connect(server.getsockname())
    return end
