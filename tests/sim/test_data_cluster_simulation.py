"""Whole clusters with data under simulated faults."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def test_one_seed_is_one_log_under_any_hash_seed() -> None:
    """Faults, what clients did and saw, what the metadata say and what nodes log, each with its virtual time."""

    def log(hash_seed: str) -> list[str]:
        root = Path(__file__).parents[2]
        path = f"{root}:{root}/timeline:{root}/quorum:{root}/checkpoints"
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim.data_cluster_simulation", "--seed", str(LOGGED_SEED), "--log"],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return [line for line in done.stdout.splitlines() if re.match(r" *\d+\.\d{6} ", line)]

    first = log("1")
    assert {line.split()[1] for line in first} == {"client", "fault", "log", "metadata", "node", "quorum"}
    assert first == log("2")
