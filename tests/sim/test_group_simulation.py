"""Groups on whole clusters under simulated faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.sim.classic_members import assignment, owned_partitions, shares, subscription
from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.group_day import GROUPS, MEMBERS, SAMPLES, SEGMENT_BYTES, GroupDay
from tests.sim.group_simulation import GroupSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.simulations import GROUP as KIND

HOURS = 0.25


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Records of a log would keep what they tell of, a whole simulation, until the next test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_groups_hold_what_they_promise(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_groups_hold_what_they_promise_for_fresh_seeds() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)


class OlderBrokers(GroupSimulation):
    """One at which our consumers find no KIP-848, and join by the classic protocol."""

    is_older = True
    shaped: ClassVar = {"groups": (("consumer", 3), ("eager", 1)), "member_fault": 0.7}


def test_groups_hold_what_they_promise_where_members_assign() -> None:
    missing = {
        "ours: assigned by a member",
        "member killed",
        "member leaves",
        "member paused",
        "handled",
        "commit acknowledged",
    }
    for seed in (13, *range(1, 13)):  # the first one shows all, until a change of the product shifts what a seed shows
        run = OlderBrokers(seed)
        run.run()
        missing = {what for what in missing if not run.seen[what]}
        if not missing:
            return
    assert not missing


def test_nothing_piles_up_while_members_come_and_go() -> None:
    day = GroupDay(1, HOURS)
    day.run()
    assert day.lives > GROUPS * MEMBERS
    assert day.handled > 0
    assert max(sample["log of groups"] for sample in day.samples) > SEGMENT_BYTES  # or compaction would not show


def test_what_piles_up_is_named() -> None:
    day = GroupDay(1, 1)
    day._loop.close()  # it is not run
    day.samples = [{"members": 9, "timers": number} for number in range(SAMPLES)]
    with pytest.raises(Violation, match="timers pile up"):
        day.check()


# ---- what members of the classic protocol agree on -----------------------------------------------------------------------


def test_what_a_member_has_is_read_from_what_it_tells() -> None:
    assert owned_partitions(subscription({2, 0})) == {0, 2}
    assert owned_partitions(subscription(())) == set()
    assert assignment({1}) != assignment(())


def test_what_somebody_has_is_given_to_nobody_else() -> None:
    assert shares({"a": {0, 1, 2, 3}, "b": set()}, 4) == {"a": {0, 1}, "b": set()}
    assert shares({"a": {0, 1}, "b": set()}, 4) == {"a": {0, 1}, "b": {2, 3}}
