"""The words of access control lists, with Kafka's codes (`AclOperation`, `ResourceType`, `PatternType`, `AclPermissionType`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct


class AclOperation(IntEnum):
    """What is done to a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceKind(IntEnum):
    """What something is done to."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an entry stands for names of resources."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an entry says of what it fits."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of the kind CLUSTER."""

ANY_NAME: Final = "*"
"""The name of a literal entry that fits every name."""

ANY_HOST: Final = "*"
"""The host of an entry that fits every address."""

ANY_USER: Final = "User:*"
"""The principal of an entry that fits every principal."""

PRINCIPAL_CHARACTERS_MAX: Final = 1_024
"""The longest principal or host of an entry."""

OPERATIONS: Final[Mapping[ResourceKind, frozenset[AclOperation]]] = {
    kind: frozenset((AclOperation.ALL, *operations))
    for kind, operations in (
        (
            ResourceKind.TOPIC,
            (
                AclOperation.READ,
                AclOperation.WRITE,
                AclOperation.CREATE,
                AclOperation.DESCRIBE,
                AclOperation.DELETE,
                AclOperation.ALTER,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            ),
        ),
        (
            ResourceKind.GROUP,
            (
                AclOperation.READ,
                AclOperation.DESCRIBE,
                AclOperation.DELETE,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            ),
        ),
        (
            ResourceKind.CLUSTER,
            (
                AclOperation.CREATE,
                AclOperation.CLUSTER_ACTION,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
                AclOperation.IDEMPOTENT_WRITE,
                AclOperation.ALTER,
                AclOperation.DESCRIBE,
            ),
        ),
        (
            ResourceKind.TRANSACTIONAL_ID,
            (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
        ),
        (ResourceKind.DELEGATION_TOKEN, (AclOperation.DESCRIBE,)),
        (ResourceKind.USER, (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS)),
    )
}
"""The operations that there are on each kind of resource (Kafka's `AclEntry.supportedOperations`), and ALL."""


class AclEntry(Struct, frozen=True, order=True):
    """An entry of an access control list: who may, or may not, do what to which resources.

    Attributes:
        kind: The kind of the resources.
        name: The name of the resource, the beginning of the names of several, or `*` for all, as `pattern` says.
        pattern: LITERAL or PREFIXED.
        principal: The principal as `TYPE:NAME`; `User:*` for everybody.
        host: The address from which the principal comes; `*` for any.
        operation: What is done; ALL for everything.
        permission: ALLOW or DENY.
    """

    kind: ResourceKind
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class AclFilter(Struct, frozen=True):
    """Says which entries are meant; a field that is None or ANY fits all.

    `pattern` MATCH means the entries that concern a resource named `name`: literal ones, prefixes of it, and `*`.
    """

    kind: ResourceKind = ResourceKind.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def only_entry(self) -> AclEntry | None:
        """Returns the one entry that is meant where every field says what it is; else None."""
        if self.name is None or self.principal is None or self.host is None:
            return None
        if self.kind is ResourceKind.ANY or self.operation is AclOperation.ANY or self.permission is Permission.ANY:
            return None
        if self.pattern not in {PatternType.LITERAL, PatternType.PREFIXED}:
            return None
        return AclEntry(self.kind, self.name, self.pattern, self.principal, self.host, self.operation, self.permission)

    def fits(self, entry: AclEntry) -> bool:
        """Whether an entry is meant."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.kind is ResourceKind.ANY or self.kind is entry.kind)
            and (self.host is None or self.host == entry.host)
            and (self.operation is AclOperation.ANY or self.operation is entry.operation)
            and (self.permission is Permission.ANY or self.permission is entry.permission)
            and self._fits_pattern(entry)
        )

    def _fits_pattern(self, entry: AclEntry) -> bool:
        if self.pattern is PatternType.MATCH:
            return self.name is None or concerns(entry, self.name)
        is_of_pattern = self.pattern is PatternType.ANY or self.pattern is entry.pattern
        return is_of_pattern and (self.name is None or self.name == entry.name)


def concerns(entry: AclEntry, name: str) -> bool:
    """Whether an entry is one of a resource with this name, whatever its kind."""
    if entry.pattern is PatternType.PREFIXED:
        return name.startswith(entry.name)
    return entry.name in (name, ANY_NAME)


def entry_problem(entry: AclEntry) -> str | None:
    """Returns why an entry cannot be one, in a sentence; None where it can.

    Source of the rules: Kafka's `AclControlManager.validateNewAcl` and `AclApis`.  Like Kafka, it lets an operation be one that
    there is not on the kind: such an entry decides nothing.
    """
    if entry.kind is ResourceKind.ANY:
        return "the kind of resource is ANY; name one kind"
    if entry.pattern not in {PatternType.LITERAL, PatternType.PREFIXED}:
        return f"the pattern is {entry.pattern.name}; an entry is LITERAL or PREFIXED"
    if entry.operation is AclOperation.ANY:
        return "the operation is ANY; name one, or ALL"
    if entry.permission is Permission.ANY:
        return "the permission is ANY; it is ALLOW or DENY"
    if not entry.name:
        return "the name of the resource is empty; `*` stands for all of them"
    if entry.kind is ResourceKind.CLUSTER and entry.name != CLUSTER_NAME:
        return f'there is one resource of the kind CLUSTER, "{CLUSTER_NAME}"; name that'
    if ":" not in entry.principal:
        return f'"{entry.principal[:80]}" is no principal; write it as User:NAME'
    if max(len(entry.principal), len(entry.host)) > PRINCIPAL_CHARACTERS_MAX:
        return f"a principal and a host have at most {PRINCIPAL_CHARACTERS_MAX} characters; shorten it"
    return None
