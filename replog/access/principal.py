"""The identity at the other end of a connection."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Principal(Struct, frozen=True):
    """An identity, as Kafka writes it: `User:name`.

    Attributes:
        name: The name of the user.
        token_authenticated: Whether it was shown by a delegation token, with which nobody may ask for tokens (KIP-48).
    """

    name: str
    token_authenticated: bool = False

    def __str__(self) -> str:
        return f"User:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
"""Who has shown no identity."""
