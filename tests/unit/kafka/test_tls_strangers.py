"""What strangers hold of a real port that speaks TLS, and that the clients of others go on meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest

from replog.broker.node import client_ports
from replog.tcp import connection as connection_module
from replog.tcp.connection import ConnectionLimits
from replog.tcp.listener import ListenerLimits
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.kafka.kafka_node_kit import Served
from tests.unit.kafka.tls_kit import TlsClient, TlsFiles, serving_tls

SILENT = 300
UNKNOWN_MAX = 100


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ListenerLimits(unknown_max=UNKNOWN_MAX, connection=ConnectionLimits(first_request_s=0.5, stalled_s=0.5))
    monkeypatch.setattr(client_ports, "limits_within", lambda *_: limits)
    monkeypatch.setattr(connection_module, "CHECK_S", 0.2)


def hello() -> bytes:
    """The first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def flood(address: str, count: int, first: bytes) -> list[socket.socket]:
    """Makes connections that say something, and then nothing."""
    host, _, port = address.rpartition(":")
    made = []
    for _ in range(count):
        made.append(socket.create_connection((host, int(port)), timeout=20))
        with contextlib.suppress(ConnectionError):  # it was ended at once
            made[-1].sendall(first)
    return made


def held(it: Served) -> int:
    """How many connections there are."""
    ports = it.node._clients
    assert ports is not None
    return ports.read().connections


@pytest.mark.parametrize("said_bytes", [0, 1, 100, 10_000])
async def test_those_who_do_not_say_who_they_are_are_few_and_short(
    files: TlsFiles, said_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(files) as it:
        known = await asyncio.to_thread(TlsClient, it.node.address, files.context(files.client))
        it._clients.append(known)
        assert (await it.ask(MetadataRequest(None), 12, MetadataResponse)).brokers
        made = await asyncio.to_thread(flood, it.node.address, SILENT, hello()[:said_bytes])
        most = held(it)
        with contextlib.ExitStack() as stack:
            for each in made:
                stack.enter_context(each)
            assert most <= UNKNOWN_MAX // 2 + 1
            assert (await it.ask(MetadataRequest(None), 12, MetadataResponse)).brokers
            await it.until(lambda: held(it) == 1)
            assert (await it.ask(MetadataRequest(None), 12, MetadataResponse)).brokers
    assert any("in which it has not shown who it is" in line for line in caplog.messages)


async def test_a_known_client_that_does_not_read_its_answer_is_ended(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """With `asyncio`'s TLS the answer counted as read: nobody saw the memory that it held."""
    async with serving_tls(files) as it:
        await asyncio.gather(*(it.create(f"{'t' * 200}{number}", 200) for number in range(3)))
        client = await asyncio.to_thread(TlsClient, it.node.address, files.context(files.client))
        with client.connection:
            client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000)
            for _ in range(400):
                client.send(MetadataRequest(None), 12)
            await it.until(lambda: held(it) == 0)
    assert any("of answers were not read" in line for line in caplog.messages)
