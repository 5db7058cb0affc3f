"""Which groups somebody should look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from replog.client import MemberDescription, PartitionLag
from replog.client.admin import group_health
from replog.client.admin.group_health import (
    LOOKED_AT_MAX,
    NAMED_MAX,
    REBALANCE_MS,
    STILL_MS,
    GroupsHealth,
    GroupTrouble,
    GroupWatch,
    TroubledGroup,
    judged,
)
from replog.coordinator.describing.requests import GroupType, ListedGroup
from replog.errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    InvalidRequestError,
    RequestTimedOutError,
)

NOW_MS = 10 * STILL_MS
MEMBER = MemberDescription("m", None, "app", "10.0.0.1", 1, ())


def group(name: str = "g", state: str = "Stable") -> ListedGroup:
    return ListedGroup(name, "consumer", state, GroupType.CONSUMER)


def lag(
    records: int | None = 7, *, for_ms: int | None = STILL_MS, silent_ms: int | None = STILL_MS, owner: Any = MEMBER
) -> PartitionLag:
    committed_ms = None if silent_ms is None else NOW_MS - silent_ms
    return PartitionLag("t", 3, 5, 5 + (records or 0), records, owner, for_ms, committed_ms)


def troubles(state: str, *lags: PartitionLag) -> list[GroupTrouble]:
    return [each.trouble for each in judged([group(state=state)], {"g": lags}, set(), NOW_MS)]


@pytest.mark.parametrize(
    ("found", "stands"),
    [
        (lag(), True),
        (lag(for_ms=None), True),
        (lag(0), False),
        (lag(None), False),
        (lag(for_ms=STILL_MS - 1), False),
        (lag(silent_ms=STILL_MS - 1), False),
        (lag(silent_ms=None), False),
    ],
    ids=["waits", "without a time", "no lag", "not known", "new records", "a new commit", "no commit"],
)
def test_a_group_stands_still_where_records_wait_and_nothing_is_committed(found: PartitionLag, stands: bool) -> None:
    assert troubles("Stable", found) == [GroupTrouble.STILL] * stands
    assert troubles("Empty", found) == [GroupTrouble.NO_MEMBERS] * stands


def test_a_partition_that_nobody_reads_is_trouble_only_of_an_empty_group() -> None:
    """Members may have left a topic; what they have committed of it stays."""
    assert troubles("Stable", lag(owner=None)) == []
    assert troubles("Empty", lag(owner=None)) == [GroupTrouble.NO_MEMBERS]


def test_what_is_worst_comes_first() -> None:
    names = ("c", "b", "a")
    lags = {"c": [lag(2, for_ms=STILL_MS), lag(3, for_ms=2 * STILL_MS)], "b": [lag(for_ms=3 * STILL_MS)]}
    found = judged([group(each) for each in names], lags, {"a"}, NOW_MS)
    assert [each.group_id for each in found] == ["b", "c", "a"]
    assert found[1] == TroubledGroup("c", GroupTrouble.STILL, "Stable", ("t-3", "t-3"), 5, 2 * STILL_MS, (MEMBER,))


class FakeAdmin:
    """Tells groups, and of each the same lag."""

    def __init__(self, *groups: ListedGroup) -> None:
        self.groups: Sequence[ListedGroup] = groups
        self.asked: list[str] = []
        self.errors: dict[str, Exception] = {}

    async def list_groups(self, *, timeout_ms: int) -> Sequence[ListedGroup]:
        if "" in self.errors:
            raise self.errors[""]
        return self.groups

    async def group_lag(self, name: str, *, timeout_ms: int) -> tuple[PartitionLag, ...]:
        self.asked.append(name)
        if name in self.errors:
            raise self.errors[name]
        return (lag(),)


def watching(admin: FakeAdmin) -> GroupWatch:
    return GroupWatch(admin)  # type: ignore[arg-type] -- it has what is asked for


async def test_a_rebalance_is_trouble_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_000
    monkeypatch.setattr(group_health.time, "monotonic_ns", lambda: now_ms * 1_000_000)
    admin = FakeAdmin(group("a", "PreparingRebalance"), group("b", "Reconciling"))
    watch = watching(admin)
    assert await watch.look() == GroupsHealth(groups_count=2, rebalancing_count=2)
    now_ms += REBALANCE_MS - 1
    admin.groups = (group("a", "PreparingRebalance"), group("b", "Stable"))
    admin.errors["b"] = GroupIdNotFoundError("deleted meanwhile")
    assert (await watch.look()).troubled == ()
    now_ms += 1
    admin.groups = (group("a", "CompletingRebalance"), group("b", "Reconciling"))
    assert (await watch.look()).troubled == (TroubledGroup("a", GroupTrouble.REBALANCES, "CompletingRebalance"),)


async def test_a_look_asks_for_so_many_groups_and_names_some() -> None:
    admin = FakeAdmin(*(group(f"g-{number:03}") for number in range(LOOKED_AT_MAX + 5)))
    found = await watching(admin).look()
    assert (found.groups_count, found.looked_at_count) == (LOOKED_AT_MAX + 5, LOOKED_AT_MAX)
    assert (found.troubled_count, len(found.troubled)) == (LOOKED_AT_MAX, NAMED_MAX)
    assert admin.asked == sorted(set(admin.asked))


async def test_who_does_not_answer_is_not_asked_for_every_group() -> None:
    admin = FakeAdmin(*(group(f"g-{number:03}") for number in range(50)))
    admin.errors["g-003"] = RequestTimedOutError("broker 2 is silent")
    found = await watching(admin).look()
    assert (found.problem, found.groups_count) == ("group g-003: broker 2 is silent", 50)
    assert len(admin.asked) == found.looked_at_count + 1 < 50


async def test_a_group_that_nobody_may_ask_for_hides_no_others() -> None:
    admin = FakeAdmin(*(group(f"g-{number:03}") for number in range(50)))
    admin.errors["g-003"] = InvalidRequestError("too long")
    admin.errors["g-004"] = InvalidRequestError("also")
    found = await watching(admin).look()
    assert (found.problem, found.looked_at_count, found.troubled_count) == ("group g-003: too long", 48, 48)


async def test_a_coordinator_that_loads_is_said_so() -> None:
    admin = FakeAdmin()
    error = admin.errors[""] = RequestTimedOutError("time is up")
    assert await watching(admin).look() == GroupsHealth(problem="time is up")
    error.__cause__ = CoordinatorLoadInProgressError("__consumer_offsets-3 is being read")
    assert await watching(admin).look() == GroupsHealth(problem="__consumer_offsets-3 is being read", is_loading=True)
