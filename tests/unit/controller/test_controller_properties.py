"""T1, T3, T4 for the controller: whatever is asked, lost and committed, in whatever order, all nodes agree.

And whoever may be elected has everything that leaders may have committed by then; no change gives up the last such copy.
"""

from __future__ import annotations

import random
from collections import Counter
from uuid import UUID

import pytest
from controller_kit import CLUSTER_ID, Quorum, alterable
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import CommittedRecords
from replog.controller.requests import (
    AllocateProducerIds,
    AlterConfigs,
    AlterConfigsResource,
    AlterPartition,
    AlterPartitionReassignments,
    ConfigEntry,
    CreateTopics,
    DeleteTopics,
    DrainBroker,
    Heartbeat,
    IsrMember,
    NewTopic,
    PartitionIsrChange,
    Reassignment,
    ReplicaEnd,
    ReportReplicas,
)
from replog.metadata import MetadataDelta, MetadataImage, PartitionRegistration
from replog.metadata.image import CLUSTER_DEFAULTS
from replog.metadata.records import (
    ElectionType,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    ResourceType,
)
from tests.random_examples import examples, seeds

pytestmark = pytest.mark.exhaustive

CONFIG = ControllerConfig(broker_session_timeout_ms=3_000, min_insync_replicas=2, default_replication_factor=2)
BROKERS = (1, 2, 3, 4)
TOPICS = ("flights", "taxis")


