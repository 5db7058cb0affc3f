"""The command line of the cluster simulations: many seeds, the first that fails, and a failing one made small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sim.campaign import campaign, main
from tests.sim.data_cluster_simulation import DataSimulation
from tests.sim.fault_schedule import FaultKind
from tests.sim.metadata_cluster_checks import Violation
from tests.sim.shrinking import Case


class NothingRuns(DataSimulation):
    """Takes no time; what must not be is made up."""

    def run(self) -> None:
        self.discard()
        self.seen["run"] += 1
        self.judge()

    def judge(self) -> None:
        """Everything is in order."""


class SomeSeedsFail(NothingRuns):
    """Two of them."""

    def judge(self) -> None:
        if self.seed in {13, 21}:
            raise Violation(f"R1 made up, seed {self.seed}")


class KillsFail(NothingRuns):
    """Each run in which a process is killed."""

    def judge(self) -> None:
        if any(fault.kind is FaultKind.KILL for fault in self.planned()):
            raise Violation("R1 somebody was killed")


SEED_WITH_KILLS = next(
    seed for seed in range(100) if sum(f.kind is FaultKind.KILL for f in Case.of_seed(seed, KillsFail).schedule) > 1
)


def test_all_seeds_run_once_in_several_processes() -> None:
    result = campaign(range(10, 33), NothingRuns, 2, chunk=5, shows_progress=False)
    assert (result.failed_seed, result.seen["run"]) == (None, 23)


def test_the_first_seed_that_fails_is_told_and_later_ones_are_not_begun() -> None:
    result = campaign(range(10, 1_000), SomeSeedsFail, 2, chunk=2, shows_progress=False)
    assert result.failed_seed == 13
    assert result.violation == "R1 made up, seed 13"
    assert result.seen["run"] < 30


def run_main(monkeypatch: pytest.MonkeyPatch, make: type[DataSimulation], *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["simulation", *map(str, arguments)])
    monkeypatch.setattr("logging.disable", lambda _level: None)
    return main(make)


def test_a_failing_seed_is_shrunk_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.json"
    assert run_main(monkeypatch, KillsFail, "--seed", SEED_WITH_KILLS, "--shrink", path) == 0
    said = capsys.readouterr().out
    assert "kill node" in said.splitlines()[0]
    assert f"repeat it with python -m tests.sim.data_cluster_simulation --schedule {path} --log" in said
    assert [fault.kind for fault in Case.read(path).schedule] == [FaultKind.KILL]
    assert run_main(monkeypatch, KillsFail, "--schedule", path) == 1
    assert "FAILED: R1 somebody was killed" in capsys.readouterr().err


def test_a_seed_in_order_has_nothing_to_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_main(monkeypatch, NothingRuns, "--seed", 1, "--shrink", tmp_path / "small.json") == 1
    assert not (tmp_path / "small.json").exists()


def test_the_speed_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(monkeypatch, NothingRuns, "--seed", 1) == 0
    assert "simulated seconds per second, checked after each of" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--shrink", "f"), ("--log",)])
def test_what_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_main(monkeypatch, NothingRuns, *arguments)
