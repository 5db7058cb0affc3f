"""A connection with TLS or SASL: what is bounded, held back and renewed, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_server import METADATA, METADATA_KEY, WAIT_S, Peer, Request, ScriptedServer, answering, scripted, until

from replog.certs.authority import create_authority, issue
from replog.client import Security
from replog.client.protocol.connection import CallLinks
from replog.client.protocol.link import Link, open_link
from replog.client.protocol.secure_link import SecureLink, SecureWay
from replog.client.security.tls import tls_error
from replog.errors import (
    AuthenticationError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from replog.rpc.transport import ConnectionLostError
from replog.tcp.dialing import create_connection
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.quiet import quiet_for

HANDSHAKE, AUTHENTICATE = SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY
SERVED = {METADATA_KEY: 9, HANDSHAKE: 1, AUTHENTICATE: 2}
PLAIN = Security.plain("alice", "canary-password", insecure=True)
LARGE = MetadataRequest([MetadataRequest.MetadataRequestTopic(name="n" * 16_000)] * 3_000)
"""48 MB."""


async def opened(server: ScriptedServer, security: Security) -> SecureLink:
    way = SecureWay(security, create_connection)
    link = await open_link(server.endpoint._replace(connect=way.connect, make=way.make))
    assert isinstance(link, SecureLink)
    return link


class Door:
    """A script of a broker that asks for a login by PLAIN, and counts.

    Args:
        lifetime_ms: How long a login holds.
        refuses_from: The login from which on each is refused.
    """

    def __init__(self, lifetime_ms: int = 0, refuses_from: int = 1_000) -> None:
        self.lifetime_ms, self.refuses_from = lifetime_ms, refuses_from
        self.logins = 0
        self.order: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, peer: Peer, request: Request) -> None:
        self.order.append(request.key)
        if request.key == HANDSHAKE:
            peer.answer(request, SaslHandshakeResponse(0, ["PLAIN"]))
        elif request.key == AUTHENTICATE:
            assert request.frame.endswith(b"\0alice\0canary-password\0")
            self.logins += 1
            await self.may_answer.wait()
            is_refused = self.logins >= self.refuses_from
            peer.answer(
                request,
                SaslAuthenticateResponse(58 if is_refused else 0, "no" if is_refused else None, b"", self.lifetime_ms),
            )
        else:
            peer.answer(request, METADATA)


def ask(link: Link) -> asyncio.Future[memoryview]:
    return link.send(MetadataRequest(None), 9)


# ---- TLS -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    create_authority(folder)
    for name in ("node", "other"):
        issue(folder, name, "node")
    issue(folder, "client", "client")
    return folder


def server_context(certs: Path, name: str = "node", *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / f"{name}.pem")
    if asks:
        context.load_verify_locations(certs / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_what_a_broker_does_not_read_is_not_encrypted_ahead(certs: Path) -> None:
    """Goal: of 48 MB to a broker that does not read, less than one is in the buffers of TLS and below, and the rest arrives later.

    asyncio itself encrypts all of it at once, into a buffer that it does not count.
    """
    reads = asyncio.Event()

    async def opening(peer: Peer, request: Request) -> None:
        await server._tell(peer, request)
        await reads.wait()

    async with scripted(opening=opening, tls=server_context(certs)) as server:
        link = await opened(server, Security.tls(ca=str(certs / "ca.pem")))
        answered = link.send(LARGE, 9)
        drained = asyncio.ensure_future(link.drain())
        await quiet_for(0.2)
        assert not drained.done()
        assert _buffered_bytes(link) < 1 << 20
        reads.set()
        async with asyncio.timeout(WAIT_S):
            await drained
            assert MetadataResponse.read(_reader(await answered), 9).cluster_id == "c"
        assert len(server.requests[0].frame) > 48_000_000
        link.lose(ConnectionLostError("done"))
        await link.closed


async def test_a_connection_that_ends_while_much_waits_tells_whoever_drains(certs: Path) -> None:
    async def opening(peer: Peer, request: Request) -> None:
        await server._tell(peer, request)
        await asyncio.Event().wait()

    async with scripted(opening=opening, tls=server_context(certs)) as server:
        link = await opened(server, Security.tls(ca=str(certs / "ca.pem")))
        answered = link.send(LARGE, 9)
        drained = asyncio.ensure_future(link.drain())
        await quiet_for(0.05)
        link.lose(ConnectionLostError("given up"))
        async with asyncio.timeout(WAIT_S):
            await drained
            with pytest.raises(ConnectionLostError, match="given up"):
                await answered
            await link.closed


async def test_renewed_files_are_taken_by_the_next_connection(certs: Path, tmp_path: Path) -> None:
    """Goal: a certificate that is replaced needs no new client, and one that is half written changes nothing."""
    mine = tmp_path / "mine.pem"
    mine.write_bytes((certs / "client.pem").read_bytes())
    way = SecureWay(Security.tls(ca=str(certs / "ca.pem"), cert=str(mine)), create_connection)
    seen: list[Any] = []

    async def telling(peer: Peer, request: Request) -> None:
        seen.append(peer.writer.get_extra_info("peercert")["subject"][0][0][1])
        await answering(peer, request)

    async with scripted(telling, tls=server_context(certs, asks=True)) as server:
        for text in (None, b"half", (certs / "other.pem").read_bytes()):
            if text is not None:
                mine.write_bytes(text)
            link = await open_link(server.endpoint._replace(connect=way.connect, make=way.make))
            await ask(link)
            link.lose(ConnectionLostError("done"))
            await link.closed
    assert seen == ["client", "client", "other"]


async def test_the_handshake_is_bounded() -> None:
    """Goal: a broker that accepts and says nothing costs the time of an opening, and no connection stays."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()
        writer.close()

    ended = asyncio.Event()
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    way = SecureWay(Security.tls(), create_connection)
    async with scripted() as other, server:
        end = other.endpoint._replace(address=address, connect=way.connect, make=way.make, open_timeout_s=0.3)
        began_s = time.monotonic()
        with pytest.raises(ConnectionLostError, match=r"did not answer within 0\.3 s"):
            await open_link(end)
        assert time.monotonic() - began_s < WAIT_S / 4
        async with asyncio.timeout(WAIT_S):
            await ended.wait()


