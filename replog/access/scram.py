"""How what a server keeps of a password follows from it (RFC 5802, 3; RFC 7677; SHA-512 as Kafka has it).

Names and passwords go as they are, in UTF-8, without SASLprep: so do those of Kafka's clients.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from replog.access.credentials import ITERATIONS_MIN, ScramCredential, ScramMechanism

_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_salt() -> bytes:
    """Returns a salt that nobody has had: 130 bits as digits and letters, the form of those that Kafka's tools make."""
    return _salt_text(secrets.randbits(_SALT_BITS))


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password: the work of SCRAM, milliseconds of it, for a thread."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns what a server keeps of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.hash_name), iterations)


def stand_in(secret: bytes, mechanism: ScramMechanism, name: str) -> ScramCredential:
    """Returns what stands for a user that there is not: the same at each attempt, so that strangers learn nothing of users.

    No password fits it: its keys are no keys of one.

    Args:
        secret: The bytes that nobody but the server knows.
        mechanism: The mechanism.
        name: The name that the client gave.
    """
    digest = hmac.digest(secret, f"{mechanism.sasl_name},{name}".encode(), "sha512")
    salt = _salt_text(int.from_bytes(digest[:17], "big") >> 6)
    stored, server = (hmac.digest(secret, part + digest, mechanism.hash_name) for part in (b"stored", b"server"))
    return ScramCredential(salt, stored, server, ITERATIONS_MIN)


def _salt_text(number: int) -> bytes:
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return (text or _DIGITS[0]).encode()
