"""Random interleavings of appends, fetches, controller decisions, late metadata and lost answers.

A small model of a controller and two followers surrounds a real `Leader`.  Checked after every step:

- the high watermark never passes what a member of the controller's ISR or ELR really has (R4, R5);
- nor, when it moves, what the leader knows of its own maximal ISR, and it moves only at min ISR or above (R6);
- it never falls within one leader epoch (R6);
- at most one proposal is unanswered per partition epoch, and every produce is answered exactly once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from replog.errors import ErrorCode
from replog.metadata.config_keys import FlushPolicy
from replog.replication.leader import Leader
from replog.replication.messages import (
    AlterPartitionAnswered,
    Appended,
    AwaitProduce,
    Flushed,
    FollowerFetched,
    HighWatermarkAdvanced,
    LeaderMessage,
    PartitionState,
    ProduceCompleted,
    ProposeIsr,
    RequestFlush,
    Resigned,
    StateChanged,
    Tick,
)

LAG_TIME_MS = 1_000
LEADER_ID = 1


@dataclass
class FollowerModel:
    """What a follower really has, and its incarnation."""

    broker_epoch: int
    log_end_offset: int = 0
    flushed_offset: int = 0


@dataclass
class World:
    """The leader under test, the truth around it, and what is on its way between them."""

    flush_policy: FlushPolicy
    min_isr: int
    now_ms: int = 1_000
    log_end_offset: int = 0
    flush_pending: bool = False
    proposals: list[ProposeIsr] = field(default_factory=list)
    answers: list[AlterPartitionAnswered] = field(default_factory=list)
    metadata: list[PartitionState] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    requests: int = 0
    high_watermark: int = 0
    advances: int = 0
    commits: int = 0

    def __post_init__(self) -> None:
        self.followers = {2: FollowerModel(102), 3: FollowerModel(103)}
        self.truth = PartitionState(
            leader=LEADER_ID,
            leader_epoch=1,
            partition_epoch=0,
            replicas=(1, 2, 3),
            isr=(1, 2, 3),
            elr=(),
            min_insync_replicas=self.min_isr,
            eligible={1: 101, 2: 102, 3: 103},
        )
        self.leader = Leader(
            topic_partition="flights-0",
            broker_id=LEADER_ID,
            state=self.truth,
            log_end_offset=0,
            flushed_offset=0,
            high_watermark=0,
            replica_lag_time_max_ms=LAG_TIME_MS,
            flush_policy=self.flush_policy,
            now_ms=self.now_ms,
        )

    # ---- the leader, and what is checked ----------------------------------------------------------------------------

    def step(self, message: LeaderMessage) -> None:
        epoch = self.leader.leader_epoch
        for effect in self.leader.step(message, self.now_ms):
            match effect:
                case HighWatermarkAdvanced():
                    assert effect.high_watermark > self.high_watermark
                    self.high_watermark = effect.high_watermark
                    self.advances += 1
                    self.check_advance()
                case ProposeIsr():
                    mine = (effect.leader_epoch, effect.partition_epoch)
                    assert mine not in [(p.leader_epoch, p.partition_epoch) for p in self.proposals]
                    self.proposals.append(effect)
                case ProduceCompleted():
                    self.waiting.remove(effect.request_id)
                case RequestFlush():
                    assert not self.flush_pending
                    self.flush_pending = True
        assert self.leader.leader_epoch >= epoch
        assert self.leader.high_watermark == self.high_watermark
        self.check_truth()

    def check_advance(self) -> None:
        status = self.leader.status()
        ends = {replica.replica_id: replica for replica in status.replicas}
        assert len(status.isr) >= self.min_isr
        for replica_id in {*status.isr, *status.maximal_isr}:
            assert status.high_watermark <= ends[replica_id].log_end_offset
            if self.flush_policy is FlushPolicy.ALWAYS:
                assert status.high_watermark <= ends[replica_id].flushed_offset
        if status.isr == (LEADER_ID,) and self.flush_policy is FlushPolicy.AUTO:
            assert status.high_watermark <= status.flushed_offset

    def check_truth(self) -> None:
        for replica_id in (*self.truth.isr, *self.truth.elr):
            if replica_id != LEADER_ID:
                assert self.high_watermark <= self.followers[replica_id].log_end_offset

    # ---- the world --------------------------------------------------------------------------------------------------

    def append(self, chance: random.Random) -> None:
        self.log_end_offset += chance.randint(1, 5)
        self.step(Appended(self.log_end_offset))

    def produce(self, chance: random.Random) -> None:
        self.requests += 1
        self.waiting.add(self.requests)
        end_offset = chance.randint(max(0, self.log_end_offset - 5), self.log_end_offset)
        waiting = AwaitProduce(self.requests, end_offset, self.now_ms + chance.randint(0, 3_000))
        self.step(Appended(self.log_end_offset, (waiting,)))

    def flush(self, chance: random.Random) -> None:
        self.flush_pending = False
        self.step(Flushed(self.log_end_offset))

    def fetch(self, chance: random.Random) -> None:
        replica_id = chance.choice([2, 2, 2, 3])
        follower = self.followers[replica_id]
        if chance.random() < 0.5:
            follower.flushed_offset = follower.log_end_offset
        if self.leader.check_follower(replica_id, follower.broker_epoch) is not ErrorCode.NONE:
            return
        self.step(
            FollowerFetched(
                replica_id=replica_id,
                broker_epoch=follower.broker_epoch,
                fetch_offset=follower.log_end_offset,
                flushed_offset=follower.flushed_offset,
                log_start_offset=0,
                leader_end_offset=self.log_end_offset,
            )
        )
        follower.log_end_offset = chance.randint(follower.log_end_offset, self.log_end_offset)

    def advance(self, chance: random.Random) -> None:
        self.now_ms += chance.choice([10, 60, 400, 700])
        self.step(Tick())

    def controller_decides(self, chance: random.Random) -> None:
        """Takes the oldest proposal; the answer may be lost, then the leader hears REQUEST_TIMED_OUT."""
        if not self.proposals:
            return
        proposal = self.proposals.pop(0)
        answer = AlterPartitionAnswered(proposal.proposal_id, ErrorCode.REQUEST_TIMED_OUT, -1, -1, ())
        if chance.random() < 0.9:
            decided = self.decide(proposal)
            answer = replace(answer, error=decided) if chance.random() < 0.8 else answer
            if answer.error is ErrorCode.NONE:
                truth = self.truth
                answer = replace(
                    answer, leader_epoch=truth.leader_epoch, partition_epoch=truth.partition_epoch, isr=truth.isr
                )
        self.answers.append(answer)

    def decide(self, proposal: ProposeIsr) -> ErrorCode:
        if proposal.leader_epoch < self.truth.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch < self.truth.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for replica_id, broker_epoch in proposal.isr:
            if self.truth.eligible.get(replica_id) is None or broker_epoch not in {-1, self.truth.eligible[replica_id]}:
                return ErrorCode.INELIGIBLE_REPLICA
        isr = tuple(replica_id for replica_id, _ in proposal.isr)
        elr = () if len(isr) >= self.min_isr else self.truth.elr + self.truth.isr
        elr = tuple(replica_id for replica_id in dict.fromkeys(elr) if replica_id not in isr)
        self.commits += 1
        if (isr, elr) != (self.truth.isr, self.truth.elr):  # else the answer says what is so already
            self.change(isr=isr, elr=elr)
        return ErrorCode.NONE

    def change(self, *, isr: tuple[int, ...], elr: tuple[int, ...], leader_epoch: int | None = None) -> None:
        self.truth = replace(
            self.truth,
            isr=isr,
            elr=elr,
            leader_epoch=leader_epoch or self.truth.leader_epoch,
            partition_epoch=self.truth.partition_epoch + 1,
        )
        self.metadata.append(self.truth)

    def answer_arrives(self, chance: random.Random) -> None:
        if self.answers:
            self.step(self.answers.pop(0))

    def metadata_arrives(self, chance: random.Random) -> None:
        if self.metadata:
            self.step(StateChanged(self.metadata.pop(0)))

    def follower_restarts(self, chance: random.Random) -> None:
        """Uncleanly: out of the ISR, fenced, and the tail of its log may be gone."""
        replica_id = chance.choice([2, 3])
        follower = self.followers[replica_id]
        eligible = {known: epoch for known, epoch in self.truth.eligible.items() if known != replica_id}
        self.truth = replace(self.truth, eligible=eligible)
        self.change(
            isr=tuple(known for known in self.truth.isr if known != replica_id),
            elr=tuple(known for known in self.truth.elr if known != replica_id),
        )
        follower.broker_epoch += 100
        follower.log_end_offset = chance.randint(
            min(follower.flushed_offset, follower.log_end_offset), follower.log_end_offset
        )
        follower.flushed_offset = min(follower.flushed_offset, follower.log_end_offset)

    def follower_stops(self, chance: random.Random) -> None:
        """In order: it stays eligible as the last but one, or where the ISR is below the minimum; what it has is on its disk."""
        replica_id = chance.choice([2, 3])
        isr = tuple(known for known in self.truth.isr if known != replica_id)
        stays = replica_id in self.truth.isr and (len(isr) == 1 or len(isr) < self.min_isr)
        eligible = {known: epoch for known, epoch in self.truth.eligible.items() if known != replica_id}
        self.truth = replace(self.truth, eligible=eligible)
        self.change(isr=isr, elr=(*self.truth.elr, replica_id) if stays else self.truth.elr)
        follower = self.followers[replica_id]
        follower.broker_epoch += 100
        follower.flushed_offset = follower.log_end_offset

    def follower_unfences(self, chance: random.Random) -> None:
        eligible = {1: 101} | {replica_id: follower.broker_epoch for replica_id, follower in self.followers.items()}
        self.truth = replace(self.truth, eligible=eligible)
        self.metadata.append(self.truth)

    def elected_again(self, chance: random.Random) -> None:
        self.change(isr=self.truth.isr, elr=self.truth.elr, leader_epoch=self.truth.leader_epoch + 1)


ACTIONS = (
    World.append,
    World.append,
    World.fetch,
    World.fetch,
    World.fetch,
    World.fetch,
    World.produce,
    World.flush,
    World.advance,
    World.controller_decides,
    World.controller_decides,
    World.answer_arrives,
    World.answer_arrives,
    World.metadata_arrives,
    World.metadata_arrives,
    World.follower_restarts,
    World.follower_stops,
    World.follower_unfences,
    World.elected_again,
)

FAULTS = {World.follower_restarts, World.follower_stops, World.elected_again}
WEIGHTS = tuple(1 if action in FAULTS else 10 for action in ACTIONS)


@settings(max_examples=80, deadline=None)
@given(
    policy=st.sampled_from(FlushPolicy),
    min_isr=st.integers(1, 2),
    actions=st.lists(st.integers(0, len(ACTIONS) - 1), max_size=150),
    seed=st.integers(0, 2**32),
)
def test_leader_is_safe(policy: FlushPolicy, min_isr: int, actions: list[int], seed: int) -> None:
    world, chance = World(policy, min_isr), random.Random(seed)
    world.step(Tick())
    for action in actions:
        ACTIONS[action](world, chance)
    world.step(Resigned())
    assert world.waiting == set()


@pytest.mark.parametrize("seed", range(60))
def test_leader_is_safe_on_long_walks(seed: int) -> None:
    """Long enough for the rare branches; and every walk gets somewhere."""
    chance = random.Random(seed)
    world = World(chance.choice(list(FlushPolicy)), chance.choice([1, 2]))
    world.step(Tick())
    for action in chance.choices(ACTIONS, WEIGHTS, k=2_000):
        action(world, chance)
    assert world.advances > 0
    assert world.commits > 0
    world.step(Resigned())
    assert world.waiting == set()


@pytest.mark.parametrize("seed", range(10))
def test_all_is_in_sync_again_when_faults_stop(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance.choice(list(FlushPolicy)), 2)
    world.step(Tick())
    for action in chance.choices(ACTIONS, WEIGHTS, k=400):
        action(world, chance)
    world.follower_unfences(chance)
    for _ in range(200):
        world.metadata_arrives(chance)
        for proposal in world.proposals:
            error = world.decide(proposal)
            truth = world.truth
            world.answers.append(
                AlterPartitionAnswered(
                    proposal.proposal_id, error, truth.leader_epoch, truth.partition_epoch, truth.isr
                )
            )
        world.proposals.clear()
        world.answer_arrives(chance)
        world.flush(chance)
        for follower in world.followers.values():
            follower.log_end_offset = follower.flushed_offset = world.log_end_offset
        world.fetch(chance)
        world.advance(chance)
    assert set(world.leader.status().isr) == {1, 2, 3}
    assert world.high_watermark == world.log_end_offset
