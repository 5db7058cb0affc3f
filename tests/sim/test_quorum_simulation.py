"""The metadata quorum under simulated faults, and the proof that the checker sees a missing safeguard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from replog_quorum import Effect
from replog_quorum.transitions import TRANSITIONS
from tests.sim.fresh_seeds import fresh_seeds
from tests.sim.quorum_ablations import ABLATIONS, TABLE, Ablation, find
from tests.sim.quorum_simulation import SimNode, Simulation, run_seeds

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("REPLOG_SIM_SEEDS", "500"))
FRESH_SEEDS = 50

MUST_BE_SEEN = (
    "AddVoter DUPLICATE_VOTER",
    "AddVoter NONE",
    "AddVoter NOT_LEADER_OR_FOLLOWER",
    "AddVoter REQUEST_TIMED_OUT",
    "AddVoter UNSUPPORTED_VERSION",
    "LostLeadership",
    "PeerLearned",
    "RemoveVoter NONE",
    "RemoveVoter VOTER_NOT_FOUND",
    "check-quorum resigns",
    "clean",
    "cleaned before it was sent",
    "clock leap",
    "crash between effects",
    "crash inside install",
    "disk lost",
    "disk replaced",
    "download again",
    "download resumed",
    "graceful",
    "install",
    "isolated",
    "leader is gone",
    "leader removed",
    "lost tail",
    "moved",
    "one-way cut",
    "pause",
    "position out of range",
    "pre-vote refused",
    "removed leader resigns",
    "resign",
    "snapshot damaged",
    "snapshot not found",
    "truncate",
    "truncate voters",
    "upgrade",
    "vote of another disk refused",
    "voter updated",
)


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """The campaign: no invariant is broken, and healed clusters make progress."""
    return run_seeds(range(SEEDS))


def test_rare_branches_were_taken(seen: Counter[str]) -> None:
    assert [name for name in MUST_BE_SEEN if seen[name] == 0] == []


def test_every_transition_of_the_table_happens_and_no_other(seen: Counter[str]) -> None:
    table = {f"{old.value}>{new.value}" for old, row in TRANSITIONS.items() for new in row}
    assert {name for name in seen if ">" in name} == table


def test_fresh_seeds_break_no_invariant_either() -> None:
    with fresh_seeds("quorum_simulation", FRESH_SEEDS) as seeds:
        run_seeds(seeds)


def test_one_seed_is_one_run_under_any_hash_seed() -> None:
    def traces(hash_seed: str) -> str:
        code = (
            "from tests.sim.quorum_simulation import Simulation\n"
            "for seed in (7, 13, 21):\n"
            "    simulation = Simulation(seed)\n"
            "    simulation.run()\n"
            "    print(simulation.trace, sorted(simulation.seen.items()))\n"
        )
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}/quorum"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert traces("1") == traces("2")


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


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.safeguard)
def test_a_missing_safeguard_is_found(ablation: Ablation) -> None:
    """At the seed of the table, or, when the code has changed since, at one of the next."""
    found = find(ablation, TABLE.known_seed(ablation.safeguard), 200)
    assert found is not None
    assert re.search(ablation.finding, found[1])
    assert "--seed" in found[1]  # the message says how to repeat it
