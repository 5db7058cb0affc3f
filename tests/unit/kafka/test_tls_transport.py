"""TLS over bytes in memory: what is held, what is told of it, and how long one turn takes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from replog.access.principal import ANONYMOUS, Principal
from replog.tcp import tls
from replog.tcp.certificates import GROUP, Certificates
from replog.tcp.tls import (
    HANDSHAKES_PER_TURN,
    HANDSHAKES_TURN_S,
    PIECE_BYTES,
    TURN_BYTES,
    UNREAD_BYTES_MAX,
    TlsTransport,
    TlsTurns,
)
from replog.tcp.tls_settings import ClientAuth, TlsSettings
from tests.unit.kafka.tls_kit import TlsFiles

FULL_BYTES = 64 << 10
"""From where on a transport says that it is full, as `asyncio`'s do."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


class Below(asyncio.Transport):
    """The kernel's side: what was written, of which a test takes as much as it wants."""

    def __init__(self, *, takes_all: bool = True) -> None:
        super().__init__()
        self.takes_all = takes_all
        self.held = bytearray()
        self.sent = bytearray()
        self.user: Any = None
        self.is_aborted = self.is_closed = False
        self.is_read = True

    def write(self, data: Any) -> None:
        (self.sent if self.takes_all else self.held).extend(data)
        if len(self.held) > FULL_BYTES:
            self.user.pause_writing()

    def take(self) -> None:
        """Takes what is held."""
        self.sent += self.held
        self.held.clear()
        self.user.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class User(asyncio.BufferedProtocol):
    """Who is served: keeps what it hears."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.told: list[object] = []
        self.on_bytes: Callable[[], None] = lambda: None
        self._buffer = bytearray(1_000)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def identify(self, principal: Principal) -> None:
        self.told.append(principal)

    def refuse_identity(self, reason: str) -> None:
        self.told.append(reason)
        self.transport.abort()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self._buffer[:nbytes]
        self.on_bytes()

    def pause_writing(self) -> None:
        self.told.append("full")

    def resume_writing(self) -> None:
        self.told.append("free")

    def eof_received(self) -> bool:
        self.told.append("end")
        return False


class Pair:
    """A client's TLS in memory, and a server's connection."""

    def __init__(
        self,
        files: TlsFiles,
        own: Path | None = None,
        auth: ClientAuth = ClientAuth.NONE,
        turns: TlsTurns | None = None,
    ) -> None:
        settings = TlsSettings(str(files.broker), str(files.authority.path), auth)
        self.user, self.below = User(), Below()
        self.server = TlsTransport(self.user, Certificates(settings, "SSL"), turns or TlsTurns(clock=lambda: 0.0))
        self.below.user = self.server
        self.server.connection_made(self.below)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = files.context(own)
        context.set_ecdh_curve(GROUP)  # or the server would ask for it first, in one more flight
        self.client = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._taken = 0

    def feed(self, data: bytes) -> None:
        """Bytes that come to the server, as many at a time as a receive gives."""
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self.server.get_buffer(-1)[: len(piece)] = piece
            self.server.buffer_updated(len(piece))

    def exchange(self) -> None:
        """Takes the server's bytes to the client, and the client's to the server."""
        self._in.write(bytes(self.below.sent[self._taken :]))
        self._taken = len(self.below.sent)
        self.feed(self._out.read())

    def shake_hands(self) -> None:
        for _ in range(4):
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.exchange()
        self.exchange()

    def received(self) -> bytes:
        """What the client reads, to the end of what has come."""
        self.exchange()
        found = bytearray()
        while True:
            try:
                if not (piece := self.client.read(1 << 20)):
                    break
            except ssl.SSLWantReadError:
                break
            found += piece
        return bytes(found)


async def test_bytes_go_both_ways_and_the_end_is_told(files: TlsFiles) -> None:
    pair = Pair(files, files.client, ClientAuth.REQUIRED)
    pair.shake_hands()
    assert pair.user.told == [Principal("CN=billing,O=Example")]
    pair.client.write(b"question" * 1_000)
    pair.exchange()
    assert pair.user.heard == b"question" * 1_000
    pair.server.write(b"an")
    pair.server.write(memoryview(bytearray(b"swer")))
    pair.server.close()
    assert pair.received() == b"answer"
    assert pair.below.is_closed
    assert pair.client.read(1, bytearray(1)) == 0, "the goodbye: nobody has cut the answer"


async def test_a_clients_goodbye_is_the_end(files: TlsFiles) -> None:
    pair = Pair(files)
    pair.shake_hands()
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.exchange()
    assert pair.user.told == [ANONYMOUS, "end"]
    assert pair.below.is_closed


async def test_what_is_not_read_is_counted_and_stays_unencrypted(files: TlsFiles) -> None:
    """Goal: the limits of unread answers hold over TLS, too."""
    pair = Pair(files)
    pair.shake_hands()
    pair.below.takes_all = False
    pair.server.write(memoryview(bytes(60 << 20)))
    assert pair.user.told == [ANONYMOUS, "full"]
    assert len(pair.below.held) < 2 * (FULL_BYTES + PIECE_BYTES)
    assert pair.server.get_write_buffer_size() > (60 << 20) - PIECE_BYTES
    for _ in range(3):
        before = pair.server.get_write_buffer_size()
        pair.below.take()
        assert FULL_BYTES <= before - pair.server.get_write_buffer_size() < 3 * (FULL_BYTES + PIECE_BYTES)
    assert pair.user.told == [ANONYMOUS, "full"]
    pair.server.abort()
    assert (pair.server.get_write_buffer_size(), pair.below.is_aborted) == (len(pair.below.held), True)


async def test_a_large_answer_is_encrypted_in_turns(files: TlsFiles) -> None:
    """Goal: no answer holds the loop, whatever its size, even if the kernel takes all of it."""
    pair = Pair(files)
    pair.shake_hands()
    before, answer = len(pair.below.sent), bytes(range(256)) * (5 << 12)
    pair.server.write(answer)
    pair.server.close()
    turns = 0
    while not pair.below.is_closed:
        encrypted = len(pair.below.sent) - before - turns * TURN_BYTES
        assert encrypted < TURN_BYTES + 2 * PIECE_BYTES, "as much as one turn may have"
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(answer) // (TURN_BYTES + PIECE_BYTES)
    assert pair.received() == answer


async def test_who_may_write_again_hears_so(files: TlsFiles) -> None:
    pair = Pair(files)
    pair.shake_hands()
    pair.below.takes_all = False
    pair.server.write(bytes(3 * PIECE_BYTES))
    while pair.below.held:
        pair.below.take()
    assert pair.user.told == [ANONYMOUS, "full", "free"]
    assert len(pair.received()) == 3 * PIECE_BYTES


async def test_bytes_that_came_before_a_pause_come_after_it(files: TlsFiles) -> None:
    pair = Pair(files)
    pair.shake_hands()
    pair.user.on_bytes = pair.server.pause_reading
    pair.client.write(bytes(5_000))
    pair.exchange()
    for count in range(1, 6):
        assert (len(pair.user.heard), pair.below.is_read) == (1_000 * count, False)
        pair.server.resume_reading()
        await asyncio.sleep(0)
    assert pair.below.is_read, "nothing was left"


async def test_what_waits_for_the_kernel_beside_answers_has_a_bound(files: TlsFiles) -> None:
    """Example: replies to messages of TLS itself, which asks for new keys again and again."""
    pair = Pair(files)
    pair.shake_hands()
    pair.below.takes_all = False
    pair.below.held += bytes(UNREAD_BYTES_MAX + 1)
    pair.client.write(b"x")
    pair.exchange()
    assert pair.below.is_aborted


async def test_a_pause_before_the_client_is_known_stops_its_bytes(files: TlsFiles) -> None:
    """Else they would be kept without a bound."""
    pair = Pair(files)
    pair.server.pause_reading()
    assert not pair.below.is_read
    pair.server.resume_reading()
    pair.shake_hands()
    assert (pair.below.is_read, pair.user.told) == (True, [ANONYMOUS])


async def test_a_user_may_pause_and_go_on_within_its_bytes(files: TlsFiles) -> None:
    pair = Pair(files)
    pair.shake_hands()

    def pause_and_go_on() -> None:
        pair.server.pause_reading()
        pair.server.resume_reading()

    pair.user.on_bytes = pause_and_go_on
    pair.client.write(bytes(5_000))
    pair.exchange()
    assert len(pair.user.heard) == 5_000


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no TLS hello"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", "the TLS handshake failed"),
        (b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(17_000), "the TLS handshake failed"),
        (b"\x16\x00\x00\x00\x00\x00", "the TLS handshake failed"),
    ],
)
async def test_what_is_no_hello_ends_the_connection(files: TlsFiles, first: bytes, reason: str) -> None:
    pair = Pair(files)
    pair.feed(first)
    (told,) = pair.user.told
    assert reason in str(told)
    assert pair.below.is_aborted
    pair.feed(b"\x16\x03\x01")  # what was on its way is not looked at
    assert len(pair.user.told) == 1


async def test_a_client_in_plain_text_is_answered_by_an_alert(files: TlsFiles) -> None:
    pair = Pair(files)
    pair.feed(b"\0\0\0\x10\0\x12\0\0")
    assert bytes(pair.below.sent) == b"\x15\x03\x03\0\x02\x02\x0a"


async def test_a_long_hello_is_not_waited_for(files: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Example: a chain of certificates without an end, each message within what OpenSSL takes."""
    monkeypatch.setattr(tls, "HANDSHAKE_BYTES_MAX", 20_000)
    pair = Pair(files)
    pair.feed(b"\x16\x03\x01\x40\x00\x01\x01\x00\x00" + bytes(16_380))
    assert not pair.user.told
    pair.feed(b"\x16\x03\x01\x40\x00" + bytes(16_000))
    assert pair.user.told == ["its handshake has more than 20000 bytes"]


