"""Several controllers over one log."""

from __future__ import annotations

from tests.sim.controller_simulation import run_seeds
from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.simulations import CONTROLLER as KIND


def test_the_invariants_hold(tell_stale: TellStale) -> None:
    _, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []


def test_fresh_seeds_break_no_invariant_either() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        KIND.run(seeds)


def test_an_operator_decides_where_the_only_complete_disk_is_gone() -> None:
    """With a minimum of one replica the others may lack what was committed: nobody is elected until somebody gives it up."""
    assert run_seeds((1112146094,))["given up"] == 3
