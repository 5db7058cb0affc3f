"""The exchange of SASL on a connection (KIP-43, KIP-152, KIP-255), and how long it holds (KIP-368).

The client's side of SCRAM (RFC 5802, with SHA-256 of RFC 7677 and SHA-512 as Kafka has it): messages in, messages out, no I/O.

Names and passwords go as they are, in UTF-8, without SASLprep: so do those of Kafka's clients, and its brokers compare bytes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import inspect
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from replog.access.secret import Secret
from replog.client.security.kafka_names import OAUTHBEARER, PLAIN
from replog.client.security.security import SaslLogin, TokenProvider
from replog.errors import ErrorCode, IllegalSaslStateError, SaslAuthenticationError, UnsupportedSaslMechanismError
from replog.errors.from_code import error_from_number
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

T = TypeVar("T")

Ask: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""Sends a request, and returns its answer, of the class that is given."""

STEPS_MAX: Final = 4
"""Messages of the client in one exchange; SCRAM has two."""

_NONCE_BYTES: Final = 24
_TOKEN_BYTES_MAX: Final = 512 << 10
"""Of a bearer token: what brokers take of a client that has not proved anything yet."""


class Exchange(Protocol):
    """The messages of one mechanism."""

    async def first(self) -> bytes:
        """Returns the client's first message."""
        ...

    async def answer(self, data: bytes) -> bytes | None:
        """Returns the answer to a message of the broker; None where it was the last one.

        Raises:
            SaslAuthenticationError: The broker does not prove who it is.
        """
        ...


class Authenticator:
    """Proves on connections who a client is; one for all connections of a client.

    Args:
        login: Who it is.
    """

    def __init__(self, login: SaslLogin) -> None:
        self._login = login
        self._salted: tuple[bytes, int, bytes] | None = (
            None  # of the last salt and iterations, which are those of the user
        )

    async def authenticate(self, ask: Ask, address: str) -> int:
        """Proves it on a connection.

        Args:
            ask: The function that sends a request over it.
            address: The host:port of the broker, for errors.

        Returns:
            How long the connection may be used before this must be done again, milliseconds; 0: for ever.

        Raises:
            AuthenticationError: One side does not believe the other.
            ReplogError: The connection was lost.
        """
        mechanism = self._login.mechanism
        told = await ask(SaslHandshakeRequest(mechanism), SaslHandshakeResponse)
        if told.error_code:
            raise _refused_mechanism(told, mechanism, address)
        exchange = self._exchange()
        try:
            message = await exchange.first()
            for _ in range(STEPS_MAX):
                step = await ask(SaslAuthenticateRequest(message), SaslAuthenticateResponse)
                if step.error_code:
                    raise error_from_number(step.error_code, step.error_message or "the broker refuses the login")
                following = await exchange.answer(step.auth_bytes)
                if following is None:
                    return cast("int", step.session_lifetime_ms)
                message = following
        except SaslAuthenticationError as error:
            raise SaslAuthenticationError(f"{self._who(address)}: {error}{self._next_step()}") from None
        raise SaslAuthenticationError(f"{self._who(address)}: the broker does not come to an end in {STEPS_MAX} steps")

    def _exchange(self) -> Exchange:
        login = self._login
        if login.token_provider is not None:
            return _BearerExchange(login.token_provider)
        password = cast("Secret", login.password)
        if login.mechanism == PLAIN:
            return _PlainExchange(login.username, password)
        client = ScramClient(
            login.mechanism, login.username, secrets.token_urlsafe(_NONCE_BYTES), by_token=login.by_token
        )
        return _ScramExchange(client, lambda told: self._salt(client, password, told))

    async def _salt(self, client: ScramClient, password: Secret, told: Any) -> bytes:
        """Salts the password in a thread, unless that was done for the last connection: it takes milliseconds."""
        kept = self._salted
        if kept is None or kept[:2] != (told.salt, told.iterations):
            salted = await _in_thread(lambda: client.salted(password.reveal(), told))
            kept = self._salted = (told.salt, told.iterations, salted)
        return kept[2]

    def _who(self, address: str) -> str:
        kind = "with delegation token" if self._login.by_token else "of user"
        name = f' {kind} "{self._login.username}"' if self._login.username else ""
        return f"{address}: login{name} by {self._login.mechanism} failed"

    def _next_step(self) -> str:
        if self._login.mechanism == OAUTHBEARER:
            return ". Check what token_provider returns: issuer, audience, and that it has not expired"
        if self._login.by_token:
            return ". Check that the token has not expired (`replog tokens list`), and make another one if it has"
        return f". Check user and password, and that the user has a credential for {self._login.mechanism}"


class _PlainExchange:
    def __init__(self, username: str, password: Secret) -> None:
        self._username, self._password = username, password

    async def first(self) -> bytes:
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    async def answer(self, data: bytes) -> None:
        """Takes in the broker's answer, which has nothing in it."""


class _ScramExchange:
    def __init__(self, client: ScramClient, salt: Callable[[Any], Awaitable[bytes]]) -> None:
        self._client, self._salt = client, salt
        self._is_proved = False

    async def first(self) -> bytes:
        return self._client.first()

    async def answer(self, data: bytes) -> bytes | None:
        if self._is_proved:
            self._client.verify(data)
            return None
        told = self._client.server_first(data)
        self._is_proved = True
        return self._client.final(await self._salt(told), told)


class _BearerExchange:
    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider

    async def first(self) -> bytes:
        token = await _token(self._provider)
        return f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    async def answer(self, data: bytes) -> bytes | None:
        return b"\x01" if data else None  # the broker has said why not, and waits to be told to say it as an error


