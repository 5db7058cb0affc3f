"""Clusters that are stopped in order lose nothing, and do not hang on one copy."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.simulations import ORDERLY_STOPS as KIND


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_all_nodes_stop_in_order_and_start_again(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_for_fresh_seeds_too() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)
