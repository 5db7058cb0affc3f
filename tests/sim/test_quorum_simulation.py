"""The metadata quorum under simulated faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from replog_quorum import Effect
from tests.sim.covering import TellStale, known_seeds, run_covering
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.quorum_simulation import SimNode, Simulation
from tests.sim.simulations import QUORUM as KIND
from tests.sim.simulations import QUORUM_TRANSITIONS

ROOT = Path(__file__).parents[2]


def transitions(seen: Counter[str]) -> set[str]:
    return {name for name in seen if ">" in name}


def test_no_invariant_is_broken_and_rare_branches_are_taken(tell_stale: TellStale) -> None:
    """And healed clusters make progress; every transition of the table happens, and no other."""
    seen, missing = run_covering(KIND, known_seeds(KIND.name), tell_stale)
    assert missing == []
    assert transitions(seen) == QUORUM_TRANSITIONS


def test_fresh_seeds_break_no_invariant_either() -> None:
    with fresh_seeds(KIND.name, KIND.fresh_count) as seeds:
        assert transitions(KIND.run(seeds)) <= QUORUM_TRANSITIONS


class WithLeases(Simulation):
    """Also looks at leases, whenever anything was done."""

    held = 0

    def perform_all(self, node: SimNode, effects: Iterable[Effect]) -> bool:
        is_alive = super().perform_all(node, effects)
        newest = max((led.epoch for led in self.checker.leading.values()), default=0)
        for leader_id, led in self.checker.leading.items():
            leader = self.nodes[leader_id]
            if leader.core is not None and leader.core.holds_lease(self.clock(leader)):
                self.held += 1
                assert led.epoch == newest, f"node {leader_id} holds a lease of epoch {led.epoch}, {newest} is led too"
        return is_alive


def test_a_lease_excludes_another_leader() -> None:
    """With even clocks and no message that waits for longer than an election takes (see `Lease`)."""
    held = 0
    for seed in range(40):
        swarm = replace(Simulation(seed).swarm, isolate=False, straggler=0.0, stall=0.0, move=0.0, cut=1.0, crash=0.3)
        simulation = WithLeases(seed, swarm)
        simulation.run()
        held += simulation.held
    assert held > 0