async def _token(provider: TokenProvider) -> str:
    """Returns a token of the application's function.  Raises: SaslAuthenticationError: It has none; the cause is that of the function."""
    try:
        if inspect.iscoroutinefunction(provider):
            token = await provider()
        else:
            token = await _in_thread(provider)
            if inspect.isawaitable(token):
                token = await token
    except Exception as error:
        raise SaslAuthenticationError(f"token_provider raised {type(error).__name__}") from error
    if (
        not isinstance(token, str)
        or not token.isascii()
        or not token.isprintable()
        or not 0 < len(token) <= _TOKEN_BYTES_MAX
    ):
        raise SaslAuthenticationError(
            f"token_provider returns no token but a {type(token).__name__}: it must be printable ASCII"
        )
    return token


async def _in_thread(work: Callable[[], T]) -> T:
    """Calls a function beside the loop; in the loop where the main thread has ended, and with it all pools of threads."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        return work()


def _refused_mechanism(told: SaslHandshakeResponse, mechanism: str, address: str) -> Exception:
    if told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(told.mechanisms[:20]) or "none"
        return UnsupportedSaslMechanismError(
            f"{address} does not offer {mechanism}; it offers {offered}. Use one of these, or add it to sasl.enabled.mechanisms"
        )
    if told.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        return no_sasl(address)
    return error_from_number(told.error_code, f"{address} refuses to begin SASL")


def no_sasl(address: str) -> IllegalSaslStateError:
    """Returns the error about a listener where nobody can log in."""
    return IllegalSaslStateError(
        f"{address} has no SASL at this listener: use the port of a SASL_SSL or SASL_PLAINTEXT listener, or no login"
    )


# ---- the client's side of SCRAM (RFC 5802, with SHA-256 of RFC 7677 and SHA-512 as Kafka has it): messages in, messages out, no I/O


ITERATIONS_MIN: Final = 4096
"""Fewer would make a password that is overheard easy to guess; Kafka's brokers refuse fewer, too."""

ITERATIONS_MAX: Final = 1_000_000
"""A second of work; a broker that asks for more would hold up its clients."""

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_BINDING: Final = "n,,"
"""There is no channel binding: Kafka has none."""

_PART_MAX: Final = 1024
"""Characters of a nonce or a salt."""


class ServerFirst(Struct, frozen=True):
    """What the server says first.

    Attributes:
        text: The message as it came.
        nonce: The nonces of both sides.
        salt: The bytes that the password is salted with.
        iterations: How often it is hashed.
    """

    text: str
    nonce: str
    salt: bytes
    iterations: int


class ScramClient:
    """One exchange.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        username: The name of the user.
        nonce: Random printable characters without a comma, never used before.
        by_token: Whether name and password are the id and the HMAC of a delegation token (KIP-48).
    """

    def __init__(self, mechanism: str, username: str, nonce: str, *, by_token: bool = False) -> None:
        self._hash = _HASHES[mechanism]
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}{',tokenauth=true' if by_token else ''}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Returns the client's first message."""
        return f"{_BINDING}{self._first_bare}".encode()

    def server_first(self, data: bytes) -> ServerFirst:
        """Reads the server's first message.

        Raises:
            SaslAuthenticationError: It is none, answers another exchange, or asks for too much or too little work.
        """
        text = _text(data)
        parts = _attributes(text)
        if list(parts)[:3] != ["r", "s", "i"]:
            raise SaslAuthenticationError("the broker's first message of SCRAM is none of RFC 5802")
        nonce, salt, count = parts["r"], _decoded(parts["s"]), parts["i"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or len(nonce) > _PART_MAX:
            raise SaslAuthenticationError("the broker's nonce does not belong to this exchange of SCRAM")
        iterations = (
            int(count) if count.isascii() and count.isdecimal() and len(count) <= len(str(ITERATIONS_MAX)) else 0
        )
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslAuthenticationError(
                f"the broker asks for {count[:20]} iterations of SCRAM; {ITERATIONS_MIN} to {ITERATIONS_MAX} are done. "
                "Set another number for the user with kafka-configs"
            )
        return ServerFirst(text, nonce, salt, iterations)

    def salted(self, password: str, told: ServerFirst) -> bytes:
        """Returns the salted password: the work of the exchange, milliseconds of it, for a thread."""
        return hashlib.pbkdf2_hmac(self._hash, password.encode(), told.salt, told.iterations)

    def final(self, salted: bytes, told: ServerFirst) -> bytes:
        """Returns the client's last message, which proves that it knows the password."""
        binding = base64.b64encode(_BINDING.encode()).decode()
        without_proof = f"c={binding},r={told.nonce}"
        signed = f"{self._first_bare},{told.text},{without_proof}".encode()
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, data: bytes) -> None:
        """Looks at the server's last message.

        Raises:
            SaslAuthenticationError: The server refuses, or does not prove that it knows the password.
        """
        parts = _attributes(_text(data))
        if "e" in parts:
            raise SaslAuthenticationError(f"the broker refuses the user or the password: {parts['e'][:100]}")
        signature = _decoded(parts.get("v", ""))
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise SaslAuthenticationError(
                "the broker does not prove that it knows the user's password: it is not the one that the password is for"
            )

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationError("the broker's message of SCRAM is no text") from None


def _attributes(text: str) -> dict[str, str]:
    return {each[:1]: each[2:] for each in text.split(",") if each[1:2] == "="}


def _decoded(text: str) -> bytes:
    """Returns the bytes of base64; at least one."""
    try:
        found = base64.b64decode(text[:_PART_MAX], validate=True)
    except binascii.Error:
        found = b""
    if not found:
        raise SaslAuthenticationError("the broker's message of SCRAM has no bytes where they must be")
    return found