async def test_a_private_key_that_is_encrypted_is_asked_for_by_an_error(certs: Path, tmp_path: Path) -> None:
    """Goal: nobody is asked on the terminal, which may be a service's."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    from replog.errors import ConfigError

    key = load_pem_private_key((certs / "client.pem").read_bytes(), None)
    path = tmp_path / "client.key"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"canary-key")))
    cert = str(certs / "client.pem")
    SecureWay(Security.tls(cert=cert, key=str(path), key_password="canary-key"), create_connection)
    for password, text in ((None, "is encrypted: give key_password"), ("canary-wrong", "cannot be decrypted")):
        with pytest.raises(ConfigError, match=text) as raised:
            SecureWay(Security.tls(cert=cert, key=str(path), key_password=password), create_connection)
        assert "canary" not in str(raised.value)


REASONS = {
    "TLSV1_ALERT_INTERNAL_ERROR": None,
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": None,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "give cert and key",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "has expired: renew what cert names",
    "TLSV1_ALERT_PROTOCOL_VERSION": "share no version of TLS",
    "WRONG_VERSION_NUMBER": "does not speak TLS",
}


@pytest.mark.parametrize("reason", REASONS)
def test_only_what_stays_so_is_final(reason: str) -> None:
    """Goal: a broker that is being started, or bytes that were damaged, are no reason to give records up."""
    error = ssl.SSLError(1, reason)
    error.reason = reason
    found, text = tls_error("h:1", error, "h"), REASONS[reason]
    assert (found is None) is (text is None)
    assert text is None or text in str(found)
    assert tls_error("h:1", ssl.SSLEOFError(8, "EOF"), "h") is None


# ---- SASL ----------------------------------------------------------------------------------------------------------------


async def test_requests_wait_for_a_renewal_and_none_fails() -> None:
    """Goal: between the handshake and the end of a login nothing else is sent; what was asked before and meanwhile is answered."""
    door = Door(lifetime_ms=400)
    async with scripted(door, SERVED) as server:
        link = await opened(server, PLAIN)
        door.may_answer.clear()
        before = ask(link)
        await until(lambda: door.logins == 2)
        meanwhile = [ask(link) for _ in range(3)]
        unanswered = link.send(MetadataRequest(None), 9, is_answered=False)
        drained = asyncio.ensure_future(link.drain())
        await quiet_for(0.05)
        assert not drained.done()
        assert not any(each.done() for each in (*meanwhile, unanswered))
        door.may_answer.set()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(before, *meanwhile, drained)
            assert await unanswered == b""
        link.lose(ConnectionLostError("done"))
        await link.closed
    text = "".join({HANDSHAKE: "h", AUTHENTICATE: "a", METADATA_KEY: "m"}[key] for key in door.order)
    assert text.startswith("hamhammmm")


async def test_logins_go_on_being_renewed() -> None:
    door = Door(lifetime_ms=100)
    async with scripted(door, SERVED) as server:
        link = await opened(server, PLAIN)
        async with asyncio.timeout(WAIT_S):
            while door.logins < 5:
                await ask(link)
        assert server.opened == 1
        link.lose(ConnectionLostError("done"))
        await link.closed


async def test_a_renewal_that_is_refused_ends_the_connection_with_the_reason() -> None:
    door = Door(lifetime_ms=100, refuses_from=2)
    async with scripted(door, SERVED) as server:
        link = await opened(server, PLAIN)
        door.may_answer.clear()
        await until(lambda: door.logins == 2)
        answered = ask(link)
        door.may_answer.set()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(SaslAuthenticationError, match='user "alice" by PLAIN failed: no'):
                await answered
            await link.closed
        with pytest.raises(SaslAuthenticationError):
            ask(link)


async def test_a_connection_that_ends_during_a_renewal_fails_what_waits_and_leaves_no_task() -> None:
    door = Door(lifetime_ms=100)
    async with scripted(door, SERVED) as server:
        link = await opened(server, PLAIN)
        door.may_answer.clear()
        await until(lambda: door.logins == 2)
        answered = ask(link)
        server.cut()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionLostError):
                await answered
            await link.closed
        door.may_answer.set()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "replog-sasl-renewal"]


async def test_a_call_that_is_refused_is_refused_once() -> None:
    """Goal: one login for a call, and the reason as it is."""
    door = Door(refuses_from=1)
    async with scripted(door, SERVED) as server:
        way = SecureWay(PLAIN, create_connection)
        calls = CallLinks(server.endpoint._replace(connect=way.connect, make=way.make))
        with pytest.raises(SaslAuthenticationError, match="Check user and password"):
            await calls.call(_never, None, timeout_ms=5_000, cluster_id="")
        await calls.close()
    assert door.logins == 1


@pytest.mark.parametrize(
    ("served", "handshake", "error", "text"),
    [
        ({METADATA_KEY: 9}, None, AuthenticationError, "has no SASL at this listener"),
        (
            SERVED,
            SaslHandshakeResponse(33, ["GSSAPI"]),
            UnsupportedSaslMechanismError,
            "does not offer PLAIN; it offers GSSAPI",
        ),
        (SERVED, SaslHandshakeResponse(34, []), AuthenticationError, "has no SASL at this listener"),
        (SERVED, SaslHandshakeResponse(99, []), Exception, "error 99"),
    ],
)
async def test_a_broker_that_offers_another_login(
    served: dict[int, int], handshake: Any, error: type[Exception], text: str
) -> None:
    async def refusing(peer: Peer, request: Request) -> None:
        peer.answer(request, handshake)

    async with scripted(refusing, served) as server:
        with pytest.raises(error, match=text):
            await opened(server, PLAIN)


TOKENS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (lambda: 1 // 0, "token_provider raised ZeroDivisionError"),
    "none": (lambda: None, "returns no token but a NoneType"),
    "line": (lambda: "a\nb", "must be printable ASCII"),
    "empty": (lambda: "", "must be printable ASCII"),
    "large": (lambda: "x" * (1 << 20), "must be printable ASCII"),
}


@pytest.mark.parametrize("case", TOKENS)
async def test_what_is_no_token_is_not_sent(case: str) -> None:
    provider, text = TOKENS[case]
    sent = itertools.count()

    async def offering(peer: Peer, request: Request) -> None:
        if request.key == AUTHENTICATE:
            next(sent)
        peer.answer(request, SaslHandshakeResponse(0, ["OAUTHBEARER"]))

    async with scripted(offering, SERVED) as server:
        with pytest.raises(SaslAuthenticationError, match=text):
            await opened(server, Security.oauth(provider, insecure=True))
    assert next(sent) == 0


async def test_a_broker_that_never_comes_to_an_end_is_left() -> None:
    async def asking(peer: Peer, request: Request) -> None:
        is_handshake = request.key == HANDSHAKE
        peer.answer(request, SaslHandshakeResponse(0, []) if is_handshake else SaslAuthenticateResponse(0, None, b"{}"))

    async with scripted(asking, SERVED) as server:
        with pytest.raises(SaslAuthenticationError, match="does not come to an end in 4 steps"):
            await opened(server, Security.oauth(lambda: "token", insecure=True))
        assert len(server.requests) == 5


async def _never(*_: object) -> None:
    raise AssertionError("nobody has let this client in")


def _buffered_bytes(link: SecureLink) -> int:
    """What is encrypted and not sent, in asyncio's buffers: of TLS, and of the transport below, which it does not count."""
    assert link._paced is not None
    transport: Any = link._paced._transport
    return int(transport.get_write_buffer_size() + transport._ssl_protocol._transport.get_write_buffer_size())


def _reader(body: memoryview) -> Any:
    from replog.wire.primitives import Reader

    return Reader(body)
