"""An immutable mapping of which the next version shares almost everything with this one.

Why not a plain dict: publishing a change must not cost what the cluster is large, and copying a dict does.  Why not a
library: those with wheels for every Python we support order their entries by `hash`, which for text differs from process
to process, so that a simulation could not be repeated under another `PYTHONHASHSEED`.

A trie: inner nodes are tuples of 8, leaves are dicts of up to 64 entries, three bits of a key's stable hash choose the way
down; a mapping of up to 64 entries is one dict.  (A leaf that is full becomes 8 of 8 entries; wider nodes would make
leaves so small that they cost more memory than what they hold.)

    (leaf, leaf, (leaf, leaf, ...), ...)       a change copies one leaf and the tuples above it, about five at 10^6 entries

Cost: look-up and change O(log8 n), iteration O(n), building O(n).  Order: fixed by keys and history, the same in every
process, and neither that of insertion nor sorted.
"""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar, cast, overload
from uuid import UUID
from zlib import crc32

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")

LEAF_ENTRIES_MAX: Final = 64
MERGE_ENTRIES_MAX: Final = 32
"""Leaves of one node that hold no more together become one: well below the above, so that they do not flap."""
_BITS: Final = 3
_WIDTH: Final = 1 << _BITS
_MASK: Final = _WIDTH - 1
_DEPTH_MAX: Final = 20
"""Levels; below them leaves grow as they must.  Only keys that agree in 60 bits of their hash get there."""
_HASH_MASK: Final = (1 << (_BITS * _DEPTH_MAX)) - 1

_Node: TypeAlias = "dict[Any, Any] | tuple[_Node, ...]"
_Change: TypeAlias = tuple[int, Any, Any]
"""(stable hash, key, value or None: removed)."""


class PersistentMap(Mapping[K, V_co]):
    """A mapping that is never changed; `patched` makes the next one.  Values are never None.

    Keys are ints, texts, UUIDs, or tuples of those.
    """

    __slots__ = ("_root", "_size")

    def __init__(self, entries: Mapping[K, V_co] | None = None) -> None:
        """Copies `entries`; the mapping is empty by default."""
        self._root: _Node = {}
        self._size = 0
        if entries:
            small = len(entries) <= LEAF_ENTRIES_MAX
            self._root = dict(entries) if small else _patched_node({}, _changes(entries), 0)
            self._size = len(entries)

    def patched(self, changes: Mapping[K, V_co | None]) -> PersistentMap[K, V_co]:
        """Returns this mapping with changes: a value replaces or adds, None removes what may not be there.

        Copies only what the changed keys share a leaf with.
        """
        if not changes:
            return self
        found = PersistentMap[K, V_co]()
        if isinstance(self._root, dict) and self._size + len(changes) <= LEAF_ENTRIES_MAX:  # hashes are not needed
            merged = {**self._root, **changes}
            found._root = {key: value for key, value in merged.items() if value is not None}
            found._size = len(found._root)
        else:
            found._root = _patched_node(self._root, _changes(changes), 0)
            found._size = self._size + _growth(self._root, found._root)
        return found

    def __getitem__(self, key: K) -> V_co:
        value: V_co = self._leaf_of(key)[key]
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._leaf_of(key)

    @overload
    def get(self, key: K, default: None = None, /) -> V_co | None: ...
    @overload
    def get(self, key: K, default: V_co | T, /) -> V_co | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """Returns the value of `key`, or `default`."""
        return self._leaf_of(key).get(key, default)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(_leaves(self._root))

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.items())!r})"

    def items(self) -> ItemsView[K, V_co]:
        """Returns a set-like view of the (key, value) pairs."""
        return _Items(self)

    def values(self) -> ValuesView[V_co]:
        """Returns a view of the values."""
        return _Values(self)

    def leaves(self) -> Iterator[dict[K, V_co]]:
        """Returns the entries in groups, for reading only."""
        return _leaves(self._root)

    @property
    def root(self) -> _Node:
        """The trie, for reading only."""
        return self._root

    def _leaf_of(self, key: object) -> dict[Any, Any]:
        node = self._root
        if type(node) is tuple:
            bits = _stable_hash(key)
            while type(node) is tuple:
                node = node[bits & _MASK]
                bits >>= _BITS
        return cast("dict[Any, Any]", node)


