"""The entries of access control lists, arranged so that one look-up costs microseconds however many there are.

For each principal and kind of resource there is a table: literal names in a dictionary, prefixes in a sorted list where each
knows the next shorter one that is a prefix of it.  All prefixes of a name are found by one bisection and a walk to ever shorter
ones: the last prefix that sorts at or before the name begins with every stored prefix of it.

What an entry says is a bit: `1 << operation` of what is allowed, or of what is denied, to one host.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from replog.access.entries import ANY_NAME, ANY_USER, AclEntry, AclOperation, PatternType, Permission, ResourceKind

Bits: TypeAlias = tuple[int, int]
"""(allowed, denied): the operations that entries name, ALL with a bit of its own."""

Hosts: TypeAlias = Mapping[str, Bits]
"""The bits of one pattern by the host of the entries, `*` for any."""

Tables: TypeAlias = tuple[Mapping[str, "AclTable"], ...]
"""By the code of the kind, tables by principal, as entries write it.  A kind is an index, since an enumeration is slow to hash."""

NOTHING: Final[Bits] = (0, 0)
_NO_TABLES: Final[Tables] = tuple({} for _ in range(max(ResourceKind) + 1))
_NO_HOSTS: Final[Hosts] = {}


class AclChange(Struct, frozen=True):
    """An entry that is new, or that is gone."""

    entry: AclEntry
    is_new: bool


class AclTable:
    """The entries of one principal for one kind of resource; never changed in place."""

    __slots__ = ("_parents", "_sorted", "literal", "prefixed")

    def __init__(self, literal: Mapping[str, Hosts], prefixed: Mapping[str, Hosts]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self._sorted = sorted(prefixed)
        self._parents = _parents(self._sorted)

    def concerning(self, name: str) -> list[Hosts]:
        """Returns what is said of a name: by itself, by `*`, by each prefix of it."""
        found = [hosts for each in (name, ANY_NAME) if (hosts := self.literal.get(each)) is not None]
        if not self._sorted:
            return found
        position = bisect_right(self._sorted, name)
        prefix = self._sorted[position - 1] if position else None
        while prefix is not None and not name.startswith(prefix):
            prefix = self._parents[prefix]
        while prefix is not None:
            found.append(self.prefixed[prefix])
            prefix = self._parents[prefix]
        return found

    def changed(self, changes: Iterable[AclChange]) -> AclTable:
        """Returns the table after changes of its entries."""
        literal, prefixed = dict(self.literal), dict(self.prefixed)
        for change in changes:
            names = prefixed if change.entry.pattern is PatternType.PREFIXED else literal
            hosts = _hosts_after(names.get(change.entry.name, _NO_HOSTS), change)
            if hosts:
                names[change.entry.name] = hosts
            else:
                names.pop(change.entry.name, None)
        return AclTable(literal, prefixed)


class AclIndex:
    """All entries by kind and principal; never changed in place, so that nobody reads half of a change.

    Args:
        tables: The table of each kind and principal that has entries.
        names: The tables of each kind over all principals, where the hosts are of no meaning: whether a name has an entry at all.
    """

    __slots__ = ("_names", "_tables")

    def __init__(self, tables: Tables = _NO_TABLES, names: Mapping[ResourceKind, AclTable] | None = None) -> None:
        self._tables = tables
        self._names = names or {}

    def changed(self, changes: Iterable[AclChange], *, notes_names: bool) -> AclIndex:
        """Returns the index after changes.

        Args:
            changes: The changes; what goes before what comes.
            notes_names: Whether `has_entry` will be asked.
        """
        by_table: dict[tuple[ResourceKind, str], list[AclChange]] = {}
        by_kind: dict[ResourceKind, list[AclChange]] = {}
        for change in changes:
            entry = change.entry
            by_table.setdefault((entry.kind, entry.principal), []).append(change)
            if notes_names:
                by_kind.setdefault(entry.kind, []).append(_of_everybody(change))
        tables, names = [dict(of_kind) for of_kind in self._tables], dict(self._names)
        for (kind, principal), some in by_table.items():
            table = tables[kind].get(principal, _EMPTY).changed(some)
            if table.literal or table.prefixed:
                tables[kind][principal] = table
            else:
                tables[kind].pop(principal, None)
        names |= {kind: names.get(kind, _EMPTY).changed(some) for kind, some in by_kind.items()}
        return AclIndex(tuple(tables), names)

    def bits(self, user: str, addresses: tuple[str, ...], kind: ResourceKind, name: str) -> Bits:
        """Returns what entries allow and deny a principal, from a host with these addresses, on one resource."""
        allowed = denied = 0
        of_kind = self._tables[kind]
        for principal in (user, ANY_USER):
            table = of_kind.get(principal)
            if table is None:
                continue
            for hosts in table.concerning(name):
                for each in addresses:
                    if (said := hosts.get(each)) is not None:
                        allowed |= said[0]
                        denied |= said[1]
        return allowed, denied

    def has_entry(self, kind: ResourceKind, name: str) -> bool:
        """Whether a resource has an entry, of any principal."""
        table = self._names.get(kind)
        return table is not None and bool(table.concerning(name))

    def allows_some(self, user: str, addresses: tuple[str, ...], operation: AclOperation, kind: ResourceKind) -> bool:
        """Whether entries allow a principal an operation on some name of a kind that other entries do not deny as a whole.

        Of entries for the operation itself, and for ALL: what is implied does not count (Kafka's `authorizeByResourceType`).
        """
        bits = 1 << operation | 1 << AclOperation.ALL
        said = [table for each in (user, ANY_USER) if (table := self._tables[kind].get(each)) is not None]
        literal = [_said(table.literal, addresses, bits) for table in said]
        prefixed = [_said(table.prefixed, addresses, bits) for table in said]
        denied = {name for allows in literal for name in allows.denied}
        denied_prefixes = {name for allows in prefixed for name in allows.denied}
        if ANY_NAME in denied:
            return False
        allowed = {name for allows in literal for name in allows.allowed}
        if ANY_NAME in allowed:
            return True
        names = (allowed - denied) | {name for allows in prefixed for name in allows.allowed}
        return any(not _has_prefix(name, denied_prefixes) for name in names)


class _Said(Struct, frozen=True):
    """The patterns that allow something to somebody, and those that deny it."""

    allowed: set[str]
    denied: set[str]


def _said(patterns: Mapping[str, Hosts], addresses: tuple[str, ...], bits: int) -> _Said:
    said = _Said(set(), set())
    for name, hosts in patterns.items():
        for each in addresses:
            allowed, denied = hosts.get(each, NOTHING)
            if allowed & bits:
                said.allowed.add(name)
            if denied & bits:
                said.denied.add(name)
    return said


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _parents(names: list[str]) -> dict[str, str | None]:
    """Returns for each of sorted names the longest other one that it begins with."""
    parents: dict[str, str | None] = {}
    open_names: list[str] = []
    for name in names:
        while open_names and not name.startswith(open_names[-1]):
            open_names.pop()
        parents[name] = open_names[-1] if open_names else None
        open_names.append(name)
    return parents


def _hosts_after(hosts: Hosts, change: AclChange) -> Hosts:
    entry = change.entry
    allowed, denied = hosts.get(entry.host, NOTHING)
    bit = 1 << entry.operation
    if entry.permission is Permission.ALLOW:
        allowed = allowed | bit if change.is_new else allowed & ~bit
    else:
        denied = denied | bit if change.is_new else denied & ~bit
    after = {**hosts, entry.host: (allowed, denied)}
    if not allowed and not denied:
        del after[entry.host]
    return after


def _of_everybody(change: AclChange) -> AclChange:
    """Returns a change as the table of all principals has it: no two entries of a pattern share a bit of a host."""
    entry = change.entry
    shared = AclEntry(
        entry.kind,
        entry.name,
        entry.pattern,
        "",
        f"{len(entry.principal)} {entry.principal}{entry.host}",
        entry.operation,
        entry.permission,
    )
    return AclChange(shared, change.is_new)


_EMPTY: Final = AclTable({}, {})
