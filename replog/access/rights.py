"""What the sender of one request may do, as handlers of brokers and the controller ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from replog.access.authorizer import OPEN, Authorizer
from replog.access.entries import CLUSTER_NAME, AclOperation, ResourceKind
from replog.access.principal import ClientIdentity, Principal
from replog.errors import (
    AuthorizationError,
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    GroupAuthorizationError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)

_ERRORS: Final[Mapping[ResourceKind, type[AuthorizationError]]] = {
    ResourceKind.TOPIC: TopicAuthorizationError,
    ResourceKind.GROUP: GroupAuthorizationError,
    ResourceKind.CLUSTER: ClusterAuthorizationError,
    ResourceKind.TRANSACTIONAL_ID: TransactionalIdAuthorizationError,
    ResourceKind.DELEGATION_TOKEN: DelegationTokenAuthorizationError,
    ResourceKind.USER: DelegationTokenAuthorizationError,
}

_OPERATIONS: Final[Mapping[ResourceKind, int]] = {
    ResourceKind.CLUSTER: 0b1_1111_1010_0000,
    ResourceKind.TOPIC: 0b1101_1111_1000,
    ResourceKind.GROUP: 0b1101_0100_1000,
}
"""The operations that there are on each kind, as Kafka tells them to clients (KIP-430): the bits are its codes."""


_HIDDEN: Final = "of the id that was asked for"


class Denial(Struct, frozen=True):
    """Something that a client asked for by name, and may not do, as the audit log tells it."""

    client: ClientIdentity
    api: str
    operation: AclOperation
    kind: ResourceKind
    name: str


class Rights(Struct, frozen=True):
    """What one client may do, at the moment at which it is asked.

    Attributes:
        authorizer: The authorizer of the node.
        client: Who the client is.
        api: The name of the API that it asks, for the audit log.
        tell_denied: The function that is told what is denied.
    """

    authorizer: Authorizer
    client: ClientIdentity
    api: str
    tell_denied: Callable[[Denial], None]

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.client.principal

    @property
    def is_open(self) -> bool:
        """Whether the node lets everybody do everything: there is nothing to ask."""
        return self.authorizer is OPEN

    def sees(self, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME) -> bool:
        """Whether something is allowed that nobody asked for by name: what is hidden in a list is not told in the log."""
        return self.is_open or self.authorizer.allows(self.client.principal, self.client.host, operation, kind, name)

    def allows(self, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME) -> bool:
        """Whether something is allowed that the client asks for; tells it in the log if it is not."""
        if self.sees(operation, kind, name):
            return True
        self.tell_denied(Denial(self.client, self.api, operation, kind, name))
        return False

    def allows_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        """Whether there may be a resource of a kind to which the client may do something."""
        return self.is_open or self.authorizer.allows_any(self.client.principal, self.client.host, operation, kind)

    def refused(
        self, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME, *, by_id: bool = False
    ) -> AuthorizationError | None:
        """Returns the error that says what is not allowed; None: it is.

        Args:
            operation: The operation.
            kind: The kind of the resource.
            name: Its name.
            by_id: Whether the client has asked for its id: then the error names it to who may describe it.
        """
        if self.allows(operation, kind, name):
            return None
        is_hidden = by_id and not self.sees(AclOperation.DESCRIBE, kind, name)
        return self.error(operation, kind, _HIDDEN if is_hidden else name)

    def error(self, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME) -> AuthorizationError:
        """Returns the error of something that is denied."""
        what = "the cluster" if kind is ResourceKind.CLUSTER else f'{kind.name} "{name}"'
        return _ERRORS[kind](
            f"{self.principal}, coming from {self.client.host or 'an unknown address'}, may not {operation.name} {what}: have who "
            f"administers the cluster allow {operation.name} on {kind.name} {name} to {self.principal}"
        )

    def require(
        self, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME, *, by_id: bool = False
    ) -> None:
        """Returns if something is allowed; arguments as of `refused`.

        Raises:
            AuthorizationError: It is not.
        """
        if (refused := self.refused(operation, kind, name, by_id=by_id)) is not None:
            raise refused

    def operations(self, kind: ResourceKind, name: str = CLUSTER_NAME) -> int:
        """Returns the bits of the operations that are allowed, as Kafka's clients are told them (KIP-430)."""
        every = _OPERATIONS[kind]
        if self.is_open:
            return every
        return sum(1 << each for each in AclOperation if every >> each & 1 and self.sees(each, kind, name))
