"""How what runs on simulated machines meets: clients and nodes have their real connections, over simulated TCP.

A host is a machine with one process on it: its name stands at the ends of links, its address in configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from replog.broker.node.environment import PeerNetwork
from replog.client.protocol.connection import KafkaTransport
from replog.errors import ReplogError
from replog.rpc.tcp.peers import TcpPeerServer
from replog.rpc.tcp.transport import TcpPeerTransport
from replog.rpc.transport import PeerHandlers
from replog.testing.simulated_clock import WALL_START_MS
from replog.testing.simulated_network import SimulatedNetwork
from replog.testing.simulated_tcp import SimulatedTcp, TcpPorts
from replog.testing.virtual_loop import VirtualLoop


class SimulatedHost:
    """One machine.

    Args:
        internet: The hosts of the simulation, all of them.
        name: The name at the ends of its links.

    Attributes:
        is_off: Whether it has lost power: it answers nothing, not even with a refusal.
        tcp: TCP as the machine has it, of bytes.
    """

    def __init__(self, internet: SimulatedInternet, name: str) -> None:
        self.name = name
        self.is_off = False
        self.tcp = SimulatedTcp(self, internet.tcp_ports)
        self._internet = internet
        self._clients = 0

    def peer_network(self) -> PeerNetwork:
        """Returns how the node that runs here meets other nodes."""
        return PeerNetwork(
            TcpPeerTransport(self.tcp.create_connection),
            lambda host, port: _WatchedServer(TcpPeerServer(self.tcp.bind(host, port)), self._internet.network.loop),
        )

    def client_transport(self) -> SimulatedClientTransport:
        """Returns what clients here connect by."""
        return SimulatedClientTransport(self)

    def new_rng(self) -> Random:
        """Returns what one client here draws from: the same for the n-th client of a host in every run of a seed."""
        self._clients += 1
        return Random(f"{self._internet.client_seed} {self.name} {self._clients}")  # noqa: S311 -- repeatable

    def wall_ms(self) -> int:
        """Returns the time of day here, which is right: only nodes have clocks that jump."""
        return WALL_START_MS + self._internet.network.loop.now_us // 1000


class _WatchedServer:
    """A server of which the simulation hears the bugs: callers are answered all the same, and the node only logs them."""

    def __init__(self, server: TcpPeerServer, loop: VirtualLoop) -> None:
        self._server = server
        self._loop = loop
        self.port = server.port

    @property
    def refused_count(self) -> int:
        return self._server.refused_count

    async def start(self, handlers: PeerHandlers) -> None:
        await self._server.start(cast("PeerHandlers", _WatchedHandlers(handlers, self._loop)))

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class _WatchedHandlers:
    """The handlers of a node, each as it is but for its bugs."""

    def __init__(self, handlers: PeerHandlers, loop: VirtualLoop) -> None:
        self._handlers = handlers
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        handle: Callable[..., Any] = getattr(self._handlers, name)
        return partial(self._watch, handle) if name.startswith("handle_") else handle

    async def _watch(self, handle: Callable[..., Any], *args: object) -> Any:
        try:
            return await handle(*args)
        except ReplogError:
            raise
        except Exception as bug:
            self._loop.call_exception_handler({"message": f"{handle.__name__} failed", "exception": bug})
            raise


class SimulatedClientTransport(KafkaTransport):
    """How clients on a machine reach brokers: over TCP as the machine has it, and all that they draw repeats with the seed.

    Args:
        host: The machine.
    """

    def __init__(self, host: SimulatedHost) -> None:
        super().__init__(host.tcp.create_connection)
        self._host = host

    def new_rng(self) -> Random:
        """Returns what one client draws from."""
        return self._host.new_rng()

    def wall_ms(self) -> int:
        """Returns the time of day."""
        return self._host.wall_ms()


class SimulatedInternet:
    """All hosts, by name."""

    def __init__(self, network: SimulatedNetwork, client_seed: int = 0) -> None:
        self.client_seed = client_seed
        self.network = network
        self.tcp_ports = TcpPorts(network)
        self.hosts: dict[str, SimulatedHost] = {}

    def host(self, name: str) -> SimulatedHost:
        """Returns the host of that name, new or not."""
        return self.hosts.setdefault(name, SimulatedHost(self, name))
