"""One port for plain text and TLS: who passes, from where they came, and what those hold who say nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from replog.rpc.grpc import both_protocols
from replog.rpc.grpc.both_protocols import BothProtocols
from replog.tcp.connection_log import ConnectionLog
from replog.tcp.port import bind

TIMEOUT_S = 30
LARGE = bytes(range(256)) * (16 << 10)


async def echo(name: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says who it is, and what was said."""
    writer.write(name)
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
        if data.endswith(b"bye"):
            break
    writer.close()


@contextlib.asynccontextmanager
async def passing(log: ConnectionLog | None = None) -> AsyncIterator[tuple[BothProtocols, int]]:
    behind = [
        await asyncio.start_server(lambda *ends, name=name: echo(name, *ends), "127.0.0.1", 0) for name in (b"P", b"T")
    ]
    plain, tls = (server.sockets[0].getsockname()[1] for server in behind)
    port = bind("127.0.0.1", 0)
    both = BothProtocols(port, plain, tls, log or ConnectionLog())
    await both.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield both, port.port
    finally:
        await both.stop()
        for server in behind:
            server.close()


@pytest.mark.parametrize(("first", "name"), [(b"PRI * HTTP/2.0", b"P"), (b"\x16\x03\x01", b"T")])
async def test_the_first_byte_says_where_a_connection_goes_on(first: bytes, name: bytes) -> None:
    async with passing() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        assert await reader.readexactly(1 + len(first)) == name + first
        writer.write(LARGE)
        assert await reader.readexactly(len(LARGE)) == LARGE
        writer.write(b"bye")
        assert await reader.read() == b"bye"  # and then the end, which came from behind
        writer.close()


async def test_a_caller_is_known_by_where_it_came_from() -> None:
    async with passing() as (both, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        host, own = writer.get_extra_info("sockname")
        writer.write(b"P")
        assert await reader.readexactly(2) == b"PP"
        (seen,) = both._callers
        assert both.caller(seen) == f"ipv4:{host}:{own}"
        assert both.caller("ipv4:127.0.0.1:1") == "ipv4:127.0.0.1:1"
        writer.close()


async def test_who_says_nothing_is_ended(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(both_protocols, "FIRST_BYTE_TIMEOUT_S", 0.05)
    log = ConnectionLog()
    async with passing(log) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
    assert log.ended_count == 1
    assert "a connection from 127.0.0.1 was ended: it said nothing in 0.05 s" in caplog.text


async def test_there_are_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(both_protocols, "CONNECTIONS_MAX", 1)
    log = ConnectionLog()
    async with passing(log) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"P")
        assert await reader.readexactly(2) == b"PP"
        other, its_writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            assert await other.read() == b""
        assert log.ended_count == 1
        writer.write(b"more")
        assert await reader.readexactly(4) == b"more"
        for each in (writer, its_writer):
            each.close()


async def test_the_end_of_the_port_is_that_of_its_connections() -> None:
    async with passing() as (both, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"P")
        assert await reader.readexactly(2) == b"PP"
        await both.stop()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not both._callers
