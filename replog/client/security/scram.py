"""The client's side of SCRAM (RFC 5802, with SHA-256 of RFC 7677 and SHA-512 as Kafka has it): messages in, messages out, no I/O.

Names and passwords go as they are, in UTF-8, without SASLprep: so do those of Kafka's clients, and its brokers compare bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from msgspec import Struct

from replog.errors import SaslAuthenticationError

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
