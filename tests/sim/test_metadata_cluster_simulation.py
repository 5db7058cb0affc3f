"""Whole metadata clusters under simulated faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.simulations import METADATA_CLUSTER as KIND


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_whole_clusters_keep_their_promises_and_recover(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_fresh_seeds_keep_them_too() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)
