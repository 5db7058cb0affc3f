"""Deterministic simulation of a whole metadata quorum: real cores, a small log in memory, one seed = one run.

Faults: loss, delay, duplication, reordering, one-way cuts, crashes at every effect boundary (so also between the write of
quorum-state and what waits for it), lost un-flushed log tails, slow fsyncs, resignations, graceful restarts.  After every
event the invariants M1 to M6 are checked; then everything heals and progress is demanded within a bound.

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=quorum python -m tests.sim.quorum_simulation --seeds 5000
    PYTHONPATH=quorum python -m tests.sim.quorum_simulation --seed 4711
"""

from __future__ import annotations

import argparse
import heapq
import random
import struct
import sys
import time
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from replog_quorum import (
    AppendBatches,
    Appended,
    AppendLeaderChange,
    BecameLeader,
    BeginQuorumEpochRequest,
    Effect,
    ElectionState,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    Flushed,
    HighWatermarkAdvanced,
    LeaderChanged,
    LostLeadership,
    Message,
    PersistElectionState,
    Quorum,
    QuorumConfig,
    QuorumInvariantError,
    Received,
    Request,
    Resign,
    Response,
    Send,
    SendFailed,
    SendFetchedData,
    Shutdown,
    Tick,
    Truncated,
    TruncateTo,
    VoteRequest,
    VoteResponse,
)
from replog_quorum.messages import LogView

CONFIG = QuorumConfig(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    request_timeout_ms=150,
    retry_backoff_ms=10,
    election_backoff_max_ms=100,
    fetch_max_wait_ms=50,
)
FAULTS_UNTIL_MS = 3_000
HEALED_WITHIN_MS = 4_000
ENTRY = struct.Struct(">qqq")  # offset, epoch, value


class Violation(AssertionError):  # noqa: N818 - named like what the testing guide speaks of
    """An invariant does not hold; the message starts with its name."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """Which faults a run has at all, and how often; several are exactly zero in most runs."""

    voter_count: int
    observer_count: int
    loss: float
    duplicate: float
    straggler: float
    slow_flush: float
    effect_crash: float
    crash: float
    cut: float
    resign: float
    client_interval_ms: int

    @classmethod
    def draw(cls, rng: random.Random) -> Swarm:
        return cls(
            voter_count=rng.choice((1, 3, 3, 3, 5, 5)),
            observer_count=rng.choice((0, 1, 1)),
            loss=rng.choice((0.0, 0.0, 0.02, 0.15)),
            duplicate=rng.choice((0.0, 0.05, 0.2)),
            straggler=rng.choice((0.0, 0.02, 0.1)),
            slow_flush=rng.choice((0.0, 0.05, 0.3)),
            effect_crash=rng.choice((0.0, 0.002, 0.01)),
            crash=rng.choice((0.0, 0.3, 1.0)),
            cut=rng.choice((0.0, 0.5, 1.0)),
            resign=rng.choice((0.0, 0.0, 0.3)),
            client_interval_ms=rng.choice((10, 40, 120)),
        )


@dataclass(slots=True, eq=False)
class FlushJob:
    """A running fsync; a truncation lowers what it will have covered."""

    end_offset: int


class SimLog:
    """A log with a durable prefix; offset = position, one entry = (epoch, value)."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.values: list[int] = []
        self.flushed_offset = 0
        self._flushes: list[FlushJob] = []

    @property
    def log_start_offset(self) -> int:
        return 0

    @property
    def log_end_offset(self) -> int:
        return len(self.epochs)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else 0

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        end = bisect_right(self.epochs, epoch)
        return EpochEnd(self.epochs[end - 1], end) if end else EpochEnd(0, 0)

    def append(self, epoch: int, value: int) -> None:
        self.epochs.append(epoch)
        self.values.append(value)

    def truncate(self, end_offset: int) -> None:
        del self.epochs[end_offset:]
        del self.values[end_offset:]
        self.flushed_offset = min(self.flushed_offset, end_offset)
        for job in self._flushes:
            job.end_offset = min(job.end_offset, end_offset)

    def begin_flush(self) -> FlushJob:
        job = FlushJob(self.log_end_offset)
        self._flushes.append(job)
        return job

    def complete_flush(self, job: FlushJob) -> None:
        self._flushes.remove(job)
        self.flushed_offset = max(self.flushed_offset, job.end_offset)

    def crash(self, kept_tail: int) -> None:
        """Power cut: what was flushed stays, and perhaps a prefix of the rest."""
        self._flushes.clear()
        self.truncate(self.flushed_offset + kept_tail)
        self.flushed_offset = self.log_end_offset  # recovery flushes what it found

    def read(self, offset: int, count: int) -> bytes:
        end = min(self.log_end_offset, offset + count)
        return b"".join(ENTRY.pack(i, self.epochs[i], self.values[i]) for i in range(offset, end))


