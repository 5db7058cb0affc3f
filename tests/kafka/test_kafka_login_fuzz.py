"""Whatever comes to listeners with TLS and logins: nobody is let in who proves nothing, the node goes on, and little is logged and kept.

Logins in every order, of every mechanism, with messages that are nearly right; hellos of TLS that are nearly right; requests behind a
login.  `REPLOG_LOGIN_FUZZ=20000` tries that many conversations, new ones every time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import RSAKey
from secure_doors import AUDIENCE, PASSWORD, USER, SecureDoors, replog_doors
from test_kafka_port_fuzz import mutated as mutated_request
from test_kafka_port_fuzz import valid as valid_request

from replog.client import SyncAdmin
from replog.tcp.listener import ListenerLimits
from replog.wire.messages.api_versions import ApiVersionsRequest
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.metadata import MetadataRequest
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest
from replog.wire.primitives import Writer

EXAMPLES = int(os.environ.get("REPLOG_LOGIN_FUZZ", "60"))
IS_LONG = "REPLOG_LOGIN_FUZZ" in os.environ
GROWTH_MAX_BYTES = 64 << 20
"""What the node may have more after all of it than in the middle."""

PATIENCE_S = 0.08
"""How long an answer may take; one that refuses a login comes 20 ms late."""

SECRET_REQUEST: Final = 0x5EC12E7
"""The correlation id of requests that nobody is answered who has not logged in."""

LOGIN_REQUEST: Final = 0x10611

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*SCRAM, "PLAIN", "OAUTHBEARER")
NONCE = b"%NONCE%"
"""Stands for the nonce that the broker has told last."""


@dataclass(frozen=True)
class Step:
    """What is sent: bytes, with the broker's nonce put in."""

    frame: bytes

    def bytes_after(self, answer: bytes) -> bytes:
        """The bytes behind an answer of the broker."""
        if NONCE not in self.frame:
            return self.frame
        nonce = answer.partition(b"r=")[2].partition(b",")[0] or b"none"
        put_in = self.frame[4:].replace(NONCE, nonce.ljust(len(NONCE))[:200])
        return struct.pack(">i", len(put_in)) + put_in


def framed(request: Any, version: int, correlation_id: int = LOGIN_REQUEST) -> bytes:
    writer = Writer()
    RequestHeader(request.API_KEY, version, correlation_id, "fuzz").write(
        writer, 2 if version >= request.FLEXIBLE_FROM else 1
    )
    request.write(writer, version)
    body = writer.joined()
    return struct.pack(">i", len(body)) + body


# ---- messages of mechanisms, all of them wrong ------------------------------------------------------------------------------

words = st.one_of(
    st.sampled_from(["", USER, "nobody", "=2C", "=", ",", "\0", "ü" * 50, "x" * 70_000]), st.text(max_size=40)
)


@st.composite
def plain(draw: st.DrawFn) -> bytes:
    separator = draw(st.sampled_from(["\0", "\0", "\0\0", "", ","]))
    parts = [
        draw(words),
        draw(words),
        draw(st.sampled_from(["wrong", "", PASSWORD[:-1], PASSWORD.upper(), "x" * 5_000])),
    ]
    return separator.join(parts[: draw(st.integers(1, 3))]).encode(errors="surrogatepass")


@st.composite
def scram(draw: st.DrawFn) -> bytes:
    binding = draw(st.sampled_from(["n,,", "y,,", "p=tls-unique,,", "n,a=other,", "n", "", ",,", "n,,,"]))
    name = draw(st.sampled_from([f"n={USER}", "n=", "m=x,n=a", "n=a=2Cb", "n=a=b", "n=" + "u" * 60_000]))
    nonce = draw(
        st.sampled_from(["r=abc", "r=", "r=a,b", "r=" + "x" * 30_000, "r=abc,tokenauth=true", "r=abc,k=v,k=v", "R=abc"])
    )
    first = f"{binding}{name},{nonce}".encode()
    proof = base64.b64encode(draw(st.binary(max_size=100)))
    channel = draw(st.sampled_from([b"c=biws", b"c=eSws", b"c=", b"c=!!", b""]))
    final = channel + b",r=" + draw(st.sampled_from([NONCE, b"abc", b""])) + b",p=" + proof
    return draw(st.sampled_from([first, first, final, final, b"", f"n,,n={USER},r=abcdef".encode()]))


