"""Producers, markers and leaders in any order, with a log that refuses, loses and is late: what readers of transactions may count on."""

from __future__ import annotations

import random

import pytest
from transaction_world import NAMES, World

from tests.random_examples import seeds

pytestmark = pytest.mark.exhaustive

STEPS = 400
RATES = {
    "act": 80,
    "before": 10,
    "mark": 25,
    "commit": 12,
    "late": 6,
    "sleep": 4,
    "hold": 4,
    "refuse": 2,
    "lose": 3,
    "cut": 2,
    "restart": 3,
    "upgrade": 2,
    "age": 0.4,
}


def run(seed: int) -> World:
    """Does things in an order that the seed says, and checks after each."""
    rng = random.Random(seed)
    world = World()
    for action in rng.choices(list(RATES), list(RATES.values()), k=STEPS):
        world.do(action, rng.choice(NAMES), rng.randrange(8))
    world.settle()
    return world


def test_transactions_whatever_happens() -> None:
    """Goal: one end for each, told as it is, no success of a fenced process, no epoch twice, and an end in the end."""
    for seed in seeds(20):
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_enough_happens_in_a_few_runs() -> None:
    """Goal: the runs above are about transactions that end in each way, also where a producer gets another id."""
    worlds = [run(seed) for seed in range(4)]
    told = [is_commit for world in worlds for is_commit in world.told.values()]
    assert min(told.count(True), told.count(False)) > 15
    assert sum(len(partition.outcomes) for world in worlds for partition in world.partitions.values()) > 50
    assert sum(world.renamed_count for world in worlds) > 0
    assert sum(world.lost_count for world in worlds) > 5
