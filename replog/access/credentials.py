"""The ways in which clients log in, and what a cluster keeps of the passwords of its users.

It keeps no password and nothing that logs in: a salt, two keys that are hashes, and how often the password was hashed.  Whoever
reads them can try passwords, so they are never shown.  Apart from what hashes, so that who reads a configuration does not load it.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct

from replog.errors import InvalidRequestError

ITERATIONS_MIN: Final = 4096
"""Fewer would make a password easy to guess that somebody finds by its keys; Kafka's brokers refuse fewer, too."""

ITERATIONS_MAX: Final = 16_384
"""More work for each login than Kafka's brokers let a user be given."""

NAME_BYTES_MAX: Final = 1024
"""Bytes of the name of a user, in UTF-8."""

SALT_BYTES_MAX: Final = 1024
"""Bytes of a salt."""


class SaslMechanism(Enum):
    """A way in which a client says who it is; the values are the names that clients ask for."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"


class ScramMechanism(IntEnum):
    """A mechanism of SCRAM; the numbers are Kafka's (KIP-554)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name by which clients ask for it, as SCRAM-SHA-256."""
        return f"SCRAM-SHA-{256 * self}"

    @property
    def hash_name(self) -> str:
        """The name of its hash, as sha256."""
        return f"sha{256 * self}"

    @property
    def key_bytes(self) -> int:
        """How many bytes its hash and its keys have."""
        return 32 * self


class ScramCredential(Struct, frozen=True):
    """What a server keeps of a user's password.

    Attributes:
        salt: The bytes that the password is salted with.
        stored_key: The hash of the key by which the client proves that it knows the password.
        server_key: The key by which the server proves that it knows the user.
        iterations: How often the password is hashed.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Shows no bytes: by them passwords can be tried."""
        return f"ScramCredential(iterations={self.iterations})"


def check_user_name(name: str) -> None:
    """Refuses what is no name of a user.

    Raises:
        InvalidRequestError: It is empty, or longer than `NAME_BYTES_MAX`.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= NAME_BYTES_MAX:
        raise InvalidRequestError(f"the name of a user has 1 to {NAME_BYTES_MAX:,} bytes, not {size:,}")
