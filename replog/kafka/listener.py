"""The TCP port for clients: accepts connections, within bounds, and says what strangers sent."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from replog.byte_semaphore import ByteSemaphore
from replog.errors import ConfigError
from replog.kafka.connection import ConnectionLimits, RequestServer, ServerConnection
from replog.kafka.frames import SpareBuffers

TELL_AGAIN_S = 60.0
"""How often at most a line is logged about one address."""

TOLD_MAX = 1_000
"""How many addresses are remembered as told about."""

BACKLOG = 512

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """How many connections a listener has.

    Attributes:
        connections_max: All of them.
        connections_per_address_max: Those from one address.
        connection: What each of them may cost.
    """

    connections_max: int = 10_000
    connections_per_address_max: int = 2_000
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


def bind(host: str, port: int) -> socket.socket:
    """Returns a socket that has its port and does not listen yet: whoever connects is refused.

    Args:
        host: The address to listen at.
        port: The port; 0: a free one.

    Raises:
        ConfigError: The port is taken, or the address is not this machine's.
    """
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise _cannot_listen(host, port, error) from None
    bound.settimeout(0)
    return bound


class Listener:
    """Listens on one port.  Of one event loop.

    Args:
        server: Who answers requests.
        limits: How many connections there may be.
        request_bytes: The bytes of requests that all connections hold together.

    Attributes:
        accepted_count: The connections that were taken in since the start.
        ended_count: The connections that were ended from this side, whatever the reason.
    """

    def __init__(self, server: RequestServer, limits: ListenerLimits, request_bytes: ByteSemaphore) -> None:
        self._request_server = server
        self._limits = limits
        self._request_bytes = request_bytes
        self._spares = SpareBuffers()
        self._connections: dict[ServerConnection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._told_s: dict[str, float] = {}
        self._server: asyncio.Server | None = None
        self._is_stopping = False
        self.accepted_count = 0
        self.ended_count = 0

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self, bound: socket.socket) -> None:
        """Accepts connections from here on.

        Args:
            bound: The socket, from `bind`; it is the listener's from here on.

        Raises:
            ConfigError: Another process began to listen there after `bind`.
        """
        loop = asyncio.get_running_loop()
        try:
            # it is ours before it listens: whoever is cancelled while it begins to, leaves it to `stop`
            self._server = await loop.create_server(self._accept, sock=bound, backlog=BACKLOG, start_serving=False)
            await self._server.start_serving()
        except OSError as error:
            host, port = bound.getsockname()[:2]
            bound.close()
            self._server = None
            raise _cannot_listen(host, port, error) from None

    async def stop(self) -> None:
        """Ends all connections, and waits until nothing of them runs."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
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

    def _accept(self) -> ServerConnection:
        limits = self._limits.connection
        return ServerConnection(self, self._request_server, limits, self._request_bytes, self._spares)

    def _why_full(self, address: str) -> str:
        if self._is_stopping:
            return "the broker stops"
        if len(self._connections) >= self._limits.connections_max:
            return f"there are {self._limits.connections_max} connections already (max.connections)"
        if self._by_address[address] >= self._limits.connections_per_address_max:
            return f"it has {self._limits.connections_per_address_max} connections already (max.connections.per.ip)"
        return ""

    def _drop(self, connection: ServerConnection, _closed: asyncio.Future[None]) -> None:
        address = self._connections.pop(connection)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    reason = f"cannot listen at {host}:{port}: {error.strerror or error}. Choose another port in kafka.listener"
    return ConfigError("kafka.listener", f"{host}:{port}", reason)
