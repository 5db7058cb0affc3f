"""The transport seam of `replog.rpc.transport` over the simulated network.

A host is a machine with one process on it: its name stands at the ends of links, its address in configurations.  Nodes meet
message by message: it is the `PeerTransport` of the node that runs there (`simulated_connection`), and binds addresses for
it (`simulated_server`).  Clients come byte by byte (`simulated_tcp`): their connections are the real ones.
"""

from __future__ import annotations

from random import Random

from replog.client.protocol.connection import KafkaTransport
from replog.errors import ConfigError
from replog.rpc.messages import Hello
from replog.testing.simulated_clock import WALL_START_MS
from replog.testing.simulated_connection import SimulatedConnection
from replog.testing.simulated_network import SimulatedCall, SimulatedNetwork
from replog.testing.simulated_server import SimulatedServer
from replog.testing.simulated_tcp import SimulatedTcp, TcpPorts

CALLS_SWEPT_AT = 64


class SimulatedHost:
    """One machine: a `PeerTransport` for the node that runs on it, and the addresses that it listens on.

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
        self.server: SimulatedServer | None = None
        self.tcp = SimulatedTcp(self, internet.tcp_ports)
        self._internet = internet
        self._calls: list[SimulatedCall] = []
        self._clients = 0

    def connect(self, address: str, *, purpose: str, hello: Hello | None = None) -> SimulatedConnection:  # noqa: ARG002 -- the seam's shape
        return SimulatedConnection(self.open_call, address, hello)

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

    def bind(self, host: str, port: int) -> SimulatedServer:
        """Binds an address of this machine, as `replog.rpc.grpc.transport.bind` does."""
        self.server = self._internet.bind(self, host, port)
        return self.server

    def forget(self, server: SimulatedServer) -> None:
        """Notes that `server` takes no more calls; another one may have been bound since."""
        if self.server is server:
            self.server = None

    def lose_process(self) -> None:
        """Breaks the calls of what ran here and is dead, at once where the machine can still say so."""
        self.server = None
        network = self._internet.network
        for call in self._open_calls():
            call.break_soon(f"{self.name} is gone", after_s=network.conditions.keepalive_s if self.is_off else None)
        self._calls.clear()
        self.tcp.lose_process()

    def open_call(self, address: str, method: str, *, is_unary: bool) -> SimulatedCall:
        """Opens a call to whoever listens at `address` when its first message arrives."""
        server = self._internet.host_at(address)

        def on_open(call: SimulatedCall) -> None:
            if server is None:
                call.break_soon("connection refused", refused=True)
            else:
                server.accept(call, method)

        call = SimulatedCall(
            self._internet.network,
            self.name,
            address if server is None else server.name,
            method,
            is_unary=is_unary,
            on_open=on_open,
        )
        self._keep(call)
        return call

    def accept(self, call: SimulatedCall, method: str) -> None:
        """Takes a call that has reached this machine, or breaks it where nobody listens."""
        if self.is_off:
            call.break_soon("no route", after_s=self._internet.network.conditions.connect_timeout_s)
        elif self.server is None or not self.server.accept(call, method):
            call.break_soon("connection refused", refused=True)
        else:
            self._keep(call)

    def _keep(self, call: SimulatedCall) -> None:
        if len(self._calls) >= CALLS_SWEPT_AT:
            self._calls = self._open_calls()
        self._calls.append(call)

    def _open_calls(self) -> list[SimulatedCall]:
        return [call for call in self._calls if not call.is_over]


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
    """All hosts, by name and by address."""

    FIRST_PORT = 20_000

    def __init__(self, network: SimulatedNetwork, client_seed: int = 0) -> None:
        self.client_seed = client_seed
        self.network = network
        self.tcp_ports = TcpPorts(network)
        self.hosts: dict[str, SimulatedHost] = {}
        self._addresses: dict[str, SimulatedHost] = {}
        self._next_port = self.FIRST_PORT

    def host(self, name: str) -> SimulatedHost:
        """Returns the host of that name, new or not."""
        return self.hosts.setdefault(name, SimulatedHost(self, name))

    def host_at(self, address: str) -> SimulatedHost | None:
        return self._addresses.get(address)

    def bind(self, owner: SimulatedHost, host: str, port: int) -> SimulatedServer:
        """Gives an address to a host; for good, so that links to it keep their name."""
        if port == 0:
            self._next_port += 1
            port = self._next_port
        address = f"{host}:{port}"
        if self._addresses.setdefault(address, owner) is not owner:
            raise ConfigError("listeners", address, f"another host has it: {self._addresses[address].name}")
        if owner.server is not None:
            raise ConfigError("listeners", address, "the process before it still listens")
        return SimulatedServer(self.network, port, address, on_stop=owner.forget)
