"""The server's side of SASL mechanisms: messages of a client in, answers out, until it is known who it is; no I/O.

| mechanism | what proves who the client is |
|---|---|
| SCRAM-SHA-256, SCRAM-SHA-512 | that it knows the password, which it does not send (RFC 5802, RFC 7677) |
| the same, with the extension tokenauth=true | that it knows the HMAC of a delegation token (KIP-48) |
| PLAIN | the password itself (RFC 4616), which is verified by what is kept for SCRAM |
| OAUTHBEARER | a token that an authority has signed (RFC 7628) |

Why a login failed is for the log of the server.  The client hears the same of an unknown user as of a wrong password, and it takes
the same work.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from replog.access.credentials import NAME_BYTES_MAX, SaslMechanism, ScramCredential, ScramMechanism
from replog.access.scram import credential_of, salted_password, stand_in
from replog.errors import SaslAuthenticationError

T = TypeVar("T")

PASSWORD_BYTES_MAX: Final = 1024
"""Bytes of a password that a client sends; hashing it is work."""

NONCE_CHARACTERS_MAX: Final = 1024
"""Characters of a client's nonce."""

_NONCE_BYTES: Final = 24
_SHOWN_CHARACTERS: Final = 64
_DELEGATED: Final = "tokenauth=true"
_NONCE: Final = re.compile(rf"[!-+\--~]{{1,{NONCE_CHARACTERS_MAX}}}")
_BEARER: Final = re.compile(r"n,(?:a=([^,\x01]*))?,\x01(.*)\x01\x01", re.DOTALL)


SCRAM_MECHANISMS: Final = {SaslMechanism(each.sasl_name): each for each in ScramMechanism}
"""The mechanisms of SCRAM among them."""


class Identity(Struct, frozen=True):
    """Who a client has proved to be.

    Attributes:
        name: The name of the user.
        expires_ms: When that ends to hold, in milliseconds since 1970; None: it does not.
        token_authenticated: Whether a delegation token has proved it.
    """

    name: str
    expires_ms: int | None = None
    token_authenticated: bool = False


class Reply(Struct, frozen=True):
    """What a message of the client leads to.

    Attributes:
        data: The message of the server.
        identity: Who the client is, where that is known now: the exchange is over; None: it goes on.
    """

    data: bytes = b""
    identity: Identity | None = None


class ServerExchange(Protocol):
    """One login of one client."""

    async def reply(self, data: bytes) -> Reply:
        """Takes in the next message of the client.

        Raises:
            SaslAuthenticationError: It is not believed, or the message is none; the text is for the server's log.
        """
        ...


FindCredential: TypeAlias = Callable[[ScramMechanism, str], ScramCredential | None]
"""Returns what is kept of the password of a user, None where nothing is."""


