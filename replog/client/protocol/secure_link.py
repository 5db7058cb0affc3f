"""A connection with TLS, SASL, or both.

What `link` does stays as it is, so that connections in plain text pay nothing.  Here what is written is held back while TLS has
enough (`replog.tcp.paced`), and requests while the client proves anew who it is (KIP-368).
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from replog.client.protocol.asking import RequestMessage
from replog.client.protocol.link import BrokerEnd, Link, read_answer
from replog.client.security.sasl import Authenticator, no_sasl
from replog.client.security.security import Security
from replog.client.security.tls import TlsContexts, tls_error
from replog.errors import ReplogError, raised_anew
from replog.protocol.private import PrivateRequest
from replog.rpc.transport import ConnectionLostError
from replog.tcp.dialing import Connect, create_connection
from replog.tcp.paced import PacedTransport
from replog.waiting.looks import timeout_in_looks
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest

SECURE_OPEN_TIMEOUT_S: Final = 4.0
"""As `OPEN_TIMEOUT_S`, with TLS and SASL, for which a broker works: a Java one that has just started takes a second."""

RENEWAL_SHARES: Final = (0.85, 0.95)
"""Of the time for which a login holds: when it is renewed, spread so that the connections of a client do not do it at once."""

RENEWAL_S_MIN: Final = 0.05
"""The least time between two logins of a connection, in seconds, whatever the broker says."""

_CUT: Final = "the connection was cut in the handshake of TLS. Is this the port of an SSL or SASL_SSL listener?"


class SecureWay:
    """How connections of one client are made secure; a `Connect`, and what follows it.

    Args:
        security: What the user has set: TLS, a login, or both.
        connect: The function that connects in plain text, where there is no TLS.

    Raises:
        ConfigError: A file of TLS cannot be used.
    """

    def __init__(self, security: Security, connect: Connect) -> None:
        self._plain = connect
        self._contexts = None if security.encryption is None else TlsContexts(security.encryption)
        self.authenticator = None if security.login is None else Authenticator(security.login)

    def make(self, endpoint: BrokerEnd) -> SecureLink:
        """Makes the protocol of a connection."""
        return SecureLink(endpoint, self)

    async def connect(
        self, make: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connects as `create_connection` does, through the end of the handshake of TLS.

        Raises:
            OSError: The host cannot be reached.
            TlsAuthenticationError: The two sides of TLS do not agree.
        """
        contexts = self._contexts
        if contexts is None:
            return await self._plain(make, host, port)
        name = contexts.server_name(host)
        try:
            return await create_connection(make, host, port, tls=(contexts.current(), name))
        except (ssl.SSLError, ConnectionResetError) as error:
            reason = f" ({error.reason})" if isinstance(error, ssl.SSLError) and error.reason else ""
            raise self.tls_error(f"{host}:{port}", error) or ConnectionResetError(f"{_CUT}{reason}") from None

    def tls_error(self, address: str, error: BaseException | None) -> ReplogError | None:
        """Returns what an error of TLS means; None where it is none."""
        if self._contexts is None or error is None:
            return None
        return tls_error(address, error, self._contexts.server_name(address.rpartition(":")[0]))


