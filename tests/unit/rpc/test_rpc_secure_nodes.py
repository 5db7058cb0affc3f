"""TLS between nodes, over gRPC and over TCP: what a node proves, who is refused, and that both sides are told why."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from rpc_handlers import ANSWERED, ASKED, Handlers, fetch, fetched

from replog.access.secret import Secret
from replog.broker.node.environment import PeerNetwork, peer_network
from replog.certs import authority
from replog.certs.authority import issue
from replog.config.server_keys import InterBrokerTransport
from replog.controller.requests import CreateTopics, CreateTopicsResponse
from replog.errors import ConfigError, InconsistentClusterIdError, InvalidRequestError, ReplogError
from replog.rpc.grpc import port
from replog.rpc.grpc.secure import caller_of
from replog.rpc.messages import Hello
from replog.rpc.node_tls import NodeTls
from replog.rpc.transport import ConnectionLostError, PeerConnection, Server
from replog.tcp import certificates
from replog.tcp.node_names import NodeName
from replog.tcp.port import bind as bind_port
from replog.tcp.tls_settings import TlsSettings
from replog_quorum.messages import QuorumError, VoteRequest, VoteResponse
from tests.envelopes import in_envelope
from tests.quiet import quiet_for
from tests.unit.rpc.node_certificates import ISSUED, NodeCertificates

NODE = Hello("c", 2, UUID(int=2))
LARGE_BYTES = 8_000_000
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> NodeCertificates:
    return NodeCertificates(tmp_path_factory.mktemp("nodes") / "certs")


@pytest.fixture(params=list(InterBrokerTransport), ids=lambda kind: kind.value)
def over(request: pytest.FixtureRequest) -> InterBrokerTransport:
    """What nodes meet over."""
    found: InterBrokerTransport = request.param
    return found


@contextlib.asynccontextmanager
async def serving(
    over: InterBrokerTransport, tls: NodeTls | None, handlers: Handlers | None = None
) -> AsyncIterator[Server]:
    """Node 1 of cluster c."""
    server = peer_network(over, tls).bind("127.0.0.1", 0)
    await server.start(handlers or Handlers())
    try:
        yield server
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def dialing(
    over: InterBrokerTransport, server: Server, tls: NodeTls | None, hello: Hello | None = NODE, node_id: int | None = 1
) -> AsyncIterator[PeerConnection]:
    address = f"127.0.0.1:{server.port}"
    connection = peer_network(over, tls).transport.connect(address, purpose="test", hello=hello, node_id=node_id)
    try:
        yield connection
    finally:
        await connection.close()


async def open_any(connection: PeerConnection, kind: str, hello: Hello) -> object:
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
                return await connection.controller_call(in_envelope(CreateTopics(())), timeout_ms=30_000)
            case _:
                return await connection.call(ASKED, timeout_ms=30_000)


KINDS = ("fetch", "vote", "presence", "registration", "call")
NAMING = [(over, kind) for over in InterBrokerTransport for kind in KINDS if (over.value, kind) != ("grpc", "call")]
"""What begins with a hello: over gRPC a call has none, and is one of whichever node the certificate names."""


def check_told(
    over: InterBrokerTransport, server: Server, told: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    """Checks that the node that was dialed says why a handshake failed: over gRPC only gRPC knows, and writes it to the error output."""
    if over is InterBrokerTransport.GRPC:
        assert re.search(f"Handshake failed .*({why})", told.readouterr().err)
        return
    assert server.refused_count == 1
    assert re.search(f"listener inter.broker does not know who it is: .*({why})", text)


async def test_nodes_speak_over_tls(over: InterBrokerTransport, files: NodeCertificates) -> None:
    async with serving(over, files.tls(1)) as server, dialing(over, server, files.tls(2)) as connection:
        assert await connection.call(ASKED, timeout_ms=30_000) == ANSWERED
        assert await connection.controller_call(
            in_envelope(CreateTopics(())), timeout_ms=30_000
        ) == CreateTopicsResponse(())
        stream = await connection.open_fetch(NODE)
        for number, size in enumerate((0, 300_000, LARGE_BYTES)):
            await stream.send(fetch(number, size))
            assert await stream.receive() == fetched(number, size)
        quorum = await connection.open_quorum(NODE)
        await quorum.send(VoteRequest(5, 1, 2, 3, 2, 10, True, UUID(int=2), None))  # noqa: FBT003 -- a pre-vote
        assert await quorum.receive() == VoteResponse(5, 1, QuorumError.NONE, None, 3, vote_granted=True)
        assert server.refused_count == 0


@pytest.mark.parametrize(("over", "kind"), NAMING)
async def test_a_certificate_of_another_node_is_refused(
    over: InterBrokerTransport, files: NodeCertificates, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(over, files.tls(1)) as server, dialing(over, server, files.tls(3)) as connection:
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
            patch.setattr("replog.rpc.node_tls._require_own", lambda *_, **__: None)
            made = files.tls(2, own=own)
        self.__dict__.update(made.__dict__)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_is_no_node(
    over: InterBrokerTransport, files: NodeCertificates, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(over, files.tls(1)) as server,
        dialing(over, server, ForeignTls(files, files.client())) as connection,
    ):
        with pytest.raises(InvalidRequestError, match="the certificate of User:CN=client names none"):
            await open_any(connection, kind, NODE)
        assert server.refused_count == 1
    assert "the certificate of User:CN=client names none" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_node_of_another_cluster_is_refused(
    over: InterBrokerTransport, files: NodeCertificates, kind: str
) -> None:
    """Its hello names this cluster: the certificate is what counts."""
    own = ForeignTls(files, files.node(2, "d"))
    async with serving(over, files.tls(1)) as server, dialing(over, server, own) as connection:
        with pytest.raises(InconsistentClusterIdError, match="the certificate is that of replog://d/node/2"):
            await open_any(connection, kind, NODE)
        assert server.refused_count == 1


@pytest.mark.parametrize(
    ("who", "why"),
    [
        ("expired", "certificate has expired"),
        ("stranger", "unable to get local issuer|self.signed|certificate signature failure"),
    ],
)
async def test_a_certificate_that_is_not_believed_is_refused(
    over: InterBrokerTransport,
    files: NodeCertificates,
    tmp_path: Path,
    who: str,
    why: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if who == "expired":
        own = ForeignTls(files, files.expired(2))
    else:
        other = NodeCertificates(tmp_path / "other")
        made = other.node(2)
        other.authority.write_bytes(files.authority.read_bytes())  # it believes this cluster
        own = other.tls(2, own=made)
    async with serving(over, files.tls(1)) as server, dialing(over, server, own) as connection:
        with pytest.raises(
            ConnectionLostError, match=r"alert|closed the stream|may not believe the certificate of this node"
        ):
            await open_any(connection, "fetch", NODE)
        check_told(over, server, capfd, caplog.text, why)


async def test_who_shows_no_certificate_is_refused(
    over: InterBrokerTransport,
    files: NodeCertificates,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    context = ssl.create_default_context(cafile=str(files.authority))
    context.set_alpn_protocols(["h2"])  # without it gRPC looks no further
    async with serving(over, files.tls(1)) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
        )
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        writer.close()
        check_told(over, server, capfd, caplog.text, "(?i:peer.did.not.return.a.certificate)")


async def test_who_dials_looks_for_one_node(
    over: InterBrokerTransport, files: NodeCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(over, files.tls(1)) as server, dialing(over, server, files.tls(2), node_id=3) as connection:
        with pytest.raises(ConnectionLostError, match=r"is there, and node 3 (of cluster c )?was looked for"):
            await connection.open_fetch(NODE)
    assert "does not reach the node at" in caplog.text


@pytest.mark.parametrize(
    ("own", "told"),
    [("client", "unsuitable|names no node|unsupported|wrong"), ("cluster", "of another cluster")],
)
async def test_who_dials_believes_nodes_of_the_cluster_alone(
    over: InterBrokerTransport, files: NodeCertificates, own: str, told: str
) -> None:
    other = ForeignTls(files, files.client() if own == "client" else files.node(1, "d"))
    async with serving(over, other) as server, dialing(over, server, files.tls(2)) as connection:
        with pytest.raises(ConnectionLostError, match=told):
            await connection.open_fetch(NODE)


async def test_in_plain_text_who_dials_looks_for_one_node_too(over: InterBrokerTransport) -> None:
    async with serving(over, None) as server, dialing(over, server, None, node_id=3) as connection:
        with pytest.raises(ConnectionLostError, match="node 1 is there, and node 3 was looked for"):
            await connection.open_fetch(NODE)


async def test_a_node_in_plain_text_is_refused_and_told(
    over: InterBrokerTransport,
    files: NodeCertificates,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with serving(over, files.tls(1)) as server, dialing(over, server, None) as connection:
        with pytest.raises(ReplogError, match="TLS"):
            await connection.open_fetch(NODE)
        check_told(over, server, capfd, caplog.text, "no TLS hello|WRONG_VERSION_NUMBER")


async def test_a_node_over_tls_is_told_that_plain_text_is_spoken(
    over: InterBrokerTransport, files: NodeCertificates
) -> None:
    async with serving(over, None) as server, dialing(over, server, files.tls(2)) as connection:
        with pytest.raises(
            ConnectionLostError, match=r"Does it speak TLS\? See .*inter.broker.accepted.protocols there"
        ):
            await connection.open_fetch(NODE)


async def test_both_are_heard_while_a_cluster_changes(over: InterBrokerTransport, files: NodeCertificates) -> None:
    """Goal: large messages, a slow reader and the end of a stream are as ever in plain text behind a door that speaks TLS."""
    async with serving(over, files.tls(1, accepts_plain=True)) as server:
        for tls in (None, files.tls(2, dials=False), files.tls(2)):
            async with dialing(over, server, tls) as connection:
                assert await connection.call(ASKED, timeout_ms=30_000) == ANSWERED
                stream = await connection.open_fetch(NODE)
                await stream.send(fetch(1, LARGE_BYTES))
                assert await stream.receive() == fetched(1, LARGE_BYTES)
                with pytest.raises(InconsistentClusterIdError):
                    await connection.open_fetch(Hello("d", 2, UUID(int=2)))
        assert server.refused_count == 0


async def test_who_comes_over_tls_proves_it_also_while_a_cluster_changes(
    over: InterBrokerTransport, files: NodeCertificates
) -> None:
    async with (
        serving(over, files.tls(1, accepts_plain=True)) as server,
        dialing(over, server, files.tls(3)) as connection,
    ):
        with pytest.raises(InvalidRequestError, match="the caller says that it is node 2"):
            await connection.open_fetch(NODE)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_reader_that_does_not_read_stops_the_writer(
    over: InterBrokerTransport, files: NodeCertificates, *, secure: bool
) -> None:
    """Goal: what is encrypted and not read is seen, so that memory is bounded."""
    tls = (files.tls(1), files.tls(2)) if secure else (None, None)
    handlers = Handlers()
    async with serving(over, tls[0], handlers) as server, dialing(over, server, tls[1]) as connection:
        stream = await connection.open_fetch(NODE)
        for number in range(20):
            await stream.send(fetch(number, LARGE_BYTES))
        await quiet_for(0.5)  # nothing of these answers is received
        assert (
            len(handlers.fetched) <= 8
        )  # the kernel holds four or five at both ends (tcp_rmem, tcp_wmem), each end some; not 20
        for number in range(20):
            assert await stream.receive() == fetched(number, LARGE_BYTES)


async def is_believed(over: InterBrokerTransport, server: Server, tls: NodeTls) -> bool | None:
    """Returns whether who dials a node believes it; None: it was not reached."""
    async with dialing(over, server, tls) as connection:
        try:
            await connection.open_fetch(NODE)
        except ConnectionLostError as error:
            return False if "not believed" in str(error) else None
        return True


async def until_it_is(
    over: InterBrokerTransport,
    server: Server,
    tls: NodeTls,
    *,
    believed: bool,
    also: Callable[[], bool] = lambda: True,
) -> None:
    """Returns when who dials a node believes it, or does not any more, and something else holds."""
    async with asyncio.timeout(TIMEOUT_S):
        while await is_believed(over, server, tls) is not believed or not also():
            await asyncio.sleep(0.02)


def caplog_has(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


async def test_new_certificates_are_taken_while_streams_go_on(
    over: InterBrokerTransport,
    files: NodeCertificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(port, "LOOK_EVERY_S", 0.02)
    caplog.set_level(logging.INFO)
    own = tmp_path / "own.pem"
    own.write_bytes(files.node(1).read_bytes())
    later = tmp_path / "later.pem"
    async with serving(over, files.tls(1, own=own)) as server, dialing(over, server, files.tls(2)) as connection:
        stream = await connection.open_fetch(NODE)
        # of another authority: it is read.  Another node's: the one before goes on
        refused = "its certificate names replog://c/node/3, and this is replog://c/node/1"
        for new in (NodeCertificates(tmp_path / "other").node(1), files.node(3), files.node(1)):
            later.write_bytes(new.read_bytes())
            later.replace(own)
            is_told = partial(caplog_has, caplog, refused if new == files.node(3) else "")
            await until_it_is(over, server, files.tls(2), believed=new == files.node(1), also=is_told)
            await stream.send(fetch(1, 300_000))
            assert await stream.receive() == fetched(1, 300_000)


async def test_who_dials_proves_what_its_file_says_now(
    over: InterBrokerTransport, files: NodeCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what is open goes on; what begins is as the file is."""
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    own, later = tmp_path / "own.pem", tmp_path / "later.pem"
    own.write_bytes(files.node(2).read_bytes())
    async with serving(over, files.tls(1)) as server, dialing(over, server, files.tls(2, own=own)) as connection:
        stream = await connection.open_fetch(NODE)
        later.write_bytes(NodeCertificates(tmp_path / "other").node(2).read_bytes())
        later.replace(own)
        with pytest.raises(ConnectionLostError, match=r"alert|closed the stream|may not believe"):
            await connection.open_fetch(NODE)
        await stream.send(fetch(1, 300_000))
        assert await stream.receive() == fetched(1, 300_000)
        later.write_bytes(files.node(2).read_bytes())
        later.replace(own)
        assert await connection.open_fetch(NODE)


