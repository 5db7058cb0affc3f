"""Sets of seeds: as small as they can be, run first, and completed by further seeds when they do not show everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.sim.covering import Sight, covering, known_seeds, run_covering
from tests.sim.simulations import SIMULATIONS, SimulationKind


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
    """A simulation whose seeds each show some letters; notes which have run."""

    def __init__(self, *shown: str) -> None:
        self.shown = shown
        self.ran: list[int] = []
        self.kind = SimulationKind("toy", self.run, ("a", "b"), seeds_max=len(shown))

    def run(self, seeds: Iterable[int]) -> Counter[str]:
        self.ran += seeds
        return Counter("".join(self.shown[seed] for seed in seeds))


def outcome(toy: Toy, known: list[int]) -> tuple[list[str], list[str], list[int]]:
    """Returns what is told, what is missing and which seeds have run."""
    stale: list[str] = []
    _, missing = run_covering(toy.kind, known, stale.append)
    return stale, missing, toy.ran


def test_a_set_that_covers_is_enough() -> None:
    assert outcome(Toy("", "a", "b", "ab"), [3]) == ([], [], [3])


def test_a_stale_set_costs_further_seeds_and_says_so() -> None:
    told = "the covering seeds of toy do not show b any more: "
    stale, missing, ran = outcome(Toy("", "a", "b", "ab"), [1])
    assert [line[: len(told)] for line in stale] == [told]
    assert (missing, ran) == ([], [1, 0, 2])


def test_what_no_fixed_seed_shows_is_missing() -> None:
    _, missing, ran = outcome(Toy("", "a", "a"), [1])
    assert (missing, ran) == (["b"], [1, 0, 2])


@pytest.mark.parametrize("simulation", SIMULATIONS, ids=lambda simulation: simulation.name)
def test_each_simulation_has_its_seeds(simulation: SimulationKind) -> None:
    seeds = known_seeds(simulation.name)
    assert seeds
    assert set(seeds) <= set(range(simulation.seeds_max))
