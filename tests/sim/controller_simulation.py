"""Deterministic simulation of several controllers over one record log: real cores, a modelled quorum, one seed = one run.

The quorum commits batches (several as one, when it likes), loses the uncommitted tail with a leader, writes records of its
own, lets nodes lag, restarts them from the log or from a snapshot.  Brokers and operators ask for everything there is, in a
random order, with batches so small that many changes are transactions.  Checked after every event (T1 to T6):

====  =============================================================================================================
T1    nodes that have applied the same offset have the same state
T2    a snapshot of the image, and what follows it, makes the same state as the log from its beginning
T3    losing leadership takes the state back to exactly what counts; the past does not change meanwhile
T4    an answer speaks of nothing that may be taken back: what it names is in the committed log
T5    every committed record can be replayed, by controllers and by the image
T6    healthy brokers give every partition its leader and its whole ISR; only where the disk of a replica is gone may that
      need an operator, who gives up what it held
====  =============================================================================================================

Repeat or extend a campaign (from the root of the repository)::

    PYTHONPATH=timeline python -m tests.sim.controller_simulation --seeds 5000
    PYTHONPATH=timeline python -m tests.sim.controller_simulation --seed 4711
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import (
    AppendRecords,
    BrokerGone,
    ChangeFailed,
    Claim,
    CommittedRecords,
    Effect,
    LoadSnapshot,
    Message,
    Renounce,
    Reply,
    ReplyError,
    ResignLeadership,
    Skip,
    Submit,
    Tick,
    WatchBrokers,
    WatchedBroker,
)
from replog.controller.requests import (
    AllocateProducerIdsResponse,
    ClientChange,
    ControllerResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    ElectLeaders,
    NodeWish,
)
from replog.errors import ErrorCode, InvariantViolationError, TopicExistsError
from replog.metadata import MetadataDelta, MetadataImage, TopicImage, image_records
from replog.metadata.records import (
    ElectionType,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from replog_timeline import TimelineError
from tests.envelopes import in_envelope
from tests.sim.controller_sim_player import BROKERS, CLUSTER_ID, Player
from tests.sim.lost_disks import LostDisks

CONFIG = ControllerConfig(
    broker_session_timeout_ms=3_000,
    min_insync_replicas=2,
    default_replication_factor=2,
    max_records_per_batch=4,
    max_records_per_step=4,
    max_drain_reassignments=2,
    leader_imbalance_check_interval_seconds=5,
)
NODES = (1, 2, 3)


class ViolationError(Exception):
    """An invariant does not hold; the message names it and the seed."""


class Node:
    """One controller, and how many batches of the log it has been given."""

    def __init__(self, node_id: int, core: Controller) -> None:
        self.node_id = node_id
        self.core = core
        self.applied_count = 0


class Simulation:
    """One run.

    Attributes:
        log: batches in order; those below `committed_count` stay.
        seen: how often each kind of event happened.
        trace: a hash of everything that was done, to compare runs.
    """

    core_class: type[Controller] = Controller

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.turns_rng = random.Random(~seed)
        self.now_ms = 0
        self.log: list[CommittedRecords] = []
        self.committed_count = 0
        self.epoch = 0
        self.leader: Node | None = None
        self.image = MetadataImage()
        self.images = {0: self.image}  # by end offset, where no transaction is open
        self.hashes: dict[int, str] = {}  # by stable end offset
        self.replies: dict[int, ControllerResponse | Exception] = {}
        self.requests: list[int] = []
        self.watched: tuple[WatchedBroker, ...] = ()
        self.once_watched: set[WatchedBroker] = set()
        self.topics_made: dict[UUID, set[int]] = {}  # committed: their partitions
        self.names_made: set[str] = set()
        self.lost_disks = LostDisks()  # as committed
        self.seen: Counter[str] = Counter()
        self.trace = 0
        self.nodes = [self._new_node(node_id) for node_id in NODES]
        self.player = Player(self.rng, self)

    def _new_node(self, node_id: int) -> Node:
        core = self.core_class(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            config=CONFIG,
            rng=random.Random(self.rng.random()),
            wall_ms=lambda: self.now_ms,
        )
        return Node(node_id, core)

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def fail(self, invariant: str, reason: str) -> ViolationError:
        return ViolationError(f"{invariant}, seed {self.seed}: {reason}")

    # ---- the run ----------------------------------------------------------------------------------------------------

    def run(self, events_count: int = 100) -> None:
        try:
            self.claim()
            self.commit_all()
            for request in self.player.arrivals():
                self.submit(request())
                self.commit_all()
            for _ in range(events_count):
                self.event()
            self.heal()
        except (InvariantViolationError, TimelineError) as error:
            raise self.fail("T5", repr(error)) from error

    def event(self) -> None:
        kind = self.rng.choices(
            ("ask", "commit", "deliver", "wait", "depose", "claim", "skip", "restart", "gone"),
            (50, 16, 24, 5, 2, 10, 1, 2, 1),
        )[0]
        getattr(self, kind)()
        if self.turns_rng.random() < 0.7:
            self.go_on()
        elif self.leader is not None:
            self.seen["pause inside a large change"] += bool(self.leader.core._unappended)

    def go_on(self) -> None:
        """The driver's turns until a large change has been appended, and what waited for it is done."""
        while self.leader is not None and self.leader.core._must_go_on():
            self.step(self.leader, Tick())

    def ask(self) -> None:
        if self.leader is not None:
            name, request = self.player.request()
            self.seen[name] += 1
            self.submit(request)

    def submit(self, request: NodeWish | ClientChange) -> None:
        assert self.leader is not None
        request_id = len(self.requests) + 1
        self.requests.append(request_id)
        timeout_ms = self.rng.choice((0, 500, *[10**6] * 8))
        self.step(self.leader, Submit(request_id, in_envelope(request), self.now_ms + timeout_ms))

    def wait(self) -> None:
        self.now_ms += self.rng.choice((1, 100, 1_000, 3_100))
        if self.leader is not None:
            self.step(self.leader, Tick())

    def commit(self) -> None:
        """Batches get a majority; nodes hear of it when they hear of it."""
        count = self.rng.choice((1, 2, 5, len(self.log)))
        while self.committed_count < len(self.log) and count > 0:
            self._commit_one()
            count -= 1

    def _commit_one(self) -> None:
        batch = self.log[self.committed_count]
        self.committed_count += 1
        delta = MetadataDelta(self.image)
        for record in batch.records:
            self.lost_disks.note(record, self.image)
            delta.replay(record)
        before, self.image = self.image, delta.apply(batch.end_offset, batch.epoch)
        if self.image.open_transaction is None:
            self.images[batch.end_offset] = self.image
            for name, topic in self.image.topics_by_name.items():
                self.names_made.add(name)
                self.topics_made.setdefault(topic.topic_id, set()).update(topic.partitions)
                self._check_partitions(name, topic)
                self._check_moves(before.topics_by_id.get(topic.topic_id), topic)

    def deliver(self) -> None:
        """A node hears of some of what has committed; several batches may come as one."""
        self.deliver_to(self.rng.choice(self.nodes), self.rng.choice((1, 3, len(self.log))))

    def deliver_to(self, node: Node, batches_count: int) -> None:
        while batches_count > 0 and node.applied_count < self.committed_count:
            first = self.log[node.applied_count]
            taken = 1
            while first.records and self.rng.random() < 0.4 and node.applied_count + taken < self.committed_count:
                following = self.log[node.applied_count + taken]
                if following.epoch != first.epoch or not following.records:
                    break
                first = CommittedRecords(
                    first.base_offset, following.end_offset, first.epoch, first.records + following.records
                )
                taken += 1
                self.seen["several batches at once"] += 1
            node.applied_count += taken
            batches_count -= taken
            self.step(node, first)

    # ---- terms ------------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        if self.leader is not None:
            return
        self.leader = self.rng.choice(self.nodes)
        self.epoch += 1
        self._append_own(1)
        self.step(self.leader, Claim(self.epoch, self.end_offset))

    def _append_own(self, count: int) -> None:
        self.log.append(CommittedRecords(self.end_offset, self.end_offset + count, self.epoch))

    def skip(self) -> None:
        if self.leader is not None:
            self.seen["skip"] += 1
            self._append_own(self.rng.choice((1, 2)))
            self.step(self.leader, Skip(self.end_offset))

    def depose(self) -> None:
        if self.leader is None:
            return
        node, self.leader = self.leader, None
        lost_count = min(self.rng.randrange(5), len(self.log) - self.committed_count)
        if lost_count:
            self.seen["lost tail"] += 1
            del self.log[len(self.log) - lost_count :]
        was_active = node.core.status().is_active
        self.step(node, Renounce())
        status = node.core.status()
        self.seen["revert inside a transaction"] += status.stable_end_offset < status.committed_end_offset
        if was_active and status.stable_end_offset == status.committed_end_offset:
            newest = node.core._state.state_hash(None)
            if newest != self.hashes.setdefault(status.stable_end_offset, newest):
                raise self.fail("T3", f"node {node.node_id} did not go back to {status.stable_end_offset}")

    def restart(self) -> None:
        """A standby begins anew, from the log or from a snapshot, and does not hear of all that has committed."""
        node = self.rng.choice([node for node in self.nodes if node is not self.leader])
        if self.rng.random() < 0.3:
            self._load(node)  # it is too far behind for the log
            return
        fresh = self._new_node(node.node_id)
        self.nodes[self.nodes.index(node)] = fresh
        if self.rng.random() < 0.6:
            self._load(fresh)
        else:
            self.deliver_to(fresh, node.applied_count)

    def _load(self, node: Node) -> None:
        self.seen["snapshot"] += 1
        ends = [batch.end_offset for batch in self.log[: self.committed_count]]
        lowest = max(1, node.core.status().committed_end_offset)
        choices = [end_offset for end_offset in self.images if end_offset >= lowest]
        if choices:
            end_offset = self.rng.choice(choices)
            image = self.images[end_offset]
            self.step(node, LoadSnapshot(end_offset, tuple(image_records(image))))
            node.applied_count = ends.index(end_offset) + 1

    def gone(self) -> None:
        """A broker that is watched, or was once, is seen gone."""
        if self.leader is not None and self.once_watched:
            found = self.rng.choice(
                sorted(self.once_watched, key=lambda broker: (broker.broker_id, broker.broker_epoch))
            )
            self.seen["gone"] += 1
            present = frozenset(broker.broker_id for broker in self.watched if self.rng.random() < 0.7)
            self.step(self.leader, BrokerGone(found.broker_id, found.broker_epoch, "refused", present))

    def heal(self) -> None:
        """Everything commits, everybody hears everything; then a node that was never there agrees (T2)."""
        self.claim()
        self.commit_all()
        self._converge()
        for node in self.nodes:
            if node.core.status().committed_end_offset != self.end_offset:
                raise self.fail("progress", f"node {node.node_id} stands at {node.core.status()}")
            self._check_indexes(node)
        if sorted(self.replies) != self.requests:
            raise self.fail("answers", f"{len(self.requests)} requests, {len(self.replies)} answers")
        for load in (True, False):
            fresh = self._new_node(9)
            if load:
                self._load(fresh)
            self.deliver_to(fresh, len(self.log))
        self._check_answers()

    def _converge(self) -> None:
        """With healthy brokers every wish comes true in bounded time: leaders, reassignments, drained brokers."""
        assert self.leader is not None
        rounds_left = 60
        while (unsettled := self._unsettled()) is not None:
            if rounds_left == 0:
                raise self.fail("convergence", unsettled)
            rounds_left -= 1
            for request in self.player.healthy_round():
                self.step(self.leader, Submit(len(self.requests) + 1, in_envelope(request()), self.now_ms + 10**6))
                self.requests.append(len(self.requests) + 1)
                self.commit_all()
            if given_up := self.lost_disks.without_hope(self.image):
                self.seen["given up"] += len(given_up)
                self.submit(ElectLeaders(ElectionType.UNCLEAN, given_up))
                self.commit_all()
            self.now_ms += 501
            self.step(self.leader, Tick())
            self.commit_all()

    def _unsettled(self) -> str | None:
        for name, topic in self.image.topics_by_name.items():
            for partition_id, p in topic.partitions.items():
                free = set(BROKERS) - self.image.drained_brokers - set(p.replicas)
                is_stuck = free and set(p.replicas) & self.image.drained_brokers
                if p.leader == -1 or p.is_reassigning or set(p.isr) != set(p.replicas) or is_stuck:
                    return f"{name}-{partition_id} is {p}"
        return None

    def commit_all(self) -> None:
        """Until nobody has anything to say."""
        is_settled = False
        while not is_settled:
            self.go_on()
            while self.committed_count < len(self.log):
                self._commit_one()
            for node in self.nodes:
                self.deliver_to(node, len(self.log))
            is_settled = self.committed_count == len(self.log)

    # ---- steps and checks -------------------------------------------------------------------------------------------

    def step(self, node: Node, message: Message) -> None:
        for effect in node.core.step(message, self.now_ms):
            self.trace = zlib.crc32(f"{type(effect).__name__} {self.end_offset}".encode(), self.trace)
            self._perform(node, effect)
        if isinstance(message, CommittedRecords | LoadSnapshot):
            self._check_state(node)

    def _perform(self, node: Node, effect: Effect) -> None:
        match effect:
            case AppendRecords():
                if node is not self.leader or effect.base_offset != self.end_offset:
                    raise self.fail("append", f"node {node.node_id} appends at {effect.base_offset}")
                end_offset = effect.base_offset + len(effect.records)
                self.log.append(CommittedRecords(effect.base_offset, end_offset, effect.epoch, effect.records))
            case Reply() | ReplyError():
                if effect.request_id in self.replies:
                    raise self.fail("answers", f"request {effect.request_id} is answered twice")
                answer = effect.response if isinstance(effect, Reply) else effect.error
                self.replies[effect.request_id] = answer
                self._check_answer(answer)
            case WatchBrokers():
                self.watched = effect.brokers
                self.once_watched.update(effect.brokers)
            case ResignLeadership():
                raise self.fail("resign", effect.reason)
            case ChangeFailed():
                raise self.fail("change", f"{effect.name} raised {effect.bug!r}") from effect.bug

    def _check_state(self, node: Node) -> None:
        status = node.core.status()
        end_offset = status.stable_end_offset
        found = node.core.committed_state_hash()
        if found != self.hashes.setdefault(end_offset, found):
            raise self.fail("T1", f"node {node.node_id} differs at {end_offset}")

    def _check_partitions(self, name: str, topic: TopicImage) -> None:
        """R9, R10, and that a reassignment is a part of the replicas."""
        for partition_id, p in topic.partitions.items():
            groups = (*p.isr, *p.elr, *p.last_known_elr)
            moving = {*p.adding_replicas, *p.removing_replicas}
            if (
                len(set(groups)) != len(groups)
                or not {*groups, *moving} <= set(p.replicas)
                or p.leader not in {-1, *p.isr}
                or not all(self.image.brokers[member].is_active for member in p.isr)
            ):
                raise self.fail("R9, R10", f"{name}-{partition_id} is {p}")
            self.seen["moving"] += bool(moving)

    def _check_moves(self, before: TopicImage | None, topic: TopicImage) -> None:
        """R13: replicas go when all that stay are in sync, or what was added goes."""
        for partition_id, old in {} if before is None else before.partitions.items():
            new = topic.partitions[partition_id]
            goes = set(old.replicas) - set(new.replicas)
            if goes and not set(new.replicas) <= set(new.isr) and set(new.replicas) & set(old.adding_replicas):
                raise self.fail("R13", f"{topic.name}-{partition_id} went from {old} to {new}")

    def _check_answer(self, answer: ControllerResponse | Exception) -> None:
        """T4: what an answer speaks of has committed."""
        match answer:
            case CreateTopicsResponse() | CreatePartitionsResponse():
                for result in answer.topics:
                    made = None if result.topic_id is None else self.topics_made.get(result.topic_id, set())
                    if result.error is ErrorCode.NONE and made is not None and len(made) < result.num_partitions:
                        raise self.fail("T4", f"{result.name} is answered before it is there")
                    if result.error is ErrorCode.TOPIC_ALREADY_EXISTS and result.name not in self.names_made:
                        raise self.fail("T4", f"{result.name} is said to exist before it does")
            case AllocateProducerIdsResponse():
                if answer.first_producer_id + answer.count > self.image.next_producer_id:
                    raise self.fail("T4", "producer ids are handed out before the block is taken")
            case TopicExistsError():
                raise self.fail("T4", "an error per topic is expected")
            case _:
                pass

    def _check_indexes(self, node: Node) -> None:
        """What is looked up by broker or by trouble is what the partitions say, after any number of reverts."""
        state = node.core._state.replication
        for broker_id in BROKERS:
            hosted = {key for key, p in state.partitions.items() if broker_id in p.replicas}
            if set(state.hosted(broker_id)) != hosted or state.hosted_count(broker_id) != len(hosted):
                raise self.fail("indexes", f"replicas of broker {broker_id} on node {node.node_id}")
        for name, keys, holds in (
            ("leaderless", state.leaderless, lambda p: p.leader == -1),
            ("imbalanced", state.imbalanced, lambda p: p.leader not in {-1, p.replicas[0]}),
            ("reassigning", state.reassigning, lambda p: p.is_reassigning),
        ):
            if set(keys) != {key for key, p in state.partitions.items() if holds(p)}:
                raise self.fail("indexes", f"{name} on node {node.node_id}")

    def _check_answers(self) -> None:
        """What was acknowledged is in the log, and no producer id was handed out twice."""
        in_log = {r.topic_id for b in self.log for r in b.records if isinstance(r, TopicRecord)}
        partitions = Counter(
            (r.topic_id, r.partition_id) for b in self.log for r in b.records if isinstance(r, PartitionRecord)
        )
        blocks = [r.next_producer_id for b in self.log for r in b.records if isinstance(r, ProducerIdsRecord)]
        if len(set(blocks)) != len(blocks):
            raise self.fail("T4", "a block of producer ids is handed out twice")
        for answer in self.replies.values():
            for result in answer.topics if isinstance(answer, CreateTopicsResponse) else ():
                if result.error is ErrorCode.NONE and result.topic_id is not None and result.topic_id not in in_log:
                    raise self.fail("T4", f"{result.name} was acknowledged and is gone")
        self.seen["partition"] += len(partitions)


def run_seeds(seeds: Iterable[int], simulation_class: type[Simulation] = Simulation) -> Counter[str]:
    """Run many seeds; returns how often each kind of event was seen."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = simulation_class(seed)
        simulation.run()
        seen.update(simulation.seen)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many, from --first")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="just this one")
    options = parser.parse_args()
    started = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    seen = run_seeds(seeds if options.seed is None else (options.seed,))
    for name, count in sorted(seen.items()):
        print(f"{count:9d}  {name}")
    print(f"no violation in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
