"""TCP ports: bound at once, and listened at later.  A client that connects in between is refused and goes elsewhere."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from replog.errors import ConfigError

BACKLOG = 512
"""How many connections the kernel keeps that have not been accepted."""

ACCEPTS_PER_TURN = 32
"""How many are accepted before others have their turn: a millisecond or two."""

KEEP_ALIVE_S = 30
"""The silence after which the kernel asks whether the other side's machine is there."""

UNACKNOWLEDGED_MS = 60_000
"""How long sent bytes may stay unacknowledged before the other side's machine counts as gone."""

_KEEP_ALIVE: Final = {
    "TCP_KEEPIDLE": KEEP_ALIVE_S,
    "TCP_KEEPALIVE": KEEP_ALIVE_S,  # the same on macOS
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MS,
}
"""Options of a connection, by their names in `socket`; a system that lacks one does without it."""

CLIENTS_KEY = "listeners"
"""The configuration key of the port for clients."""


class Port(Protocol):
    """A port that this process has: of a socket, or of a simulated machine (`replog.testing.simulated_tcp`)."""

    @property
    def host(self) -> str:
        """The address at which it is."""
        ...

    @property
    def port(self) -> int:
        """The number of the port."""
        ...

    async def listen(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        """Accepts connections from here on.

        Args:
            accept: The factory of the protocol of a connection.

        Raises:
            OSError: Another process listens there.
        """
        ...

    def close(self) -> None:
        """Gives the port back, whether it is listened at or not; connections stay."""
        ...


class SocketPort:
    """A port of this machine.

    Args:
        bound: The socket; it is the port's from here on.

    Attributes:
        socket: The socket.
    """

    def __init__(self, bound: socket.socket) -> None:
        self.socket = bound
        self.host, self.port = bound.getsockname()[:2]
        self._server: asyncio.Server | None = None

    async def listen(self, accept: Callable[[], asyncio.BaseProtocol]) -> None:
        loop = asyncio.get_running_loop()
        # known before it listens: after a cancellation in between, `close` ends it
        self._server = await loop.create_server(accept, sock=self.socket, backlog=ACCEPTS_PER_TURN, start_serving=False)
        await self._server.start_serving()
        self.socket.listen(BACKLOG)  # asyncio accepts as many in one turn as it was told that may wait

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.socket.close()


def bind(host: str, port: int, key: str = CLIENTS_KEY) -> SocketPort:
    """Returns a port that does not listen yet: connections are refused.

    Args:
        host: The address to listen at.
        port: The port; 0: a free one.
        key: The configuration key that names the port, for errors.

    Raises:
        ConfigError: The port is taken, or the address is not this machine's.
    """
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            to_resolve(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keep_alive(bound)  # connections that are accepted there inherit it
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise cannot_listen(key, host, port, error) from None
    bound.settimeout(0)
    return SocketPort(bound)


def to_resolve(host: str) -> str | bytes:
    """Returns the name or address of a host as `getaddrinfo` is to be given it.

    Bytes where that is enough: a text has Python load its tables of international names, 3 ms of each process's start.
    """
    return host.encode() if host.isascii() else host


def keep_alive(sock: socket.socket) -> None:
    """Lets the kernel find out that the machine of the other side is gone.  Nothing else would show it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def cannot_listen(key: str, host: str, port: int, error: OSError) -> ConfigError:
    """Returns the error for a port that this process cannot have."""
    reason = f"cannot listen at {host}:{port}: {error.strerror or error}. Choose another port in {key}"
    return ConfigError(key, f"{host}:{port}", reason)
