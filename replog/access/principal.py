"""The identity at the other end of a connection."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Principal(Struct, frozen=True):
    """An identity, as Kafka writes it: `User:name`."""

    name: str

    def __str__(self) -> str:
        return f"User:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")
"""Who has shown no identity."""
