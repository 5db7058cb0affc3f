"""Offsets that are committed in transactions, on whole clusters under simulated faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.simulations import GROUP_TRANSACTIONS as KIND


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_offsets_of_transactions_are_what_their_ends_made_of_them(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_they_are_for_fresh_seeds() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)