async def test_a_trickled_handshake_is_one(files: TlsFiles) -> None:
    pair = Pair(files)
    feed = pair.feed
    pair.feed = lambda data: [feed(data[at : at + 1]) for at in range(len(data))]  # type: ignore[method-assign, assignment, return-value]
    for _ in range(3):
        with contextlib.suppress(ssl.SSLWantReadError):
            pair.client.do_handshake()
        pair.exchange()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert pair.user.told == [ANONYMOUS]


async def test_handshakes_of_many_are_spread_over_turns(files: TlsFiles) -> None:
    """Goal: who connects again at once after a restart, a thousand clients, does not hold the loop."""
    turns = TlsTurns(clock=lambda: 0.0)
    pairs = [Pair(files, turns=turns) for _ in range(5 * HANDSHAKES_PER_TURN)]
    for pair in pairs:
        with contextlib.suppress(ssl.SSLWantReadError):
            pair.client.do_handshake()
        pair.exchange()
    for turn in range(1, 6):
        answered = [bool(pair.below.sent) for pair in pairs]
        count = turn * HANDSHAKES_PER_TURN
        assert answered == [True] * count + [False] * (len(pairs) - count), "in the order in which they came"
        await asyncio.sleep(0)
    pairs[0].shake_hands()
    assert pairs[0].user.told == [ANONYMOUS]


