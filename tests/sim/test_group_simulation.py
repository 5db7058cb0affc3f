"""Groups on whole clusters under simulated faults, and the proof that a missing safeguard of theirs shows."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.sim.campaign import kept_by, run_seed
from tests.sim.classic_members import assignment, owned_partitions, shares, subscription
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.group_ablations import ABLATIONS, TABLE, GroupAblation, find
from tests.sim.group_day import GROUPS, MEMBERS, SAMPLES, SEGMENT_BYTES, GroupDay
from tests.sim.group_simulation import GroupSimulation
from tests.sim.metadata_cluster_checks import Violation

SEEDS = int(os.environ.get("REPLOG_GROUP_SEEDS", "16"))
HOURS = float(os.environ.get("REPLOG_GROUP_HOURS", "0.5"))
FRESH_SEEDS = 2

MUST_BE_SEEN = (
    "classic: REBALANCE_IN_PROGRESS",
    "classic: UNKNOWN_MEMBER_ID",
    "commit acknowledged",
    "handled",
    "handled twice, a member was killed",
    "handled twice, a member was put out",
    "kill",
    "member killed",
    "member leaves",
    "member paused",
    "power cut",
    "topic grown",
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Records of a log would keep what they tell of, a whole simulation, until the next test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_groups_hold_what_they_promise() -> None:
    seen = kept_by(range(SEEDS), GroupSimulation)
    assert not [name for name in MUST_BE_SEEN if not seen[name]]


def test_groups_hold_what_they_promise_for_fresh_seeds() -> None:
    with fresh_seeds("group_simulation", FRESH_SEEDS) as seeds:
        kept_by(seeds, GroupSimulation)


def test_a_seed_is_a_run() -> None:
    traces = []
    for _ in range(2):
        simulation = GroupSimulation(3)
        run_seed(simulation, Counter())
        traces.append(simulation.trace)
    assert traces[0] == traces[1]


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.safeguard)
def test_a_missing_safeguard_of_groups_is_found(ablation: GroupAblation) -> None:
    if ablation.unfound_because:
        assert find(ablation, 0, 1) is None
        return
    seed = TABLE.known_seed(ablation.safeguard)
    found = find(ablation, seed, 1)
    assert found is not None, f"seed {seed} does not show it any more: make the table anew with --write"
    assert re.match(ablation.finding, found[1], re.DOTALL)
    assert "--seed" in found[1]  # the message says how to repeat it


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
