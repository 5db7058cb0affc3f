"""The decision by the access control lists of the metadata log, as Kafka's `StandardAuthorizer` makes it.

| asked | answer |
|---|---|
| a principal of `super.users` | yes, before any entry is looked at, and before there are any |
| before the first image of the metadata | nobody knows: the request is refused so that it is asked again |
| an entry denies it: of the principal or of everybody, of the host or of any, of the name, of a prefix or of `*` | no |
| an entry allows it, or something that implies it | yes |
| there is no entry at all for the resource | `allow.everyone.if.no.acl.found` |
| else | no |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from ipaddress import IPv6Address
from typing import Final

from msgspec import Struct

from replog.access.acl_index import AclChange, AclIndex, Bits
from replog.access.entries import ANY_HOST, ANY_USER, AclEntry, AclOperation, Permission, ResourceKind, concerns
from replog.access.principal import Principal
from replog.errors import BrokerNotAvailableError

IMPLIES: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""An operation, and those of which an entry that allows them allows it, too.  An entry that denies them does not deny it."""

CACHED_MAX: Final = 10_000
"""Answers that are remembered until an entry changes."""

CACHED_NAME_CHARACTERS_MAX: Final = 256
"""The longest name of which an answer is remembered: a client says what names are."""

_ANY_EXAMPLE: Final = "hardcode"
"""The name that Kafka asks for first where any name of a kind would do."""

_EVERYTHING: Final = -1


def _allowed_by(operation: AclOperation) -> int:
    return sum(1 << each for each in (operation, AclOperation.ALL, *IMPLIES.get(operation, ())))


_ALLOWED_BY: Final = tuple(_allowed_by(AclOperation(code)) if code else 0 for code in range(max(AclOperation) + 1))
"""By the code of an operation: the bits of what allows it."""

_DENIED_BY: Final = tuple(1 << code | 1 << AclOperation.ALL for code in range(max(AclOperation) + 1))
"""By the code of an operation: the bits of what denies it."""


class AclsInForce(Struct, frozen=True):
    """All entries, and how many they are."""

    index: AclIndex
    count: int


