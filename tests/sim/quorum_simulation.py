"""Deterministic simulation of a whole metadata quorum: real cores, a small log in memory, one seed = one run.

1, 3 or 5 configured voters and observers.  Faults: loss, delay, duplication, reordering, one-way cuts, crashes at every
effect boundary (so also between the write of quorum-state and what waits for it, between the chunks of a snapshot and
inside its install), lost log tails, torn downloads, slow fsyncs, stalled and leaping clocks, resignations, lost disks, and
an operator who adds, removes, replaces and moves voters meanwhile.  Snapshots are tiny and the log is cleaned all the time.
The invariants M1 to M10 are checked after every event; then everything heals and progress is demanded within a bound.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=quorum python -m tests.sim.quorum_simulation --seeds 1000000 --processes 8
    PYTHONPATH=quorum python -m tests.sim.quorum_simulation --seed 4711
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from unittest import mock

from msgspec.structs import replace

from replog_quorum import (
    QuorumConfig,
    QuorumInvariantError,
    transitions,
)
from tests.sim.quorum_sim_checker import Violation
from tests.sim.quorum_sim_nodes import SimNode
from tests.sim.quorum_sim_processes import Processes
from tests.sim.quorum_sim_swarm import Swarm

__all__ = ["SimNode", "Simulation", "Swarm", "Violation", "run_seeds"]

CONFIG = QuorumConfig(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    request_timeout_ms=150,
    retry_backoff_ms=10,
    election_backoff_max_ms=100,
    fetch_max_wait_ms=100,
    snapshot_chunk_max_bytes=25,
)
PATIENT = replace(CONFIG, commit_notice_ms=20)
"""Commits are told with the next data, or after a while; half of the runs."""
FAULTS_UNTIL_MS = 3_000
HEALED_WITHIN_MS = 4_000


class Simulation(Processes):
    """One run."""

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        super().__init__(seed, swarm, CONFIG if seed % 2 else PATIENT)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    # ---- schedule -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Safety under faults, then liveness after healing.

        Raises:
            Violation: with the seed and the command that repeats it.
        """
        try:
            for node in self.nodes.values():
                self.start(node)
            self.at(self.rng.randrange(50), self.client)
            self.at(self.rng.randrange(200), self.isolate if self.swarm.isolate else self.fault)
            self.at(self.rng.randrange(300, 800), self.operator)
            self.at(100, self.watch_leaders)
            self.run_until(FAULTS_UNTIL_MS, lambda: False)
            self.heal()
        except (Violation, QuorumInvariantError) as error:
            command = f"PYTHONPATH=quorum python -m tests.sim.quorum_simulation --seed {self.seed}"
            raise Violation(f"{error} [seed {self.seed} at {self.now_ms} ms, {self.swarm}; {command}]") from error

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, action))

    def run_until(self, end_ms: int, is_done: Callable[[], bool]) -> bool:
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
            self.checker.after_event()
            if is_done():
                return True
        self.now_ms = end_ms
        return False

    def note(self, *facts: object) -> None:
        self.trace = zlib.crc32(repr((self.now_ms, *facts)).encode(), self.trace)

    def watch_leaders(self) -> None:
        """M10, from time to time."""
        frozen = [node.node_id for node in self.nodes.values() if self.now_ms < node.frozen_until_ms]
        for node_id in frozen:
            self.thaw(self.nodes[node_id])
        self.checker.check_leaders(self.now_ms, 2 * self.config.check_quorum_timeout_ms + 50)
        self.at(100, self.watch_leaders)

    # ---- healing --------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """End of faults: everybody runs, everything arrives; now there must be progress."""
        self.healing = True
        self.cuts.clear()
        for node in self.nodes.values():
            self.start(node)
        target: int | None = None

        def is_done() -> bool:
            nonlocal target
            if target is None and self.now_ms >= FAULTS_UNTIL_MS + 600:
                target = len(self.checker.committed) + 3
            return target is not None and all(node.high_watermark >= target for node in self.nodes.values())

        if not self.run_until(FAULTS_UNTIL_MS + HEALED_WITHIN_MS, is_done):
            states = [node.core.status() if node.core else None for node in self.nodes.values()]
            raise Violation(f"stuck: {len(self.checker.committed)} committed, {states}")


@contextmanager
def transitions_seen(seen: Counter[str]) -> Iterator[None]:
    """Count what the role machine does, by the names of the transition table."""
    check = transitions.check_transition

    def counting(old: transitions.RoleName, new: transitions.RoleName, old_epoch: int, new_epoch: int) -> None:
        check(old, new, old_epoch, new_epoch)
        seen[f"{old.value}>{new.value}"] += 1

    with mock.patch("replog_quorum.machine.check_transition", counting):
        yield


def run_seeds(seeds: Iterable[int]) -> Counter[str]:
    """Run many seeds; returns how often each kind of event was seen."""
    seen: Counter[str] = Counter()
    with transitions_seen(seen):
        for seed in seeds:
            simulation = Simulation(seed)
            simulation.run()
            seen.update(simulation.seen)
            seen["virtual seconds"] += simulation.now_ms // 1000
    return seen


def campaign(seeds: range, processes: int) -> Counter[str]:
    """Run many seeds with progress on standard error."""
    seen: Counter[str] = Counter()
    started, done = time.monotonic(), 0
    chunks = [seeds[i : i + 200] for i in range(0, len(seeds), 200)]
    with ProcessPoolExecutor(processes) as pool:
        for chunk, counted in zip(chunks, pool.map(run_seeds, chunks), strict=True):
            seen.update(counted)
            done += len(chunk)
            rate = done / (time.monotonic() - started)
            print(f"{done} of {len(seeds)} seeds, {rate:.0f}/s", file=sys.stderr, flush=True)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="just this one")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
        seen = run_seeds(seeds)
    else:
        seeds = range(options.first, options.first + options.seeds)
        seen = campaign(seeds, options.processes)
    for name, count in sorted(seen.items()):
        print(f"{count:9d}  {name}")
    print(f"{len(seeds)} seeds without a violation in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
