"""Connections for calls: one per broker address, shared by everything in one client.

Streams of record bytes have connections of their own (`BrokerSession`), so that a call never waits behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager

from replog.client.protocol.seam import Connection, Transport

CONTROL = "control"
DATA = "data"


class ConnectionPool:
    """Opens on first use, closes what no broker of the cluster uses any more.

    Invariants:
        - a connection is never closed while somebody holds it by `use`;
        - it holds at most one connection per address.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._connections: dict[str, Connection] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def use(self, address: str) -> AsyncIterator[Connection]:
        """Lends the connection to `address`, kept open for the length of the block."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._transport.connect(address, purpose=CONTROL)
        self._users[address] += 1
        try:
            yield connection
        finally:
            self._users[address] -= 1

    async def prune(self, keep: AbstractSet[str]) -> None:
        """Closes idle connections to addresses outside `keep`."""
        stale = [address for address in self._connections if address not in keep and not self._users[address]]
        closing = [self._connections.pop(address) for address in stale]
        for address in stale:
            del self._users[address]
        for connection in closing:
            await connection.close()

    async def close(self) -> None:
        """Closes all of them; nobody may be using one."""
        connections = list(self._connections.values())
        self._connections.clear()
        self._users.clear()
        for connection in connections:
            await connection.close()