@st.composite
def bearer(draw: st.DrawFn) -> bytes:
    token = draw(st.sampled_from(TOKENS))
    return draw(
        st.sampled_from(
            [
                f"n,,\x01auth=Bearer {token}\x01\x01",
                f"n,a={USER},\x01auth=Bearer {token}\x01\x01",
                f"n,,\x01auth=bearer  {token}\x01",
                f"n,,\x01auth={token}\x01\x01",
                f"n,,\x01host=h\x01auth=Bearer {token}\x01x=y\x01\x01",
                f"{token}",
                "\x01",
            ]
        )
    ).encode()


def _json(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


TOKENS: list[str] = [
    "",
    "a",
    "a.b",
    "a.b.c",
    "..",
    "a.b.c.d.e",
    "." * 20_000,
    "x" * 60_000,
    f"{_json([[[]]])}.{_json({})}.AA",
]
"""Tokens that nobody may believe; those with a signature are added when there is a key."""

WRONG_CLAIMS: tuple[dict[str, Any], ...] = (
    {"sub": USER},
    {"sub": USER, "aud": AUDIENCE},
    {"sub": USER, "aud": "others", "exp": 1 << 33},
    {"sub": USER, "aud": AUDIENCE, "exp": 1},
    {"sub": USER, "aud": AUDIENCE, "exp": "soon"},
    {"sub": USER, "aud": AUDIENCE, "exp": 1 << 33, "nbf": 1 << 33},
    {"sub": [USER], "aud": AUDIENCE, "exp": 1 << 33},
    {"sub": "", "aud": AUDIENCE, "exp": 1 << 33},
    {"sub": {"a": {"b": USER}}, "aud": AUDIENCE, "exp": 1 << 33},
    {"sub": 7, "aud": AUDIENCE, "exp": 1 << 33},
    {"sub": USER, "aud": {"a": AUDIENCE}, "exp": 1 << 33},
    {"sub": USER, "aud": None, "exp": 1 << 33},
)


def wrong_tokens(certs: Path) -> list[str]:
    """Tokens that the right key has signed and whose claims are wrong, and such as no key or another one has signed."""
    right = RSAKey.import_key((certs / "tokens.pem").read_bytes())
    other = RSAKey.generate_key(2048)
    claims = {"sub": USER, "aud": AUDIENCE, "exp": int(time.time()) + 3600}
    signed = [jwt.encode({"alg": "RS256"}, each, right) for each in WRONG_CLAIMS]
    head, body, signature = jwt.encode({"alg": "RS256"}, claims, right).split(".")
    forged = [
        jwt.encode({"alg": "RS256"}, claims, other),
        f"{_json({'alg': 'none'})}.{body}.",
        f"{_json({'alg': 'None'})}.{body}.{signature}",
        f"{_json({'alg': 'HS256'})}.{body}.{signature}",
        f"{_json({'alg': 'RS256', 'kid': 'x', 'crit': ['b64'], 'b64': False})}.{body}.{signature}",
        f"{head}.{_json({**claims, 'sub': 'admin'})}.{signature}",
        f"{head}.{body}.{signature[:-4]}",
        f"{head}.{body}.",
    ]
    return signed + forged


# ---- conversations -------------------------------------------------------------------------------------------------------


@st.composite
def login_step(draw: st.DrawFn) -> Step:
    kind = draw(
        st.sampled_from(["versions", "handshake", "handshake", "message", "message", "message", "asks", "bare"])
    )
    match kind:
        case "versions":
            request = ApiVersionsRequest(draw(st.text(max_size=20)), "1")
            return Step(framed(request, draw(st.integers(0, 4))))
        case "handshake":
            name = draw(
                st.one_of(st.sampled_from(MECHANISMS), st.sampled_from(["GSSAPI", "", "plain"]), st.text(max_size=300))
            )
            return Step(framed(SaslHandshakeRequest(name), draw(st.sampled_from([1, 1, 1, 0]))))
        case "asks":
            return Step(framed(MetadataRequest([]), draw(st.integers(4, 12)), SECRET_REQUEST))
    data = draw(st.one_of(plain(), scram(), scram(), bearer(), st.binary(max_size=200)))
    if kind == "bare":  # as messages were before they had headers
        return Step(struct.pack(">i", len(data)) + data)
    return Step(framed(SaslAuthenticateRequest(data), draw(st.integers(0, 2))))


@st.composite
def mutated(draw: st.DrawFn) -> Step:
    """A step that is cut, or has some other bytes, more or fewer of them, with its size corrected or not."""
    data = bytearray(draw(login_step()).frame.ljust(5))
    match draw(st.sampled_from(["cut", "other", "more", "fewer", "size"])):
        case "cut":
            del data[draw(st.integers(0, len(data))) :]
        case "other":
            for at, byte in draw(st.lists(st.tuples(st.integers(4, len(data) - 1), st.integers(0, 255)), max_size=4)):
                data[at] = byte
        case "more":
            at = draw(st.integers(4, len(data)))
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        case "fewer":
            at = draw(st.integers(4, len(data)))
            del data[at : at + draw(st.integers(1, 8))]
        case _:
            data[:4] = struct.pack(">i", draw(st.sampled_from([-1, 0, 1, 7, 8, 65_537, 1 << 30, -(1 << 31)])))
            return Step(bytes(data))
    if len(data) >= 4 and draw(st.booleans()):
        data[:4] = struct.pack(">i", len(data) - 4)
    return Step(bytes(data))


def is_another(step: Step) -> bool:
    """Whether the question that strangers ask has become one that they may ask, such as ApiVersions."""
    key, _, correlation_id = struct.unpack_from(">hhi", step.frame.ljust(12), 4)
    return correlation_id == SECRET_REQUEST and key != MetadataRequest.API_KEY


stranger = st.lists(st.one_of(login_step(), login_step(), mutated()), min_size=1, max_size=8)

LOGGED_IN: Sequence[Step] = (
    Step(framed(SaslHandshakeRequest("PLAIN"), 1)),
    Step(framed(SaslAuthenticateRequest(f"\0{USER}\0{PASSWORD}".encode()), 2)),
)


@st.composite
def known(draw: st.DrawFn) -> list[Step]:
    """A login that is right, and what comes to mind behind it: requests, and logins anew."""
    behind = st.one_of(valid_request().map(Step), mutated_request().map(Step), login_step(), mutated())
    return [*LOGGED_IN, *draw(st.lists(behind, max_size=4))]


@st.composite
def hello(draw: st.DrawFn) -> bytes:
    """A hello of TLS that is cut, changed, doubled, or with other records behind it."""
    data = bytearray(HELLO)
    for at, byte in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=6)):
        data[at] = byte
    ends = draw(st.sampled_from([len(data), len(data), 5, 9, len(data) // 2]))
    record = bytes([draw(st.sampled_from([20, 21, 22, 23, 24, 255])), 3, draw(st.integers(0, 4))])
    body = draw(st.binary(max_size=300))
    behind = record + struct.pack(">H", draw(st.sampled_from([len(body), 0, 1 << 14, 65_535]))) + body
    return bytes(data[:ends]) + behind * draw(st.integers(0, 3))


def _hello() -> bytes:
    """What a client says first."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO: Final = _hello()


# ---- the node ------------------------------------------------------------------------------------------------------------


class Fuzzed:
    """A node with listeners of each kind.

    Attributes:
        doors: The listeners.
        process: The process.
        log: The file of its log.
    """

    def __init__(self, doors: SecureDoors, folder: Path) -> None:
        self.doors = doors
        self.log = folder / "cluster" / "node-1" / "server.log"
        (self.process,) = (
            each
            for each in psutil.process_iter(["cmdline"])
            if str(self.log.with_name("server.toml")) in (each.info["cmdline"] or [])
        )
        self._context = ssl.create_default_context(cafile=str(doors.certs / "ca.pem"))
        self._seen: list[int] = []

    def talk(self, door: str, steps: Sequence[Step]) -> list[bytes]:
        """Says all steps over one connection; returns the answers, without their sizes."""
        answers: list[bytes] = []
        with contextlib.suppress(OSError, EOFError), self._connected(door) as connection:  # SSLError is an OSError
            for step in steps:
                connection.sendall(step.bytes_after(answers[-1] if answers else b""))
                with contextlib.suppress(TimeoutError):
                    answers.append(_frame(connection))
            while True:  # until nothing comes any more
                answers.append(_frame(connection))
        return answers

    def throw(self, door: str, data: bytes) -> None:
        """Sends bytes below TLS."""
        with socket.create_connection(("127.0.0.1", self.doors.ports[door]), timeout=30) as thrown:
            thrown.settimeout(PATIENCE_S)
            with contextlib.suppress(OSError):
                thrown.sendall(data)
                while thrown.recv(1 << 16):
                    pass

    def _connected(self, door: str) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.doors.ports[door]), timeout=30)
        if door == "SASL_PLAINTEXT":
            plain.settimeout(PATIENCE_S)
            return plain
        encrypted = self._context.wrap_socket(plain, server_hostname="localhost")
        encrypted.settimeout(PATIENCE_S)
        return encrypted

    def goes_on(self) -> None:
        """Notes what memory it has; serves others meanwhile, now and then."""
        assert self.process.is_running()
        self._seen.append(self.process.memory_info().rss)
        if len(self._seen) % 50 == 0:
            self.serves()

    def serves(self) -> None:
        """Fails where who is known is not let in."""
        with SyncAdmin(self.doors.at("SASL_SSL"), security=self.doors.scram()) as admin:
            admin.list_topics()

    def check(self) -> None:
        """Fails where it has grown, or complains of more than those who came."""
        self.serves()
        assert self._seen[-1] - self._seen[len(self._seen) // 2] < GROWTH_MAX_BYTES
        self._seen.clear()
        lines = self.log.read_text().splitlines()
        assert [line for line in lines if "Traceback" in line or " ERROR " in line] == []
        assert not [line for line in lines if PASSWORD in line]


def _frame(connection: socket.socket) -> bytes:
    return _take(connection, struct.unpack(">i", _take(connection, 4))[0])


def _take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """A node of its own: nobody else's complaints are in its log."""
    folder = tmp_path_factory.mktemp("fuzzed-logins")
    with replog_doors(folder) as doors:
        TOKENS.extend(wrong_tokens(doors.certs))
        yield Fuzzed(doors, folder)


fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=not IS_LONG,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("door", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_nobody_is_let_in_who_proves_nothing(fuzzed: Fuzzed, door: str) -> None:
    @fuzz
    @given(stranger)
    def go_on(steps: list[Step]) -> None:
        ids = [struct.unpack_from(">i", answer)[0] for answer in fuzzed.talk(door, steps) if len(answer) >= 4]
        assert SECRET_REQUEST not in ids or any(map(is_another, steps)), steps
        fuzzed.goes_on()

    go_on()
    fuzzed.check()


def test_the_question_that_strangers_ask_is_answered_to_who_is_known(fuzzed: Fuzzed) -> None:
    """Otherwise the test above could not fail."""
    asked = Step(framed(MetadataRequest([]), 12, SECRET_REQUEST))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # a slow machine answers later than conversations wait for
        answers = fuzzed.talk("SASL_SSL", [*LOGGED_IN, asked])
        if SECRET_REQUEST in [struct.unpack_from(">i", answer)[0] for answer in answers]:
            return
    pytest.fail("nobody is answered")


def test_whatever_comes_behind_a_login(fuzzed: Fuzzed) -> None:
    @fuzz
    @given(known())
    def go_on(steps: list[Step]) -> None:
        fuzzed.talk("RENEWED", steps)
        fuzzed.goes_on()

    go_on()
    fuzzed.check()


@pytest.mark.parametrize("door", ["SSL", "MTLS", "SASL_SSL"])
def test_whatever_hello_comes(fuzzed: Fuzzed, door: str) -> None:
    @fuzz
    @given(hello())
    def go_on(data: bytes) -> None:
        fuzzed.throw(door, data)
        fuzzed.goes_on()

    go_on()
    fuzzed.check()


STRANGERS = 2_000
ELSEWHERE = ("127.0.0.2", 0)
"""Where they come from: another address than that of who is known."""


@pytest.mark.parametrize("said", [b"", HELLO[:100]], ids=["nothing", "half a hello"])
def test_two_thousand_strangers_hold_no_more_than_the_page_says(fuzzed: Fuzzed, said: bytes) -> None:
    """Goal: from one address 500 at a time, and who is known is served meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3 * STRANGERS)), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        address = ("127.0.0.1", fuzzed.doors.ports["SASL_SSL"])
        for _ in range(STRANGERS):
            with contextlib.suppress(ConnectionError):  # the node has ended it before it said something
                stack.enter_context(socket.create_connection(address, 30, ELSEWHERE)).sendall(said)
        fuzzed.serves()
        assert len(_strangers(fuzzed)) <= ListenerLimits().unknown_max // 2
    fuzzed.goes_on()
    fuzzed.check()


def _strangers(fuzzed: Fuzzed) -> list[Any]:
    """The connections of strangers that the node has."""
    found = fuzzed.process.net_connections("tcp")
    return [each for each in found if each.raddr and each.raddr.ip == ELSEWHERE[0] and each.status == "ESTABLISHED"]
