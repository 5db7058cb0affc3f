"""Seeds that together show all that a simulation must show: how they are found, kept and run.

A few seeds see every rare outcome for which hundreds would run otherwise.  They are kept in `covering_seeds.json`; a change of
the product may shift what a seed shows, so that a set gets stale: then the tests go on with further seeds until everything was
seen, those first that are likely to show what is missing, which costs time and nothing else.  At their end they say which set would do now,
as a command that keeps it and runs nothing.  Sets are also mended, or made anew, by (from the root of the repository) ::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.covering                          # all of them: further seeds where one is stale
    python -m tests.sim.covering --only data_cluster      # just one
    python -m tests.sim.covering --anew                   # of all fixed seeds the cheapest, several minutes of CPU
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sim.ablation_table import TellStale
from tests.sim.simulations import SIMULATIONS, SimulationKind

SEEDS = Path(__file__).with_name("covering_seeds.json")
COMMAND = "PYTHONPATH=timeline:quorum:checkpoints python -m tests.sim.covering --only {name} --seeds {seeds}"


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


@dataclass(frozen=True, slots=True)
class Covered:
    """What came of running a set, and further seeds where it is stale.

    Attributes:
        seen: How often each thing was seen.
        stale: What the set does not show.
        missing: What no fixed seed shows.
        seeds: A set that shows everything; the known one where it does; empty where none does.
    """

    seen: Counter[str]
    stale: Sequence[str]
    missing: list[str]
    seeds: Sequence[int]


def cover(simulation: SimulationKind, known: Sequence[int]) -> Covered:
    """Runs the seeds that are known, and further ones, up to `seeds_max`, as long as something was not seen."""
    seen, sights = Counter[str](), list[Sight]()
    for seed in known:
        sights.append(_look_at(simulation, seed, seen))
    stale = missing = _missing(simulation, seen)
    for seed in likely_first(simulation, stale, known):
        if not missing:
            break
        sights.append(_look_at(simulation, seed, seen))
        missing = _missing(simulation, seen)
    if not stale:
        return Covered(seen, stale, missing, known)
    return Covered(seen, stale, missing, [] if missing else covering(sights, simulation.must_be_seen))


def likely_first(simulation: SimulationKind, missing: Sequence[str], known: Collection[int]) -> list[int]:
    """Returns the fixed seeds that are not known, those first that are likely to show most of what is missing."""
    if not missing:
        return []
    further = [seed for seed in range(simulation.seeds_max) if seed not in known]
    return sorted(further, key=lambda seed: -sum(simulation.is_likely(seed, name) for name in missing))


def run_covering(
    simulation: SimulationKind, known: Sequence[int], tell_stale: TellStale
) -> tuple[Counter[str], list[str]]:
    """Runs the seeds that cover a simulation, and further ones where something was not seen.

    Args:
        simulation: What is run.
        known: The seeds to begin with.
        tell_stale: Told when the set does not cover any more, with the command that keeps one that does.

    Returns:
        How often each thing was seen, and what must be seen and was not.
    """
    covered = cover(simulation, known)
    if covered.stale and covered.seeds:
        tell_stale(
            f"the covering seeds of {simulation.name} do not show {', '.join(covered.stale)} any more:"
            f" {COMMAND.format(name=simulation.name, seeds=' '.join(map(str, covered.seeds)))}"
        )
    return covered.seen, covered.missing


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


def look(simulation: SimulationKind, processes: int) -> list[Sight]:
    """Runs all fixed seeds of a simulation, each for itself."""
    fork = multiprocessing.get_context("fork")
    number = SIMULATIONS.index(simulation)
    with fork.Pool(processes) as pool:
        return pool.map(_look_alone, [(number, seed) for seed in range(simulation.seeds_max)], chunksize=1)


def _look_alone(task: tuple[int, int]) -> Sight:
    logging.disable(logging.CRITICAL)
    return _look_at(SIMULATIONS[task[0]], task[1], Counter())


def _look_at(simulation: SimulationKind, seed: int, seen: Counter[str]) -> Sight:
    """Runs one seed; adds what it has shown."""
    began_s = time.process_time()
    shown = simulation.run((seed,))
    cost_s = time.process_time() - began_s
    seen.update(shown)
    return Sight(seed, cost_s, frozenset(name for name in simulation.must_be_seen if shown[name]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Mends the sets, keeps one that is given, or makes them anew; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="just the simulation of this name, or those whose name contains it")
    parser.add_argument("--seeds", type=int, nargs="+", help="keep these, as the tests say, and run nothing")
    parser.add_argument("--anew", action="store_true", help="choose among all fixed seeds")
    parser.add_argument("--processes", type=int, default=2, help="with --anew")
    options = parser.parse_args(arguments)
    named = [simulation for simulation in SIMULATIONS if simulation.name == options.only]
    chosen = named or [simulation for simulation in SIMULATIONS if options.only in simulation.name]
    if options.seeds is not None:
        if len(chosen) != 1:
            parser.error("--seeds needs the name of one simulation: --only NAME")
        if not set(options.seeds) <= set(range(chosen[0].seeds_max)):
            parser.error(f"the seeds of {chosen[0].name} are 0 to {chosen[0].seeds_max - 1}")
        _keep(chosen[0].name, options.seeds)
        return 0
    logging.disable(logging.CRITICAL)
    return max([_make_anew(each, options.processes) if options.anew else _mend(each) for each in chosen], default=0)


def _mend(simulation: SimulationKind) -> int:
    """Runs the set, and further seeds where it is stale; returns 1 where no seeds show everything."""
    known = known_seeds(simulation.name)
    covered = cover(simulation, known)
    if covered.missing:
        print(f"{simulation.name}: no seed shows {', '.join(covered.missing)}", file=sys.stderr)
        return 1
    if covered.stale:
        _keep(simulation.name, covered.seeds)
    print(
        f"{simulation.name}: {list(covered.seeds)} instead of {known}"
        if covered.stale
        else f"{simulation.name}: as it is",
        flush=True,
    )
    return 0


def _make_anew(simulation: SimulationKind, processes: int) -> int:
    """Runs all fixed seeds, and keeps a cheap set.

    Raises:
        LookupError: They do not show everything.
    """
    sights = look(simulation, processes)
    seeds = covering(sights, simulation.must_be_seen)
    all_s, set_s = sum(s.cost_s for s in sights), sum(s.cost_s for s in sights if s.seed in seeds)
    print(f"{simulation.name}: {set_s:.1f} s of CPU instead of {all_s:.1f} s, {seeds}", flush=True)
    _keep(simulation.name, seeds)
    return 0


def _keep(name: str, seeds: Sequence[int]) -> None:
    sets = json.loads(SEEDS.read_text(encoding="utf-8")) if SEEDS.exists() else {}
    lines = [f'  "{each}": {json.dumps(list(kept))}' for each, kept in sorted({**sets, name: seeds}.items())]
    SEEDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
