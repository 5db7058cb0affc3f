"""The decision whether somebody may do something."""

from __future__ import annotations

from typing import Final, Protocol

from replog.access.entries import AclOperation, ResourceKind
from replog.access.principal import Principal


class Authorizer(Protocol):
    """Decides who may do what; each call is cheap enough for each request."""

    @property
    def version(self) -> int:
        """A number that is another one after each change of what is allowed: what was decided before is then asked again."""
        ...

    def allows(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        """Whether a principal that comes from an address may do something to a resource."""
        ...

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind) -> bool:
        """Whether there may be a resource of a kind to which a principal may do something."""
        ...


class Open:
    """Allows everything to everybody, as a node does that has no authorizer."""

    __slots__ = ()
    version = 0

    def allows(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind, name: str) -> bool:  # noqa: ARG002
        return True

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind) -> bool:  # noqa: ARG002
        return True


OPEN: Final = Open()
"""The authorizer of a node that has none."""
