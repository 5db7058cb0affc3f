"""A safeguard of whole nodes is taken out: a simulation must notice."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from replog.broker.quorum.metadata_log import MetadataLog
from replog.broker.quorum.state_file import QuorumStateFile
from replog.controller.controller import Controller
from replog.controller.messages import Reply, ReplyError
from replog.testing.simulated_node import SimulatedNode
from replog_quorum import ElectionState
from replog_timeline import SnapshotRegistry
from tests.sim.cluster_swarm import Swarm
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.metadata_cluster_simulation import Simulation

pytestmark = pytest.mark.campaign

ABLATION_SEEDS = 60


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes of a hundred clusters log is kept by pytest otherwise; `--log` of the command shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_violation(make: Callable[[int], Simulation] = Simulation, first: int = 0) -> str:
    """What the first seed from `first` on says that finds something."""
    for seed in range(first, first + ABLATION_SEEDS):
        try:
            make(seed).run()
        except Violation as violation:
            return str(violation)
    return "nothing found"


def test_a_disk_that_lies_about_fsync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start = SimulatedNode.start

    def start_on_a_liar(node: SimulatedNode) -> None:
        start(node)
        node.fs.faults.syncs_lie = True

    monkeypatch.setattr(SimulatedNode, "start", start_on_a_liar)
    found = first_violation()
    assert "nothing found" not in found
    assert "--seed" in found  # the message says how to repeat it


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # a node that ends as the simulation does
def test_votes_that_are_not_kept_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(_file: QuorumStateFile, _state: ElectionState) -> None: ...

    monkeypatch.setattr(QuorumStateFile, "write", forget)
    assert "nothing found" not in first_violation()


def test_fetches_that_count_before_the_fsync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes and leaders are fine; what was acknowledged is lost when everything loses power."""

    def stormy(seed: int) -> Simulation:
        drawn = Swarm.draw(random.Random(seed))
        storm = {"controllers": (1, 2, 3), "brokers": (4,), "mains": 0.5, "slow_thread": 0.2, "cut": 0.0}
        return Simulation(seed, replace(drawn, **storm, client_pause_s=0.02, changes_voters=False))  # type: ignore[arg-type]  # by name

    monkeypatch.setattr(MetadataLog, "flushed_offset", property(lambda log: log.log_end_offset))
    found = first_violation(stormy, first=57)  # the ones before find nothing, and take their time
    assert "acknowledged" in found or "M4" in found


def test_answers_before_their_commit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(controller: Controller, answer: Reply | ReplyError, _deadline_ms: int) -> None:
        controller._effects.append(answer)

    monkeypatch.setattr(Controller, "_answer", at_once)
    assert "acknowledged" in first_violation()


def test_a_lost_term_that_is_not_taken_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(_registry: SnapshotRegistry, _epoch: int) -> None: ...

    monkeypatch.setattr(SnapshotRegistry, "revert_to_snapshot", keep)
    assert "nothing found" not in first_violation()


class WithoutFsync(DataSimulation):
    """Acknowledgements wait for the replicas, not for their disks, and the mains fail."""

    fixed = {"flush_policy": "auto", "mains": 0.5, "wipe": 0.0}  # noqa: RUF012 -- as the base class says


def test_records_that_were_not_on_disk_are_missed() -> None:
    for seed in range(ABLATION_SEEDS // 3):
        try:
            WithoutFsync(seed).run()
        except Violation as violation:
            assert re.match("R[1-46] |.*(lost_write|unseen|stale_read|inconsistent)", str(violation), re.DOTALL)  # noqa: PT017 -- some seed
            return
    raise AssertionError("nothing found")
