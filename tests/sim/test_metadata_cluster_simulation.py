"""Whole metadata clusters under simulated faults."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_one_seed_is_one_run_under_any_hash_seed() -> None:
    def traces(hash_seed: str, seeds: str) -> list[str]:
        root = Path(__file__).parents[2]
        code = (
            "from tests.sim.metadata_cluster_simulation import *\n"
            f"for seed in {seeds}: s = Simulation(seed); s.run(); print(seed, s.trace, s.loop.steps)"
        )
        path = f"{root}/timeline:{root}/quorum:{root}/checkpoints"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    assert traces("1", "(2, 3)") == traces("2", "(2, 3)")
    assert traces("1", "(2, 3)")[1:] == traces("3", "(3,)")  # alone, or after others