async def test_handshakes_that_take_long_are_fewer_in_a_turn() -> None:
    """Example: 8 with a key of RSA 4096 were a turn of 57 ms."""
    now_s, begun = 0.0, []
    turns = TlsTurns(clock=lambda: now_s)

    def step(number: int) -> None:
        nonlocal now_s
        now_s += HANDSHAKES_TURN_S * 0.6
        begun.append(number)

    for number in range(5):
        turns.run(partial(step, number))
    for count in (2, 4, 5, 5):
        assert begun == list(range(count))
        await asyncio.sleep(0)


async def test_who_has_gone_while_its_handshake_waited_costs_nothing(files: TlsFiles) -> None:
    turns = TlsTurns(clock=lambda: 0.0)
    for _ in range(HANDSHAKES_PER_TURN):
        Pair(files, turns=turns).shake_hands()
    gone = Pair(files, turns=turns)
    with contextlib.suppress(ssl.SSLWantReadError):
        gone.client.do_handshake()
    gone.exchange()
    gone.server.connection_lost(None)
    await asyncio.sleep(0)
    assert not gone.below.sent


async def test_damaged_records_end_the_connection(files: TlsFiles) -> None:
    pair = Pair(files)
    pair.shake_hands()
    pair.feed(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert pair.below.is_aborted
    assert not pair.user.heard
