"""One port for nodes that speak TLS and for those that do not yet: gRPC has a port for each, on loopback, behind it.

gRPC cannot tell them apart at one port.  While a cluster changes from plain text to TLS each connection passes through here; its first
byte says where it goes on.  Nothing else is read of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from replog.rpc.node_tls import LISTENER
from replog.tcp.connection_log import ConnectionLog
from replog.tcp.port import Port
from replog.waiting.task_ends import end_tasks, until_one_ends

CONNECTIONS_MAX: Final = 1_000
"""How many connections there are at a time; one more is ended at once."""

FIRST_BYTE_TIMEOUT_S: Final = 15.0
"""How long a caller may say nothing."""

GOODBYE_TIMEOUT_S: Final = 5.0
"""How long the last bytes of a connection may wait for who does not read them."""

PIECE_BYTES: Final = 256 << 10
"""How much of a connection is read before it has been written, each way."""

_HANDSHAKE: Final = 0x16
"""The first byte of a hello of TLS."""

LOOPBACK: Final = "127.0.0.1"
"""Where gRPC has the ports behind."""


class BothProtocols:
    """Passes connections on to one of two ports.  Of one event loop.

    Args:
        port: The port of other nodes; it is this object's from here on.
        plain_port: The port on loopback where plain text is spoken.
        tls_port: The one where TLS is.
        log: What says why a connection was ended.
    """

    def __init__(self, port: Port, plain_port: int, tls_port: int, log: ConnectionLog) -> None:
        self._port = port
        self._plain_port = plain_port
        self._tls_port = tls_port
        self._log = log
        self._passing: set[asyncio.Task[None]] = set()
        self._callers: dict[str, str] = {}

    async def start(self) -> None:
        """Begins to listen.

        Raises:
            OSError: Another process listens there.
        """
        await self._port.listen(self._accept)

    def caller(self, peer: str) -> str:
        """Returns where a connection came from that gRPC knows by its last part: both as gRPC writes addresses."""
        return self._callers.get(peer, peer)

    def pass_on_to(self, plain_port: int, tls_port: int) -> None:
        """Passes connections on to other ports from here on; those that there are stay."""
        self._plain_port, self._tls_port = plain_port, tls_port

    async def stop(self) -> None:
        """Ends all connections, and gives the port back."""
        self._port.close()
        await end_tasks(*self._passing)

    def _accept(self) -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=PIECE_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._begin)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._passing) >= CONNECTIONS_MAX:
            address = writer.get_extra_info("peername")[0]
            self._log.tell(address, f"there are {CONNECTIONS_MAX} connections of listener {LISTENER} already")
            writer.transport.abort()
            return
        task = asyncio.create_task(self._pass(reader, writer), name="pass-node-on")
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on until either side ends it."""
        behind, peer = None, ""
        try:
            async with asyncio.timeout(FIRST_BYTE_TIMEOUT_S):
                first = await reader.read(PIECE_BYTES)
            if not first:
                return
            port = self._tls_port if first[0] == _HANDSHAKE else self._plain_port
            answers, behind = await asyncio.open_connection(LOOPBACK, port, limit=PIECE_BYTES)
            peer = _as_grpc_writes(behind.get_extra_info("sockname"))
            self._callers[peer] = _as_grpc_writes(writer.get_extra_info("peername"))
            behind.write(first)
            await until_one_ends(_copy(reader, behind), _copy(answers, writer))
            await _end_behind_what_was_written(writer, behind)
        except TimeoutError:
            self._log.tell(writer.get_extra_info("peername")[0], f"it said nothing in {FIRST_BYTE_TIMEOUT_S:g} s")
        except OSError:
            pass  # one side is gone; the other one ends with it
        finally:
            self._callers.pop(peer, None)
            for each in (writer, behind):
                if each is not None:
                    each.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies what comes until it ends."""
    while data := await reader.read(PIECE_BYTES):
        writer.write(data)
        await writer.drain()


async def _end_behind_what_was_written(*writers: asyncio.StreamWriter) -> None:
    """Ends connections when they have taken what was written, or a while later."""
    for each in writers:
        each.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_TIMEOUT_S):
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)


def _as_grpc_writes(address: tuple[str, int]) -> str:
    """Returns an address as gRPC tells of who calls."""
    host, port = address[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
