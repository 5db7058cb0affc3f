"""Brokers and operators of the controller simulation: requests that are often right and sometimes not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from replog.controller.requests import (
    AllocateProducerIds,
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterPartition,
    AlterPartitionReassignments,
    ClientChange,
    ConfigEntry,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DrainBroker,
    ElectLeaders,
    FeatureUpdate,
    Heartbeat,
    IsrMember,
    NewPartitions,
    NewTopic,
    NodeWish,
    OfflineReplica,
    PartitionIsrChange,
    Reassignment,
    RegisterBroker,
    RegisterController,
    ReplicaEnd,
    ReportReplicas,
    UnregisterBroker,
    UpdateFeatures,
)
from replog.metadata import PartitionRegistration
from replog.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from replog.metadata.records import CLIENT_LISTENER, BrokerEndpoint, ElectionType, ResourceType, SupportedFeature

if TYPE_CHECKING:
    from tests.sim.controller_simulation import Simulation

CLUSTER_ID = "simulated"
BROKERS = (1, 2, 3, 4)
TOPICS = ("flights", "taxis", "trains", "my_ships", "my.ships")

WEIGHTS = {
    "heartbeat": 24,
    "register": 8,
    "alter_isr": 20,
    "create": 10,
    "grow": 3,
    "delete": 3,
    "configure": 5,
    "reassign": 6,
    "drain": 2,
    "elect": 3,
    "report": 5,
    "producer_ids": 3,
    "unregister": 2,
    "features": 1,
    "controller": 1,
}


class Player:
    """Makes requests of what the committed image says, so that some are out of date."""

    def __init__(self, rng: random.Random, world: Simulation) -> None:
        self._rng = rng
        self._world = world
        self._incarnations = dict.fromkeys(BROKERS, 1)

    def arrivals(self) -> Iterator[Callable[[], NodeWish | ClientChange]]:
        """All brokers come: requests to be made one after another."""
        for broker_id in BROKERS:
            yield lambda broker_id=broker_id: self._registration(broker_id)  # type: ignore[misc]
            yield lambda broker_id=broker_id: Heartbeat(  # type: ignore[misc]
                broker_id, self._epoch(broker_id), self._world.image.end_offset
            )
        yield self._create

    def request(self) -> tuple[str, NodeWish | ClientChange]:
        """The next one, and its kind."""
        kind = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not self._world.image.brokers:
            kind = "register"
        request: NodeWish | ClientChange = getattr(self, f"_{kind}")()
        return kind, request

    # ---- brokers ----------------------------------------------------------------------------------------------------

    def _register(self) -> RegisterBroker:
        broker_id = self._rng.choice(BROKERS)
        self._incarnations[broker_id] += self._rng.random() < 0.8
        return self._registration(broker_id)

    def _registration(self, broker_id: int, features: tuple[SupportedFeature, ...] | None = None) -> RegisterBroker:
        if features is None:
            features = SUPPORTED_FEATURES if self._rng.random() < 0.95 else ()
        return RegisterBroker(
            broker_id,
            CLUSTER_ID,
            UUID(int=broker_id * 10**6 + self._incarnations[broker_id]),
            "localhost",
            9000 + broker_id,
            (UUID(int=broker_id * 100 + int(self._rng.random() < 0.05)),),
            self._rng.choice((None, "a", "b")),
            self._rng.choice((-1, self._epoch(broker_id))),
            features,
            endpoints=self._endpoints(broker_id),
        )

    def _endpoints(self, broker_id: int) -> tuple[BrokerEndpoint, ...]:
        """Returns where the newest process serves Kafka's clients: every other one does."""
        number = self._incarnations[broker_id]
        return (BrokerEndpoint(CLIENT_LISTENER, "localhost", 19_000 + number),) if number % 2 else ()

    def _heartbeat(self) -> Heartbeat:
        broker_id = self._known_broker()
        applied = self._rng.choice((*[self._world.image.end_offset] * 4, 0))
        offline = [key for *key, _ in self._partitions() if self._rng.random() < 0.02]
        return Heartbeat(
            broker_id,
            self._epoch(broker_id),
            applied,
            self._rng.random() < 0.05,
            self._rng.random() < 0.05,
            tuple(OfflineReplica(*key, is_intact=self._rng.random() < 0.5) for key in offline),  # type: ignore[arg-type,misc]
        )

    def _alter_isr(self) -> AlterPartition:
        partitions = self._partitions()
        leader = self._rng.choice([p.leader for *_, p in partitions] or [1])
        changes = [
            PartitionIsrChange(
                topic_id, partition_id, partition.leader_epoch, partition.partition_epoch, self._new_isr(partition)
            )
            for topic_id, partition_id, partition in partitions
            if partition.leader == leader or self._rng.random() < 0.05
        ]
        return AlterPartition(leader, self._epoch(leader), tuple(changes))

    def _new_isr(self, partition: PartitionRegistration) -> tuple[IsrMember, ...]:
        grows = self._rng.random() < 0.8
        return tuple(
            IsrMember(replica, self._epoch(replica))
            for replica in partition.replicas
            if replica == partition.leader or self._rng.random() < (0.9 if grows else 0.3)
        )

    def _report(self) -> ReportReplicas:
        broker_id = self._known_broker()
        ends = tuple(
            ReplicaEnd(topic_id, partition_id, self._rng.randrange(3), self._rng.randrange(3))
            for topic_id, partition_id, _ in self._partitions()
        )
        return ReportReplicas(broker_id, self._epoch(broker_id), ends)

    def _producer_ids(self) -> AllocateProducerIds:
        broker_id = self._known_broker()
        return AllocateProducerIds(broker_id, self._epoch(broker_id))

    def healthy_round(self) -> Iterator[Callable[[], NodeWish | ClientChange]]:
        """Every broker is up, heard, tells what it has, and takes all caught-up replicas into its ISRs."""
        for broker_id in BROKERS:
            registration = self._world.image.brokers.get(broker_id)
            if registration is None:
                self._incarnations[broker_id] += 1
                yield lambda broker_id=broker_id: self._registration(broker_id, SUPPORTED_FEATURES)  # type: ignore[misc]
            yield lambda broker_id=broker_id: Heartbeat(  # type: ignore[misc]
                broker_id, self._epoch(broker_id), self._world.image.end_offset
            )
        for broker_id in BROKERS:
            yield lambda broker_id=broker_id: ReportReplicas(  # type: ignore[misc]
                broker_id,
                self._epoch(broker_id),
                tuple(ReplicaEnd(topic_id, partition_id, 0, 0) for topic_id, partition_id, _ in self._partitions()),
            )
            yield lambda broker_id=broker_id: AlterPartition(  # type: ignore[misc]
                broker_id,
                self._epoch(broker_id),
                tuple(
                    PartitionIsrChange(
                        topic_id,
                        partition_id,
                        p.leader_epoch,
                        p.partition_epoch,
                        tuple(IsrMember(replica, self._epoch(replica)) for replica in p.replicas),
                    )
                    for topic_id, partition_id, p in self._partitions()
                    if p.leader == broker_id and set(p.isr) != set(p.replicas)
                ),
            )

    # ---- operators --------------------------------------------------------------------------------------------------

    def _create(self) -> CreateTopics:
        names = self._rng.sample(TOPICS, self._rng.choice((1, 1, 2)))
        return CreateTopics(tuple(self._new_topic(name) for name in names))

    def _new_topic(self, name: str) -> NewTopic:
        configs = (ConfigEntry("unclean.leader.election.enable", "true"),) if self._rng.random() < 0.3 else ()
        partitions_count = self._rng.choice((1, 2, 3, 9))
        if self._rng.random() < 0.3:
            replicas = tuple(self._rng.sample(BROKERS, self._rng.choice((1, 2, 3))))
            return NewTopic(name, assignments=(replicas,) * partitions_count, configs=configs)
        return NewTopic(name, partitions_count, self._rng.choice((1, 2, 3)), configs=configs)

    def _grow(self) -> CreatePartitions:
        return CreatePartitions((NewPartitions(self._rng.choice(TOPICS), self._rng.choice((2, 4, 10))),))

    def _delete(self) -> DeleteTopics:
        return DeleteTopics((self._rng.choice(TOPICS),))

    def _configure(self) -> AlterConfigs:
        value = self._rng.choice(("1", "2", "3", None))
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        config = AlterableConfig("min.insync.replicas", operation, value)
        topic = AlterConfigsResource(ResourceType.TOPIC, self._rng.choice(TOPICS), (config,))
        cluster = AlterConfigsResource(ResourceType.BROKER, "", (config,))
        return AlterConfigs(self._rng.choice(((topic,), (cluster,), (topic, cluster))))

    def _reassign(self) -> AlterPartitionReassignments:
        partitions = [
            (topic.name, partition_id)
            for topic in self._world.image.topics_by_name.values()
            for partition_id in topic.partitions
        ]
        chosen = self._rng.sample(partitions, min(len(partitions), self._rng.choice((1, 2, 6))))
        return AlterPartitionReassignments(
            tuple(Reassignment(*partition, self._target()) for partition in chosen),
            allow_replication_factor_change=self._rng.random() < 0.8,
        )

    def _target(self) -> tuple[int, ...] | None:
        if self._rng.random() < 0.2:
            return None
        return tuple(self._rng.sample(BROKERS, self._rng.choice((1, 2, 2, 3))))

    def _drain(self) -> DrainBroker:
        return DrainBroker(self._rng.choice(BROKERS), self._rng.random() < 0.6)

    def _elect(self) -> ElectLeaders:
        return ElectLeaders(self._rng.choice((ElectionType.PREFERRED, ElectionType.UNCLEAN)))

    def _unregister(self) -> UnregisterBroker:
        return UnregisterBroker(self._rng.choice(BROKERS))

    def _features(self) -> UpdateFeatures:
        return UpdateFeatures((FeatureUpdate(METADATA_VERSION, self._rng.choice((2, 3, 4, 5))),))

    def _controller(self) -> RegisterController:
        controller_id = self._rng.randrange(3)
        incarnation_id = UUID(int=self._rng.randrange(5))
        return RegisterController(controller_id, CLUSTER_ID, incarnation_id, "localhost", 9, SUPPORTED_FEATURES)

    # ---- what the image says ----------------------------------------------------------------------------------------

    def _known_broker(self) -> int:
        return self._rng.choice(sorted(self._world.image.brokers))

    def _epoch(self, broker_id: int) -> int:
        registration = self._world.image.brokers.get(broker_id)
        return -1 if registration is None else registration.broker_epoch

    def _partitions(self) -> list[tuple[UUID, int, PartitionRegistration]]:
        return [
            (topic.topic_id, partition_id, partition)
            for _, topic in sorted(self._world.image.topics_by_name.items())
            for partition_id, partition in sorted(topic.partitions.items())
        ]
