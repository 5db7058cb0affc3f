"""Assignors: each partition has one reader, shares are fair, and what need not move stays."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from group_record_kit import unhurried
from hypothesis import given
from hypothesis import strategies as st

from replog.coordinator.assignors import (
    AssignedMember,
    Assignment,
    Assignor,
    Members,
    Topics,
    assign_in_turns,
    assign_ranges,
    assign_uniformly,
    partitions_of,
)

A, B, C, GONE = (UUID(int=n) for n in range(1, 5))
TOPIC_IDS = (A, B, C, GONE)
both = pytest.mark.parametrize("assign", [assign_ranges, assign_uniformly, assign_in_turns])


def all_reading(topic_ids: Any, *member_ids: str) -> dict[str, AssignedMember]:
    return {member_id: AssignedMember(frozenset(topic_ids)) for member_id in member_ids}


def again(members: Members, targets: dict[str, Assignment]) -> dict[str, AssignedMember]:
    """The same members, with what they have now."""
    return {
        member_id: AssignedMember(each.topic_ids, each.instance_id, targets.get(member_id, {}))
        for member_id, each in members.items()
    }


def counts(targets: dict[str, Assignment]) -> list[int]:
    return sorted(len(partitions_of(each)) for each in targets.values())


def moves(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """How many partitions that somebody had are somebody else's."""
    return sum(
        len(partitions_of(each) - partitions_of(after[member_id]))
        for member_id, each in before.items()
        if member_id in after
    )


# ---- range ------------------------------------------------------------------------------------------------------------


def test_ranges_of_topics_with_as_many_partitions_are_the_same() -> None:
    targets = assign_ranges(all_reading((A, B), "m2", "m1", "m3"), {A: 7, B: 7})
    assert targets["m1"] == {A: frozenset({0, 1, 2}), B: frozenset({0, 1, 2})}
    assert targets["m2"] == {A: frozenset({3, 4}), B: frozenset({3, 4})}
    assert targets["m3"] == {A: frozenset({5, 6}), B: frozenset({5, 6})}


def test_static_members_come_first_by_instance() -> None:
    """Goal: a member that restarts gets another id, and the ranges that it had."""
    members = {"zz": AssignedMember(frozenset({A}), "i1"), "aa": AssignedMember(frozenset({A}), "i2")}
    members["bb"] = AssignedMember(frozenset({A}))
    found = assign_ranges(members, {A: 3})
    assert (found["zz"], found["aa"], found["bb"]) == ({A: {0}}, {A: {1}}, {A: {2}})
    members["after-its-restart"] = members.pop("zz")
    assert assign_ranges(members, {A: 3})["after-its-restart"] == {A: {0}}


# ---- uniform ----------------------------------------------------------------------------------------------------------


def test_a_member_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    """Example: 100 members on 1,000 partitions."""
    members, topics = all_reading((A, B), *(f"m{n:03}" for n in range(100))), {A: 600, B: 400}
    before = assign_uniformly(members, topics)
    assert counts(before) == [10] * 100
    members = again(members, before) | all_reading((A, B), "new")
    after = assign_uniformly(members, topics)
    assert counts(after) == [9] * 10 + [10] * 91
    assert moves(before, after) == len(partitions_of(after["new"]))


def test_a_member_that_leaves_leaves_its_partitions_to_the_others() -> None:
    members, topics = all_reading((A,), "m1", "m2", "m3", "m4"), {A: 12}
    before = assign_uniformly(members, topics)
    left = again({each: members[each] for each in ("m1", "m2", "m3")}, before)
    after = assign_uniformly(left, topics)
    assert counts(after) == [4, 4, 4]
    assert moves(before, after) == 0


def test_who_can_read_more_leaves_the_rest_to_who_cannot() -> None:
    members = all_reading((A, B), "both") | all_reading((A,), "one")
    targets = assign_uniformly(members, {A: 4, B: 4})
    assert targets == {"both": {B: {0, 1, 2, 3}}, "one": {A: {0, 1, 2, 3}}}


def test_a_balance_that_has_become_wrong_is_mended_over_another_member() -> None:
    """Example: m1 reads A, m2 A and B, m3 B: what m1 has too many goes to m2, and m2 gives of B to m3."""
    members = {
        "m1": AssignedMember(frozenset({A}), target={A: frozenset(range(6))}),
        "m2": AssignedMember(frozenset({A, B}), target={B: frozenset(range(3))}),
        "m3": AssignedMember(frozenset({B})),
    }
    after = assign_uniformly(members, {A: 6, B: 3})
    assert [len(partitions_of(after[each])) for each in ("m1", "m2", "m3")] == [4, 3, 2]


# ---- both -------------------------------------------------------------------------------------------------------------


@both
def test_nothing_to_give(assign: Assignor) -> None:
    assert assign({}, {A: 3}) == {}
    assert assign(all_reading((GONE,), "m1"), {A: 3}) == {"m1": {}}
    assert assign(all_reading((), "m1"), {A: 3}) == {"m1": {}}
    assert counts(assign(all_reading((A,), "m1", "m2", "m3"), {A: 2})) == [0, 1, 1]


SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPIC_IDS), max_size=4)
MEMBERS = st.dictionaries(st.sampled_from("abcdefg"), SUBSCRIPTIONS, max_size=7)
TOPICS = st.dictionaries(st.sampled_from(TOPIC_IDS[:3]), st.integers(0, 9))


def check_one_reader(members: Members, topics: Topics, targets: dict[str, Assignment]) -> None:
    """Each partition of a topic that somebody reads has exactly one reader, who reads the topic."""
    assert targets.keys() == members.keys()
    given_away = [each for target in targets.values() for each in partitions_of(target)]
    wanted = {
        (topic_id, partition)
        for topic_id, count in topics.items()
        if any(topic_id in each.topic_ids for each in members.values())
        for partition in range(count)
    }
    assert len(given_away) == len(set(given_away))
    assert set(given_away) == wanted
    assert all(topic_id in members[member_id].topic_ids for member_id, target in targets.items() for topic_id in target)
    assert all(partitions for target in targets.values() for partitions in target.values())


@both
@unhurried
@given(changes=st.lists(st.tuples(MEMBERS, TOPICS), min_size=1, max_size=4))
def test_each_partition_has_one_reader_whatever_changes(
    assign: Assignor, changes: list[tuple[dict[str, frozenset[UUID]], dict[UUID, int]]]
) -> None:
    """Goal: members come and go, subscriptions and topics change; and the same is decided by every coordinator."""
    targets: dict[str, Assignment] = {}
    for subscriptions, topics in changes:
        members = again({key: AssignedMember(each) for key, each in subscriptions.items()}, targets)
        targets = assign(members, topics)
        check_one_reader(members, topics, targets)
        backwards = dict(reversed(members.items()))
        assert assign(backwards, dict(reversed(topics.items()))) == targets
        if assign is assign_uniformly:
            check_fair(members, targets)
            assert assign(again(members, targets), topics) == targets


def check_fair(members: Members, targets: dict[str, Assignment]) -> None:
    """Nobody has two more than another who reads a topic of his partitions."""
    for giver, target in targets.items():
        for taker, other in targets.items():
            if target.keys() & members[taker].topic_ids:
                assert len(partitions_of(target)) <= len(partitions_of(other)) + 1, (giver, taker)


@unhurried
@given(st.integers(1, 40), st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_where_all_read_the_same_no_more_moves_than_must(partitions: int, sizes: list[int]) -> None:
    members: dict[str, AssignedMember] = {}
    targets: dict[str, Assignment] = {}
    for size in sizes:
        members = again(all_reading((A,), *(f"m{n}" for n in range(size))), targets)
        after = assign_uniformly(members, {A: partitions})
        had = {member_id: len(partitions_of(targets.get(member_id, {}))) for member_id in members}
        shares = sorted((len(partitions_of(each)) for each in after.values()), reverse=True)
        must = sum(max(0, have - share) for have, share in zip(sorted(had.values(), reverse=True), shares, strict=True))
        assert moves(targets, after) == must
        assert shares[0] - shares[-1] <= 1
        targets = after


class CountedId(UUID):
    """A topic id that counts how often it is looked up."""

    hashed = 0

    def __hash__(self) -> int:
        type(self).hashed += 1
        return super().__hash__()


@pytest.mark.parametrize("kinds", [1, 2, 10])
def test_an_assignment_costs_what_its_topics_and_members_are(kinds: int) -> None:
    """Goal: a member that comes to a group that reads thousands of topics, whatever each reads, does not hold the loop for seconds."""
    ids: list[UUID] = [CountedId(int=number) for number in range(1, 2_001)]
    topics = dict.fromkeys(ids, 1)
    wishes = [frozenset(each for each in ids if kinds == 1 or each.int % kinds != kind) for kind in range(kinds)]
    members = {f"m{number}": AssignedMember(wishes[number % kinds]) for number in range(10)}
    half = assign_uniformly({each: members[each] for each in list(members)[::2]}, topics)
    members = again(members, half)
    CountedId.hashed = 0
    assigned = assign_uniformly(members, topics)
    assert CountedId.hashed < 100 * len(ids)
    check_fair(members, assigned)
    check_one_reader(members, topics, assigned)


@pytest.mark.parametrize("assign", [assign_uniformly, assign_ranges])
def test_what_is_kept_is_not_looked_up_one_by_one(assign: Assignor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a member of a group that reads ten thousand partitions does not hold the loop for long when it joins."""
    topic_id = CountedId(int=7)
    members = {name: AssignedMember(frozenset({topic_id})) for name in "ab"}
    targets = assign(members, {topic_id: 1_000})
    members = {name: AssignedMember(frozenset({topic_id}), None, targets[name]) for name in "ab"}
    monkeypatch.setattr(CountedId, "hashed", 0)
    assert assign(members, {topic_id: 1_000}) == targets
    assert CountedId.hashed < 100
