"""The metadata quorum under simulated faults, and the proof that the checker sees a missing safeguard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from replog_quorum import ElectionState, EpochEnd, PersistElectionState, arithmetic
from replog_quorum.messages import LogView
from tests.sim.quorum_simulation import Checker, SimNode, Simulation, Violation, run_seeds

SEEDS = int(os.environ.get("REPLOG_SIM_SEEDS", "60"))
ABLATION_SEEDS = 400

MUST_BE_SEEN = (
    "TruncateTo",
    "LostLeadership",
    "Leader>Resigned",
    "Resigned>Unattached",
    "Prospective>Candidate",
    "crash between effects",
    "lost tail",
    "graceful",
    "resign",
)


def test_invariants_hold_and_healed_clusters_progress() -> None:
    seen = run_seeds(range(SEEDS))
    assert [name for name in MUST_BE_SEEN if seen[name] == 0] == []


def test_one_seed_is_one_run_under_any_hash_seed() -> None:
    def trace(hash_seed: str) -> str:
        root = Path(__file__).parents[2]
        code = "from tests.sim.quorum_simulation import *; s = Simulation(7); s.run(); print(s.trace)"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{root}/quorum"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert trace("1") == trace("2")


class ReplyBeforePersist(Simulation):
    """Sends what should wait for quorum-state, then writes it."""

    def perform_persist(self, node: SimNode, effect: PersistElectionState) -> None:
        if self.perform_all(node, effect.then) and not self.chance(0.2):
            self.persist(node, effect.state)
        else:
            self.crash(node)


class LyingLog:
    def __init__(self, log: LogView) -> None:
        self._log = log

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    @property
    def last_epoch(self) -> int:
        return self._log.last_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self._log.end_offset_for_epoch(epoch)


class WithLogView(Simulation):
    """Shows the core a log that lies about one thing."""

    view: type[LyingLog]

    def log_view(self, node: SimNode) -> LogView:
        return self.view(node.log)


class NoDivergence(LyingLog):
    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(epoch, 2**60)


class FlushedAtOnce(LyingLog):
    @property
    def flushed_offset(self) -> int:
        return self._log.log_end_offset


class NoTruncationByEpoch(WithLogView):
    view = NoDivergence


class NoFsyncBeforeFetch(WithLogView):
    view = FlushedAtOnce


class LeaderComesBackAsLeader(Simulation):
    """Forgets on disk that the epoch was led, so a restarted leader may win it again."""

    def stored(self, node: SimNode) -> ElectionState | None:
        if node.disk is not None and node.disk.leader_id == node.node_id:
            return ElectionState(node.disk.epoch, None, node.node_id)
        return node.disk


def anybody_is_up_to_date(*_: int) -> bool:
    return True


def find(simulation: Callable[[int], Simulation]) -> str:
    """The first violation among the seeds, and how many it took."""
    for seed in range(ABLATION_SEEDS):
        try:
            simulation(seed).run()
        except Violation as violation:
            return f"{violation} after {seed + 1} seeds"
    return "nothing found"


@pytest.mark.parametrize(
    ("ablation", "finding"),
    [
        (ReplyBeforePersist, "M5 "),
        (NoTruncationByEpoch, "M[24] "),
        (NoFsyncBeforeFetch, "M6 "),
        (LeaderComesBackAsLeader, "to which it was not elected"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_missing_safeguard_is_found(ablation: Callable[[int], Simulation], finding: str) -> None:
    found = find(ablation)
    assert re.search(finding, found)
    assert "--seed" in found  # the message says how to repeat it


def test_votes_without_a_look_at_the_log_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "log_is_up_to_date", anybody_is_up_to_date)
    assert "M3" in find(Simulation)


def test_commits_before_the_fsync_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the direct check of fetch offsets: the loss itself shows."""
    monkeypatch.setattr(Checker, "sent", lambda *_: None)
    assert "voters hold committed offset" in find(NoFsyncBeforeFetch)