async def test_over_grpc_new_certificates_are_taken_while_both_are_heard(
    files: NodeCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(port, "LOOK_EVERY_S", 0.02)
    own, later, over = tmp_path / "own.pem", tmp_path / "later.pem", InterBrokerTransport.GRPC
    own.write_bytes(files.node(1).read_bytes())
    async with serving(over, files.tls(1, own=own, accepts_plain=True)) as server, dialing(over, server, None) as plain:
        stream = await plain.open_fetch(NODE)
        later.write_bytes(NodeCertificates(tmp_path / "other").node(1).read_bytes())
        later.replace(own)
        await until_it_is(over, server, files.tls(2), believed=False)
        await stream.send(fetch(1))
        assert await stream.receive() == fetched(1)
        assert await plain.call(ASKED, timeout_ms=30_000) == ANSWERED


async def test_over_grpc_only_the_last_few_certificates_have_streams(
    files: NodeCertificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(port, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(port, "FORMER_MAX", 1)
    own, later, over = tmp_path / "own.pem", tmp_path / "later.pem", InterBrokerTransport.GRPC
    other = NodeCertificates(tmp_path / "other").node(1)
    own.write_bytes(files.node(1).read_bytes())
    async with serving(over, files.tls(1, own=own)) as server, dialing(over, server, files.tls(2)) as connection:
        stream = await connection.open_fetch(NODE)
        for new in (other, files.node(1)):
            later.write_bytes(new.read_bytes())
            later.replace(own)
            await until_it_is(over, server, files.tls(2), believed=new != other)
        with pytest.raises(ConnectionLostError):
            await stream.receive()
        assert await connection.open_fetch(NODE)


@pytest.mark.parametrize("accepts_plain", [False, True])
async def test_a_port_of_secure_nodes_is_taken_once(
    over: InterBrokerTransport, files: NodeCertificates, *, accepts_plain: bool
) -> None:
    """Goal: also over gRPC, whose servers share the port while certificates are renewed."""
    async with serving(over, files.tls(1)) as server:
        network = peer_network(over, files.tls(2, accepts_plain=accepts_plain))
        with pytest.raises(ConfigError, match=r"cannot listen at 127\.0\.0\.1:"):
            await serve_at(network, server.port)


def test_over_grpc_two_nodes_that_start_at_once_do_not_share_a_port() -> None:
    """Goal: neither listens yet, and the kernel would let both; ports of other addresses are others."""
    free = bind_port("127.0.0.1", 0)
    free.close()
    with (
        port._only_one("127.0.0.1", free.port),
        port._only_one("127.0.0.2", free.port),
        pytest.raises(ConfigError, match=rf"cannot listen at 127\.0\.0\.1:{free.port}"),
        port._only_one("127.0.0.1", free.port),
    ):
        pass
    with port._only_one("127.0.0.1", free.port):
        pass


async def serve_at(network: PeerNetwork, number: int) -> None:
    server = network.bind("127.0.0.1", number)
    try:
        await server.start(Handlers())
    finally:
        await server.stop(0)


class Called:
    """What gRPC tells of a call whose caller has shown a certificate."""

    def __init__(self, certificate: Path) -> None:
        _, _, behind = certificate.read_text(encoding="ascii").partition("-----END PRIVATE KEY-----\n")
        self._certificate = behind.partition("-----END")[0] + "-----END CERTIFICATE-----\n"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._certificate.encode()]}


def test_over_grpc_a_certificate_that_runs_out_meanwhile_is_refused(files: NodeCertificates) -> None:
    """Goal: gRPC takes sessions up again without a look at the certificate."""
    ends = ISSUED + dt.timedelta(days=1)
    called = Called(files.expired(2))
    assert caller_of(called, ends).name == "replog://c/node/2"
    with pytest.raises(InvalidRequestError, match=r"certificate has expired \(2020-01-02 00:00:00 UTC\)"):
        caller_of(called, ends + dt.timedelta(seconds=1))


def test_over_grpc_a_certificate_has_the_names_by_which_nodes_are_found(files: NodeCertificates) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authority, "hosts_of_node", lambda _: ())
        issue(files.folder, "older", "node", node=NodeName("c", 5))
    settings = TlsSettings(str(files.folder / "older.pem"), str(files.authority))
    NodeTls(NodeName("c", 5), settings, dials=True, accepts_plain=False)  # over TCP
    with pytest.raises(
        ConfigError, match=r"not for the host node-5.63.replog.internal nor for node.63.replog.internal"
    ):
        NodeTls(NodeName("c", 5), settings, dials=True, accepts_plain=False, is_over_grpc=True)


def test_over_grpc_the_key_of_a_node_has_no_password(files: NodeCertificates, tmp_path: Path) -> None:
    """Trap: gRPC takes none, and the start failed as if another process had the port."""
    pem = files.node(1).read_bytes()
    key = load_pem_private_key(pem, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    own = tmp_path / "node.pem"
    own.write_bytes(key + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    own.chmod(0o600)
    settings = TlsSettings(str(own), str(files.authority), key_password=Secret("secret"))
    NodeTls(NodeName("c", 1), settings, dials=True, accepts_plain=False)  # over TCP
    with pytest.raises(ConfigError, match=r"has a password, and gRPC takes none.*set inter\.broker\.transport to tcp"):
        NodeTls(NodeName("c", 1), settings, dials=True, accepts_plain=False, is_over_grpc=True)


@pytest.mark.parametrize(("node_id", "named"), [(3, "replog://c/node/3"), (None, "no node")])
def test_a_node_does_not_start_with_the_certificate_of_another(
    files: NodeCertificates, node_id: int | None, named: str
) -> None:
    own = files.client() if node_id is None else files.node(node_id)
    with pytest.raises(ConfigError, match=f"its certificate names {named}, and this is replog://c/node/1: make one by"):
        files.tls(1, own=own)
