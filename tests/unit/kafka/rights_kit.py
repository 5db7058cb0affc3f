"""Clients with rights: an authorizer that allows what a test says, and requests of a principal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from replog.access.authorizer import OPEN, Authorizer
from replog.access.entries import AclOperation, ResourceKind
from replog.access.principal import ANONYMOUS, ClientIdentity, Principal
from replog.access.rights import Rights
from replog.protocol.audit import Audit
from replog.protocol.handlers.node import Call
from replog.tcp.connection import Caller

if TYPE_CHECKING:  # a neighbour is found by its name where a file of this folder runs; others use this module, too
    from kafka_node_kit import Served

Grant = tuple[AclOperation, ResourceKind, str]
"""An operation, and the kind and the name of the resource."""

ALICE = Principal("alice")


class AllowedOnly:
    """Allows what is in `grants`, to whoever asks.

    Attributes:
        asked: What it was asked.
    """

    def __init__(self, *grants: Grant) -> None:
        self._grants = set(grants)
        self.version = 1
        self.asked: list[Grant] = []

    def allow(self, *grants: Grant) -> None:
        self._grants.update(grants)
        self.version += 1

    def deny(self, *grants: Grant) -> None:
        self._grants.difference_update(grants)
        self.version += 1

    def allows(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        assert isinstance(principal, Principal), "a type, not a convention"
        assert host, "the address of a connection"
        self.asked.append((operation, kind, name))
        return (operation, kind, name) in self._grants

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind) -> bool:
        assert principal
        assert host
        return any(grant[:2] == (operation, kind) for grant in self._grants)


class BehindEverybody(AllowedOnly):
    """Allows everything, as a broker does that has not heard of what was taken away."""

    def allows(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        super().allows(principal, host, operation, kind, name)
        return True


def on(kind: ResourceKind, name: str, *operations: AclOperation) -> Iterable[Grant]:
    return ((operation, kind, name) for operation in operations)


def a_call(
    version: int,
    client_id: str = "c",
    caller: Caller | None = None,
    authorizer: Authorizer = OPEN,
) -> Call:
    """The context of a request that came over no connection."""
    caller = caller or Caller(ANONYMOUS, "127.0.0.1" if authorizer is not OPEN else "")
    rights = Rights(authorizer, ClientIdentity(caller.principal, caller.address), "Any", Audit().denied)
    return Call(version, client_id, caller, rights)


def govern(it: Served, authorizer: Authorizer) -> None:
    """Lets an authorizer decide what clients of a node may do."""
    force_setattr(it.node.parts.requests.kafka_node._parts, "authorizer", authorizer)
