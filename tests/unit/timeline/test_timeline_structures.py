"""What each structure promises beyond the model: dict and set manners, cost, lifetime, errors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import MutableMapping, MutableSet

import pytest

from replog_timeline import (
    EpochOrderError,
    SnapshotRegistry,
    TimelineError,
    TimelineHashMap,
    TimelineHashSet,
    TimelineInteger,
    TimelineLong,
    TimelineNestedMap,
    TimelineObject,
    UnknownEpochError,
)


@pytest.fixture
def registry() -> SnapshotRegistry:
    return SnapshotRegistry()


# Maps and sets behave as Python's own


def test_a_map_has_the_manners_of_a_dict(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, {"a": 1})
    assert isinstance(table, MutableMapping)
    registry.create_snapshot(1)
    table.update(b=2)
    assert table.setdefault("c", 3) == 3
    assert list(table) == ["a", "b", "c"]
    assert table == {"a": 1, "b": 2, "c": 3}
    assert table.popitem() == ("c", 3)
    assert table.pop("x", 9) == 9
    assert (table.get("x"), table.get("x", 9), "a" in table, "x" in table) == (None, 9, True, False)
    assert repr(table) == "TimelineHashMap({'a': 1, 'b': 2})"
    assert table.keys() & {"a", "x"} == {"a"}
    for missing in (lambda: table["x"], lambda: table.pop("x"), lambda: table.__delitem__("x")):
        with pytest.raises(KeyError):
            missing()
    table.clear()
    with pytest.raises(KeyError):
        table.popitem()
    with pytest.raises(TypeError):
        hash(table)
    assert dict(table.at(1)) == {"a": 1}


def test_changing_the_size_while_iterating_the_present_is_an_error(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, {"a": 1})
    keys = iter(table)
    table["b"] = 1
    with pytest.raises(RuntimeError):
        next(keys)


def test_a_set_has_the_manners_of_a_set(registry: SnapshotRegistry) -> None:
    values = TimelineHashSet(registry, [1, 2])
    assert isinstance(values, MutableSet)
    assert values | {3} == {1, 2, 3}
    assert isinstance(values & {1}, set)
    values |= {4}
    values -= {1}
    values.discard(9)
    assert (list(values), repr(values)) == ([2, 4], "TimelineHashSet([2, 4])")
    with pytest.raises(KeyError):
        values.remove(9)
    values.clear()
    assert not values


def test_adding_what_is_there_and_discarding_what_is_not_changes_nothing(registry: SnapshotRegistry) -> None:
    values = TimelineHashSet(registry, [1])
    registry.create_snapshot(1)
    values.add(1)
    values.discard(2)
    assert deltas_of(registry, 1) == 0


# The past


def test_none_is_a_value_and_not_absence(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap[str, int | None](registry, {"a": None})
    registry.create_snapshot(1)
    table["a"] = 1
    assert table.get("a", 7, epoch=1) is None
    assert table.contains("a", epoch=1)
    assert table.at(1)["a"] is None


def test_a_view_of_the_past_lives_as_long_as_its_snapshot(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, {"a": 1, "b": 2})
    registry.create_snapshot(1)
    past = table.at(1)
    table["a"] = 7
    table["c"] = 3
    assert past == {"a": 1, "b": 2}
    assert (past["a"], "c" in past, len(past), past.epoch) == (1, False, 2, 1)
    assert ("a", 1) in past.items()
    assert 2 in past.values()
    assert repr(past) == "PastMapping(epoch=1, {'b': 2, 'a': 1})"
    with pytest.raises(KeyError):
        past["c"]
    registry.revert_to_snapshot(1)
    assert past == {"a": 1, "b": 2}

    begun = iter(past.items())
    registry.delete_snapshot(1)
    registry.create_snapshot(1)  # the same epoch, another moment
    table.clear()
    assert dict(begun) == {"a": 1, "b": 2}
    for use in (lambda: past["a"], lambda: len(past), lambda: list(past), lambda: "a" in past):
        with pytest.raises(UnknownEpochError):
            use()


def test_iterating_the_past_while_the_present_grows_and_shrinks_gives_each_key_once(registry: SnapshotRegistry) -> None:
    """Both defects of the original: duplicates after a revert, and after growth and removals under way."""
    table = TimelineHashMap(registry, {key: key for key in range(10)})
    registry.create_snapshot(1)
    seen = []
    for key, value in table.items(epoch=1):
        seen.append((key, value))
        table.update({1000 * (key + 1) + new: new for new in range(50)})
        table.pop((key * 7 + 3) % 10, None)
    assert seen == [(key, key) for key in range(10)]
    registry.revert_to_snapshot(1)
    assert sorted(table.items(epoch=1)) == sorted(table.items()) == seen


def test_objects_made_after_a_snapshot_read_there_as_new(registry: SnapshotRegistry) -> None:
    registry.create_snapshot(1)
    table = TimelineHashMap(registry, {"a": 1})
    number = TimelineLong(registry, 5)
    number.increment()
    registry.create_snapshot(2)
    number.increment()
    assert (dict(table.at(1)), dict(table.at(2))) == ({}, {"a": 1})
    assert (number.get(epoch=1), number.get(epoch=2), number.get()) == (5, 6, 7)
    registry.revert_to_snapshot(1)
    assert (dict(table), number.get()) == ({}, 5)


def test_objects_inside_objects_come_back_with_their_content(registry: SnapshotRegistry) -> None:
    """A topic is removed with its partitions, and both return."""
    topics = TimelineHashMap[str, TimelineHashMap[int, str]](registry)
    topics["flights"] = TimelineHashMap(registry, {0: "leader 1"})
    registry.create_snapshot(1)
    topics["flights"][0] = "leader 2"
    del topics["flights"]
    gc.collect()
    assert topics.at(1)["flights"].get(0, epoch=1) == "leader 1"
    registry.revert_to_snapshot(1)
    assert dict(topics["flights"]) == {0: "leader 1"}


def test_reset_goes_back_to_the_beginning_and_not_to_the_first_snapshot(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, {"a": 1})
    value = TimelineObject(registry, "new")
    value.set("old")
    registry.create_snapshot(1)
    registry.reset()
    assert (dict(table), value.get(), registry.epochs(), registry.latest_epoch) == ({}, "new", (), None)
    registry.create_snapshot(0)  # epochs start over


# Cost and lifetime


def test_only_what_changed_is_kept_and_only_once_per_snapshot(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, dict.fromkeys(range(1000), 0))
    registry.create_snapshot(1)
    assert deltas_of(registry, 1) == 0
    for value in range(100):
        table[7] = value
    registry.create_snapshot(2)
    table[8] = 1
    assert [len(delta.old) for delta in table._deltas] == [1, 1]
    registry.delete_snapshot(2)
    assert [sorted(delta.old) for delta in table._deltas] == [[7, 8]]
    registry.delete_snapshots_up_to(100)
    assert table._deltas == []
    table[9] = 1
    assert table._deltas == []


def test_the_registry_does_not_keep_objects_alive(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, {"a": 1})
    registry.create_snapshot(1)
    table["a"] = 2
    gone = weakref.ref(table)
    del table
    gc.collect()
    assert gone() is not None  # a revert would still bring its old value back
    registry.delete_snapshot(1)
    gc.collect()
    assert gone() is None
    registry.reset()


def test_a_nested_map_has_no_empty_dictionary_in_it_and_keeps_what_changed(registry: SnapshotRegistry) -> None:
    nested = TimelineNestedMap[str, int, str](registry)
    nested.put("g", 1, "one")
    registry.create_snapshot(1)
    nested.discard("g", 2)
    nested.discard("h", 1)
    assert deltas_of(registry, 1) == 0
    nested.discard("g", 1)
    nested.put("h", 1, "other")
    nested.put("h", 1, "another")
    assert nested.current == {"h": {1: "another"}}
    assert [len(delta.old) for delta in nested._deltas] == [2]
    registry.revert_to_snapshot(1)
    assert nested.current == {"g": {1: "one"}}
    registry.reset()
    assert nested.current == {}


def test_a_nested_map_goes_back_past_a_snapshot_that_was_deleted(registry: SnapshotRegistry) -> None:
    nested = TimelineNestedMap[str, int, str](registry)
    nested.put("g", 1, "first")
    for epoch in (1, 2, 3):
        registry.create_snapshot(epoch)
        nested.put("g", 1, f"after {epoch}")
        nested.put("g", 10 + epoch, "later")
    registry.delete_snapshot(2)
    registry.revert_to_snapshot(1)
    assert nested.current == {"g": {1: "first"}}


def test_an_inner_dictionary_is_removed_as_it_is(registry: SnapshotRegistry) -> None:
    nested = TimelineNestedMap[str, int, str](registry)
    nested.put("g", 1, "one")
    nested.put("g", 2, "two")
    registry.create_snapshot(1)
    nested.put("g", 1, "another")
    removed = nested.current["g"]
    nested.remove("g")
    nested.remove("h")
    nested.put("g", 2, "new")
    assert (nested.current, nested.size) == ({"g": {2: "new"}}, 1)
    (delta,) = nested._deltas
    assert delta.removed["g"] is removed
    assert delta.old == {("g", 1): "one"}, "nothing is noted of what was removed, nor of what came after"
    assert nested.at(1) == {"g": {1: "one", 2: "two"}}
    registry.revert_to_snapshot(1)
    assert (nested.current, nested.size) == ({"g": {1: "one", 2: "two"}}, 2)


# Single values


def test_numbers_have_the_range_of_their_field(registry: SnapshotRegistry) -> None:
    integer, long = TimelineInteger(registry, 2**31 - 1), TimelineLong(registry, -(2**63))
    with pytest.raises(OverflowError):
        integer.increment()
    with pytest.raises(OverflowError):
        long.decrement()
    with pytest.raises(OverflowError):
        TimelineInteger(registry, 2**31)
    assert (integer.get(), long.get(), integer.decrement()) == (2**31 - 1, -(2**63), 2**31 - 2)
    assert repr(integer) == "TimelineInteger(2147483646)"


# Errors


def test_errors_carry_the_facts_and_change_nothing(registry: SnapshotRegistry) -> None:
    table = TimelineHashMap(registry, {"a": 1})
    for epoch in (-1, 5, 9):
        registry.create_snapshot(epoch)
    table["a"] = 2
    with pytest.raises(UnknownEpochError) as unknown:
        registry.revert_to_snapshot(6)
    assert (unknown.value.epoch, unknown.value.known_epochs) == (6, (-1, 5, 9))
    assert isinstance(unknown.value, (TimelineError, LookupError))
    with pytest.raises(EpochOrderError) as order:
        registry.get_or_create_snapshot(5)
    assert (order.value.epoch, order.value.latest_epoch) == (5, 9)
    assert (registry.epochs(), table["a"], table.get("a", epoch=9)) == ((-1, 5, 9), 2, 1)
    assert (registry.has_snapshot(5), registry.has_snapshot(6)) == (True, False)
    assert registry.get_or_create_snapshot(10) is True


def deltas_of(registry: SnapshotRegistry, epoch: int) -> int:
    return len(registry.snapshot_or_raise(epoch).changed)
