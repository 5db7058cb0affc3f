"""Sets of seeds: as small as they can be, run first, and completed by further seeds when they do not show everything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sim import covering as module
from tests.sim.covering import Sight, covering, known_seeds, likely_first, run_covering
from tests.sim.fault_schedule import FaultKind
from tests.sim.simulations import DATA_CLUSTER, SIMULATIONS, SPEAKS_FOR, TRANSACTION, SimulationKind


def sight(seed: int, seen: str, cost_s: float = 1.0) -> Sight:
    return Sight(seed, cost_s, frozenset(seen))


def test_a_few_seeds_show_everything() -> None:
    sights = [sight(0, "ab"), sight(1, "abcd"), sight(2, "e"), sight(3, "de"), sight(4, "abce")]
    assert sorted(covering(sights, "abcde")) == [1, 2]


def test_what_is_cheap_is_chosen() -> None:
    assert covering([sight(0, "abc", 9.0), sight(1, "ab"), sight(2, "c")], "abc") == [1, 2]


def test_what_others_show_together_is_left_out() -> None:
    """The first choice, of three, is needless once the rest is chosen."""
    assert sorted(covering([sight(0, "abc"), sight(1, "adx", 1.1), sight(2, "bcy", 1.1)], "abcdxy")) == [1, 2]


def test_what_no_seed_shows_is_told() -> None:
    with pytest.raises(LookupError, match="no seed shows c, d"):
        covering([sight(0, "ab")], "abcd")


class Toy:
    """A simulation whose seeds each show some letters, small ones though nothing spoke for them; notes which have run."""

    def __init__(self, *shown: str) -> None:
        self.shown = shown
        self.ran: list[int] = []
        self.kind = SimulationKind(
            "toy", self.run, ("a", "b"), seeds_max=len(shown), fresh_count=1, is_likely=self.is_likely
        )

    def run(self, seeds: Iterable[int]) -> Counter[str]:
        seeds = list(seeds)
        self.ran += seeds
        return Counter("".join(self.shown[seed] for seed in seeds).lower())

    def is_likely(self, seed: int, name: str) -> bool:
        return name in self.shown[seed]


def outcome(toy: Toy, known: list[int]) -> tuple[list[str], list[str], list[int]]:
    """Returns what is told, what is missing and which seeds have run."""
    stale: list[str] = []
    _, missing = run_covering(toy.kind, known, stale.append)
    return stale, missing, toy.ran


def test_a_set_that_covers_is_enough() -> None:
    assert outcome(Toy("", "a", "b", "ab"), [3]) == ([], [], [3])


def test_a_stale_set_costs_further_seeds_and_the_run_says_which_cover() -> None:
    stale, missing, ran = outcome(Toy("", "a", "B", "ab"), [1])
    command = "PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.covering --only toy --seeds 3"
    assert stale == [f"the covering seeds of toy do not show b any more: {command}"]
    assert (missing, ran) == ([], [1, 3])


def test_those_run_first_that_are_likely_to_show_what_is_missing_and_then_all_others() -> None:
    """Also where a thing is seen though nothing that was drawn spoke for it."""
    toy = Toy("", "a", "B", "b", "b")
    assert likely_first(toy.kind, ["b"], [1, 4]) == [3, 0, 2]
    assert outcome(Toy("", "a", "B"), [1])[1:] == ([], [1, 0, 2])


def test_what_no_fixed_seed_shows_is_missing() -> None:
    assert outcome(Toy("", "a", "a"), [1]) == ([], ["b"], [1, 0, 2])


def test_what_is_drawn_for_a_seed_says_what_it_is_likely_to_show() -> None:
    for kind, name in (
        (DATA_CLUSTER, "unclean election"),
        (DATA_CLUSTER, FaultKind.WIPE),
        (TRANSACTION, "transaction cancelled"),
    ):
        told = [kind.is_likely(seed, name) for seed in range(20)]
        assert {True, False} == set(told)
    assert DATA_CLUSTER.is_likely(0, "acknowledged")


def test_what_speaks_for_a_sight_is_about_something_that_must_be_seen() -> None:
    assert set(SPEAKS_FOR) <= {name for simulation in SIMULATIONS for name in simulation.must_be_seen}


# ---- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file of sets of a command; the set of the toy is stale."""
    path = tmp_path / "seeds.json"
    path.write_text('{"other": [4], "toy": [1]}')
    monkeypatch.setattr(module, "SEEDS", path)
    monkeypatch.setattr(module, "SIMULATIONS", (Toy("", "a", "b", "ab").kind,))
    return path


def test_a_stale_set_is_mended_with_as_few_runs_as_in_the_tests(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main([]) == 0
    assert json.loads(kept.read_text())["other"] == [4]
    assert sorted(known_seeds("toy")) == [1, 2]
    assert "instead of [1]" in capsys.readouterr().out
    assert module.main([]) == 0
    assert capsys.readouterr().out == "toy: as it is\n"


def test_what_the_tests_have_found_is_kept_without_a_run(kept: Path) -> None:
    assert module.main(["--only", "toy", "--seeds", "3"]) == 0
    assert known_seeds("toy") == [3]


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.name)
def test_each_has_a_name_of_its_own(
    simulation: SimulationKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is a part of another one's."""
    monkeypatch.setattr(module, "SEEDS", tmp_path / "seeds.json")
    assert module.main(["--only", simulation.name, "--seeds", "0"]) == 0
    assert json.loads(module.SEEDS.read_text()) == {simulation.name: [0]}


@pytest.mark.parametrize("arguments", [["--only", "nothing", "--seeds", "3"], ["--only", "toy", "--seeds", "4"]])
def test_a_set_must_be_of_one_simulation(arguments: list[str], kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        module.main(arguments)
    assert "--seeds needs" in capsys.readouterr().err or arguments[1] == "toy"
    assert known_seeds("toy") == [1]


def test_without_seeds_that_show_everything_nothing_is_kept(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIMULATIONS", (Toy("", "a", "a").kind,))
    assert module.main([]) == 1
    assert known_seeds("toy") == [1]


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.name)
def test_each_simulation_has_its_seeds(simulation: SimulationKind) -> None:
    seeds = known_seeds(simulation.name)
    assert seeds
    assert set(seeds) <= set(range(simulation.seeds_max))
