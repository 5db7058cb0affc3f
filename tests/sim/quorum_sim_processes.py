"""Simulated processes: they start on what their disk holds, take messages and ticks by their own clock, and die."""

from __future__ import annotations

import random

from replog_quorum import (
    ElectionState,
    Message,
    Quorum,
    QuorumConfig,
    QuorumInvariantError,
    SendFailed,
    Tick,
    Voter,
    VoterSet,
)
from replog_quorum.messages import LogView
from replog_quorum.roles.follower import Follower
from replog_quorum.roles.leader import Leader
from replog_quorum.roles.prospective import Prospective
from replog_quorum.roles.resigned import Resigned
from replog_quorum.roles.role import Role
from tests.sim.quorum_sim_checker import Violation
from tests.sim.quorum_sim_log import SimDisk
from tests.sim.quorum_sim_network import Network
from tests.sim.quorum_sim_nodes import SimNode, directory_id
from tests.sim.quorum_sim_swarm import Swarm

WIPED_LEADER = "to which it was not elected"


class Processes(Network):
    """All nodes.  `log_view` and `stored` may be replaced by a test to remove a safeguard."""

    def __init__(self, seed: int, swarm: Swarm | None, config: QuorumConfig) -> None:
        super().__init__(seed, swarm)
        self.config = config
        ids = (*range(1, self.swarm.voter_count + 1), *range(10, 10 + self.swarm.observer_count))
        self.nodes = {i: SimNode(i, SimDisk(directory_id(i)), f"n{i}:0") for i in ids}
        known = self.swarm.known_directories
        self.voters = VoterSet(tuple(Voter(i, directory_id(i) if known else None, f"n{i}:0") for i in ids if i < 10))
        self.checker.disks = {node.key: node.disk for node in self.nodes.values()}

    def clock(self, node: SimNode) -> int:
        """What a node takes for now."""
        return node.frozen_from_ms if self.now_ms < node.frozen_until_ms else self.now_ms

    def core_rng(self, node: SimNode) -> random.Random:
        return random.Random(self.rng.getrandbits(32))

    def log_view(self, node: SimNode) -> LogView:
        return node.log

    def stored(self, node: SimNode) -> ElectionState | None:
        return node.disk.election

    def start(self, node: SimNode) -> None:
        if node.core is not None:
            return
        node.life += 1
        node.high_watermark = -1
        node.reported = (None, 0)
        node.frozen_until_ms = 0
        node.links = {voter.voter_id: voter.endpoint for voter in self.voters}
        node.core = Quorum(
            node_id=node.node_id,
            directory_id=node.disk.directory_id,
            endpoint=node.endpoint,
            voters=self.voters,
            voter_history=node.log.voter_history(),
            log=self.log_view(node),
            election_state=self.stored(node),
            config=self.config,
            rng=self.core_rng(node),
            now_ms=self.clock(node),
        )
        self.perform_all(node, node.core.start(self.clock(node)))
        self.plan_tick(node)

    def crash(self, node: SimNode) -> None:
        if node.core is None:
            return
        self.note("crash", node.node_id)
        self.seen["crash"] += 1
        node.core = None
        node.tick_at_ms = None
        node.leading_epoch = None
        self.seen["lost tail"] += node.disk.crash(self.rng)
        self.checker.died(node.node_id)
        self.connections_break(node)
        self.at(self.rng.randrange(1, 400), lambda: self.start(node))

    def step(self, node: SimNode, life: int, message: Message) -> None:
        core = node.core
        if core is None or node.life != life:
            return
        if node.is_paused and self.now_ms < node.frozen_until_ms:
            self.at(node.frozen_until_ms - self.now_ms, lambda: self.step(node, life, message))
            return
        before = core._machine.role
        try:
            effects = core.step(message, self.clock(node))
        except QuorumInvariantError as error:
            if not (node.is_fresh and WIPED_LEADER in str(error)):
                raise
            self.seen["wiped leader stops"] += 1  # as it should: peers by id only take it for the one that led
            self.crash(node)
            return
        self.count(message, before, core._machine.role)
        self.perform_all(node, effects)
        self.plan_tick(node)

    def count(self, message: Message, before: Role, after: Role) -> None:
        """Rare things that no effect shows."""
        match message, before, after:
            case Tick(), Leader(), Resigned():
                self.seen["check-quorum resigns"] += 1
            case SendFailed(refused=True), Follower(), Follower():
                self.seen["leader is gone"] += after._leader_is_gone
            case SendFailed(refused=True), Follower(), Prospective():
                self.seen["leader is gone"] += 1
            case _:
                pass

    def plan_tick(self, node: SimNode) -> None:
        if node.core is None:
            return
        deadline_ms = node.core.next_deadline_ms()
        if deadline_ms is None or (node.tick_at_ms is not None and node.tick_at_ms <= deadline_ms):
            return
        at_ms = max(deadline_ms, self.now_ms) + self.rng.randrange(3)
        life, node.tick_at_ms = node.life, at_ms
        self.at(at_ms - self.now_ms, lambda: self.tick(node, life, at_ms))

    def tick(self, node: SimNode, life: int, at_ms: int) -> None:
        if node.core is None or node.life != life or node.tick_at_ms != at_ms:
            return
        if self.now_ms < node.frozen_until_ms:
            thawed_ms = node.tick_at_ms = node.frozen_until_ms
            self.at(thawed_ms - self.now_ms, lambda: self.tick(node, life, thawed_ms))
            return
        node.tick_at_ms = None
        self.step(node, life, Tick())
        self.check_no_busy_loop(node)

    def check_no_busy_loop(self, node: SimNode) -> None:
        deadline_ms = None if node.core is None else node.core.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            raise Violation(f"busy loop: node {node.node_id} wants the tick that it has just had")
