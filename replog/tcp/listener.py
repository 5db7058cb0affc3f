"""TCP ports: accepts connections, within bounds, and logs what unknown clients sent."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from functools import partial

from msgspec import Struct, field

from replog.metadata.records import CLIENT_LISTENER
from replog.tcp.connection import ConnectionLimits, RequestServer, ServerConnection
from replog.tcp.frames import SpareBuffers
from replog.tcp.port import CLIENTS_KEY, Port, cannot_listen
from replog.tcp.transfer_room import TransferRoom
from replog.waiting.byte_semaphore import ByteSemaphore

TELL_AGAIN_S = 60.0
"""How often at most a line is logged about one address."""

TOLD_MAX = 1_000
"""How many addresses are remembered as told about."""

WRITING_BYTES = 128 << 20
"""Room for large answers that have not left.  Answers with records have a limit of their own."""

SMALL_BYTES = 1 << 20
"""Room for small requests, beside that for all."""

_log = logging.getLogger(__name__)


class ListenerLimits(Struct, frozen=True):
    """How many connections a listener has.

    Attributes:
        connections_max: All of them.
        connections_per_address_max: Those from one address.
        connection: The limits of each of them.
    """

    connections_max: int = 10_000
    connections_per_address_max: int = 2_000
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


class Listener:
    """Listens on the ports of one kind of callers, within bounds for all of them together.  Of one event loop.

    Args:
        server: The functions that answer requests.
        limits: How many connections there may be.
        request_bytes: The bytes of requests that all connections hold together.
        reading_room: The bytes of large requests that have not come yet, of all connections together.
        key: The configuration key that names the ports, for errors.

    Attributes:
        accepted_count: The connections that were taken in since the start.
        ended_count: The connections that were ended from this side, for any reason.
    """

    def __init__(
        self,
        server: RequestServer,
        limits: ListenerLimits,
        request_bytes: ByteSemaphore,
        reading_room: TransferRoom,
        key: str = CLIENTS_KEY,
    ) -> None:
        self._request_server = server
        self._limits = limits
        self._request_bytes = request_bytes
        self._reading_room = reading_room
        self._key = key
        self._small_bytes = ByteSemaphore(SMALL_BYTES)
        self._writing_room = TransferRoom(WRITING_BYTES)
        self._spares = SpareBuffers()
        self._connections: dict[ServerConnection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._told_s: dict[str, float] = {}
        self._ports: list[Port] = []
        self._is_stopping = False
        self.accepted_count = 0
        self.ended_count = 0

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self, port: Port, name: str = CLIENT_LISTENER) -> None:
        """Accepts connections of one more port from here on.

        Args:
            port: The port; it is the listener's from here on.
            name: The name that the configuration gives those who come there.

        Raises:
            ConfigError: Another process began to listen there after it was bound.
        """
        self._ports.append(port)
        try:
            await port.listen(partial(self._accept, name))
        except OSError as error:
            port.close()
            raise cannot_listen(self._key, port.host, port.port, error) from None

    async def stop(self) -> None:
        """Ends all connections, and waits until nothing of them runs."""
        self._is_stopping = True
        for port in self._ports:
            port.close()
        while self._connections:
            for connection in self._connections:
                connection.end("")
            await asyncio.wait([connection.closed for connection in self._connections])

    # ---- what connections ask --------------------------------------------------------------------------------------------

    def admit(self, connection: ServerConnection, address: str) -> str:
        """Takes in a new connection; returns why it has to end at once, or ""."""
        if reason := self._why_full(address):
            return reason
        self.accepted_count += 1
        self._connections[connection] = address
        self._by_address[address] += 1
        connection.closed.add_done_callback(partial(self._drop, connection))
        return ""

    def tell(self, address: str, reason: str) -> None:
        """Says in the log why a connection ended: one line an address and minute."""
        self.ended_count += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s.get(address, -math.inf) < TELL_AGAIN_S:
            return
        self._told_s.pop(address, None)
        if len(self._told_s) >= TOLD_MAX:
            del self._told_s[next(iter(self._told_s))]
        self._told_s[address] = now_s
        _log.warning("a connection from %s was ended: %s", address, reason)

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _accept(self, name: str) -> ServerConnection:
        limits = self._limits.connection
        rooms = (self._request_bytes, self._small_bytes, self._reading_room, self._writing_room)
        return ServerConnection(self, self._request_server, limits, *rooms, self._spares, name)

    def _why_full(self, address: str) -> str:
        if self._is_stopping:
            return "the broker stops"
        if len(self._connections) >= self._limits.connections_max:
            return f"there are {self._limits.connections_max} connections already, the most that this broker serves"
        if self._by_address[address] >= self._limits.connections_per_address_max:
            return f"it has {self._limits.connections_per_address_max} connections already, the most from one address"
        return ""

    def _drop(self, connection: ServerConnection, _closed: asyncio.Future[None]) -> None:
        address = self._connections.pop(connection)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