@dataclass
class SimNode:
    node_id: int
    log: SimLog = field(default_factory=SimLog)
    disk: ElectionState | None = None
    core: Quorum | None = None
    life: int = 0
    tick_at_ms: int | None = None
    leading_epoch: int | None = None
    high_watermark: int = -1
    reported: tuple[int | None, int] = (None, 0)


class Checker:
    """M1 to M6 of the testing guide, looked at after every event."""

    def __init__(self, nodes: dict[int, SimNode], voters: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.voters = voters
        self.leaders: dict[int, int] = {}
        self.history: dict[tuple[int, int], tuple[int, int]] = {}
        self.granted: dict[tuple[int, int], int] = {}
        self.committed: list[tuple[int, int]] = []
        self.committed_in: list[int] = []

    def appended(self, node: SimNode) -> None:
        log = node.log
        offset = log.log_end_offset - 1
        entry = (log.values[offset], log.epochs[offset - 1] if offset else 0)
        if log.epochs[offset] < entry[1]:
            raise Violation(f"S4 epochs decrease at offset {offset} of node {node.node_id}")
        if self.history.setdefault((offset, log.epochs[offset]), entry) != entry:
            raise Violation(f"M2 log matching: offset {offset} epoch {log.epochs[offset]} has two contents")

    def persisted(self, node: SimNode, state: ElectionState) -> None:
        old = node.disk or ElectionState()
        if state.epoch < old.epoch:
            raise Violation(f"M5 epoch of node {node.node_id} goes back: {old} -> {state}")
        if state.epoch > old.epoch:
            return
        if old.voted_id not in (None, state.voted_id) or old.leader_id not in (None, state.leader_id):
            raise Violation(f"M5 node {node.node_id} changes its mind within an epoch: {old} -> {state}")

    def sent(self, node: SimNode, message: Request | Response) -> None:
        match message:
            case VoteResponse(vote_granted=True):
                pass  # whether it was a pre-vote is only known where it was asked: see `granted_vote`
            case FetchRequest(replica_id=replica_id) if replica_id in self.voters:
                if message.fetch_offset > node.log.flushed_offset:
                    raise Violation(f"M6 voter {replica_id} fetches at {message.fetch_offset} before its fsync")
            case _:
                pass

    def granted_vote(self, node: SimNode, candidate_id: int, epoch: int) -> None:
        if self.granted.setdefault((node.node_id, epoch), candidate_id) != candidate_id:
            raise Violation(f"M5 node {node.node_id} votes twice in epoch {epoch}")

    def became_leader(self, node: SimNode, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node.node_id) != node.node_id or node.leading_epoch is not None:
            raise Violation(f"M1 epoch {epoch} has two leaders: {self.leaders[epoch]} and {node.node_id}")
        last = max((i for i, e in enumerate(self.committed_in) if e < epoch), default=None)
        log = node.log
        if last is not None:
            found = (log.epochs[last], log.values[last]) if last < log.log_end_offset else None
            if found != self.committed[last]:
                raise Violation(f"M3 leader {node.node_id} of epoch {epoch} lacks committed offset {last}")

    def high_watermark(self, node: SimNode, high_watermark: int, epoch: int) -> None:
        if high_watermark <= node.high_watermark or high_watermark > node.log.log_end_offset:
            raise Violation(f"R6 high watermark of node {node.node_id} moves to {high_watermark}")
        for offset in range(max(0, node.high_watermark), high_watermark):
            entry = (node.log.epochs[offset], node.log.values[offset])
            if offset == len(self.committed):
                self.committed.append(entry)
                self.committed_in.append(epoch)
            elif self.committed[offset] != entry:
                raise Violation(f"M4 offset {offset} is committed with two contents")
        node.high_watermark = high_watermark

    def after_event(self) -> None:
        count = len(self.committed)
        if count == 0:
            return
        last = self.committed[-1]
        holders = 0
        for voter_id in self.voters:
            log = self.nodes[voter_id].log
            if log.flushed_offset >= count and (log.epochs[count - 1], log.values[count - 1]) == last:
                holders += 1
        if holders * 2 <= len(self.voters):
            raise Violation(f"M6 only {holders} voters hold committed offset {count - 1} on disk")


class Simulation:
    """One run.  The methods that a test may replace to remove a safeguard: `perform_persist`, `log_view`, `stored`."""

    def __init__(self, seed: int, swarm: Swarm | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.swarm = swarm or Swarm.draw(self.rng)
        self.config = CONFIG
        self.now_ms = 0
        self.healing = False
        self.trace = 0
        self.seen: Counter[str] = Counter()
        self.voters = tuple(range(1, self.swarm.voter_count + 1))
        ids = (*self.voters, *range(10, 10 + self.swarm.observer_count))
        self.nodes = {node_id: SimNode(node_id) for node_id in ids}
        self.checker = Checker(self.nodes, self.voters)
        self.cuts: dict[tuple[int, int], bool] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._value = 0
        self._requests: dict[tuple[int, int, int], VoteRequest] = {}

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
            self.at(self.rng.randrange(200), self.fault)
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

    def chance(self, probability: float) -> bool:
        return probability > 0 and not self.healing and self.rng.random() < probability

    def note(self, *facts: object) -> None:
        self.trace = zlib.crc32(repr((self.now_ms, *facts)).encode(), self.trace)

    # ---- nodes ----------------------------------------------------------------------------------------------

    def core_rng(self, node: SimNode) -> random.Random:
        return random.Random(self.rng.getrandbits(32))

    def log_view(self, node: SimNode) -> LogView:
        return node.log

    def stored(self, node: SimNode) -> ElectionState | None:
        return node.disk

    def start(self, node: SimNode) -> None:
        if node.core is not None:
            return
        node.life += 1
        node.high_watermark = -1
        node.reported = (None, 0)
        node.core = Quorum(
            node_id=node.node_id,
            voters=self.voters,
            log=self.log_view(node),
            election_state=self.stored(node),
            config=self.config,
            rng=self.core_rng(node),
            now_ms=self.now_ms,
        )
        self.perform_all(node, node.core.start(self.now_ms))
        self.plan_tick(node)

    def crash(self, node: SimNode) -> None:
        if node.core is None:
            return
        self.note("crash", node.node_id)
        self.seen["crash"] += 1
        node.core = None
        node.tick_at_ms = None
        node.leading_epoch = None
        unflushed = node.log.log_end_offset - node.log.flushed_offset
        kept = self.rng.randrange(unflushed + 1)
        self.seen["lost tail"] += kept < unflushed
        node.log.crash(kept)
        self.at(self.rng.randrange(1, 400), lambda: self.start(node))

    def step(self, node: SimNode, life: int, message: Message) -> None:
        if node.core is None or node.life != life:
            return
        role = node.core.status().role
        effects = node.core.step(message, self.now_ms)
        self.seen[f"{role}>{node.core.status().role}"] += 1
        self.perform_all(node, effects)
        self.plan_tick(node)

    def step_soon(self, node: SimNode, message: Message) -> None:
        life = node.life
        self.at(self.rng.randrange(2), lambda: self.step(node, life, message))

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
        node.tick_at_ms = None
        self.step(node, life, Tick())
        self.check_no_busy_loop(node)

    def check_no_busy_loop(self, node: SimNode) -> None:
        deadline_ms = None if node.core is None else node.core.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            raise Violation(f"busy loop: node {node.node_id} wants the tick that it has just had")

    # ---- effects --------------------------------------------------------------------------------------------

    def perform_all(self, node: SimNode, effects: Iterable[Effect]) -> bool:
        """Perform in order; False when the node died on the way."""
        for effect in effects:
            if node.core is None:
                return False
            if self.chance(self.swarm.effect_crash):
                self.seen["crash between effects"] += 1
                self.crash(node)
                return False
            self.note(node.node_id, type(effect).__name__, node.core.status().epoch, node.log.log_end_offset)
            self.seen[type(effect).__name__] += 1
            self.perform(node, effect)
        return node.core is not None

    def perform(self, node: SimNode, effect: Effect) -> None:
        match effect:
            case Send():
                self.send(node, effect.destination, effect.message)
            case SendFetchedData():
                batches = node.log.read(effect.fetch_offset, self.rng.randrange(1, 8))
                self.send(node, effect.destination, replace(effect.response, batches=batches))
            case PersistElectionState():
                self.perform_persist(node, effect)
            case AppendLeaderChange():
                self.append(node, effect.leader_epoch, -effect.leader_epoch)
                self.after_append(node)
            case AppendBatches():
                self.append_batches(node, effect)
                self.after_append(node)
            case TruncateTo():
                node.log.truncate(effect.end_offset)
                self.step_soon(node, Truncated(node.log.log_end_offset))
            case HighWatermarkAdvanced():
                epoch = node.core.status().epoch if node.core is not None else 0
                self.checker.high_watermark(node, effect.high_watermark, epoch)
            case LeaderChanged():
                self.leader_changed(node, effect)
            case BecameLeader():
                self.checker.became_leader(node, effect.epoch)
                node.leading_epoch = effect.epoch
            case LostLeadership():
                if node.leading_epoch != effect.epoch:
                    raise Violation(f"node {node.node_id} loses epoch {effect.epoch}, led {node.leading_epoch}")
                node.leading_epoch = None
            case _ as unreachable:
                assert_never(unreachable)

    def perform_persist(self, node: SimNode, effect: PersistElectionState) -> None:
        self.persist(node, effect.state)
        self.perform_all(node, effect.then)

    def persist(self, node: SimNode, state: ElectionState) -> None:
        self.checker.persisted(node, state)
        node.disk = state

    def leader_changed(self, node: SimNode, effect: LeaderChanged) -> None:
        if node.reported == (effect.leader_id, effect.epoch):
            raise Violation(f"node {node.node_id} reports {effect} twice")
        node.reported = (effect.leader_id, effect.epoch)

    def append(self, node: SimNode, epoch: int, value: int) -> None:
        node.log.append(epoch, value)
        self.checker.appended(node)

    def append_batches(self, node: SimNode, effect: AppendBatches) -> None:
        for offset, epoch, value in ENTRY.iter_unpack(effect.batches):
            if epoch > effect.leader_epoch:
                return
            if offset != node.log.log_end_offset:
                raise Violation(f"node {node.node_id} appends {offset} at {node.log.log_end_offset}")
            self.append(node, epoch, value)

    def after_append(self, node: SimNode) -> None:
        self.step_soon(node, Appended(node.log.log_end_offset))
        life, job = node.life, node.log.begin_flush()
        slow = self.chance(self.swarm.slow_flush)
        self.at(self.rng.randrange(600 if slow else 4), lambda: self.flushed(node, life, job))

    def flushed(self, node: SimNode, life: int, job: FlushJob) -> None:
        if node.core is not None and node.life == life:
            node.log.complete_flush(job)
            self.step(node, life, Flushed(node.log.flushed_offset))

    # ---- network --------------------------------------------------------------------------------------------

    def send(self, node: SimNode, destination: int, message: Request | Response) -> None:
        self.checker.sent(node, message)
        match message:
            case VoteRequest():
                self._requests[node.node_id, destination, message.correlation_id] = message
            case VoteResponse(vote_granted=True):
                asked = self._requests[destination, node.node_id, message.correlation_id]
                if not asked.pre_vote:
                    self.checker.granted_vote(node, destination, asked.replica_epoch)
            case _:
                pass
        if self.cuts.get((node.node_id, destination), False) or self.chance(self.swarm.loss):
            self.fail(node, destination, message, node.life)
            return
        life = node.life
        for _ in range(2 if self.chance(self.swarm.duplicate) else 1):
            straggles = self.chance(self.swarm.straggler)
            delay_ms = self.rng.randrange(1, 500 if straggles else 8)
            self.at(delay_ms, lambda: self.deliver(node, life, destination, message))

    def deliver(self, source: SimNode, life: int, destination: int, message: Request | Response) -> None:
        node = self.nodes[destination]
        if node.core is None:
            self.fail(source, destination, message, life)
        else:
            self.step(node, node.life, Received(source.node_id, message))

    def fail(self, node: SimNode, destination: int, message: Request | Response, life: int) -> None:
        """A request that will not arrive: half the time its sender hears of it, otherwise it times out."""
        is_request = isinstance(message, VoteRequest | FetchRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest)
        if is_request and self.rng.random() < 0.5:
            failed = SendFailed(destination, message.correlation_id)
            self.at(self.rng.randrange(1, 20), lambda: self.step(node, life, failed))

    # ---- load and faults ------------------------------------------------------------------------------------

    def client(self) -> None:
        for node in self.nodes.values():
            if node.core is not None and node.leading_epoch is not None:
                for _ in range(self.rng.randrange(1, 4)):
                    self._value += 1
                    self.append(node, node.leading_epoch, self._value)
                self.after_append(node)
        self.at(self.rng.randrange(1, 2 * self.swarm.client_interval_ms), self.client)

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
        if self.chance(self.swarm.resign) and node.leading_epoch is not None:
            graceful = self.rng.random() < 0.5
            self.seen["graceful" if graceful else "resign"] += 1
            self.step(node, node.life, Shutdown() if graceful else Resign(node.leading_epoch))
            if graceful:
                self.at(self.rng.randrange(50), lambda: self.crash(node))
        self.at(self.rng.randrange(20, 300), self.fault)

    def cut(self, node_id: int) -> None:
        """Cut all links of a node, or one direction of some."""
        self.seen["cut"] += 1
        kind = self.rng.randrange(3)
        for other_id in self.nodes:
            if kind != 1:
                self.cuts[node_id, other_id] = True
            if kind != 2:
                self.cuts[other_id, node_id] = True

    def heal(self) -> None:
        """End of faults: everybody runs, everything arrives; now there must be progress."""
        self.healing = True
        self.cuts.clear()
        for node in self.nodes.values():
            self.start(node)
        target: int | None = None

        def is_done() -> bool:
            nonlocal target
            if target is None and self.now_ms >= FAULTS_UNTIL_MS + 1_500:
                target = len(self.checker.committed) + 3
            return target is not None and all(node.high_watermark >= target for node in self.nodes.values())

        if not self.run_until(FAULTS_UNTIL_MS + HEALED_WITHIN_MS, is_done):
            states = [node.core.status() if node.core else None for node in self.nodes.values()]
            raise Violation(f"stuck: {len(self.checker.committed)} committed, {states}")


def run_seeds(seeds: Iterable[int]) -> Counter[str]:
    """Run many seeds; returns how often each kind of event was seen."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed)
        simulation.run()
        seen.update(simulation.seen)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="just this one")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else (options.seed,)
    started = time.monotonic()
    seen = run_seeds(seeds)
    for name, count in sorted(seen.items()):
        print(f"{count:9d}  {name}")
    print(f"{len(seeds)} seeds without a violation in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