class SecureLink(Link):
    """A `Link` with TLS, SASL, or both.

    Args:
        endpoint: The broker.
        way: How the connections of the client are made secure.
    """

    def __init__(self, endpoint: BrokerEnd, way: SecureWay) -> None:
        super().__init__(endpoint)
        self._way = way
        self._paced: PacedTransport | None = None
        self._held: list[Callable[[], None]] | None = None  # requests that wait for the end of a renewal
        self._renewed: asyncio.Event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    # ---- what asyncio calls ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins, after the handshake of TLS."""
        super().connection_made(transport)
        if transport.get_extra_info("sslcontext") is not None:
            self._paced = PacedTransport(cast("asyncio.Transport", transport))
            self._transport = cast("asyncio.Transport", self._paced)

    def pause_writing(self) -> None:
        """Lets whoever sends wait."""
        super().pause_writing()
        if self._paced is not None:
            self._paced.pause()

    def resume_writing(self) -> None:
        """Lets whoever sends go on, once what was held back is written, too."""
        if self._paced is not None and not self._paced.is_closing():
            self._paced.resume()
            if self._paced.is_paused:
                return
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection: with TLS 1.3 a broker refuses a client's certificate only after the handshake."""
        error = None if self.has_heard else self._way.tls_error(self._endpoint.address, exc)
        if error is not None:
            self._fail(error)
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        super().connection_lost(exc)

    # ---- requests --------------------------------------------------------------------------------------------------------

    def send(
        self, request: RequestMessage | PrivateRequest, version: int, *, cluster_id: str = "", is_answered: bool = True
    ) -> asyncio.Future[memoryview]:
        """Sends a request, as `Link.send` does; behind a renewal that is under way."""
        if self._held is None or self._end is not None:
            return super().send(request, version, cluster_id=cluster_id, is_answered=is_answered)
        answered: asyncio.Future[memoryview] = self._loop.create_future()

        def send_now() -> None:
            try:
                sent = super(SecureLink, self).send(request, version, cluster_id=cluster_id, is_answered=is_answered)
            except ReplogError as error:
                _end_with(answered, error)
            else:
                sent.add_done_callback(lambda done: _pass_on(done, answered))

        self._held.append(send_now)
        return answered

    async def drain(self) -> None:
        """Waits until few bytes wait to leave, and no renewal is under way."""
        if self._held is not None:
            await self._renewed.wait()
        await super().drain()

    # ---- SASL ------------------------------------------------------------------------------------------------------------

    async def authenticate(self) -> None:
        """Proves who the client is, if it says who it is; renews that in time.  Raises: As `Link.authenticate`."""
        authenticator = self._way.authenticator
        if authenticator is None:
            return
        if SaslHandshakeRequest.API_KEY not in self.versions:
            raise no_sasl(self._endpoint.address)
        lifetime_ms = await authenticator.authenticate(self._ask_at_once, self._endpoint.address)
        if lifetime_ms > 0:
            share = random.uniform(*RENEWAL_SHARES)  # noqa: S311 -- spreads renewals, keeps no secret
            self._timer = self._loop.call_later(max(RENEWAL_S_MIN, lifetime_ms / 1000 * share), self._begin_renewal)

    async def _ask_at_once(self, request: Any, answer: Any) -> Any:
        version = self.version(request)
        return read_answer(await super().send(request, version), answer, version)

    def _begin_renewal(self) -> None:
        self._held = []
        self._renewed.clear()
        self._renewal = self._loop.create_task(self._renew(), name="replog-sasl-renewal")

    async def _renew(self) -> None:
        """Proves it anew; what was sent before is answered before, and what is sent meanwhile goes out behind."""
        try:
            async with timeout_in_looks(SECURE_OPEN_TIMEOUT_S):
                await self.authenticate()
        except TimeoutError:
            self.lose(ConnectionLostError(f"{self._endpoint.address}: no new login within {SECURE_OPEN_TIMEOUT_S:g} s"))
        except ReplogError as error:
            self.lose(error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held or [], None
        for send in held:
            send()
        self._renewed.set()


def _pass_on(done: asyncio.Future[memoryview], answered: asyncio.Future[memoryview]) -> None:
    """Ends a future as another one has ended."""
    if done.cancelled():
        answered.cancel()
        return
    error = done.exception()
    if error is not None:
        _end_with(answered, error)
    elif not answered.done():
        answered.set_result(done.result())


def _end_with(answered: asyncio.Future[memoryview], error: BaseException) -> None:
    if not answered.done():
        answered.set_exception(raised_anew(error))
        answered.exception()  # nobody need wait for it