class RunBeside(Protocol):
    """Calls a function that is milliseconds of work, beside the loop."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


FindToken: TypeAlias = Callable[[ScramMechanism, str], Awaitable[tuple[ScramCredential, Identity | None]]]
"""Returns what a login with a delegation token of an id is verified by, and whom the token logs in; None where there is none that holds.
The work is the same for each id."""

VerifyToken: TypeAlias = Callable[[str], Awaitable[Identity]]
"""Returns whom a token is of.  Raises SaslAuthenticationError."""


class Passwords:
    """What is kept of the passwords of users, and what stands for those of users that there are not.

    Args:
        find: The function that finds what is kept.
        secret: The bytes that nobody else knows, by which what stands in is the same at each attempt.
    """

    def __init__(self, find: FindCredential, secret: bytes) -> None:
        self._find = find
        self._secret = secret

    def credential(self, mechanism: ScramMechanism, name: str) -> tuple[ScramCredential, bool]:
        """Returns a credential to answer with, and whether it is that of a user."""
        kept = self._find(mechanism, name)
        made = stand_in(self._secret, mechanism, name)
        return (made, False) if kept is None else (kept, True)

    def any_credential(self, name: str) -> tuple[ScramMechanism, ScramCredential, bool]:
        """Returns a mechanism for which something is kept of a user, what is kept, and whether it is that of a user."""
        for mechanism in ScramMechanism:
            if (kept := self._find(mechanism, name)) is not None:
                return mechanism, kept, True
        return ScramMechanism.SHA_256, self.credential(ScramMechanism.SHA_256, name)[0], False


class ScramExchange:
    """A login by SCRAM.

    Args:
        mechanism: The mechanism.
        passwords: What is kept of passwords.
        nonce: The server's part of the nonce; "": random.
        tokens: The function that finds delegation tokens; None: there are none.
    """

    def __init__(
        self, mechanism: ScramMechanism, passwords: Passwords, nonce: str = "", tokens: FindToken | None = None
    ) -> None:
        self._mechanism = mechanism
        self._passwords = passwords
        self._tokens = tokens
        self._own_nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._name = self._binding = self._nonce = self._signed = ""
        self._is_token = False
        self._kept: tuple[ScramCredential, Identity | None] | None = None

    async def reply(self, data: bytes) -> Reply:
        """Answers the client's first message, then its proof; see `ServerExchange`."""
        message = _text(data, "SCRAM")
        return await self._first(message) if self._kept is None else self._last(message, *self._kept)

    async def _first(self, message: str) -> Reply:
        flag, authorization, bare = [*message.split(",", 2), "", ""][:3]
        if flag not in {"n", "y"}:
            raise SaslAuthenticationError("its first message of SCRAM is none, or asks for a channel binding")
        name, nonce, *extensions = [*bare.split(",", 16), ""]
        if not name.startswith("n=") or not nonce.startswith("r=") or not _NONCE.fullmatch(nonce[2:]):
            raise SaslAuthenticationError("its first message of SCRAM names no user, or has no nonce")
        if any(each.startswith("m=") for each in extensions):
            raise SaslAuthenticationError("it asks for an extension of SCRAM that there is not")
        self._is_token = any(each.lower() == _DELEGATED for each in extensions)
        self._name = _user_name(_unescaped(name[2:]))
        if authorization and (not authorization.startswith("a=") or _unescaped(authorization[2:]) != self._name):
            raise _other_authorization(self._name)
        kept = self._kept = await self._find()
        self._binding = base64.b64encode(f"{flag},{authorization},".encode()).decode()
        self._nonce = nonce[2:] + self._own_nonce
        salt = base64.b64encode(kept[0].salt).decode()
        answer = f"r={self._nonce},s={salt},i={kept[0].iterations}"
        self._signed = f"{bare},{answer}"
        return Reply(answer.encode())

    async def _find(self) -> tuple[ScramCredential, Identity | None]:
        """Returns what the client is verified by, and who it is then; None: it is not believed whatever it proves."""
        if not self._is_token:
            credential, is_user = self._passwords.credential(self._mechanism, self._name)
            return credential, Identity(self._name) if is_user else None
        if self._tokens is None:
            raise SaslAuthenticationError(
                "it logs in with a delegation token: set delegation.token.secret.key, the same on every broker and controller"
            )
        return await self._tokens(self._mechanism, self._name)

    def _last(self, message: str, kept: ScramCredential, identity: Identity | None) -> Reply:
        without_proof, separator, proof_text = message.rpartition(",p=")
        parts = without_proof.split(",")
        if not separator or parts[:2] != [f"c={self._binding}", f"r={self._nonce}"]:
            raise SaslAuthenticationError("its last message of SCRAM does not belong to the exchange")
        name = self._mechanism.hash_name
        signed = f"{self._signed},{without_proof}".encode()
        proof = _decoded(proof_text)
        signature = hmac.digest(kept.stored_key, signed, name)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        fits = hmac.compare_digest(hashlib.new(name, client_key).digest(), kept.stored_key)
        if identity is None:
            raise self._unknown()
        if not fits or len(proof) != len(signature):
            raise _wrong_hmac(self._name) if self._is_token else _wrong(self._name)
        verifier = base64.b64encode(hmac.digest(kept.server_key, signed, name)).decode()
        return Reply(f"v={verifier}".encode(), identity)

    def _unknown(self) -> SaslAuthenticationError:
        if self._is_token:
            return SaslAuthenticationError(f"there is no delegation token {_shown(self._name)}, or it has expired")
        return _unknown(self._name, self._mechanism.sasl_name)


