"""TCP ports: accepts connections, within bounds, and logs what unknown clients sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct, field

from replog.metadata.records import CLIENT_LISTENER
from replog.tcp.certificates import Certificates
from replog.tcp.connection import ConnectionLimits, RequestServer, ServerConnection
from replog.tcp.connection_log import ConnectionLog
from replog.tcp.connection_rates import ConnectionRateLimits, ConnectionRates, HeldConnection, plain_address
from replog.tcp.frames import SpareBuffers
from replog.tcp.idle_connections import IdleConnections
from replog.tcp.login import MakeLogin
from replog.tcp.port import CLIENTS_KEY, Port, cannot_listen
from replog.tcp.tls import TlsTransport, TlsTurns
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore

WRITING_BYTES = 128 << 20
"""Room for large answers that have not left.  Answers with records have a limit of their own."""

SMALL_BYTES = 1 << 20
"""Room for small requests, beside that for all."""


class ListenerLimits(Struct, frozen=True):
    """How many connections a listener has.

    Attributes:
        connections_max: All of them.
        connections_per_address_max: Those from one address.
        unknown_max: Those of clients that have yet to show who they are; half of them may come from one address.
        connection: The limits of each of them.
        by_address: Those from single addresses, instead of `connections_per_address_max`.
        by_listener: Those to single listeners, by their names.
        rates: How many may come in a second; None: any number.
    """

    connections_max: int = 10_000
    connections_per_address_max: int = 2_000
    unknown_max: int = 1_000
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    by_address: Mapping[str, int] = field(default_factory=dict[str, int])
    by_listener: Mapping[str, int] = field(default_factory=dict[str, int])
    rates: ConnectionRateLimits | None = None


class Listener:
    """Listens on the ports of one kind of callers, within bounds for all of them together.  Of one event loop.

    Args:
        server: The functions that answer requests.
        limits: The function that returns how many connections there may be; it is asked as each comes.
        request_bytes: The bytes of requests that all connections hold together.
        reading_room: The bytes of large requests that have not come yet, of all connections together.
        key: The configuration key that names the ports, for errors.

    Attributes:
        accepted_count: The connections that were taken in since the start.
    """

    def __init__(
        self,
        server: RequestServer,
        limits: Callable[[], ListenerLimits],
        request_bytes: ByteSemaphore,
        reading_room: TransferRoom,
        key: str = CLIENTS_KEY,
    ) -> None:
        self._request_server = server
        self._limits_now = limits
        self._limits = limits()
        self._request_bytes = request_bytes
        self._reading_room = reading_room
        self._key = key
        self._small_bytes = ByteSemaphore(SMALL_BYTES)
        self._writing_room = TransferRoom(WRITING_BYTES)
        self._spares = SpareBuffers()
        self._connections: dict[ServerConnection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        loop = asyncio.get_running_loop()
        self._rates = None if self._limits.rates is None else ConnectionRates(self._limits.rates, loop.time)
        self._unknown: dict[ServerConnection, str] = {}
        self._unknown_by_address: Counter[str] = Counter()
        self._tls_turns = TlsTurns()
        self._idle = IdleConnections(self._limits.connection.idle_s)
        self._log = ConnectionLog()
        self._ports: list[Port] = []
        self._is_stopping = False
        self.accepted_count = 0

    @property
    def held_counts(self) -> Mapping[str, int]:
        """The connections that were taken in or ended late, by what held them up (`replog.tcp.connection_rates`)."""
        return {} if self._rates is None else self._rates.held_counts

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def ended_count(self) -> int:
        """The connections that were ended from this side, for any reason."""
        return self._log.ended_count

    @property
    def refused_counts(self) -> Counter[str]:
        """The connections whose client was not believed, by the name of the listener."""
        return self._log.refused_counts

    async def start(
        self,
        port: Port,
        name: str = CLIENT_LISTENER,
        certificates: Certificates | None = None,
        make_login: MakeLogin | None = None,
        *,
        accepts_plain: bool = False,
    ) -> None:
        """Accepts connections of one more port from here on.

        Args:
            port: The port; it is the listener's from here on.
            name: The name that the configuration gives the listener there.
            certificates: What it proves, and whom it believes; None: it speaks plain text, and believes nobody.
            make_login: The function that makes the login of each connection; None: nobody logs in.
            accepts_plain: Whether it speaks plain text, too, with those that begin so.

        Raises:
            ConfigError: Another process began to listen there after it was bound.
        """
        self._ports.append(port)
        try:
            await port.listen(partial(self._accept, name, certificates, make_login, accepts_plain=accepts_plain))
        except OSError as error:
            port.close()
            raise cannot_listen(self._key, port.host, port.port, error) from None

    async def stop(self) -> None:
        """Ends all connections, and waits until nothing of them runs."""
        self._is_stopping = True
        self._idle.stop()
        for port in self._ports:
            port.close()
        if self._rates is not None:
            self._rates.end_held()
        while self._connections:
            for connection in self._connections:
                connection.end("")
            await asyncio.wait([connection.closed for connection in self._connections])

    # ---- what connections ask --------------------------------------------------------------------------------------------

    def admit(self, connection: ServerConnection, address: str) -> str:
        """Takes in a new connection; returns why it has to end at once, or ""."""
        if reason := self._why_full(connection.listener, address) or (
            "" if connection.is_known else self._why_unknown(address)
        ):
            return reason
        if not connection.is_known:
            self._unknown[connection] = address
            self._unknown_by_address[address] += 1
        self.accepted_count += 1
        self._connections[connection] = address
        self._by_address[address] += 1
        self._by_listener[connection.listener] += 1
        connection.closed.add_done_callback(partial(self._drop, connection))
        return ""

    def note_known(self, connection: ServerConnection) -> None:
        """Counts a connection no more among those whose client is not known."""
        address = self._unknown.pop(connection, None)
        if address is not None:
            _count_down(self._unknown_by_address, address)

    def tell_refused(self, listener: str, address: str, reason: str) -> None:
        """Counts a client that was not believed, and says why: one line an address and minute."""
        self._log.tell_refused(listener, address, reason)

    def rest(self, connection: ServerConnection, since_s: float) -> None:
        """Counts a connection among those that are idle."""
        self._idle.add(connection, since_s)

    def wake(self, connection: ServerConnection) -> None:
        """Counts a connection no more among those that are idle."""
        self._idle.discard(connection)

    def tell_idle(self, address: str, idle_s: float) -> None:
        """Counts the end of an idle connection, which is worth no line of the log."""
        self._log.tell_idle(address, idle_s)

    def tell(self, address: str, reason: str) -> None:
        """Says in the log why a connection ended: one line an address and minute."""
        self._log.tell(address, reason)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _accept(
        self,
        name: str,
        certificates: Certificates | None = None,
        make_login: MakeLogin | None = None,
        *,
        accepts_plain: bool = False,
    ) -> asyncio.BaseProtocol:
        self._limits = limits = self._limits_now()
        if self._rates is not None and limits.rates is not None:
            self._rates.limits = limits.rates
        served = self._served(name, certificates, make_login, accepts_plain=accepts_plain)
        return served if self._rates is None else HeldConnection(self._rates, name, served, self.tell)

    def _served(
        self,
        name: str,
        certificates: Certificates | None,
        make_login: MakeLogin | None,
        *,
        accepts_plain: bool,
    ) -> asyncio.BufferedProtocol:
        limits = self._limits.connection
        rooms = (self._request_bytes, self._small_bytes, self._reading_room, self._writing_room)
        connection = ServerConnection(
            self,
            self._request_server,
            limits,
            *rooms,
            self._spares,
            name,
            shows_identity=certificates is not None,
            login=None if make_login is None else make_login(),
        )
        if certificates is None:
            return connection
        return TlsTransport(connection, certificates, self._tls_turns, accepts_plain=accepts_plain)

    def _why_full(self, listener: str, address: str) -> str:
        if self._is_stopping:
            return "the broker stops"
        if len(self._connections) >= self._limits.connections_max:
            return f"there are {self._limits.connections_max} connections already, the most that this broker serves"
        most = self._limits.by_listener.get(listener, self._limits.connections_max)
        if self._by_listener[listener] >= most:
            return f"there are {most} connections already to {listener}, the most that it serves"
        most = self._limits.by_address.get(plain_address(address), self._limits.connections_per_address_max)
        if self._by_address[address] >= most:
            return f"it has {most} connections already, the most from one address"
        return ""

    def _why_unknown(self, address: str) -> str:
        """Returns why no more clients may come that have yet to show who they are; "" if they may."""
        most = self._limits.unknown_max
        if len(self._unknown) >= most:
            return f"there are {most} connections already whose clients have not shown who they are"
        if self._unknown_by_address[address] >= most // 2:
            return f"it has {most // 2} connections already in which it has not shown who it is"
        return ""

    def _drop(self, connection: ServerConnection, _closed: asyncio.Future[None]) -> None:
        self.note_known(connection)
        _count_down(self._by_address, self._connections.pop(connection))
        _count_down(self._by_listener, connection.listener)


def _count_down(counts: Counter[str], whose: str) -> None:
    """Counts one connection of an address or a listener less, and forgets what has none."""
    counts[whose] -= 1
    if not counts[whose]:
        del counts[whose]
