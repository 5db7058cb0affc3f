"""The entries of access control lists, arranged so that one look-up costs microseconds however many there are.

For each principal and kind of resource there is a table: literal names in a dictionary, prefixes as ranges of names.  The names
that begin with a prefix are one range of the sort order, and two such ranges lie one in the other or apart.  So the prefixes of
one host cut the order into pieces, in each of which the same prefixes hold, and what these say together is kept for the piece:
one bisection finds it, whatever the name begins with.

What an entry says is a bit: `1 << operation` of what is allowed, or of what is denied, to one host.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from replog.access.entries import ANY_NAME, ANY_USER, AclEntry, AclOperation, PatternType, Permission, ResourceKind

Bits: TypeAlias = tuple[int, int]
"""(allowed, denied): the operations that entries name, ALL with a bit of its own."""

Hosts: TypeAlias = Mapping[str, Bits]
"""The bits of one pattern by the host of the entries, `*` for any."""

Tables: TypeAlias = tuple[Mapping[str, "AclTable"], ...]
"""By the code of the kind, tables by principal, as entries write it.  A kind is an index, since an enumeration is slow to hash."""

T = TypeVar("T")

NOTHING: Final[Bits] = (0, 0)
_NO_TABLES: Final[Tables] = tuple({} for _ in range(max(ResourceKind) + 1))
_NO_HOSTS: Final[Hosts] = {}


class AclChange(Struct, frozen=True):
    """An entry that is new, or that is gone."""

    entry: AclEntry
    is_new: bool


class PrefixRanges:
    """What prefixes say of names, by ranges of the names' order; never changed.

    Args:
        prefixes: The bits of each prefix.
    """

    __slots__ = ("_bits", "_starts")

    def __init__(self, prefixes: Mapping[str, Bits]) -> None:
        pieces: dict[str, Bits] = {}
        open_ranges: list[tuple[str, Bits]] = []
        end, around = "", NOTHING  # of the innermost range that is open; without an end where none is, or it has none
        for prefix in sorted(prefixes):
            while end and end <= prefix:
                ended = end
                end, around = open_ranges.pop()
                pieces[ended] = around
            open_ranges.append((end, around))
            own = prefixes[prefix]
            around = own if around is NOTHING else (around[0] | own[0], around[1] | own[1])
            end = _end_of(prefix)
            pieces[prefix] = around
        while end:
            ended = end
            end, around = open_ranges.pop()
            pieces[ended] = around
        self._starts = list(pieces)
        self._bits = list(pieces.values())

    def bits(self, name: str) -> Bits:
        """Returns what all prefixes of a name say together."""
        position = bisect_right(self._starts, name)
        return self._bits[position - 1] if position else NOTHING


class AclTable:
    """The entries of one principal for one kind of resource; what they say is never changed in place."""

    __slots__ = ("_ranges", "literal", "prefixed")

    def __init__(self, literal: Mapping[str, Hosts], prefixed: Mapping[str, Hosts]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self._ranges: Mapping[str, PrefixRanges] | None = (
            None  # until somebody asks: thousands of tables may come at once
        )

    def bits(self, addresses: tuple[str, ...], name: str) -> Bits:
        """Returns what is said of a name to a host with these addresses: by itself, by `*`, by each prefix of it."""
        allowed = denied = 0
        for hosts in (self.literal.get(name, _NO_HOSTS), self.literal.get(ANY_NAME, _NO_HOSTS)):
            if hosts:
                for each in addresses:
                    own = hosts.get(each, NOTHING)
                    allowed |= own[0]
                    denied |= own[1]
        if self.prefixed:
            by_host = self._ranges
            if by_host is None:
                by_host = self._ranges = _ranges_of(self.prefixed)
            for each in addresses:
                if (ranges := by_host.get(each)) is not None:
                    own = ranges.bits(name)
                    allowed |= own[0]
                    denied |= own[1]
        return allowed, denied

    def changed(self, changes: Iterable[AclChange]) -> AclTable:
        """Returns the table after changes of its entries."""
        literal, prefixed = dict(self.literal), dict(self.prefixed)
        for of, some in _by_pattern(changes).items():
            names = prefixed if of[0] is PatternType.PREFIXED else literal
            _put(names, of[1], _hosts_after(names.get(of[1], _NO_HOSTS), some))
        return AclTable(literal, prefixed)


class ListedNames:
    """How many entries each pattern of one kind of resource has, of all principals and hosts; never changed in place."""

    __slots__ = ("_literal", "_prefixed", "_ranges")

    def __init__(self, literal: Mapping[str, int], prefixed: Mapping[str, int]) -> None:
        self._literal = literal
        self._prefixed = prefixed
        self._ranges: PrefixRanges | None = None  # until somebody asks, as in a table

    def __contains__(self, name: str) -> bool:
        """Whether an entry concerns a name."""
        if name in self._literal or ANY_NAME in self._literal:
            return True
        if self._ranges is None:
            self._ranges = PrefixRanges(dict.fromkeys(self._prefixed, (1, 0)))
        return self._ranges.bits(name) != NOTHING

    def changed(self, changes: Iterable[AclChange]) -> ListedNames:
        """Returns the counts after changes."""
        literal, prefixed = dict(self._literal), dict(self._prefixed)
        for (pattern, name), some in _by_pattern(changes).items():
            names = prefixed if pattern is PatternType.PREFIXED else literal
            _put(names, name, names.get(name, 0) + sum(1 if each.is_new else -1 for each in some))
        return ListedNames(literal, prefixed)


class AclIndex:
    """All entries by kind and principal; never changed in place, so that nobody reads half of a change.

    Args:
        tables: The table of each kind and principal that has entries.
        names: By kind, the names that have an entry at all.
    """

    __slots__ = ("_names", "_tables")

    def __init__(self, tables: Tables = _NO_TABLES, names: Mapping[ResourceKind, ListedNames] | None = None) -> None:
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
                by_kind.setdefault(entry.kind, []).append(change)
        tables, names = [dict(of_kind) for of_kind in self._tables], dict(self._names)
        for (kind, principal), some in by_table.items():
            table = tables[kind].get(principal, _EMPTY).changed(some)
            if table.literal or table.prefixed:
                tables[kind][principal] = table
            else:
                tables[kind].pop(principal, None)
        names |= {kind: names.get(kind, _NO_NAMES).changed(some) for kind, some in by_kind.items()}
        return AclIndex(tuple(tables), names)

    def bits(self, user: str, addresses: tuple[str, ...], kind: ResourceKind, name: str) -> Bits:
        """Returns what entries allow and deny a principal, from a host with these addresses, on one resource."""
        of_kind = self._tables[kind]
        own, of_all = of_kind.get(user), of_kind.get(ANY_USER)
        allowed, denied = NOTHING if own is None else own.bits(addresses, name)
        if of_all is not None:
            all_allowed, all_denied = of_all.bits(addresses, name)
            return allowed | all_allowed, denied | all_denied
        return allowed, denied

    def has_entry(self, kind: ResourceKind, name: str) -> bool:
        """Whether a resource has an entry, of any principal."""
        return name in self._names.get(kind, _NO_NAMES)

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


def _ranges_of(prefixed: Mapping[str, Hosts]) -> Mapping[str, PrefixRanges]:
    """Returns what prefixes say, by the hosts of their entries."""
    by_host: dict[str, dict[str, Bits]] = {}
    for prefix, hosts in prefixed.items():
        for host, bits in hosts.items():
            by_host.setdefault(host, {})[prefix] = bits
    return {host: PrefixRanges(prefixes) for host, prefixes in by_host.items()}


def _end_of(prefix: str) -> str:
    """Returns the first string behind all that begin with a prefix; empty where there is none."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else ""


