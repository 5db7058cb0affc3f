"""Many seeds of a cluster simulation, one of them with its log, or a failing one made small: the command line of all of them.

::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.data_cluster_simulation --seeds 1000000 --processes 8     # the first seed that fails is kept
    python -m tests.sim.data_cluster_simulation --seed 4711 --log                 # one run, with everything that happens
    python -m tests.sim.data_cluster_simulation --seed 4711 --shrink small.json   # the fewest faults that still show it
    python -m tests.sim.data_cluster_simulation --schedule small.json --log       # that run again
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tests.sim.metadata_cluster_checks import Violation
from tests.sim.shrinking import Case, Shrinker

if TYPE_CHECKING:
    from tests.sim.metadata_cluster_simulation import Simulation

Make: TypeAlias = "type[Simulation]"

CHUNK = 20
PROGRESS_S = 10.0
CHUNKS_PER_PROCESS = 50
"""Then another one takes its place: what a run leaves in a process, such as caches of modules, does not pile up."""

VIRTUAL, STEPS = "virtual seconds", "steps"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of some seeds: how often what was seen, and the first that failed."""

    seen: Counter[str]
    failed_seed: int | None = None
    violation: str = ""


def run_seed(simulation: Simulation, seen: Counter[str]) -> None:
    """One run; adds what was seen.

    Raises:
        Violation: something must not be.
    """
    try:
        simulation.run()
    finally:
        seen.update(simulation.seen)
        seen[STEPS] += simulation.loop.steps
        seen[VIRTUAL] += int(simulation.loop.time())


def run_seeds(make: Make, seeds: Iterable[int]) -> Counter[str]:
    """Runs seeds one after the other; returns how often what was seen.

    Raises:
        Violation: of the first seed that fails.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        run_seed(make(seed), seen)
        gc.collect()
    return seen


def run_chunk(seeds: range, make: Make) -> Result:
    """Runs some seeds; a violation is a result too."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # modules: the collections between two runs need not look at them
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            run_seed(make(seed), seen)
        except Violation as violation:
            return Result(seen, seed, str(violation))
        finally:
            gc.collect()
    return Result(seen)


def campaign(seeds: range, make: Make, processes: int, *, chunk: int = CHUNK, shows_progress: bool = True) -> Result:
    """Runs many seeds in several processes.  After a failure no later seeds are begun; the first one that failed is told."""
    waiting = [seeds[first : first + chunk] for first in range(0, len(seeds), chunk)]
    seen, failed, done = Counter[str](), list[Result](), 0
    progress = _Progress(len(seeds)) if shows_progress else None
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=CHUNKS_PER_PROCESS) as pool:
        running: list[Future[Result]] = []
        while waiting or running:
            while waiting and not failed and len(running) < 2 * processes:
                running.append(pool.submit(run_chunk, waiting.pop(0), make))
            if failed:
                waiting.clear()
            if not running:
                break
            result = running.pop(0).result()
            done += chunk
            seen.update(result.seen)
            failed += [result] if result.failed_seed is not None else []
            if progress is not None:
                progress.tell(min(done, len(seeds)), seen)
    if not failed:
        return Result(seen)
    return Result(seen, failed[0].failed_seed, failed[0].violation)  # results come in the order of the seeds


class _Progress:
    """A line on standard error now and then."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._began = self._told = time.monotonic()

    def tell(self, done: int, seen: Counter[str]) -> None:
        now = time.monotonic()
        if now - self._told >= PROGRESS_S:
            self._told = now
            elapsed_s = now - self._began
            print(
                f"{done} of {self._count} seeds, {done / elapsed_s:.1f}/s, {speed(seen, elapsed_s)}",
                file=sys.stderr,
                flush=True,
            )


def speed(seen: Counter[str], elapsed_s: float) -> str:
    """How much faster than real time it was."""
    return f"{seen[VIRTUAL] / elapsed_s:.1f} simulated seconds per second, checked after each of {seen[STEPS]} steps"


def main(make: Make) -> int:
    """The command line."""
    options = _parse(make)
    if not options.log:
        logging.disable(logging.CRITICAL)
    began = time.monotonic()
    if options.schedule is not None:
        result = _run_one(Case.read(options.schedule), make, is_logged=options.log)
    elif options.shrink is not None:
        return _shrink(options.seed, make, options.shrink)
    elif options.seed is not None:
        result = _run_one(Case.of_seed(options.seed, make), make, is_logged=options.log)
    else:
        seeds = range(options.first, options.first + options.seeds)
        result = campaign(seeds, make, options.processes)
    elapsed_s = time.monotonic() - began
    for name, count in sorted(result.seen.items()):
        print(f"{count:9d}  {name}")
    print(f"{elapsed_s:.1f} s, {speed(result.seen, elapsed_s)}")
    if result.failed_seed is not None:
        print(f"FAILED: {result.violation}", file=sys.stderr)
        return 1
    print("no violation")
    return 0


def _parse(make: Make) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=sys.modules[make.__module__].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--log", action="store_true", help="with --seed or --schedule: show everything that happens")
    parser.add_argument(
        "--shrink", type=Path, metavar="FILE", help="with --seed: write the smallest run that fails alike"
    )
    parser.add_argument("--schedule", type=Path, metavar="FILE", help="the run that --shrink has written")
    options = parser.parse_args()
    if options.shrink is not None and options.seed is None:
        parser.error("--shrink needs the --seed of a run that fails")
    if options.log and options.seed is None and options.schedule is None:
        parser.error("--log needs --seed or --schedule")
    return options


def _run_one(case: Case, make: Make, *, is_logged: bool) -> Result:
    seen: Counter[str] = Counter()
    simulation = case.simulation(make)
    if is_logged:
        simulation.events.to = sys.stdout
    with_logs = simulation.events.with_node_logs() if is_logged else contextlib.nullcontext()
    try:
        with with_logs:
            run_seed(simulation, seen)
    except Violation as violation:
        return Result(seen, case.seed, str(violation))
    return Result(seen)


def _shrink(seed: int, make: Make, path: Path) -> int:
    shrinker = Shrinker(make, lambda text: print(text, file=sys.stderr, flush=True))
    shrunk = shrinker.shrink(Case.of_seed(seed, make))
    if shrunk is None:
        print(f"seed {seed} shows nothing to shrink", file=sys.stderr)
        return 1
    shrunk.case.write(path)
    for fault in shrunk.case.schedule:
        print(f"{fault.at_ms:8d} ms  {fault}")
    print(f"{shrunk.violation}\nrepeat it with python -m {make.command} --schedule {path} --log")
    return 0
