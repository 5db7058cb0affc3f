"""What there is to know of an API of Kafka before one of its messages is read."""

from __future__ import annotations

from msgspec import Struct


class Api(Struct, frozen=True):
    """One API.

    Attributes:
        name: The name, as Kafka's documentation has it.
        key: The key.
        versions: The versions that Kafka defines.
        flexible_from: The first version with tagged fields.
    """

    name: str
    key: int
    versions: range
    flexible_from: int
