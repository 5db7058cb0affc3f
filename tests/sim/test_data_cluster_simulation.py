"""Whole clusters with data under simulated faults, and the proof that lost records show."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.blackout_simulation import BlackoutSimulation
from tests.sim.campaign import kept_by
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.fault_schedule import FaultKind
from tests.sim.fresh_ends_simulation import FreshEndsSimulation
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.one_machine_simulation import OneMachineSimulation

SEEDS = int(os.environ.get("REPLOG_DATA_CLUSTER_SEEDS", "120"))
ONE_MACHINE_SEEDS = max(1, SEEDS // 12)
BLACKOUT_SEEDS = max(1, SEEDS // 12)
FRESH_ENDS_SEEDS = max(1, SEEDS // 24)
FRESH_SEEDS = 10
ABLATION_SEEDS = 20
LOGGED_SEED = 1

MUST_BE_SEEN = (
    *FaultKind,
    "acknowledged",
    "controller elected",
    "damage met after healing",
    "damage told to a consumer",
    "damaged replica begun anew",
    "delivered late",
    "ended by a failed disk",
    "lost to an unclean election",
    "reassignment",
    "replica moved",
    "restart",
    "snapshot fetched",
    "snapshot loaded",
    "topic deleted under load",
    "unclean election",
)
"""Of what may happen, each at least once in a campaign."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_what_is_acknowledged_survives_everything() -> None:
    seen = kept_by(range(SEEDS), DataSimulation)
    assert [name for name in MUST_BE_SEEN if seen[name] == 0] == []


def test_fresh_seeds_lose_nothing_either() -> None:
    with fresh_seeds("data_cluster_simulation", FRESH_SEEDS) as seeds:
        kept_by(seeds, DataSimulation)


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


def test_without_fsync_one_machine_may_lose_power() -> None:
    seen = kept_by(range(ONE_MACHINE_SEEDS), OneMachineSimulation)
    assert [name for name in ("acknowledged", "kill", "power cut", "power cut in a write") if seen[name] == 0] == []


def test_after_a_power_cut_of_everything_the_longest_log_is_found() -> None:
    seen = kept_by(range(BLACKOUT_SEEDS), BlackoutSimulation)
    assert [name for name in ("acknowledged", "power cut of everything") if seen[name] == 0] == []


def test_no_broker_tells_an_old_end() -> None:
    assert kept_by(range(FRESH_ENDS_SEEDS), FreshEndsSimulation)["end told"] > 0


class WithoutFsync(DataSimulation):
    """Acknowledgements wait for the replicas, not for their disks, and the mains fail."""

    fixed = {"flush_policy": "auto", "mains": 0.5, "wipe": 0.0}  # noqa: RUF012 -- as the base class says


def test_records_that_were_not_on_disk_are_missed() -> None:
    for seed in range(ABLATION_SEEDS):
        try:
            WithoutFsync(seed).run()
        except Violation as violation:
            assert re.match("R[1-46] |.*(lost_write|unseen|stale_read|inconsistent)", str(violation), re.DOTALL)  # noqa: PT017 -- some seed
            return
    raise AssertionError("nothing found")
