"""The mapping behind the image: as a dict, but old versions stay, and a change copies next to nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping
from itertools import chain
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.metadata.persistent_map import LEAF_ENTRIES_MAX, PersistentMap, patched
from replog.metadata.records import ResourceType

KEYS: dict[str, Callable[[int], Hashable]] = {
    "numbers": lambda number: number,
    "far apart": lambda number: number << 60,  # one stable hash for all of them
    "texts": "topic-{}".format,
    "ids": lambda number: UUID(int=number * 0x9E3779B97F4A7C15),
    "resources": lambda number: (ResourceType.TOPIC, f"topic-{number}"),
}


@pytest.mark.parametrize("key_of", KEYS.values(), ids=KEYS)
@given(sizes=st.lists(st.integers(0, 300), max_size=5), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_every_version_is_what_a_dict_would_be(key_of: Callable[[int], Hashable], sizes: list[int], seed: int) -> None:
    source = random.Random(seed)
    versions: list[tuple[PersistentMap[Hashable, int], dict[Hashable, int]]] = [(PersistentMap(), {})]
    for size in sizes:
        found, model = versions[-1]
        removed = source.choice([0.05, 0.5, 0.95])
        patch = {
            key_of(number): None if source.random() < removed else source.randrange(9)
            for number in source.sample(range(500), size)
        }
        merged = {key: value for key, value in {**model, **patch}.items() if value is not None}
        versions.append((found.patched(patch), merged))
    for found, model in versions:
        assert dict(found.items()) == model
        assert found == model
        assert len(found) == len(model) == len(list(found)) == len(list(found.values()))
        assert all(key in found and found[key] == value for key, value in model.items())


def test_it_has_the_manners_of_a_mapping() -> None:
    entries = PersistentMap({"a": 1, "b": 2})
    assert isinstance(entries, Mapping)
    assert (entries.get("a"), entries.get("x"), entries.get("x", 7), "a" in entries, "x" in entries) == (
        1,
        None,
        7,
        True,
        False,
    )
    assert repr(entries) == "PersistentMap({'a': 1, 'b': 2})"
    assert entries.items() & {("a", 1), ("b", 3)} == {("a", 1)}
    assert 2 in entries.values()
    for mapping in (entries, PersistentMap(dict.fromkeys(range(1000), 0))):
        with pytest.raises(KeyError):
            mapping["x"]  # type: ignore[index] # one of them has numbers
    with pytest.raises(TypeError):
        PersistentMap(dict.fromkeys(range(1000), 0))[3.5]  # type: ignore[index] # on purpose


def test_a_change_shares_all_leaves_but_one() -> None:
    source = random.Random(3)
    before = PersistentMap({UUID(int=source.getrandbits(128)): number for number in range(20_000)})
    key = next(iter(before))
    after = before.patched({key: -1})
    own = [leaf for leaf, old in zip(after.leaves(), before.leaves(), strict=True) if leaf is not old]
    assert len(own) == 1
    assert max(len(leaf) for leaf in after.leaves()) <= LEAF_ENTRIES_MAX
    assert after[key] == -1 != before[key]


def test_no_change_is_the_same_map() -> None:
    entries = PersistentMap({1: 1})
    assert entries.patched({}) is entries
    plain = {1: 1}
    assert patched(plain, {}) is plain
    assert patched(plain, {2: 2}) == {1: 1, 2: 2}
    assert patched(entries, {1: None, 3: None}) == {}


def test_what_shrinks_becomes_small_again() -> None:
    entries: PersistentMap[int, int] = PersistentMap({number: number for number in range(20_000)})
    for start in range(0, 20_000, 1000):
        entries = entries.patched(dict.fromkeys(range(start, start + 1000) if start else range(5, 1000)))
    assert dict(entries) == {number: number for number in range(5)}
    assert len(list(entries.leaves())) == 1


ORDER = """
from replog.metadata.persistent_map import PersistentMap
entries = PersistentMap({f"topic-{number}": number for number in range(500)}).patched({"topic-7": None, "new": 1})
print(list(entries.values()))
"""


def test_the_order_is_the_same_in_every_process() -> None:
    """A simulation repeats under any PYTHONHASHSEED."""
    orders = {
        subprocess.run(
            [sys.executable, "-c", ORDER],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(orders) == 1


def test_leaves_hold_everything_once() -> None:
    entries = PersistentMap(dict.fromkeys(range(1000), 0))
    assert sorted(chain.from_iterable(entries.leaves())) == list(range(1000))
