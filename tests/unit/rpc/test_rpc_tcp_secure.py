"""TLS between nodes: what a node proves, who is refused, and that both sides are told why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from node_certificates import NodeCertificates
from rpc_handlers import ANSWERED, ASKED, Handlers, fetch, fetched

from replog.controller.requests import CreateTopics, CreateTopicsResponse
from replog.errors import ConfigError, InconsistentClusterIdError, InvalidRequestError, ReplogError
from replog.rpc.messages import Hello
from replog.rpc.tcp.peers import TcpPeerServer, bind
from replog.rpc.tcp.secure import NodeTls
from replog.rpc.tcp.transport import TcpPeerConnection, TcpPeerTransport
from replog.rpc.transport import ConnectionLostError
from replog.tcp import certificates
from replog_quorum.messages import QuorumError, VoteRequest, VoteResponse
from tests.quiet import quiet_for

NODE = Hello("c", 2, UUID(int=2))
LARGE_BYTES = 8_000_000
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> NodeCertificates:
    return NodeCertificates(tmp_path_factory.mktemp("nodes") / "certs")


@contextlib.asynccontextmanager
async def serving(tls: NodeTls | None, handlers: Handlers | None = None) -> AsyncIterator[TcpPeerServer]:
    """Node 1 of cluster c."""
    server = bind("127.0.0.1", 0, tls)
    await server.start(handlers or Handlers())
    try:
        yield server
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def dialing(
    server: TcpPeerServer, tls: NodeTls | None, hello: Hello | None = NODE, node_id: int | None = 1
) -> AsyncIterator[TcpPeerConnection]:
    address = f"127.0.0.1:{server.port}"
    connection = TcpPeerTransport(tls=tls).connect(address, purpose="test", hello=hello, node_id=node_id)
    try:
        yield connection
    finally:
        await connection.close()


async def open_any(connection: TcpPeerConnection, kind: str, hello: Hello) -> object:
    """Opens a stream of each kind that a node opens."""
    async with asyncio.timeout(TIMEOUT_S):
        match kind:
            case "fetch":
                return await connection.open_fetch(hello)
            case "vote":
                return await connection.open_quorum(hello)
            case "presence":
                return await connection.open_presence(hello)
            case "registration":
                return await connection.controller_call(CreateTopics(()), timeout_ms=30_000)
            case _:
                return await connection.call(ASKED, timeout_ms=30_000)


KINDS = ("fetch", "vote", "presence", "registration", "call")


async def test_nodes_speak_over_tls(files: NodeCertificates) -> None:
    async with serving(files.tls(1)) as server, dialing(server, files.tls(2)) as connection:
        assert await connection.call(ASKED, timeout_ms=30_000) == ANSWERED
        assert await connection.controller_call(CreateTopics(()), timeout_ms=30_000) == CreateTopicsResponse(())
        stream = await connection.open_fetch(NODE)
        for number, size in enumerate((0, 300_000, LARGE_BYTES)):
            await stream.send(fetch(number, size))
            assert await stream.receive() == fetched(number, size)
        quorum = await connection.open_quorum(NODE)
        await quorum.send(VoteRequest(5, 1, 2, 3, 2, 10, True, UUID(int=2), None))  # noqa: FBT003 -- a pre-vote
        assert await quorum.receive() == VoteResponse(5, 1, QuorumError.NONE, None, 3, vote_granted=True)
        assert server.refused_count == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_certificate_of_another_node_is_refused(
    files: NodeCertificates, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(files.tls(1)) as server, dialing(server, files.tls(3)) as connection:
        with pytest.raises(
            InvalidRequestError, match=r"that of replog://c/node/3, and the caller says that it is node 2"
        ):
            await open_any(connection, kind, NODE)
        assert server.refused_count == 1
    assert "the caller says that it is node 2" in caplog.text


class ForeignTls(NodeTls):
    """A node that goes by a certificate which is not its own."""

    def __init__(self, files: NodeCertificates, own: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("replog.rpc.tcp.secure._require_own", lambda _own, _certificate: None)
            made = files.tls(2, own=own)
        self.__dict__.update(made.__dict__)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_is_no_node(files: NodeCertificates, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(files.tls(1)) as server, dialing(server, ForeignTls(files, files.client())) as connection:
        with pytest.raises(InvalidRequestError, match="the certificate of User:CN=client names none"):
            await open_any(connection, kind, NODE)
        assert server.refused_count == 1
    assert "the certificate of User:CN=client names none" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_node_of_another_cluster_is_refused(files: NodeCertificates, kind: str) -> None:
    """Its hello names this cluster: the certificate is what counts."""
    own = ForeignTls(files, files.node(2, "d"))
    async with serving(files.tls(1)) as server, dialing(server, own) as connection:
        with pytest.raises(InconsistentClusterIdError, match="the certificate is that of replog://d/node/2"):
            await open_any(connection, kind, NODE)
        assert server.refused_count == 1


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("expired", "certificate has expired"),
        ("stranger", "unable to get local issuer|self-signed|certificate signature failure"),
    ],
)
async def test_a_certificate_that_is_not_believed_is_refused(
    files: NodeCertificates, tmp_path: Path, who: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    if who == "expired":
        own = ForeignTls(files, files.expired(2))
    else:
        other = NodeCertificates(tmp_path / "other")
        made = other.node(2)
        other.authority.write_bytes(files.authority.read_bytes())  # it believes this cluster
        own = other.tls(2, own=made)
    async with serving(files.tls(1)) as server, dialing(server, own) as connection:
        with pytest.raises(ConnectionLostError, match=r"alert|closed the stream"):
            await open_any(connection, "fetch", NODE)
        assert server.refused_count == 1
    assert re.search(f"listener inter.broker does not know who it is: .*({told})", caplog.text)


async def test_who_shows_no_certificate_is_refused(files: NodeCertificates, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context(cafile=str(files.authority))
    async with serving(files.tls(1)) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
        )
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await reader.readexactly(1)
        writer.close()
        assert server.refused_count == 1
    assert "peer did not return a certificate" in caplog.text


async def test_who_dials_looks_for_one_node(files: NodeCertificates, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(files.tls(1)) as server, dialing(server, files.tls(2), node_id=3) as connection:
        with pytest.raises(ConnectionLostError, match="replog://c/node/1 is there, and node 3 was looked for"):
            await connection.open_fetch(NODE)
    assert "does not reach the node at" in caplog.text


@pytest.mark.parametrize(
    ("own", "told"),
    [("client", "unsuitable|names no node|unsupported|wrong"), ("cluster", "a node of another cluster than")],
)
async def test_who_dials_believes_nodes_of_the_cluster_alone(files: NodeCertificates, own: str, told: str) -> None:
    other = ForeignTls(files, files.client() if own == "client" else files.node(1, "d"))
    async with serving(other) as server, dialing(server, files.tls(2)) as connection:
        with pytest.raises(ConnectionLostError, match=told):
            await connection.open_fetch(NODE)


async def test_in_plain_text_who_dials_looks_for_one_node_too() -> None:
    async with serving(None) as server, dialing(server, None, node_id=3) as connection:
        with pytest.raises(ConnectionLostError, match="node 1 is there, and node 3 was looked for"):
            await connection.open_fetch(NODE)


async def test_a_node_in_plain_text_is_refused_and_told(files: NodeCertificates) -> None:
    async with serving(files.tls(1)) as server, dialing(server, None) as connection:
        with pytest.raises(ReplogError, match="TLS"):
            await connection.open_fetch(NODE)
        assert server.refused_count == 1


async def test_a_node_over_tls_is_told_that_plain_text_is_spoken(files: NodeCertificates) -> None:
    async with serving(None) as server, dialing(server, files.tls(2)) as connection:
        with pytest.raises(
            ConnectionLostError, match=r"Does it speak TLS\? See .*inter.broker.accepted.protocols there"
        ):
            await connection.open_fetch(NODE)


async def test_both_are_heard_while_a_cluster_changes(files: NodeCertificates) -> None:
    """Goal: large messages, a slow reader and the end of a stream are as ever in plain text behind a door that speaks TLS."""
    async with serving(files.tls(1, accepts_plain=True)) as server:
        for tls in (None, files.tls(2, dials=False), files.tls(2)):
            async with dialing(server, tls) as connection:
                assert await connection.call(ASKED, timeout_ms=30_000) == ANSWERED
                stream = await connection.open_fetch(NODE)
                await stream.send(fetch(1, LARGE_BYTES))
                assert await stream.receive() == fetched(1, LARGE_BYTES)
                with pytest.raises(InconsistentClusterIdError):
                    await connection.open_fetch(Hello("d", 2, UUID(int=2)))
        assert server.refused_count == 0


async def test_who_comes_over_tls_proves_it_also_while_a_cluster_changes(files: NodeCertificates) -> None:
    async with serving(files.tls(1, accepts_plain=True)) as server, dialing(server, files.tls(3)) as connection:
        with pytest.raises(InvalidRequestError, match="the caller says that it is node 2"):
            await connection.open_fetch(NODE)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_reader_that_does_not_read_stops_the_writer(files: NodeCertificates, *, secure: bool) -> None:
    """Goal: what is encrypted and not read is seen, so that memory is bounded."""
    tls = (files.tls(1), files.tls(2)) if secure else (None, None)
    handlers = Handlers()
    async with serving(tls[0], handlers) as server, dialing(server, tls[1]) as connection:
        stream = await connection.open_fetch(NODE)
        for number in range(20):
            await stream.send(fetch(number, LARGE_BYTES))
        await quiet_for(0.5)  # nothing of these answers is received
        assert len(handlers.fetched) <= 5  # what the kernel holds of some, and no 20
        for number in range(20):
            assert await stream.receive() == fetched(number, LARGE_BYTES)


async def test_new_certificates_are_taken_while_streams_go_on(
    files: NodeCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    caplog.set_level(logging.INFO)
    own = tmp_path / "own.pem"
    own.write_bytes(files.node(1).read_bytes())
    async with serving(files.tls(1, own=own)) as server, dialing(server, files.tls(2)) as connection:
        stream = await connection.open_fetch(NODE)
        later = tmp_path / "later.pem"
        later.write_bytes(NodeCertificates(tmp_path / "other").node(1).read_bytes())
        later.replace(own)
        with pytest.raises(ConnectionLostError, match="not believed"):  # of another authority: it was read
            await connection.open_fetch(NODE)
        await stream.send(fetch(1, 300_000))
        assert await stream.receive() == fetched(1, 300_000)
        later.write_bytes(files.node(3).read_bytes())
        later.replace(own)
        with pytest.raises(ConnectionLostError, match="not believed"):  # another node's: the one before goes on
            await connection.open_fetch(NODE)
        later.write_bytes(files.node(1).read_bytes())
        later.replace(own)
        assert await connection.open_fetch(NODE)
    assert "its certificate names replog://c/node/3, and this is replog://c/node/1" in caplog.text


@pytest.mark.parametrize(("node_id", "named"), [(3, "replog://c/node/3"), (None, "no node")])
def test_a_node_does_not_start_with_the_certificate_of_another(
    files: NodeCertificates, node_id: int | None, named: str
) -> None:
    own = files.client() if node_id is None else files.node(node_id)
    with pytest.raises(ConfigError, match=f"its certificate names {named}, and this is replog://c/node/1: make one by"):
        files.tls(1, own=own)