class PlainExchange:
    """A login by PLAIN: the client sends the password, so that it must come over TLS.

    Args:
        passwords: What is kept of passwords.
        run: The function that runs the hashing, milliseconds of it, beside the loop.
    """

    def __init__(self, passwords: Passwords, run: RunBeside) -> None:
        self._passwords = passwords
        self._run = run

    async def reply(self, data: bytes) -> Reply:
        """Verifies the password; see `ServerExchange`."""
        parts = _text(data, "PLAIN").split("\0")
        if len(parts) != 3:
            raise SaslAuthenticationError("its message of PLAIN is none of RFC 4616")
        authorization, name, password = parts[0], _user_name(parts[1]), parts[2].encode()
        if not 0 < len(password) <= PASSWORD_BYTES_MAX:
            raise SaslAuthenticationError(f"its password is empty, or longer than {PASSWORD_BYTES_MAX:,} bytes")
        if authorization not in {"", name}:
            raise _other_authorization(name)
        mechanism, kept, is_user = self._passwords.any_credential(name)

        def fits() -> bool:
            salted = salted_password(mechanism, password, kept.salt, kept.iterations)
            made = credential_of(mechanism, salted, kept.salt, kept.iterations)
            return hmac.compare_digest(made.stored_key, kept.stored_key)

        if not await self._run(fits):
            raise _wrong(name) if is_user else _unknown(name, "PLAIN")
        return Reply(identity=Identity(name))


class BearerExchange:
    """A login by OAUTHBEARER.

    Args:
        verify: The function that says whom a token is of.
    """

    def __init__(self, verify: VerifyToken) -> None:
        self._verify = verify
        self._refusal: SaslAuthenticationError | None = None

    async def reply(self, data: bytes) -> Reply:
        """Verifies the token.  One that is refused is answered with a status, and the client says that it has heard; see `ServerExchange`."""
        if self._refusal is not None:
            raise self._refusal
        found = _BEARER.fullmatch(_text(data, "OAUTHBEARER"))
        if found is None:
            raise SaslAuthenticationError("its message of OAUTHBEARER is none of RFC 7628")
        values = dict(each.partition("=")[::2] for each in found[2].split("\x01")[:64])
        kind, _, token = values.get("auth", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise SaslAuthenticationError("its message of OAUTHBEARER has no bearer token")
        try:
            identity = await self._verify(token.strip())
            _user_name(identity.name)
            if found[1] and found[1] != identity.name:
                raise _other_authorization(identity.name)
        except SaslAuthenticationError as error:
            self._refusal = error
            return Reply(b'{"status":"invalid_token"}')
        return Reply(identity=identity)


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationError(f"its message of {what} is no text") from None


def _user_name(name: str) -> str:
    size = len(name.encode())
    if not 0 < size <= NAME_BYTES_MAX:
        raise SaslAuthenticationError(f"the name of its user has {size:,} bytes; one has 1 to {NAME_BYTES_MAX:,}")
    return name


def _unescaped(name: str) -> str:
    """Returns a name as it is, of the form that it has in a message of SCRAM (RFC 5802, 5.1)."""
    if re.search("=(?!2C|3D)", name):
        raise SaslAuthenticationError("the name of its user is not written as RFC 5802 has it")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslAuthenticationError("its proof is no base64") from None


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}...")


def _unknown(name: str, mechanism: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(f"there is no user {_shown(name)} with a credential for {mechanism}")


def _wrong(name: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(f"the password of user {_shown(name)} is wrong")


def _wrong_hmac(token_id: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(
        f"the HMAC of delegation token {_shown(token_id)} is wrong, or was made with another delegation.token.secret.key"
    )


def _other_authorization(name: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(f"user {_shown(name)} wants to act as somebody else, which there is not here")