def _by_pattern(changes: Iterable[AclChange]) -> dict[tuple[PatternType, str], list[AclChange]]:
    """Sorts changes by what they concern, so that thousands for one name are made at once."""
    found: dict[tuple[PatternType, str], list[AclChange]] = {}
    for change in changes:
        found.setdefault((change.entry.pattern, change.entry.name), []).append(change)
    return found


def _put(names: dict[str, T], name: str, value: T) -> None:
    """Keeps a value by a name, or nothing where the value is empty."""
    if value:
        names[name] = value
    else:
        names.pop(name, None)


def _hosts_after(hosts: Hosts, changes: Iterable[AclChange]) -> Hosts:
    after = dict(hosts)
    for change in changes:
        entry = change.entry
        allowed, denied = after.get(entry.host, NOTHING)
        bit = 1 << entry.operation
        if entry.permission is Permission.ALLOW:
            allowed = allowed | bit if change.is_new else allowed & ~bit
        else:
            denied = denied | bit if change.is_new else denied & ~bit
        if allowed or denied:
            after[entry.host] = allowed, denied
        else:
            after.pop(entry.host, None)
    return after


_LAST_CHARACTER: Final = chr(sys.maxunicode)
_EMPTY: Final = AclTable({}, {})
_NO_NAMES: Final = ListedNames({}, {})
