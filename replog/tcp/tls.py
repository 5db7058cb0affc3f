"""TLS between the bytes of a connection and the protocol that reads requests: `asyncio`'s own would hide what is held.

| what a client does | what happens |
|---|---|
| connects and says nothing, or half a hello | it counts as a connection from the first moment, and the time for the first request runs |
| sends no hello, shows no certificate that is believed | the connection ends, and the log says why |
| sends a long hello | it ends at `HANDSHAKE_BYTES_MAX` |
| reads slowly | what is not with the kernel stays as it is, uncounted by nobody: it is encrypted in pieces, as the kernel takes them |
| asks for new keys again and again, and reads none of them | it ends at `UNREAD_BYTES_MAX` |

With `asyncio`'s, a protocol hears of a connection when the handshake is over, and all of a large answer is encrypted into a buffer
that `get_write_buffer_size` does not tell of.  Nodes that dial other nodes have the same at their end, where a stream sends as much.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from replog.access.principal import ANONYMOUS, Principal
from replog.tcp.certificates import Certificates
from replog.tcp.dialing import let_go

HANDSHAKE_BYTES_MAX = 128 << 10
"""The most that a client sends before it is known; a chain of certificates has some thousand bytes."""

RECORD_BYTES = 16 << 10
"""What one record of TLS holds at most."""

HANDSHAKES_PER_TURN = 8
"""How many handshakes go on at most before others have their turn."""

HANDSHAKES_TURN_S = 0.004
"""How long handshakes go on, and one more, before others have their turn: one takes a millisecond with a key of P-256 or RSA 2048, seven with one of
RSA 4096."""

PIECE_BYTES = 64 << 10
"""How much is encrypted before it is handed to the kernel."""

TURN_BYTES = 1 << 20
"""How much is encrypted before others have their turn: a millisecond or two."""

UNREAD_BYTES_MAX = 1 << 20
"""The most that waits for the kernel, beyond pieces of answers."""

_HANDSHAKE = 0x16
"""The first byte of a hello."""

_UNEXPECTED_MESSAGE = bytes([0x15, 3, 3, 0, 2, 2, 10])
"""The alert that ends a connection with another one (RFC 8446, 6): clients in plain text tell by it that a listener speaks TLS."""


class TlsUser(Protocol):
    """What speaks over TLS: a buffered protocol that hears who the other side is before any byte of it."""

    def identify(self, principal: Principal) -> None:
        """Hears who the other side is."""
        ...

    def refuse_identity(self, reason: str) -> None:
        """Hears why the other side cannot be known, and ends the connection."""
        ...


class TlsTurns:
    """What the connections of a listener share: a buffer, and how many handshakes go on in one turn of the loop.

    When thousands connect at once, as after a restart, their handshakes would be one turn of a second.

    Args:
        clock: The clock, in seconds; None: that of the loop.

    Attributes:
        received: The buffer that bytes come into: a connection has it from the kernel's call until they are decrypted.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.received = memoryview(bytearray(PIECE_BYTES))
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._begun = 0  # in this turn
        self._spent_s = 0.0  # by these
        self._waiting: deque[Callable[[], None]] = deque()

    def run(self, step: Callable[[], None]) -> None:
        """Runs a step of a handshake: now, or in a later turn if this one has had enough, in the order of the calls."""
        if not self._begun:
            self._loop.call_soon(self._next_turn)
        if self._is_over:
            self._waiting.append(step)
            return
        self._begun += 1
        began_s = self._clock()
        step()
        self._spent_s += self._clock() - began_s

    @property
    def _is_over(self) -> bool:
        return self._begun >= HANDSHAKES_PER_TURN or self._spent_s >= HANDSHAKES_TURN_S

    def _next_turn(self) -> None:
        self._begun, self._spent_s = 0, 0.0
        while self._waiting and not self._is_over:
            self.run(self._waiting.popleft())


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection: the protocol of its bytes, and the transport of what is in them.

    Args:
        user: The protocol that is served, also a `TlsUser`.
        certificates: What this side proves, and whom it believes.
        turns: What it shares with others.
        dials: Whether this side has opened the connection, and says hello.
        accepts_plain: Whether a client that says no hello is served in plain text, as nobody who is known.
    """

    def __init__(
        self,
        user: asyncio.BufferedProtocol,
        certificates: Certificates,
        turns: TlsTurns,
        *,
        dials: bool = False,
        accepts_plain: bool = False,
    ) -> None:
        super().__init__()
        self._dials = dials
        self._accepts_plain = accepts_plain
        self._is_plain = False
        self._user = user
        self._certificates = certificates
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._below: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._is_known = False
        self._handshake_bytes = 0
        self._is_in_line = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._turn: asyncio.Handle | None = None
        self._reading_on: asyncio.Handle | None = None
        self._is_below_full = False
        self._is_user_paused = False
        self._is_reading = True
        self._is_taking_in = False
        self._is_closing = False
        self._ends_behind = False  # whether the sending half ends behind what waits
        self._trouble: ssl.SSLError | None = None  # what the other side ended the connection with

    # ---- the protocol of the bytes ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast("asyncio.Transport", transport)
        self._user.connection_made(self)
        if self._dials:
            self._is_in_line = True
            self._turns.run(self._shake_hands)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- asyncio's signature
        return self._turns.received

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing or self._below is None:
            return
        came = self._turns.received[:nbytes]
        if self._is_known:
            self._incoming.write(came)
            self._take_in()
            return
        if not self._handshake_bytes and came[0] != _HANDSHAKE and not self._dials:
            if self._accepts_plain:
                self._go_plain(came)
                return
            self._below.write(_UNEXPECTED_MESSAGE)
            self._refuse("its first bytes are no TLS hello: this listener speaks TLS, set security.protocol=SSL")
            return
        self._incoming.write(came)
        self._handshake_bytes += nbytes
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._refuse(f"its handshake has more than {HANDSHAKE_BYTES_MAX} bytes")
        elif not self._is_in_line:
            self._is_in_line = True
            self._turns.run(self._shake_hands)

    def eof_received(self) -> bool:
        self._user.eof_received()
        return False

    def pause_writing(self) -> None:
        self._is_below_full = True

    def resume_writing(self) -> None:
        self._is_below_full = False
        self._send_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        let_go(self._below)
        self._below = None
        self._drop()
        self._user.connection_lost(exc or self._trouble)

    # ---- the transport of what is in them --------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._user = cast("asyncio.BufferedProtocol", protocol)
        if self._is_plain and self._below is not None:
            self._below.set_protocol(protocol)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def is_closing(self) -> bool:
        return self._is_closing or self._below is None or self._below.is_closing()

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._below is None or self._is_closing:
            return
        self._below.resume_reading()
        if not self._is_taking_in and self._reading_on is None:  # the rest of what came before is here already
            self._reading_on = self._loop.call_soon(self._read_on)

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + (0 if self._below is None else self._below.get_write_buffer_size())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._below is None or not data:
            return
        if self._is_plain:
            self._below.write(data)
            return
        view = memoryview(data).cast("B")
        self._unsent.append(view)
        self._unsent_bytes += len(view)
        if self._turn is None:
            self._send_on()

    def write_eof(self) -> None:
        """Ends the sending half behind what was written; the other side may still send."""
        self._ends_behind = True
        if not self._unsent and self._below is not None:
            self._below.write_eof()

    def close(self) -> None:
        """Ends the connection behind what was written."""
        if self._is_closing or self._below is None:
            return
        self._is_closing = True
        if not self._unsent:
            self._say_goodbye()

    def abort(self) -> None:
        self._is_closing = True
        self._drop()
        if self._below is not None:
            self._below.abort()

    # ---- parts -----------------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        """Goes on with the handshake, and, behind it, takes in what has come."""
        self._is_in_line = False
        if self._is_closing or self._below is None:
            return
        tls = self._tls
        if tls is None:
            context = self._certificates.context()
            tls = self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not self._dials)
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_records()
            return
        except ssl.SSLError as error:
            self._send_records()  # the alert, which tells the client
            self._refuse(described(error))
            return
        self._send_records()
        try:
            principal = self._certificates.identify(tls.getpeercert(binary_form=True))
        except (ValueError, IndexError, StopIteration) as error:
            self._refuse(str(error) or "its certificate cannot be read")
            return
        self._is_known = True
        cast("TlsUser", self._user).identify(principal)
        self._take_in()

    def _go_plain(self, came: memoryview) -> None:
        """Hands the connection over as it is; what was asked of this object is passed on below from here on."""
        self._is_plain = True
        cast("TlsUser", self._user).identify(ANONYMOUS)
        while came and not self._is_closing:
            buffer = memoryview(self._user.get_buffer(-1))
            count = min(len(buffer), len(came))
            buffer[:count], came = came[:count], came[count:]
            self._user.buffer_updated(count)
        if self._below is not None:
            self._below.set_protocol(self._user)

    def _refuse(self, reason: str) -> None:
        cast("TlsUser", self._user).refuse_identity(reason)

    def _take_in(self) -> None:
        """Hands over what has come, as long as it is taken."""
        tls = self._tls
        if tls is None or self._is_taking_in:
            return
        self._is_taking_in = True
        try:
            while self._is_reading and not self._is_closing:
                buffer = memoryview(self._user.get_buffer(-1))
                try:
                    count = cast("int", tls.read(len(buffer), cast("bytearray", buffer)))  # a number, with a buffer
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLError as error:  # also what the other side thinks of our certificate, with TLS 1.3
                    self._trouble = ssl.SSLError(described(error))
                    self.abort()
                    return
                if not count:
                    self._user.eof_received()
                    self.close()
                    return
                self._user.buffer_updated(count)
        finally:
            self._is_taking_in = False
        self._send_records()
        if self._below is not None and self._below.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.abort()

    def _read_on(self) -> None:
        self._reading_on = None
        if self._is_known and not self._is_closing:
            self._take_in()

    def _send_on(self) -> None:
        """Encrypts what waits, as much as the kernel takes and one turn may have."""
        self._turn = None
        if self._below is None:
            return
        left = TURN_BYTES
        try:
            while self._unsent and not self._is_below_full and left > 0:
                left -= self._send_piece()
        except ssl.SSLError:
            self.abort()
            return
        if self._unsent and not self._is_below_full and self._turn is None:
            self._turn = self._loop.call_soon(self._send_on)
        self._tell_user()

    def _send_piece(self) -> int:
        """Encrypts one piece and hands it to the kernel; returns its size."""
        tls = cast("ssl.SSLObject", self._tls)
        size = 0
        while self._unsent and size < PIECE_BYTES:
            count = tls.write(self._unsent[0][:RECORD_BYTES])
            size += count
            self._unsent_bytes -= count
            if count == len(self._unsent[0]):
                self._unsent.popleft()
            else:
                self._unsent[0] = self._unsent[0][count:]
        self._send_records()
        return size

    def _send_records(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())

    def _tell_user(self) -> None:
        """Says whether more may be written, where that has changed; ends the connection behind the last byte."""
        is_full = bool(self._unsent) or self._is_below_full
        if self._is_closing:
            if not self._unsent:
                self._say_goodbye()
        elif self._ends_behind and not self._unsent:
            if self._below is not None:
                self._below.write_eof()
        elif is_full and not self._is_user_paused:
            self._is_user_paused = True
            self._user.pause_writing()
        elif self._is_user_paused and not is_full:
            self._is_user_paused = False
            self._user.resume_writing()

    def _say_goodbye(self) -> None:
        """Says that no more comes, and ends the connection; the other side's goodbye is not waited for."""
        below = self._below
        if below is None or below.is_closing():
            return
        if self._tls is not None and self._is_known:
            with contextlib.suppress(ssl.SSLError):  # the other side's goodbye, which is not waited for
                self._tls.unwrap()
            self._send_records()
        below.close()

    def _drop(self) -> None:
        """Forgets what waits."""
        self._unsent.clear()
        self._unsent_bytes = 0
        for handle in (self._turn, self._reading_on):
            if handle is not None:
                handle.cancel()


def described(error: ssl.SSLError) -> str:
    """Returns in words why TLS failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in reason:
        return f"the other side ended it: {reason}"
    return f"the TLS handshake failed: {reason}"
