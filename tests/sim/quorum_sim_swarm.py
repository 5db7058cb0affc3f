"""What one run of the quorum simulation is like: sizes, and which faults it has at all."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Swarm:
    """Sizes and rates; several are exactly zero in most runs.

    Attributes:
        known_directories: the configuration names the voters' directories, too.
        isolate: nothing but one voter cut off and back, again and again, which must change nothing (M9).
    """

    voter_count: int
    observer_count: int
    loss: float = 0.0
    duplicate: float = 0.0
    straggler: float = 0.0
    slow_flush: float = 0.0
    effect_crash: float = 0.0
    crash: float = 0.0
    cut: float = 0.0
    resign: float = 0.0
    stall: float = 0.0
    membership: float = 0.0
    wipe: float = 0.0
    move: float = 0.0
    snapshot: float = 0.0
    kept_snapshots: int = 1
    slow_install: float = 0.0
    known_directories: bool = False
    isolate: bool = False
    client_interval_ms: int = 40

    @classmethod
    def draw(cls, rng: random.Random) -> Swarm:
        swarm = cls(
            voter_count=rng.choice((1, 3, 3, 3, 3, 5)),
            observer_count=rng.choice((0, 1, 2)),
            loss=rng.choice((0.0, 0.0, 0.02, 0.15)),
            duplicate=rng.choice((0.0, 0.05, 0.2)),
            straggler=rng.choice((0.0, 0.02, 0.1)),
            slow_flush=rng.choice((0.0, 0.05, 0.3)),
            effect_crash=rng.choice((0.0, 0.002, 0.01)),
            crash=rng.choice((0.0, 0.3, 1.0)),
            cut=rng.choice((0.0, 0.5, 1.0)),
            resign=rng.choice((0.0, 0.0, 0.3)),
            stall=rng.choice((0.0, 0.0, 0.4)),
            membership=rng.choice((0.0, 0.5, 1.0)),
            wipe=rng.choice((0.0, 0.0, 0.5)),
            move=rng.choice((0.0, 0.0, 0.3)),
            snapshot=rng.choice((0.0, 0.1, 0.5)),
            kept_snapshots=rng.choice((1, 1, 2)),
            slow_install=rng.choice((0.0, 0.5)),
            known_directories=rng.random() < 0.25,
            client_interval_ms=rng.choice((20, 60, 150)),
        )
        if swarm.wipe > 0:
            swarm = replace(swarm, membership=1.0)  # somebody replaces the lost disk
        return swarm.only("duplicate", "snapshot", isolate=True) if rng.random() < 0.1 else swarm

    def only(self, *names: str, isolate: bool) -> Swarm:
        """This swarm with none but the named faults, and at least three voters."""
        rates = [field.name for field in fields(self) if isinstance(getattr(self, field.name), float)]
        calm = replace(self, **{name: 0.0 for name in rates if name not in names})
        return replace(calm, isolate=isolate, voter_count=max(3, self.voter_count))
