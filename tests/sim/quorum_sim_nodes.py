"""Simulated nodes: what a process holds in memory; and what all parts of the simulation use."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from replog_quorum import Message, Quorum, Request, Response, VoterChangeAnswered, VoterSet
from tests.sim.quorum_sim_checker import Checker
from tests.sim.quorum_sim_log import SimDisk, SimLog
from tests.sim.quorum_sim_swarm import Swarm


@dataclass(slots=True, eq=False)
class SimNode:
    """One node: its disk survives a crash, the rest does not."""

    node_id: int
    disk: SimDisk
    endpoint: str
    core: Quorum | None = None
    life: int = 0
    tick_at_ms: int | None = None
    leading_epoch: int | None = None
    high_watermark: int = -1
    reported: tuple[int | None, int] = (None, 0)
    links: dict[int, str] = field(default_factory=dict)
    frozen_from_ms: int = 0
    frozen_until_ms: int = 0
    is_paused: bool = False
    is_fresh: bool = False  # its disk was lost, and it is no voter with the new one yet

    @property
    def log(self) -> SimLog:
        return self.disk.log

    @property
    def key(self) -> tuple[int, UUID]:
        return self.node_id, self.disk.directory_id


def directory_id(node_id: int, generation: int = 0) -> UUID:
    return UUID(int=node_id * 1000 + generation + 1)


class SimBase:
    """State of one run, and what its parts need of each other."""

    def __init__(self, seed: int, swarm: Swarm | None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.swarm = swarm or Swarm.draw(self.rng)
        self.now_ms = 0
        self.healing = False
        self.trace = 0
        self.seen: Counter[str] = Counter()
        self.checker = Checker()
        self.nodes: dict[int, SimNode] = {}

    # ---- what the rest of the simulation provides ------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        raise NotImplementedError

    def step(self, node: SimNode, life: int, message: Message) -> None:
        raise NotImplementedError

    def send(self, node: SimNode, destination: int, message: Request | Response) -> None:
        raise NotImplementedError

    def crash(self, node: SimNode) -> None:
        raise NotImplementedError

    def note(self, *facts: object) -> None:
        raise NotImplementedError

    def change_answered(self, node: SimNode, effect: VoterChangeAnswered) -> None:
        raise NotImplementedError

    def chance(self, probability: float) -> bool:
        return probability > 0 and not self.healing and self.rng.random() < probability

    def step_soon(self, node: SimNode, message: Message) -> None:
        life = node.life
        self.at(self.rng.randrange(2), lambda: self.step(node, life, message))

    def voters_of(self, node: SimNode) -> VoterSet:
        """The set in force on a running node (what its status says, cheaper)."""
        assert node.core is not None
        return node.core._context.voters