class StandardAuthorizer:
    """Decides by entries; see `replog.access.authorizer.Authorizer`.

    Args:
        super_users: The principals that may do everything, as `User:name`.
        allows_unlisted: Whether everybody may do everything to a resource that has no entry.

    Attributes:
        version: The number of changes that are in force.
        denials_count: How often the answer was no.
        entries_count: The number of entries in force.
    """

    def __init__(self, super_users: Iterable[str] = (), *, allows_unlisted: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_unlisted = allows_unlisted
        self._index: AclIndex | None = None
        self._cache: dict[tuple[str, str, int, str], Bits] = {}
        self._any_cache: dict[tuple[str, str, AclOperation, ResourceKind], bool] = {}
        self.version = 0
        self.denials_count = 0
        self.entries_count = 0

    def update(self, gone: Iterable[AclEntry], new: Iterable[AclEntry]) -> None:
        """Puts changes in force as `put` does."""
        self.put(self.after(gone, new))

    def after(self, gone: Iterable[AclEntry], new: Iterable[AclEntry]) -> AclsInForce:
        """Returns what is in force after changes, for `put`; changes nothing, so a thread may do it."""
        removed = [AclChange(entry, is_new=False) for entry in gone]
        added = [AclChange(entry, is_new=True) for entry in new]
        index = (self._index or AclIndex()).changed([*removed, *added], notes_names=self._allows_unlisted)
        return AclsInForce(index, self.entries_count + len(added) - len(removed))

    def put(self, acls: AclsInForce) -> None:
        """Puts entries in force, all at once; the first call says that they are known, even if there are none."""
        self._index, self.entries_count = acls.index, acls.count
        self._cache, self._any_cache = {}, {}
        self.version += 1

    def allows(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        """Whether a principal that comes from an address may do something to a resource.

        Raises:
            BrokerNotAvailableError: The entries are not known yet; the principal is none of the super users.
        """
        is_allowed = self._allows(f"User:{principal.name}", host, operation, kind, name)
        self.denials_count += not is_allowed
        return is_allowed

    def _allows(self, user: str, host: str, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        if user in self._super_users:
            return True
        key = (user, host, +kind, name)  # the number: an enumeration is slow to hash
        bits = self._cache.get(key)
        if bits is None:
            bits = self._look_up(user, host, kind, name)
            self._remember(key, bits)
        return bool(bits[0] & _ALLOWED_BY[operation]) and not bits[1] & _DENIED_BY[operation]

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: ResourceKind) -> bool:
        """Whether there may be a resource of a kind to which a principal may do something.

        Raises:
            BrokerNotAvailableError: As `allows` does.
        """
        user = f"User:{principal.name}"
        if self._allows(user, host, operation, kind, _ANY_EXAMPLE):
            return True
        key = (user, host, operation, kind)
        answer = self._any_cache.get(key)
        if answer is None:
            answer = self._index_or_raise().allows_some(user, addresses_of(host), operation, kind)
            if len(self._any_cache) >= CACHED_MAX:
                self._any_cache.clear()
            self._any_cache[key] = answer
        self.denials_count += not answer
        return answer

    def _look_up(self, user: str, host: str, kind: ResourceKind, name: str) -> Bits:
        index = self._index_or_raise()
        bits = index.bits(user, addresses_of(host), kind, name)
        if self._allows_unlisted and bits == (0, 0) and not index.has_entry(kind, name):
            return _EVERYTHING, 0
        return bits

    def _remember(self, key: tuple[str, str, int, str], bits: Bits) -> None:
        if len(key[3]) > CACHED_NAME_CHARACTERS_MAX or len(key[0]) > CACHED_NAME_CHARACTERS_MAX:
            return
        if len(self._cache) >= CACHED_MAX:
            self._cache.clear()
        self._cache[key] = bits

    def _index_or_raise(self) -> AclIndex:
        if self._index is None:
            raise BrokerNotAvailableError(
                "this node has not read the access control lists since its start, and until then only super users are served; "
                "ask again, or ask another broker"
            )
        return self._index


def addresses_of(host: str) -> tuple[str, ...]:
    """Returns what entries may call a host: `*`, and its address, an IPv6 address as Python writes it and as Java does."""
    if ":" not in host:
        return host, ANY_HOST
    try:
        address = IPv6Address(host)
    except ValueError:
        return host, ANY_HOST
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped), ANY_HOST
    groups = (f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return str(address), ":".join(groups), ANY_HOST


class Reason(StrEnum):
    """Why a decision is what it is."""

    SUPER_USER = "super user"
    ENTRY = "entry"
    NO_ENTRY = "no entry"
    UNLISTED = "no entry for the resource"


class AclDecision(Struct, frozen=True):
    """What is decided, and by what; `entry` is the one that decided, None where none did."""

    is_allowed: bool
    reason: Reason
    entry: AclEntry | None = None


class AclQuestion(Struct, frozen=True):
    """Whether a principal, from a host, may do something to a resource."""

    principal: Principal
    host: str
    operation: AclOperation
    kind: ResourceKind
    name: str


def decide(
    entries: Iterable[AclEntry],
    question: AclQuestion,
    super_users: Iterable[str] = (),
    *,
    allows_unlisted: bool = False,
) -> AclDecision:
    """Returns what `StandardAuthorizer` decides, and why: it looks at every entry, for people and for tests."""
    if str(question.principal) in frozenset(super_users):
        return AclDecision(is_allowed=True, reason=Reason.SUPER_USER)
    of_resource = [entry for entry in entries if entry.kind is question.kind and concerns(entry, question.name)]
    deciding = sorted(entry for entry in of_resource if _speaks_of(entry, question))
    for permission in (Permission.DENY, Permission.ALLOW):
        for entry in deciding:
            if entry.permission is permission:
                return AclDecision(permission is Permission.ALLOW, Reason.ENTRY, entry)
    if of_resource:
        return AclDecision(is_allowed=False, reason=Reason.NO_ENTRY)
    return AclDecision(allows_unlisted, Reason.UNLISTED)


def _speaks_of(entry: AclEntry, question: AclQuestion) -> bool:
    implied = IMPLIES.get(question.operation, ()) if entry.permission is Permission.ALLOW else ()
    return (
        entry.principal in {ANY_USER, str(question.principal)}
        and entry.host in addresses_of(question.host)
        and entry.operation in {AclOperation.ALL, question.operation, *implied}
    )
