"""Whole clusters with data under simulated faults, and the proof that lost records show."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sim.blackout_simulation import BlackoutSimulation
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.fresh_ends_simulation import FreshEndsSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.metadata_cluster_simulation import run_seeds
from tests.sim.one_machine_simulation import OneMachineSimulation

SEEDS = int(os.environ.get("REPLOG_DATA_CLUSTER_SEEDS", "20"))
ONE_MACHINE_SEEDS = SEEDS // 2
BLACKOUT_SEEDS = SEEDS // 2
FRESH_SEEDS = SEEDS // 4
ABLATION_SEEDS = 20

MUST_BE_SEEN = (
    "acknowledged",
    "cut",
    "kill",
    "power cut",
    "power cut in a write",
    "power cut of everything",
    "restart",
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_what_is_acknowledged_survives_everything() -> None:
    seen = run_seeds(range(SEEDS), DataSimulation)
    assert [name for name in MUST_BE_SEEN if seen[name] == 0] == []


def test_without_fsync_one_machine_may_lose_power() -> None:
    seen = run_seeds(range(ONE_MACHINE_SEEDS), OneMachineSimulation)
    assert [name for name in ("acknowledged", "kill", "power cut", "power cut in a write") if seen[name] == 0] == []


def test_after_a_power_cut_of_everything_the_longest_log_is_found() -> None:
    run_seeds(range(BLACKOUT_SEEDS), BlackoutSimulation)


def test_no_broker_tells_an_old_end() -> None:
    assert run_seeds(range(FRESH_SEEDS), FreshEndsSimulation)["end told"] > 0


class WithoutFsync(DataSimulation):
    """Acknowledgements wait for the replicas, not for their disks, and the mains fail."""

    settings = {**DataSimulation.settings, "flush.policy": "auto"}  # noqa: RUF012 -- as the base class says

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.swarm = replace(self.swarm, mains=0.5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # clients cut off in their `finally`
def test_records_that_were_not_on_disk_are_missed() -> None:
    for seed in range(ABLATION_SEEDS):
        try:
            WithoutFsync(seed).run()
        except Violation as violation:
            assert re.match("R[1-46] |.*(lost_write|unseen|stale_read|inconsistent)", str(violation), re.DOTALL)  # noqa: PT017 -- some seed
            return
    raise AssertionError("nothing found")
