"""Whole clusters with data under simulated faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.simulations import BLACKOUT, DATA_CLUSTER, FRESH_ENDS, ONE_MACHINE, SimulationKind

LOGGED_SEED = 1

KINDS = (DATA_CLUSTER, ONE_MACHINE, BLACKOUT, FRESH_ENDS)
"""Any fault; no fsync, and one machine loses power; all machines at once; brokers that are asked where the partition ends."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_acknowledged_survives_everything(kind: SimulationKind, tell_stale: TellStale) -> None:
    _, missing = run_covering(kind, known_seeds(kind.name), tell_stale)
    assert missing == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_fresh_seeds_lose_nothing_either(kind: SimulationKind) -> None:
    with fresh_seeds(kind.name, kind.fresh_count) as seeds:
        kind.run(seeds)
