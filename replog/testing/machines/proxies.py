"""Loopback proxies between nodes, whose links can be cut one by one and one way only.

Every node has two ports here, and these are the addresses that it tells: one for clients, one for the other nodes.  Who has
connected to one of them is found out from the kernel's socket tables: a connection belongs to the node whose process holds
its other end, or to a client.

A cut link is a black hole: what has been sent is kept, a connection that is closed stays open for the other side, nothing is
refused.  A mended link forwards what was kept, as TCP would send it again.  Two things are not as on a real network: a new
connection is accepted at once, though no byte of it arrives; and what was sent into a link that is cut in this direction
only is acknowledged to the sender's kernel, up to the size of the buffers.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue, NodeSpec
from replog.cluster.processes import KeptPorts
from replog.errors import InvalidRequestError, InvariantViolationError
from replog.testing.machines.network import CLIENT, Link, Network

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_NO_COOKIE: Final = 0xFFFFFFFF
_ALL_STATES: Final = 0xFFFFFFFF

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST: Final = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS: Final = struct.Struct("!HH")
_ADDRESSES: Final = struct.Struct("!16s16s")
_REST_OF_ID: Final = struct.Struct("=III")  # interface, cookie
_INODE: Final = struct.Struct("=I")
_INODE_AT: Final = _HEADER.size + 4 + _PORTS.size + _ADDRESSES.size + _REST_OF_ID.size + 4 * 4
_ANSWER_BYTES_MAX: Final = 4096


def connection_inode(port: int, remote_port: int) -> int:
    """Returns the inode of the socket that has a connection over 127.0.0.1; 0: there is none.

    The tables in /proc name every connection, and those that have just ended: a machine that runs many tests has a hundred thousand
    of them, and to read them all for each connection took half a second, longer than the nodes wait for one another.

    Args:
        port: The port of the socket itself.
        remote_port: The port at the other end; the kernel gives one local port to connections with several others.

    Raises:
        OSError: The kernel cannot be asked.
    """
    address = socket.inet_aton("127.0.0.1")
    body = (
        _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
        + _PORTS.pack(port, remote_port)
        + _ADDRESSES.pack(address, address)
        + _REST_OF_ID.pack(0, _NO_COOKIE, _NO_COOKIE)
    )
    header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + body)
        answer = kernel.recv(_ANSWER_BYTES_MAX)
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (number,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -number == errno.ENOENT:
            return 0
        raise OSError(-number, os.strerror(-number))
    (inode,) = _INODE.unpack_from(answer, _INODE_AT)
    return int(inode)


CHUNK_BYTES = 64 * 1024
CONNECTIONS_MAX = 1_000
"""Of one node, at both ports together; more are refused."""


class Proxies(Network):
    """Two proxies for each node: one is for clients, one for the other nodes.

    Args:
        node_ids: The nodes that get proxies.

    Attributes:
        addresses: The host:port of each node's proxy for clients.
        peer_addresses: The host:port of each node's proxy for the other nodes.
    """

    def __init__(self, node_ids: Iterable[int]) -> None:
        super().__init__(node_ids)
        self.addresses: Mapping[int, str] = {}
        self.peer_addresses: Mapping[int, str] = {}
        self._ports = KeptPorts()  # a node that does not listen for a while finds its own free
        self._servers: dict[int, list[asyncio.Server]] = {node_id: [] for node_id in self.node_ids}
        self._connections: dict[int, set[asyncio.Task[None]]] = {node_id: set() for node_id in self.node_ids}
        self._changed = asyncio.Event()
        self._cluster: LocalCluster | None = None

    async def __aenter__(self) -> Self:
        """Begins to listen.

        Raises:
            InvalidRequestError: The system is not Linux.
        """
        if not hasattr(socket, "AF_NETLINK"):
            raise InvalidRequestError(
                "a cluster whose links can be cut needs Linux: who has opened a connection is asked of its kernel. Test with one broker "
                "(the fixture replog_broker), or in a container"
            )
        self.addresses = self._new_addresses()
        self.peer_addresses = self._new_addresses()
        for node_id in self.node_ids:
            await self.accept(node_id)
        return self

    def _new_addresses(self) -> dict[int, str]:
        ports = self._ports.take(len(self.node_ids))
        return {node_id: f"127.0.0.1:{port}" for node_id, port in zip(self.node_ids, ports, strict=True)}

    async def __aexit__(self, *_: object) -> None:
        for node_id in self.node_ids:
            self.refuse(node_id)
        self._ports.release()
        tasks = [task for of_node in self._connections.values() for task in of_node]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def node_config(self) -> dict[int, dict[str, ConfigValue]]:
        """Returns the configuration keys with which all nodes reach each other through here only."""
        voters = [f"{node_id}@{address}" for node_id, address in self.peer_addresses.items()]
        return {
            node_id: {
                "advertised.listeners": [address],
                "inter.broker.advertised.listener": self.peer_addresses[node_id],
                "controller.quorum.voters": voters,
            }
            for node_id, address in self.addresses.items()
        }

    def connect(self, cluster: LocalCluster) -> str:
        """Forwards connections to the nodes of `cluster` from now on; before, they are closed."""
        self._cluster = cluster
        return ",".join(self.addresses.values())

    # ---- cutting and mending ---------------------------------------------------------------------------------------

    def address_aside(self, node_id: int) -> str:
        if self._cluster is None:
            raise InvariantViolationError("no cluster stands behind the proxies")
        return self._cluster.nodes[node_id].address

    def _on_cut(self, links: Collection[Link]) -> None:
        """Leaves the bytes on these links to wait: every connection looks before it forwards."""

    def _on_mend(self, links: Collection[Link]) -> None:  # noqa: ARG002 -- all of them
        """Lets what has waited arrive."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_until_open(self, link: Link) -> None:
        while link in self._cut:
            await self._changed.wait()

    # ---- forwarding ------------------------------------------------------------------------------------------------

    def refuse(self, node_id: int) -> None:
        """Refuses new connections to a node from now on, as the ports of a process that is gone do."""
        servers, self._servers[node_id] = self._servers[node_id], []
        for server in servers:
            server.close()

    async def accept(self, node_id: int) -> None:
        """Accepts connections to a node at its ports again."""
        self.refuse(node_id)
        for addresses, port_of in ((self.addresses, _client_port), (self.peer_addresses, _peer_port)):
            host, _, port = addresses[node_id].rpartition(":")
            server = await asyncio.start_server(self._accepter(node_id, port_of), host, int(port), limit=CHUNK_BYTES)
            self._servers[node_id].append(server)

    def _accepter(
        self, node_id: int, port_of: Callable[[NodeSpec], int]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks = self._connections[node_id]
            if self._cluster is None or len(tasks) >= CONNECTIONS_MAX:
                writer.close()
                return
            task = asyncio.create_task(self._forward(self._cluster, node_id, port_of, reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        return accept

    async def _forward(
        self,
        cluster: LocalCluster,
        node_id: int,
        port_of: Callable[[NodeSpec], int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        source = owner(cluster, writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        try:
            await self._wait_until_open((source, node_id))
            node_reader, node_writer = await asyncio.open_connection(
                "127.0.0.1", port_of(cluster.nodes[node_id]), limit=CHUNK_BYTES
            )
        except OSError:
            writer.close()
            return
        except asyncio.CancelledError:
            writer.close()
            raise
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, node_writer, (source, node_id)))
                tasks.create_task(self._pump(node_reader, writer, (node_id, source)))
        finally:
            node_writer.close()
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
        """Forwards bytes until one side ends the connection; the other side hears of that once the link is whole."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._wait_until_open(link)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        await self._wait_until_open(link)
        writer.close()


def _client_port(spec: NodeSpec) -> int:
    return spec.port


def _peer_port(spec: NodeSpec) -> int:
    return spec.peer_port


def owner(cluster: LocalCluster, port: int, remote_port: int) -> int:
    """Finds the node whose process holds the socket from `port` to `remote_port`; `CLIENT` where it is none of them."""
    inode = connection_inode(port, remote_port)
    if inode:
        for node_id, spec in cluster.nodes.items():
            if spec.process is not None and _holds(spec.process.pid, inode):
                return node_id
    return CLIENT


def _holds(pid: int, inode: int) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(_target(entry.path) == f"socket:[{inode}]" for entry in entries)
    except OSError:
        return False


def _target(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
