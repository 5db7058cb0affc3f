"""The identity at the other end of a connection, and what goes on with it for a client."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from msgspec import Struct

T_co = TypeVar("T_co", covariant=True)


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


class ClientIdentity(Struct, frozen=True):
    """A client, as decisions about its requests need it.

    Attributes:
        principal: Who it is.
        host: The address from which it came to a listener; "" where it is not known.
    """

    principal: Principal
    host: str


class Envelope(Struct, Generic[T_co], frozen=True):
    """A change, and the client that asks for it: the controller that makes the change decides by it (Kafka's Envelope, KIP-590).

    Attributes:
        change: The change.
        client: The client.
        api: The name of the API that the client asked, for the audit log; "": a node of an earlier version does not tell it.
    """

    change: T_co
    client: ClientIdentity
    api: str = ""