def patched(base: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    """Returns `base` with the changes (None: removed), or `base` itself when there are none.

    Copies nothing in proportion to `base`, if it comes from this function or is a `PersistentMap`.
    """
    if not changes:
        return base
    persistent = base if isinstance(base, PersistentMap) else PersistentMap(base)
    return persistent.patched(changes)


def difference(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V | None]:
    """Returns what must change in `before` to make it `after`; None: removed.

    Looks only at what the two do not share, if one has come from the other by `patched`.
    """
    found: dict[K, V | None] = {}
    if isinstance(before, PersistentMap) and isinstance(after, PersistentMap):
        _add_difference(before.root, after.root, found)
    elif before is not after:
        _add_entries(before, after, found)
    return found


class _Items(ItemsView[K, V_co]):
    """Iterates leaf by leaf, without looking every key up again."""

    __slots__ = ()
    _mapping: PersistentMap[K, V_co]

    def __iter__(self) -> Iterator[tuple[K, V_co]]:
        return chain.from_iterable(leaf.items() for leaf in self._mapping.leaves())


class _Values(ValuesView[V_co]):
    """Iterates leaf by leaf, without looking every key up again."""

    __slots__ = ()
    _mapping: PersistentMap[Any, V_co]

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(leaf.values() for leaf in self._mapping.leaves())


def _growth(before: _Node, after: _Node) -> int:
    """Returns how many entries a node has more than the one that it has come from; looks only at what they do not share."""
    if before is after:
        return 0
    if isinstance(before, tuple) and isinstance(after, tuple):
        return sum(map(_growth, before, after))
    return sum(map(len, _leaves(after))) - sum(map(len, _leaves(before)))


def _stable_hash(key: object) -> int:
    """Returns bits that depend on the key alone, not on the process as `hash` does; equal keys have equal bits."""
    if isinstance(key, UUID):
        return key.int & _HASH_MASK
    if isinstance(key, str):
        return crc32(key.encode())
    if isinstance(key, int):
        return key & _HASH_MASK
    if isinstance(key, tuple):
        bits = 0
        for part in cast("tuple[object, ...]", key):
            bits = (bits * 1_000_003 + _stable_hash(part)) & _HASH_MASK
        return bits
    raise TypeError(f"a {type(key).__name__} cannot be a key here")


def _changes(entries: Mapping[K, V | None]) -> list[_Change]:
    return [(_stable_hash(key), key, value) for key, value in entries.items()]


def _patched_node(node: _Node, changes: list[_Change], depth: int) -> _Node:
    if isinstance(node, dict):
        return _patched_leaf(node, changes, depth)
    children = list(node)
    for slot, group in _by_slot(changes, depth).items():
        children[slot] = _patched_node(children[slot], group, depth + 1)
    if any(value is None for _, _, value in changes):
        merged = _merged(children)
        if merged is not None:
            return merged
    return tuple(children)


def _patched_leaf(leaf: dict[Any, Any], changes: list[_Change], depth: int) -> _Node:
    if len(leaf) + len(changes) > LEAF_ENTRIES_MAX and depth < _DEPTH_MAX:
        if leaf:
            changes = list({change[1]: change for change in chain(_changes(leaf), changes)}.values())
        kept = [change for change in changes if change[2] is not None]
        if len(kept) > LEAF_ENTRIES_MAX:
            groups = _by_slot(kept, depth)
            return tuple([_patched_leaf({}, groups.get(slot, []), depth + 1) for slot in range(_WIDTH)])
        return {key: value for _, key, value in kept}
    after = leaf.copy()
    for _, key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def _by_slot(changes: Iterable[_Change], depth: int) -> dict[int, list[_Change]]:
    shift = _BITS * depth
    groups: dict[int, list[_Change]] = {}
    for change in changes:
        groups.setdefault(change[0] >> shift & _MASK, []).append(change)
    return groups


def _merged(children: list[_Node]) -> dict[Any, Any] | None:
    """Returns all entries as one leaf, None if they are too many."""
    count = 0
    for child in children:
        count += len(child) if isinstance(child, dict) else MERGE_ENTRIES_MAX + 1
        if count > MERGE_ENTRIES_MAX:
            return None
    return {key: value for child in children for key, value in cast("dict[Any, Any]", child).items()}


def _add_difference(before: _Node, after: _Node, found: dict[Any, Any]) -> None:
    if before is after:
        return
    if isinstance(before, tuple) and isinstance(after, tuple):
        for before_child, after_child in zip(before, after, strict=True):
            _add_difference(before_child, after_child, found)
    else:
        _add_entries(_entries(before), _entries(after), found)


def _add_entries(before: Mapping[Any, Any], after: Mapping[Any, Any], found: dict[Any, Any]) -> None:
    found.update((key, None) for key in before if key not in after)
    for key, value in after.items():
        known = before.get(key)
        if known is not value and known != value:
            found[key] = value


def _entries(node: _Node) -> dict[Any, Any]:
    return node if isinstance(node, dict) else {key: value for leaf in _leaves(node) for key, value in leaf.items()}


def _leaves(node: _Node) -> Iterator[dict[Any, Any]]:
    if isinstance(node, dict):
        yield node
    else:
        for child in node:
            yield from _leaves(child)
