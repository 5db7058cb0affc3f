"""Connecting over TCP, and writing, for clients and for nodes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from replog.host.forks import close_at_fork
from replog.tcp.port import keep_alive, to_resolve

if TYPE_CHECKING:
    from ssl import SSLContext

Connect: TypeAlias = Callable[
    [Callable[[], asyncio.BaseProtocol], str, int], Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]
]
"""Connects a protocol that it makes to a host and a port, as the event loop's `create_connection`; raises OSError."""

JOINED_BYTES_MAX: Final = 64 << 10
"""Messages up to this size are written at once: a copy costs less than a system call."""


async def create_connection(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, tls: tuple[SSLContext, str] | None = None
) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
    """Connects over TCP, in a way that a fork of this process does not keep open; the addresses of a host are tried in their order.

    Args:
        make: The function that makes the protocol.
        host: The name or address of the host.
        port: The port.
        tls: The context of TLS, and the name that the other side's certificate must be for; None: plain text.

    Raises:
        OSError: There is no such host, or it cannot be reached at any address, or (`ssl.SSLError`) TLS fails.
    """
    loop = asyncio.get_running_loop()
    problem = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await _addresses(host, port):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)  # noqa: FBT003 -- the standard library's signature
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
            continue
        except BaseException:
            sock.close()
            raise
        try:
            keep_alive(sock)
            close_at_fork(sock)
            if tls is None:
                return await loop.create_connection(make, sock=sock)
            below, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
            return await _shake_hands(make, below, *tls)
        except BaseException:  # where TLS fails, what the next address says would only hide it
            sock.close()
            raise
    raise problem


async def _shake_hands(
    make: Callable[[], asyncio.BaseProtocol], below: asyncio.Transport, context: SSLContext, name: str
) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
    """Begins TLS on a connection, which ends at once where that is given up.

    `create_connection` with TLS would keep what is below to itself, and that waits for the other side's goodbye where the end of a
    handshake and a cancellation meet: its socket, closed by then, has a descriptor which the next connection cannot have.
    """
    protocol = make()
    try:
        transport = await asyncio.get_running_loop().start_tls(below, protocol, context, server_hostname=name)
        if transport is not None:
            protocol.connection_made(transport)
    except BaseException:
        below.abort()
        raise
    if transport is None:
        raise ConnectionResetError("the connection was lost in the handshake of TLS")
    return transport, protocol


async def _addresses(host: str, port: int) -> Sequence[tuple[Any, Any, int, str, Any]]:
    """Returns what a host is reached at; a number without a thread.

    There are none for who outlives the main thread of its process: Python ends those of its pools first.

    Raises:
        OSError: There is no such host, or no thread to ask for it.
    """
    name = to_resolve(host)
    with suppress(OSError):
        return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    try:
        return await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except RuntimeError as error:
        raise OSError(
            f"the addresses of {host} cannot be asked for ({error}): the main thread has ended. Wait in it for the threads that "
            "use a client, or name brokers by their addresses"
        ) from error


def cause_of(error: OSError) -> str:
    """Returns what the system says: asyncio puts "Connect call failed" and the address, which is told already, in its place."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def write_pieces(
    transport: asyncio.Transport, front: bytes, size: int, pieces: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Writes a message in as few pieces as pay, none of the larger ones copied.

    Args:
        transport: The transport.
        front: What stands in front of the message.
        size: The bytes of all pieces together.
        pieces: The message.
    """
    if size <= JOINED_BYTES_MAX:
        transport.write(b"".join((front, *pieces)))
        return
    small: list[bytes | bytearray | memoryview] = [front]
    for piece in pieces:
        if len(piece) <= JOINED_BYTES_MAX:
            small.append(piece)
            continue
        if small:
            transport.write(b"".join(small))
            small = []
        transport.write(piece)
    if small:
        transport.write(b"".join(small))


def let_go(transport: asyncio.BaseTransport | None) -> None:
    """Takes the reader out of a transport whose connection has ended.

    It is a method of the transport itself, and asyncio leaves it there: a cycle that only a look for garbage frees, and a
    broker looks at what has lived long no more (`replog.broker.process`).
    """
    if transport is not None and hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None  # noqa: SLF001 -- asyncio has no other way to end it