class Player:
    """Turns random numbers into requests that are often right and sometimes not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.quorum = Quorum(1, 2, 3, config=CONFIG)
        self.quorum.claim(1)
        self.quorum.commit()
        self.quorum.start(*BROKERS)
        self.quorum.create("flights", 1, 2, 3, partitions=2)
        self.requests = list(self.quorum.replies)
        self.incarnations = dict.fromkeys(BROKERS, 1)

    def play(self, action: str) -> None:
        if self.quorum.active is None and action not in {"commit", "claim"}:
            self.claim()
            self.quorum.commit(self.rng.choice((1, None)))
        getattr(self, action)()

    def _submit(self, request: object) -> None:
        timeout_ms = self.rng.choice((0, 500, *[10**6] * 8))
        self.requests.append(self.quorum.submit(request, timeout_ms=timeout_ms))  # type: ignore[arg-type]

    def _epoch(self, broker_id: int) -> int:
        registration = self.quorum.image.brokers.get(broker_id)
        return -1 if registration is None else registration.broker_epoch

    def _partitions(self) -> list[tuple[UUID, int, PartitionRegistration]]:
        return [
            (topic.topic_id, partition_id, partition)
            for topic in self.quorum.image.topics_by_id.values()
            for partition_id, partition in topic.partitions.items()
        ]

    def register(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        self.incarnations[broker_id] += self.rng.random() < 0.8
        previous = self.rng.choice((-1, self._epoch(broker_id)))
        directory_number = int(self.rng.random() < 0.1)
        self._submit(
            self.quorum.register_request(
                broker_id, self.incarnations[broker_id], previous=previous, directory_number=directory_number
            )
        )

    def heartbeats(self) -> None:
        for broker_id in BROKERS:
            fence, shut_down = self.rng.random() < 0.1, self.rng.random() < 0.1
            applied = self.rng.choice((self.quorum.image.end_offset, self.quorum.image.end_offset, 0))
            self._submit(Heartbeat(broker_id, self._epoch(broker_id), applied, fence, shut_down))

    def create(self) -> None:
        configs = (ConfigEntry("flush.policy", self.rng.choice(("always", "auto"))),)
        if self.rng.random() < 0.3:
            configs += (ConfigEntry("unclean.leader.election.enable", "true"),)
        self._submit(CreateTopics((NewTopic(self.rng.choice(TOPICS), 2, self.rng.choice((1, 2, 3)), configs=configs),)))

    def delete(self) -> None:
        self._submit(DeleteTopics((self.rng.choice(TOPICS),)))

    def configure(self) -> None:
        value = self.rng.choice(("1", "2", "3", None))
        if self.rng.random() < 0.5:
            resource_type, name = ResourceType.BROKER, ""
        else:
            resource_type, name = ResourceType.TOPIC, self.rng.choice(TOPICS)
        entry = alterable("min.insync.replicas", value)
        self._submit(AlterConfigs((AlterConfigsResource(resource_type, name, (entry,)),)))

    def alter_isr(self) -> None:
        for topic_id, partition_id, partition in self._partitions():
            isr = [replica for replica in partition.replicas if replica == partition.leader or self.rng.random() < 0.6]
            members = tuple(IsrMember(member, self._epoch(member)) for member in isr)
            change = PartitionIsrChange(
                topic_id, partition_id, partition.leader_epoch, partition.partition_epoch, members
            )
            self._submit(AlterPartition(partition.leader, self._epoch(partition.leader), (change,)))

    def report(self) -> None:
        for broker_id in BROKERS:
            ends = tuple(
                ReplicaEnd(topic_id, partition_id, self.rng.randrange(3), self.rng.randrange(3))
                for topic_id, partition_id, _ in self._partitions()
            )
            self._submit(ReportReplicas(broker_id, self._epoch(broker_id), ends))

    def power_cut(self) -> None:
        """Every broker is killed and comes back; some batches in between may not have committed."""
        for broker_id in BROKERS:
            self.incarnations[broker_id] += 1
            self._submit(self.quorum.register_request(broker_id, self.incarnations[broker_id]))
        self.quorum.commit()
        for broker_id in BROKERS:
            self._submit(Heartbeat(broker_id, self._epoch(broker_id), self.quorum.image.end_offset))
        self.commit()

    def stop_in_order(self) -> None:
        """One broker stops; the others have heard of it when it asks again."""
        stopping = self.rng.choice(BROKERS)
        for broker_id in (stopping, *BROKERS, stopping):
            self.commit()
            applied = self.quorum.image.end_offset
            self._submit(Heartbeat(broker_id, self._epoch(broker_id), applied, want_shut_down=broker_id == stopping))

    def start_again(self) -> None:
        """One broker starts after an orderly stop, and is unfenced."""
        broker_id = self.rng.choice(BROKERS)
        self.incarnations[broker_id] += 1
        previous = self._epoch(broker_id)
        self._submit(self.quorum.register_request(broker_id, self.incarnations[broker_id], previous=previous))
        self.quorum.commit()
        self._submit(Heartbeat(broker_id, self._epoch(broker_id), self.quorum.image.end_offset))

    def catch_up(self) -> None:
        """Every leader takes in who is up, or says that it goes on as it is."""
        for topic_id, partition_id, partition in self._partitions():
            brokers = self.quorum.image.brokers
            others = [member for member in partition.replicas if member in brokers and brokers[member].is_active]
            isr = partition.isr if self.rng.random() < 0.3 else {*partition.isr, *others}
            members = tuple(IsrMember(member, self._epoch(member)) for member in isr)
            change = PartitionIsrChange(
                topic_id, partition_id, partition.leader_epoch, partition.partition_epoch, members
            )
            self._submit(AlterPartition(partition.leader, self._epoch(partition.leader), (change,)))

    def reassign(self) -> None:
        for topic in self.quorum.image.topics_by_id.values():
            target = tuple(self.rng.sample(BROKERS, self.rng.choice((1, 2, 3))))
            item = Reassignment(topic.name, self.rng.randrange(2), target if self.rng.random() < 0.6 else None)
            self._submit(AlterPartitionReassignments((item,), allow_replication_factor_change=True))

    def drain(self) -> None:
        self._submit(DrainBroker(self.rng.choice(BROKERS), self.rng.random() < 0.5))

    def producer_ids(self) -> None:
        self._submit(AllocateProducerIds(1, self._epoch(1)))

    def wait(self) -> None:
        self.quorum.now_ms += self.rng.choice((100, 1_000, 4_000))
        self.quorum.tick()

    def commit(self) -> None:
        self.quorum.commit(self.rng.choice((1, 2, None)))

    def depose(self) -> None:
        self.quorum.renounce(lost_batches=self.rng.randrange(4))

    def claim(self) -> None:
        if self.quorum.active is None:
            self.quorum.claim(self.rng.choice(list(self.quorum.nodes)))


ACTIONS = ("register", "heartbeats", "create", "delete", "configure", "alter_isr", "report", "producer_ids", "wait")
WEIGHTED = (
    *ACTIONS,
    "stop_in_order",
    "stop_in_order",
    "start_again",
    "start_again",
    "catch_up",
    "catch_up",
    "reassign",
    "drain",
    "power_cut",
    "report",
    "heartbeats",
    "heartbeats",
    "commit",
    "commit",
    "commit",
    "create",
    "depose",
    "claim",
    "claim",
)


STOPS_AND_MOVES = ("stop_in_order", "start_again", "catch_up", "reassign", "heartbeats", "configure", "drain", "wait")


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(WEIGHTED), min_size=5, max_size=60))
def test_all_nodes_agree_on_what_is_committed(seed: int, actions: list[str]) -> None:
    play(seed, actions)


@pytest.mark.parametrize("seed", seeds(15))
def test_whole_copies_stay_when_brokers_stop_in_order_and_partitions_move(seed: int) -> None:
    """Long enough for what is rare: a partition that moves away from who is up to who has just stopped."""
    play(seed, random.Random(seed).choices(STOPS_AND_MOVES, k=60))


def test_every_kind_of_election_happens() -> None:
    """The random player is only worth something if it gets to the rare branches."""
    missing = {ElectionType.CLEAN, ElectionType.UNCLEAN, ElectionType.RECOVERED}
    for seed in range(30):
        actions = random.Random(seed).choices(WEIGHTED, k=120)
        happened = Counter(play(seed, actions).quorum.leader.status().elections)
        missing -= {kind for kind in missing if happened[kind]}
        if not missing:
            return
    pytest.fail(f"{missing} did not happen")


def play(seed: int, actions: list[str]) -> Player:
    player = Player(seed)
    for action in actions:
        player.play(action)
        check_agreement(player.quorum)
    finish(player)
    check_answers(player)
    check_replay_from_zero(player.quorum)
    check_history(player.quorum.log)
    check_copies(player.quorum.log)
    return player


def finish(player: Player) -> None:
    quorum = player.quorum
    quorum.commit()
    player.claim()
    quorum.commit()
    check_agreement(quorum)
    assert not quorum.resigned
    assert quorum.leader.status().parked_requests == 0
    check_indexes(quorum.leader)


def check_agreement(quorum: Quorum) -> None:
    """T1: equal committed state on every node, and the image says the same."""
    assert len({node.committed_state_hash() for node in quorum.nodes.values()}) == 1
    for node in quorum.nodes.values():
        assert node.status().committed_end_offset == quorum.image.end_offset
        check_image(node, quorum.image)


def check_image(node: Controller, image: MetadataImage) -> None:
    state, at = node._state, image.end_offset
    assert dict(state.brokers.registrations.items(epoch=at)) == dict(image.brokers)
    assert dict(state.replication.topic_ids.items(epoch=at)) == {
        name: topic.topic_id for name, topic in image.topics_by_name.items()
    }
    assert dict(state.replication.partitions.items(epoch=at)) == {
        (topic_id, partition_id): partition
        for topic_id, topic in image.topics_by_id.items()
        for partition_id, partition in topic.partitions.items()
    }
    assert dict(state.configs.values.items(epoch=at)) == dict(image.configs)
    assert dict(state.features.levels.items(epoch=at)) == dict(image.features)
    assert state.producer_ids.next_producer_id.get(epoch=at) == image.next_producer_id


def check_indexes(node: Controller) -> None:
    """The tables that only speed things up say what the partitions say, after any number of reverts."""
    replication = node._state.replication
    for broker_id in BROKERS:
        hosted = {key for key, p in replication.partitions.items() if broker_id in p.replicas}
        assert set(replication.hosted(broker_id)) == hosted
        assert replication.hosted_count(broker_id) == len(hosted)
    partitions = list(replication.partitions.items())
    assert set(replication.leaderless) == {key for key, p in partitions if p.leader == -1}
    assert set(replication.imbalanced) == {key for key, p in partitions if p.leader not in {-1, p.replicas[0]}}
    assert set(replication.reassigning) == {key for key, p in partitions if p.is_reassigning}


def check_answers(player: Player) -> None:
    assert sorted(player.requests) == sorted(player.quorum.replies)  # exactly once: the kit refuses a second answer


def check_replay_from_zero(quorum: Quorum) -> None:
    standby = Controller(node_id=9, cluster_id=CLUSTER_ID, config=CONFIG, rng=random.Random(9), wall_ms=lambda: 0)
    for batch in quorum.log:
        assert standby.step(batch, 0) == ()
    assert standby.committed_state_hash() == quorum.leader.committed_state_hash()


def check_history(log: list[CommittedRecords]) -> None:
    """R9, R10 and the legality of every election, read from the log alone."""
    image = MetadataImage()
    for batch in log:
        delta = MetadataDelta(image)
        for record in batch.records:
            if isinstance(record, PartitionChangeRecord):
                check_change(image, delta, record)
            delta.replay(record)
        image = delta.apply(batch.end_offset, batch.epoch)
        new_incarnations = {r.broker_id for r in batch.records if isinstance(r, RegisterBrokerRecord) and r.fenced}
        for topic in image.topics_by_id.values():
            for partition in topic.partitions.values():
                check_partition(image, partition)
                assert not new_incarnations & {partition.leader, *partition.isr}


def check_copies(log: list[CommittedRecords]) -> None:
    """Who may be elected cleanly has everything that a leader may have committed, and the last such copy is not given up."""
    image = MetadataImage()
    copies: dict[tuple[UUID, int], Copies] = {}
    for batch in log:
        delta = MetadataDelta(image)
        for record in batch.records:
            check_record(image, delta, copies, record)
            delta.replay(record)
        image = delta.apply(batch.end_offset, batch.epoch)
        for topic in image.topics_by_id.values():
            for partition_id, partition in topic.partitions.items():
                copies[topic.topic_id, partition_id].commit(partition, min_isr(image, topic.name))


def check_record(
    image: MetadataImage, delta: MetadataDelta, copies: dict[tuple[UUID, int], Copies], record: MetadataRecord
) -> None:
    match record:
        case PartitionRecord():
            copies[record.topic_id, record.partition_id] = Copies(set(record.isr))
        case PartitionChangeRecord():
            topic = delta._topic_or_raise(record.topic_id)
            before = topic.partition(record.partition_id)
            assert before is not None
            unclean = image.configs.get((ResourceType.TOPIC, topic.name), {}).get("unclean.leader.election.enable")
            copies[record.topic_id, record.partition_id].change(before, record, may_lose=unclean == "true")
        case RegisterBrokerRecord():
            known = image.brokers.get(record.broker_id)
            is_another = known is not None and known.incarnation_id != record.incarnation_id
            if is_another and known.log_dirs != record.log_dirs:
                for one in copies.values():
                    one.complete.discard(record.broker_id)
        case _:
            pass


def min_isr(image: MetadataImage, topic: str) -> int:
    for resource in ((ResourceType.TOPIC, topic), CLUSTER_DEFAULTS):
        if (value := image.configs.get(resource, {}).get("min.insync.replicas")) is not None:
            return int(value)
    return CONFIG.min_insync_replicas


class Copies:
    """Which replicas of a partition hold everything that was committed, if every leader commits whenever it may.

    A leader that lags behind the metadata waits for more replicas than one that does not.
    """

    def __init__(self, complete: set[int]) -> None:
        self.complete = complete

    def change(self, before: PartitionRegistration, record: PartitionChangeRecord, *, may_lose: bool) -> None:
        after = before.merge(record)
        if record.election_type in {ElectionType.UNCLEAN, ElectionType.RECOVERED}:
            self.complete = {*after.isr, *after.elr}  # what others may have held is given up
        elif record.election_type is None or record.replicas is not None:  # a leader has proposed who joins
            self.complete |= set(after.isr) - {*before.isr, *before.elr}
        staying = set(after.replicas)
        if not may_lose:
            assert not self.complete or self.complete & staying, f"{before} loses the last whole copy by {record}"
            loses_live_copies = record.replicas is not None and bool(before.isr) and not after.isr
            assert not loses_live_copies, f"{before} loses the last live copy by {record}"
        self.complete &= staying

    def commit(self, partition: PartitionRegistration, min_isr: int) -> None:
        members = {*partition.isr, *partition.elr}
        assert members <= self.complete, f"only {self.complete} have everything: {partition}"
        if partition.leader != -1 and len(partition.isr) >= min(min_isr, len(partition.replicas)):
            self.complete &= members  # those of the ELR, as far as they are known to have it


def check_partition(image: MetadataImage, partition: PartitionRegistration) -> None:
    assert partition.leader == -1 or partition.leader in partition.isr
    assert all(image.brokers[member].is_active for member in partition.isr)
    groups = (*partition.isr, *partition.elr, *partition.last_known_elr)
    assert len(set(groups)) == len(groups)
    assert set(groups) <= set(partition.replicas)


def check_change(image: MetadataImage, delta: MetadataDelta, record: PartitionChangeRecord) -> None:
    before = delta._topic_or_raise(record.topic_id).partition(record.partition_id)
    assert before is not None
    name = delta._topic_or_raise(record.topic_id).name
    completes_reassignment = (
        record.replicas is not None
    )  # who leads now has been proposed by the leader, or is the same
    match record.election_type:
        case ElectionType.CLEAN:
            assert record.leader in (*before.isr, *before.elr) or completes_reassignment
        case ElectionType.RECOVERED:
            assert before.awaits_reports
            assert record.leader in before.last_known_elr
        case ElectionType.UNCLEAN:
            allowed = image.configs.get((ResourceType.TOPIC, name), {}).get("unclean.leader.election.enable")
            assert allowed == "true"
        case _:
            assert record.leader in {None, -1} or completes_reassignment
