"""Against a full copy per snapshot: whatever happens, the past reads as it was and a revert brings it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replog_timeline import (
    EpochOrderError,
    SnapshotRegistry,
    TimelineHashMap,
    TimelineHashSet,
    TimelineInteger,
    TimelineLong,
    TimelineNestedMap,
    TimelineObject,
    UnknownEpochError,
)
from tests.random_examples import examples

keys = st.integers(0, 7)
values = st.none() | st.integers(0, 3)
Change = tuple[str, int, int | None]
changes = st.tuples(
    st.sampled_from(["put", "put", "remove", "drop", "add", "discard", "count", "name", "nest", "nest", "take"]),
    keys,
    values,
)
Nested = dict[int, dict[int, int | None]]
State = tuple[dict[int, int | None], set[int], int, str, Nested]


class LateMap:
    """A map made when there were snapshots already, and what it should be: at those it is empty."""

    def __init__(self, registry: SnapshotRegistry, entries: dict[int, int | None]) -> None:
        self.map = TimelineHashMap(registry, entries)
        self.count = TimelineInteger(registry, 7)
        self.now = dict(entries)
        self.count_now = 7
        self.copies: dict[int, tuple[dict[int, int | None], int]] = {}

    def put(self, key: int, value: int | None) -> None:
        self.map[key] = value
        self.count.decrement()
        self.now[key] = value
        self.count_now -= 1

    def then(self, epoch: int) -> tuple[dict[int, int | None], int]:
        return self.copies.get(epoch, ({}, 7))

    def revert(self, epoch: int) -> None:
        entries, self.count_now = self.then(epoch)
        self.now = dict(entries)
        self.copies = {known: copy for known, copy in self.copies.items() if known <= epoch}

    def check(self, epochs: tuple[int, ...]) -> None:
        assert (dict(self.map), self.count.get()) == (self.now, self.count_now)
        for epoch in epochs:
            entries, count = self.then(epoch)
            past = list(self.map.items(epoch=epoch))
            assert (len(past), dict(past), self.count.get(epoch=epoch)) == (len(entries), entries, count)


class TimelineAgainstCopies(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.registry = SnapshotRegistry()
        self.map = TimelineHashMap[int, int | None](self.registry)
        self.set = TimelineHashSet[int](self.registry)
        self.long = TimelineLong(self.registry)
        self.object = TimelineObject(self.registry, "new")
        self.nested = TimelineNestedMap[int, int, int | None](self.registry)
        self.copies: dict[int, State] = {}
        self.map_now: dict[int, int | None] = {}
        self.set_now: set[int] = set()
        self.long_now = 0
        self.object_now = "new"
        self.nested_now: Nested = {}
        self.iterators: list[tuple[Iterator[tuple[int, int | None]], dict[int, int | None], list[int]]] = []
        self.late: list[LateMap] = []

    def copy(self) -> State:
        nested = {outer: dict(inner) for outer, inner in self.nested_now.items()}
        return dict(self.map_now), set(self.set_now), self.long_now, self.object_now, nested

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.copies)))

    @initialize(entries=st.dictionaries(keys, values, max_size=5))
    def begin(self, entries: dict[int, int | None]) -> None:
        self.map.update(entries)
        self.map_now.update(entries)

    @rule(changes=st.lists(changes, min_size=1, max_size=6))
    def change(self, changes: list[Change]) -> None:
        for name, key, value in changes:
            match name:
                case "put":
                    self.map[key] = value
                    self.map_now[key] = value
                case "remove":
                    assert self.map.pop(key, "absent") == self.map_now.pop(key, "absent")
                case "drop":
                    self.nested.remove(key % 3)
                    self.nested_now.pop(key % 3, None)
                case "add":
                    self.set.add(key)
                    self.set_now.add(key)
                case "discard":
                    self.set.discard(key)
                    self.set_now.discard(key)
                case "count":
                    self.long_now += 1
                    assert self.long.increment() == self.long_now
                case "name":
                    self.object_now = f"name {key}"
                    self.object.set(self.object_now)
                case "nest":
                    self.nested.put(key % 3, key, value)
                    self.nested_now.setdefault(key % 3, {})[key] = value
                case "take":
                    self.nested.discard(key % 3, key)
                    inner = self.nested_now.get(key % 3, {})
                    inner.pop(key, None)
                    if not inner:
                        self.nested_now.pop(key % 3, None)

    @rule(chance=st.integers(0, 5), changes=st.lists(changes, max_size=3))
    def clear(self, chance: int, changes: list[Change]) -> None:
        if chance == 3:  # often enough to be tried, seldom enough to leave something to test
            self.map.clear()
            self.map_now.clear()
        self.change(changes)

    @rule(changes=st.lists(changes, max_size=6), step=st.integers(1, 3))
    def change_and_create_snapshot(self, changes: list[Change], step: int) -> None:
        self.change(changes)
        self.create_snapshot(step)

    @rule(step=st.integers(1, 3))
    def create_snapshot(self, step: int) -> None:
        latest = self.registry.latest_epoch
        epoch = step if latest is None else latest + step
        self.registry.create_snapshot(epoch)
        self.remember(epoch)
        with pytest.raises(EpochOrderError):
            self.registry.create_snapshot(epoch)
        assert self.registry.get_or_create_snapshot(epoch) is False
        if latest is not None:  # known, but no longer the latest
            with pytest.raises(EpochOrderError):
                self.registry.get_or_create_snapshot(latest)

    def remember(self, epoch: int) -> None:
        self.copies[epoch] = self.copy()
        for late in self.late:
            late.copies[epoch] = (dict(late.now), late.count_now)

    @precondition(lambda self: self.copies)
    @rule(step=st.integers(0, 2))
    def get_or_create_snapshot(self, step: int) -> None:
        """At the latest epoch it stays what it was, whatever changed since."""
        latest = max(self.copies)
        assert self.registry.get_or_create_snapshot(latest + step) is (step > 0)
        if step > 0:
            self.remember(latest + step)

    @rule(entries=st.dictionaries(keys, values, max_size=3))
    def make_an_object_late(self, entries: dict[int, int | None]) -> None:
        if len(self.late) < 3:
            self.late.append(LateMap(self.registry, entries))

    @precondition(lambda self: self.late)
    @rule(data=st.data(), key=keys, value=values)
    def change_a_late_object(self, data: st.DataObject, key: int, value: int | None) -> None:
        data.draw(st.sampled_from(self.late)).put(key, value)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def delete_snapshot(self, data: st.DataObject) -> None:
        epoch = self.pick(data)
        self.registry.delete_snapshot(epoch)
        del self.copies[epoch]

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), above=st.integers(0, 1))
    def delete_snapshots_up_to(self, data: st.DataObject, above: int) -> None:
        epoch = self.pick(data) + above
        self.registry.delete_snapshots_up_to(epoch)
        self.copies = {known: copy for known, copy in self.copies.items() if known >= epoch}

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def revert_to_snapshot(self, data: st.DataObject) -> None:
        epoch = self.pick(data)
        self.registry.revert_to_snapshot(epoch)
        self.copies = {known: copy for known, copy in self.copies.items() if known <= epoch}
        self.map_now, self.set_now, self.long_now, self.object_now, self.nested_now = self.copies[epoch]
        self.copies[epoch] = self.copy()
        for late in self.late:
            late.revert(epoch)

    @rule(chance=st.integers(0, 9))
    def reset(self, chance: int) -> None:
        if chance != 7:
            return
        self.registry.reset()
        self.copies.clear()
        self.map_now, self.set_now, self.long_now, self.object_now, self.nested_now = {}, set(), 0, "new", {}
        for late in self.late:
            late.now, late.count_now, late.copies = {}, 7, {}

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def begin_an_iteration_of_the_past(self, data: st.DataObject) -> None:
        epoch = self.pick(data)
        self.iterators.append((iter(self.map.items(epoch=epoch)), dict(self.copies[epoch][0]), []))

    @precondition(lambda self: self.iterators)
    @rule(data=st.data())
    def go_on_with_an_iteration(self, data: st.DataObject) -> None:
        iterator, copy, seen = data.draw(st.sampled_from(self.iterators))
        entry = next(iterator, None)
        if entry is None:
            assert sorted(seen) == sorted(copy)
        else:
            assert copy[entry[0]] == entry[1]
            assert entry[0] not in seen
            seen.append(entry[0])

    @invariant()
    def the_present_is_right(self) -> None:
        assert self.map == self.map_now
        assert (len(self.map), self.map.size()) == (len(self.map_now), len(self.map_now))
        assert self.set == self.set_now
        assert (self.long.get(), self.object.get()) == (self.long_now, self.object_now)
        assert self.nested.current == self.nested_now
        assert self.nested.size == sum(map(len, self.nested_now.values()))

    @invariant()
    def the_past_is_right(self) -> None:
        assert self.registry.epochs() == tuple(sorted(self.copies))
        assert self.registry.latest_epoch == max(self.copies, default=None)
        for epoch, (map_then, set_then, long_then, object_then, nested_then) in self.copies.items():
            entries = list(self.map.items(epoch=epoch))
            assert len(entries) == len(map_then) == self.map.size(epoch=epoch)
            assert dict(entries) == map_then
            assert sorted(self.map.keys(epoch=epoch)) == sorted(map_then)
            assert sorted(map(repr, self.map.values(epoch=epoch))) == sorted(map(repr, map_then.values()))
            for key in range(9):
                assert self.map.get(key, "absent", epoch=epoch) == map_then.get(key, "absent")
                assert self.map.contains(key, epoch=epoch) is (key in map_then)
                assert self.set.contains(key, epoch=epoch) is (key in set_then)
            assert sorted(self.set.at(epoch)) == sorted(set_then)
            assert self.set.size(epoch=epoch) == len(set_then)
            assert (self.long.get(epoch=epoch), self.object.get(epoch=epoch)) == (long_then, object_then)
            assert self.nested.at(epoch) == nested_then

    @invariant()
    def objects_made_late_were_empty_before(self) -> None:
        for late in self.late:
            late.check(self.registry.epochs())

    @invariant()
    def unknown_epochs_are_refused(self) -> None:
        unknown = next(epoch for epoch in range(100) if epoch not in self.copies)
        for read in (self.map.size, self.map.items, self.set.size, self.long.get):
            with pytest.raises(UnknownEpochError):
                read(epoch=unknown)
        with pytest.raises(UnknownEpochError):
            self.map.get(0, epoch=unknown)
        with pytest.raises(UnknownEpochError):
            self.nested.at(unknown)
        with pytest.raises(UnknownEpochError):
            self.registry.revert_to_snapshot(unknown)


TestTimelineAgainstCopies = TimelineAgainstCopies.TestCase
TestTimelineAgainstCopies.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
