"""Seeds that together show all that a simulation must show: how they are found, kept and run.

A few seeds see every rare outcome for which hundreds would run otherwise.  They are kept in `covering_seeds.json`; a change of
the product may shift what a seed shows, so that a set gets stale: then the tests go on with further seeds until everything was
seen, which costs time and nothing else, and say so at their end.  The sets are made anew (from the root of the repository) by ::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.covering                          # all of them, several minutes of CPU
    python -m tests.sim.covering --only data_cluster      # just one
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sim.ablation_table import TellStale
from tests.sim.simulations import SIMULATIONS, SimulationKind

SEEDS = Path(__file__).with_name("covering_seeds.json")
COMMAND = "PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.covering --only {name}"


@dataclass(frozen=True, slots=True)
class Sight:
    """What one seed has shown.

    Attributes:
        seed: The seed.
        cost_s: The CPU time that it took.
        seen: What it showed of that which must be seen.
    """

    seed: int
    cost_s: float
    seen: frozenset[str]


def known_seeds(name: str) -> list[int]:
    """Returns the seeds that are kept for a simulation; none where there is no set of it."""
    seeds: list[int] = json.loads(SEEDS.read_text(encoding="utf-8")).get(name, [])
    return seeds


def run_covering(
    simulation: SimulationKind, known: Sequence[int], tell_stale: TellStale
) -> tuple[Counter[str], list[str]]:
    """Runs the seeds that cover a simulation, and further ones, up to `seeds_max`, as long as something was not seen.

    Args:
        simulation: What is run.
        known: The seeds to begin with.
        tell_stale: Told when the set does not cover any more.

    Returns:
        How often each thing was seen, and what must be seen and was not.
    """
    seen = simulation.run(known)
    missing = _missing(simulation, seen)
    if missing:
        tell_stale(
            f"the covering seeds of {simulation.name} do not show {', '.join(missing)} any more:"
            f" {COMMAND.format(name=simulation.name)}"
        )
    further = iter([seed for seed in range(simulation.seeds_max) if seed not in known])
    while missing and (seed := next(further, None)) is not None:
        seen.update(simulation.run((seed,)))
        missing = _missing(simulation, seen)
    return seen, missing


def _missing(simulation: SimulationKind, seen: Counter[str]) -> list[str]:
    return [name for name in simulation.must_be_seen if not seen[name]]


def covering(sights: Sequence[Sight], wanted: Collection[str]) -> list[int]:
    """Chooses cheap seeds that together show what is wanted: the one first that shows most of the rest for its cost.

    Raises:
        LookupError: No seed shows some of it.
    """
    rest, chosen = set(wanted), list[Sight]()
    while rest:
        best = max(sights, key=lambda sight: len(rest & sight.seen) / sight.cost_s)
        if not rest & best.seen:
            raise LookupError(f"no seed shows {', '.join(sorted(rest))}")
        chosen.append(best)
        rest -= best.seen
    return [sight.seed for sight in _without_needless(chosen, wanted)]


def _without_needless(chosen: list[Sight], wanted: Collection[str]) -> list[Sight]:
    """Takes out what the others have shown together, the dearest first."""
    for sight in sorted(chosen, key=lambda sight: -sight.cost_s):
        others = [each for each in chosen if each is not sight]
        if set(wanted) <= set().union(*(each.seen for each in others)):
            chosen = others
    return chosen


# ---- the command --------------------------------------------------------------------------------------------------------


def look(simulation: SimulationKind, processes: int) -> Iterator[Sight]:
    """Runs all fixed seeds of a simulation, each for itself."""
    fork = multiprocessing.get_context("fork")
    number = SIMULATIONS.index(simulation)
    with fork.Pool(processes) as pool:
        yield from pool.imap(_look_at, [(number, seed) for seed in range(simulation.seeds_max)])


def _look_at(task: tuple[int, int]) -> Sight:
    logging.disable(logging.CRITICAL)
    simulation, seed = SIMULATIONS[task[0]], task[1]
    began_s = time.process_time()
    seen = simulation.run((seed,))
    cost_s = time.process_time() - began_s
    return Sight(seed, cost_s, frozenset(name for name in simulation.must_be_seen if seen[name]))


def main() -> int:
    """Makes the sets anew; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="just the simulations whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    for simulation in SIMULATIONS:
        if options.only not in simulation.name:
            continue
        sights = list(look(simulation, options.processes))
        seeds = covering(sights, simulation.must_be_seen)
        all_s, set_s = sum(s.cost_s for s in sights), sum(s.cost_s for s in sights if s.seed in seeds)
        print(f"{simulation.name}: {set_s:.1f} s of CPU instead of {all_s:.1f} s, {seeds}", flush=True)
        _keep(simulation.name, seeds)
    return 0


def _keep(name: str, seeds: list[int]) -> None:
    sets = json.loads(SEEDS.read_text(encoding="utf-8")) if SEEDS.exists() else {}
    lines = [f'  "{each}": {json.dumps(kept)}' for each, kept in sorted({**sets, name: seeds}.items())]
    SEEDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
