"""What happens to a simulated quorum: clients, crashes, cuts, stalled clocks, and an operator who changes its voters.

The operator does what a careful one would: it loses at most one disk at a time, replaces it before anything else, and does
not move or remove voters while another change is unsettled.  What it asks for may be refused, lost or answered late.
"""

from __future__ import annotations

from replog_quorum import (
    AddVoter,
    ChangeVoters,
    QuorumError,
    RemoveVoter,
    Resign,
    Shutdown,
    Voter,
    VoterChangeAnswered,
    VoterSet,
)
from tests.sim.quorum_sim_checker import Violation
from tests.sim.quorum_sim_effects import EffectPerformer
from tests.sim.quorum_sim_log import SimDisk
from tests.sim.quorum_sim_nodes import SimNode, directory_id
from tests.sim.quorum_sim_swarm import Swarm

MAX_VOTERS = 5


class Faults(EffectPerformer):
    """Load, faults and membership of one run."""

    def __init__(self, seed: int, swarm: Swarm | None) -> None:
        super().__init__(seed, swarm)
        self.cuts: dict[tuple[int, int], bool] = {}
        self._value = 0
        self._request_id = 0
        self._asked: dict[int, AddVoter | RemoveVoter] = {}
        self._generation = 0

    # ---- load ---------------------------------------------------------------------------------------------------

    def client(self) -> None:
        for node in self.nodes.values():
            if node.core is not None and node.leading_epoch is not None:
                count = self.rng.randrange(1, 4)
                for i in range(count):
                    self._value += 1
                    self.append(node, node.leading_epoch, self._value, closes=i == count - 1)
                self.after_append(node)
        self.at(self.rng.randrange(1, 2 * self.swarm.client_interval_ms), self.client)

    # ---- faults -------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        if self.healing:
            return
        node = self.rng.choice(list(self.nodes.values()))
        if self.chance(self.swarm.crash):
            self.crash(node)
        if self.chance(self.swarm.cut):
            self.cut(node.node_id)
        if self.chance(0.3):
            self.cuts.clear()
        if self.chance(self.swarm.stall):
            self.freeze(node)
        if self.chance(self.swarm.resign) and node.leading_epoch is not None:
            self.resign(node)
        self.at(self.rng.randrange(20, 300), self.fault)

    def resign(self, node: SimNode) -> None:
        graceful = self.rng.random() < 0.5
        self.seen["graceful" if graceful else "resign"] += 1
        self.step(node, node.life, Shutdown() if graceful else Resign(node.leading_epoch or 0))
        if graceful:
            self.at(self.rng.randrange(50), lambda: self.crash(node))

    def cut(self, node_id: int) -> None:
        """Cut all links of a node, or one direction of them."""
        kind = self.rng.randrange(3)
        self.seen["cut" if kind == 0 else "one-way cut"] += 1
        for other_id in self.nodes:
            if kind != 1:
                self.cuts[node_id, other_id] = True
            if kind != 2:
                self.cuts[other_id, node_id] = True

    def freeze(self, node: SimNode) -> None:
        """The clock of a node stands still, then leaps; or the whole process does, and finds its messages waiting."""
        if self.now_ms < node.frozen_until_ms:
            return
        node.frozen_from_ms, node.frozen_until_ms = self.now_ms, self.now_ms + self.rng.randrange(50, 900)
        node.is_paused = self.rng.random() < 0.5
        self.seen["pause" if node.is_paused else "clock leap"] += 1
        self.at(node.frozen_until_ms - self.now_ms, lambda: self.thaw(node))

    def thaw(self, node: SimNode) -> None:
        led = self.checker.leading.get(node.node_id)
        if led is not None:
            led.since_ms = self.now_ms  # its timers could not run

    # ---- a voter alone (M9) ---------------------------------------------------------------------------------------

    def isolate(self) -> None:
        """In a quiet cluster, one follower is cut off for long; when it is back nothing has changed."""
        led = self.checker.leading
        voters = [n for n in self.nodes.values() if n.core is not None and n.node_id not in led]
        voters = [n for n in voters if self.voters_of(n).contains(*n.key)]
        if self.healing or len(led) != 1 or len(voters) < 2 or self.now_ms < 600:
            self.at(100, self.isolate)
            return
        node = self.rng.choice(voters)
        self.seen["isolated"] += 1
        for other_id in self.nodes:
            self.cuts[node.node_id, other_id] = self.cuts[other_id, node.node_id] = True
        before = {leader_id: leadership.epoch for leader_id, leadership in led.items()}
        self.at(self.rng.randrange(500, 1500), self.cuts.clear)
        self.at(2_200, lambda: self.back_from_isolation(node, before))

    def back_from_isolation(self, node: SimNode, before: dict[int, int]) -> None:
        after = {leader_id: leadership.epoch for leader_id, leadership in self.checker.leading.items()}
        epoch = node.core._context.epoch if node.core is not None else None
        if after != before or epoch not in before.values():
            raise Violation(f"M9 node {node.node_id} returns in epoch {epoch}: leaders {before} -> {after}")
        self.isolate()

    # ---- the operator -----------------------------------------------------------------------------------------

    def operator(self) -> None:
        if self.healing:
            return
        if self.chance(self.swarm.membership):
            self.change_voters()
        if self.chance(self.swarm.wipe):
            self.lose_disk()
        if self.chance(self.swarm.move):
            self.move()
        self.at(self.rng.randrange(50, 400), self.operator)

    def change_voters(self) -> None:
        """Ask some leader, rarely somebody else, for one change; sometimes for nonsense."""
        asked = [n for n in self.nodes.values() if n.core is not None and n.leading_epoch is not None]
        if not asked or self.rng.random() < 0.05:
            asked = [n for n in self.nodes.values() if n.core is not None]
        if not asked:
            return
        node = self.rng.choice(asked)
        change = self.wanted_change(node)
        if change is None:
            return
        self._request_id += 1
        self._asked[self._request_id] = change
        self.step(node, node.life, ChangeVoters(self._request_id, change))

    def wanted_change(self, asked: SimNode) -> AddVoter | RemoveVoter | None:
        voters = self.voters_of(asked)
        fresh = [node for node in self.nodes.values() if node.is_fresh]
        if fresh:
            return self.replacement(fresh[0], asked)
        if self.rng.random() < 0.1:  # nonsense, or something that is there already
            return (
                RemoveVoter(99) if self.rng.random() < 0.5 else self.adding(self.rng.choice(list(self.nodes.values())))
            )
        others = [node for node in self.nodes.values() if not voters.contains(*node.key)]
        if others and len(voters) < MAX_VOTERS and self.rng.random() < 0.6:
            return self.adding(self.rng.choice(others))
        if len(voters) > 1 and not self.is_moving():
            voter = self.rng.choice(voters.voters)
            return RemoveVoter(voter.voter_id, voter.directory_id)
        return None

    def replacement(self, node: SimNode, asked: SimNode) -> AddVoter | RemoveVoter | None:
        """Remove the voter of the lost disk, then add the one of the new disk."""
        known = self.voters_of(asked).get(node.node_id)
        if known is None:
            return self.adding(node)
        if known.directory_id != node.disk.directory_id:
            return RemoveVoter(node.node_id, known.directory_id)
        node.is_fresh = self.settled_voters() is None  # it is in, although the leader that did it is gone
        return None

    def adding(self, node: SimNode) -> AddVoter:
        return AddVoter(Voter(node.node_id, node.disk.directory_id, node.endpoint))

    def change_answered(self, node: SimNode, effect: VoterChangeAnswered) -> None:
        change = self._asked.pop(effect.request_id)
        self.seen[f"{type(change).__name__} {effect.error.name}"] += 1
        if (effect.reason == "") != (effect.error is QuorumError.NONE):
            raise Violation(f"voter change answered without a reason, or success with one: {effect}")
        if effect.error is not QuorumError.NONE:
            return
        match change:
            case AddVoter():
                added = self.nodes[change.voter.voter_id]
                self.seen["disk replaced"] += added.is_fresh
                added.is_fresh = False
            case RemoveVoter():
                self.seen["leader removed"] += change.voter_id == node.node_id

    def settled_voters(self) -> VoterSet | None:
        """The voter set by which all nodes act, if it stands in all logs, is committed, and is on all disks."""
        logs = [node.log for node in self.nodes.values()]
        histories = [log.voter_history() for log in logs]
        if not all(histories) or max(history[-1][0] for history in histories) >= len(self.checker.committed):
            return None
        if not all(history[-1][0] < log.flushed_offset for history, log in zip(histories, logs, strict=True)):
            return None  # a crash may take it away, and then a vote of a lost disk's successor would count
        voters = histories[0][-1][1]
        return voters if all(history[-1][1] == voters for history in histories) else None

    def is_moving(self) -> bool:
        """Whether some voter listens elsewhere than its set says."""
        for node in self.nodes.values():
            history = node.log.voter_history()
            voter = history[-1][1].get(node.node_id) if history else None
            if voter is not None and voter.directory_id == node.disk.directory_id and voter.endpoint != node.endpoint:
                return True
        return False

    def calm_voters(self) -> VoterSet | None:
        """Three or more voters, with nothing under way: one of them may be lost or moved."""
        voters = self.settled_voters()
        is_busy = self.is_moving() or any(node.is_fresh for node in self.nodes.values())
        return None if voters is None or len(voters) < 3 or self.swarm.voter_count < 3 or is_busy else voters

    def lose_disk(self) -> None:
        """One voter's disk is gone; the node comes back under its id with an empty one."""
        voters = self.calm_voters()
        if voters is None:
            return
        node = self.nodes[self.rng.choice(voters.ids)]
        self.seen["disk lost"] += 1
        self.crash(node)
        self._generation += 1
        node.disk = SimDisk(directory_id(node.node_id, self._generation))
        node.is_fresh = True
        self.checker.disks[node.key] = node.disk
        self.checker.shortened()

    def move(self) -> None:
        """A voter restarts at another endpoint."""
        voters = self.calm_voters()
        if voters is None:
            return
        node = self.nodes[self.rng.choice(voters.ids)]
        self.seen["moved"] += 1
        self._generation += 1
        node.endpoint = f"n{node.node_id}:{self._generation}"
        self.crash(node)
