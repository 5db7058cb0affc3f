"""TCP between simulated machines: connections whose bytes arrive late, in any pieces, or not at all; asyncio's transports.

::

    internet = SimulatedInternet(SimulatedNetwork(loop, random.Random(4711)))
    port = internet.host("server").tcp.bind("10.0.0.1", 9092)
    await port.listen(Server)  # a factory of protocols, as of `loop.create_server`
    transport, client = await internet.host("app").tcp.create_connection(Client, "10.0.0.1", 9092)

=================================== ====================================================================================
the other side                      what who connects, or is connected, sees
=================================== ====================================================================================
nobody listens                      `ConnectionRefusedError`, after a round trip
no machine, or a cut link           silence: `TimeoutError` after `connect_timeout_s`; a connection ends after `keepalive_s`
process paused                      it connects, and writes until the window is full; what it wrote is read later, also
                                    where the connection has ended meanwhile
process killed, connection aborted  what was on the way, then the end; who writes is reset, and so is who was not read
broken on the way (`stream_break`)  `ConnectionResetError` for both, within any message
given up by who connected (`late`)  for the other side: its bytes and the end, up to `late_max_s` later
=================================== ====================================================================================
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct

from replog.rpc.tcp.wire import StreamKind, is_opening, parse_opening
from replog.tcp.frames import FRAME_BYTES_MIN, SIZE_BYTES
from replog.testing.simulated_network import NOBODY, RETRANSMIT_S, SimulatedNetwork
from replog.testing.simulated_tcp_pipe import BytePipe
from replog.testing.simulated_tcp_transport import SimulatedTcpTransport

P = TypeVar("P", bound=asyncio.BaseProtocol)

FIRST_EPHEMERAL_PORT = 40_000
CONNECTIONS_SWEPT_AT = 64
LOSES = 0.5
"""The probability that a reset overtakes what is on the way."""


class Machine(Protocol):
    """A machine, as its TCP knows it."""

    name: str
    is_off: bool


class TcpPorts:
    """The ports of all machines.

    Args:
        network: The network between them.
    """

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.owners: dict[tuple[str, int], SimulatedTcp] = {}
        self._next_port = FIRST_EPHEMERAL_PORT

    def new_port(self) -> int:
        """Returns a port that nobody has."""
        self._next_port += 1
        return self._next_port


class SimulatedPort:
    """A port that a process has bound; until it listens, who connects is refused.

    Args:
        host: The address of the machine.
        port: The number of the port.
        let_go: The function that is told that it is closed.
    """

    def __init__(self, host: str, port: int, let_go: Callable[[SimulatedPort], None]) -> None:
        self.host = host
        self.port = port
        self.accept: Callable[[], asyncio.BaseProtocol] | None = None
        self.context = NOBODY
        self._let_go = let_go

    async def listen(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        """Accepts connections from here on, in steps of this process.

        Args:
            accept: The factory of the protocol of a connection.
        """
        self.context = copy_context()
        self.accept = accept

    def close(self) -> None:
        """Accepts no more, and gives the port back; connections stay."""
        self.accept = None
        self._let_go(self)


class SimulatedTcp:
    """TCP as one machine has it.

    Args:
        machine: The machine.
        ports: The ports of all machines.
    """

    def __init__(self, machine: Machine, ports: TcpPorts) -> None:
        self.machine = machine
        self._ports = ports
        self._bound: dict[tuple[str, int], SimulatedPort] = {}
        self._connections: list[TcpConnection] = []

    def bind(self, host: str, port: int) -> SimulatedPort:
        """Takes a port of this machine; the address stays this machine's for good, so that links to it keep their name.

        Args:
            host: The address.
            port: The port; 0: a free one.

        Raises:
            OSError: Another machine has it, or a process of this one has it still.
        """
        address = (host, port or self._ports.new_port())
        if address in self._bound or self._ports.owners.setdefault(address, self) is not self:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is taken")
        self._bound[address] = SimulatedPort(*address, self._let_go)
        return self._bound[address]

    async def create_connection(
        self, protocol_factory: Callable[[], P], host: str, port: int
    ) -> tuple[asyncio.Transport, P]:
        """Connects, as the event loop's method of this name does.

        Args:
            protocol_factory: The factory of the protocol of the connection.
            host: The address to connect to.
            port: Its port.

        Raises:
            ConnectionRefusedError: Nobody listens there.
            TimeoutError: Nobody answers.
        """
        owner = self._ports.owners.get((host, port))
        server = None if owner is None else owner.machine
        sockname = (self.machine.name, self._ports.new_port())
        connection = TcpConnection(self._ports.network, self.machine, server, sockname, (host, port))
        self.keep(connection)
        handshake = _Handshake(self._ports.network, connection, owner)
        try:
            await handshake.answered
        except BaseException:
            connection.leave(connection.caller)
            raise
        transport = connection.transport(connection.caller, copy_context())
        protocol = protocol_factory()
        transport.begin(protocol)
        return transport, protocol

    def listener_at(self, host: str, port: int) -> SimulatedPort | None:
        """Returns the port there, where somebody listens."""
        bound = self._bound.get((host, port))
        return None if bound is None or bound.accept is None else bound

    def keep(self, connection: TcpConnection) -> None:
        """Takes in a connection of which this machine has an end."""
        if len(self._connections) >= CONNECTIONS_SWEPT_AT:
            self._connections = [open_one for open_one in self._connections if not open_one.is_over]
        self._connections.append(connection)

    def lose_process(self) -> None:
        """Ends what the process had that ran here and is dead."""
        self._bound.clear()
        for connection in self._connections:
            connection.lose_machine(self.machine)
        self._connections.clear()

    def _let_go(self, port: SimulatedPort) -> None:
        if self._bound.get((port.host, port.port)) is port:
            del self._bound[port.host, port.port]


class ConnectionEnd(Struct, eq=False):
    """One end of a connection.

    Attributes:
        machine: The machine; None: there is none at that address.
        address: The address of this end.
        is_gone: Whether it takes nothing any more.
    """

    machine: Machine | None
    address: tuple[str, int]
    is_gone: bool = False

    @property
    def name(self) -> str:
        """The name at the end of the link."""
        return self.address[0] if self.machine is None else self.machine.name


class TcpConnection:
    """One connection: two pipes, two ends.

    Args:
        network: The network.
        caller: The machine that connects.
        server: The machine at the address; None: there is none.
        sockname: The address of the caller.
        peername: The address that it connects to.

    Attributes:
        caller, server: The ends.
        up: The direction from the caller.
        down: The direction to the caller.
        kind: The kind of stream between nodes that it carries, as its first bytes say; None: another connection.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        caller: Machine,
        server: Machine | None,
        sockname: tuple[str, int],
        peername: tuple[str, int],
    ) -> None:
        self.caller = ConnectionEnd(caller, sockname)
        self.server = ConnectionEnd(server, peername)
        self.up = BytePipe(network, self.caller.name, self.server.name, self)
        self.down = BytePipe(network, self.server.name, self.caller.name, self)
        self.kind: StreamKind | None = None
        self._network = network
        self._is_late: bool | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody is left at either end."""
        return self.caller.is_gone and self.server.is_gone

    def transport(self, end: ConnectionEnd, context: Context) -> SimulatedTcpTransport:
        """Makes the transport of one end.

        Args:
            end: The end.
            context: The context of the process that owns it.
        """
        is_caller = end is self.caller
        incoming, outgoing = (self.down, self.up) if is_caller else (self.up, self.down)
        extra = {"sockname": end.address, "peername": self._other(end).address}
        return SimulatedTcpTransport(self._network.loop, context, incoming, outgoing, partial(self.leave, end), extra)

    def leave(self, end: ConnectionEnd) -> None:
        """Notes that an end takes nothing any more; the other one hears of it, if the link lets it."""
        if end.is_gone:
            return
        end.is_gone = True
        self._end_outgoing(end)
        if end is self.caller:
            self._delay_what_is_late()

    def lose_machine(self, machine: Machine) -> None:
        """Ends what a dead process had of it: at once where the machine can still say so."""
        network = self._network
        for end in (self.caller, self.server):
            if end.machine is machine and not end.is_gone:
                end.is_gone = True
                if machine.is_off:
                    (self.up if end is self.caller else self.down).drop_unsent()
                    after = network.loop.time() + network.conditions.keepalive_s
                    network.loop.call_at(after, self.give_up, f"{machine.name} is silent", context=NOBODY)
                else:
                    self._end_outgoing(end)

    # ---- what pipes ask --------------------------------------------------------------------------------------------------

    def begins(self, pipe: BytePipe, first: bytes) -> None:
        """Hears what is written first."""
        frame = memoryview(first)[SIZE_BYTES:]
        if pipe is self.up and len(frame) >= FRAME_BYTES_MIN and is_opening(frame):
            self.kind = StreamKind(parse_opening(frame)[1])

    def is_deaf(self, pipe: BytePipe) -> bool:
        """Whether nobody is left at the end of the pipe, on a machine that says so."""
        end = self.server if pipe is self.up else self.caller
        return end.is_gone and end.machine is not None and not end.machine.is_off

    def refuse(self, pipe: BytePipe) -> None:
        """Tells the sender that nobody is left at the end."""
        self._reverse(pipe).reset(_reset((self.server if pipe is self.up else self.caller).name))

    def break_on_the_way(self, pipe: BytePipe) -> None:
        """Resets the connection for both: it breaks behind what is on the way in `pipe`."""
        error = ConnectionResetError(errno.ECONNRESET, "connection reset on the way")
        pipe.reset(error)
        self._reverse(pipe).reset(error, loses=self._network.rng.random() < LOSES)
        self._delay_what_is_late()

    def give_up(self, reason: str) -> None:
        """Ends the connection for both: nothing has passed for too long."""
        for pipe in (self.up, self.down):
            pipe.break_off(TimeoutError(errno.ETIMEDOUT, reason))

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _other(self, end: ConnectionEnd) -> ConnectionEnd:
        return self.server if end is self.caller else self.caller

    def _reverse(self, pipe: BytePipe) -> BytePipe:
        return self.down if pipe is self.up else self.up

    def _end_outgoing(self, end: ConnectionEnd) -> None:
        """Ends a direction as the kernel does that closes a socket: who has not read everything resets the connection."""
        incoming, outgoing = (self.down, self.up) if end is self.caller else (self.up, self.down)
        outgoing.drop_unsent()
        if incoming.arrived:
            outgoing.reset(_reset(end.name), loses=self._network.rng.random() < LOSES)
        else:
            outgoing.finish()

    def _delay_what_is_late(self) -> None:
        """Lets what the caller has sent outlive the end of the connection for the caller, where it does."""
        network = self._network
        if self._is_late is None and not self.up.is_empty:
            self._is_late = network.happens(network.conditions.late)
            if self._is_late:
                self.up.hold(network.loop.time() + network.rng.uniform(0, network.conditions.late_max_s))


class _Handshake:
    """An attempt to connect: a packet there, and one back.

    Args:
        network: The network.
        connection: What may become of it.
        owner: Whose port it is; None: nobody's.

    Attributes:
        answered: The future that is done when the caller is connected.
    """

    def __init__(self, network: SimulatedNetwork, connection: TcpConnection, owner: SimulatedTcp | None) -> None:
        self.answered: asyncio.Future[None] = network.loop.create_future()
        self._network = network
        self._connection = connection
        self._owner = owner
        self._until = network.loop.time() + network.conditions.connect_timeout_s
        self._later(self._knock)

    def _later(self, step: Callable[[], None], delay_s: float | None = None) -> None:
        loop = self._network.loop
        loop.call_at(loop.time() + (self._network.delay_s() if delay_s is None else delay_s), step, context=NOBODY)

    def _passes(self, source: ConnectionEnd, target: ConnectionEnd, step: Callable[[], None]) -> bool:
        """Whether the packet comes through; it is sent again until the time is over."""
        is_off = target.machine is not None and target.machine.is_off
        if not is_off and not self._network.is_cut(source.name, target.name):
            return True
        if self._network.loop.time() < self._until:
            self._later(step, RETRANSMIT_S)
        else:
            self._fail(TimeoutError(errno.ETIMEDOUT, f"{self._connection.server.address} does not answer"))
        return False

    def _knock(self) -> None:
        caller, server = self._connection.caller, self._connection.server
        if caller.is_gone or not self._passes(caller, server, self._knock):
            return
        port = None if self._owner is None else self._owner.listener_at(*server.address)
        if self._owner is None or port is None or port.accept is None:
            self._later(self._refuse)
            return
        self._owner.keep(self._connection)
        self._network.loop.call_soon(self._accept, port, context=port.context)
        self._later(self._answer)

    def _accept(self, port: SimulatedPort) -> None:
        """Begins the server's side, as a step of its process."""
        if port.accept is None:  # it was closed with this one in its queue
            self._connection.leave(self._connection.server)
            return
        transport = self._connection.transport(self._connection.server, port.context)
        transport.begin(port.accept())

    def _answer(self) -> None:
        caller, server = self._connection.caller, self._connection.server
        if not caller.is_gone and self._passes(server, caller, self._answer) and not self.answered.done():
            self.answered.set_result(None)

    def _refuse(self) -> None:
        caller, server = self._connection.caller, self._connection.server
        if not caller.is_gone and self._passes(server, caller, self._refuse):
            self._fail(ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {server.address}"))

    def _fail(self, error: OSError) -> None:
        self._connection.server.is_gone = True
        if not self.answered.done():
            self.answered.set_exception(error)


def _reset(name: str) -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, f"connection reset by {name}")
