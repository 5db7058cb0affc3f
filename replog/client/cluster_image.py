"""One cluster metadata, indexed for lookups; immutable, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from replog.client.addresses import Leader, address_of
from replog.rpc.messages import ClusterMetadata, PartitionInfo, TopicInfo


class ClusterImage:
    """What the newest metadata says, by name.  Pure."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.brokers = {broker.broker_id: broker for broker in metadata.brokers}
        self.topics = {topic.name: topic for topic in metadata.topics}
        self._partitions = {
            (topic.name, partition.partition_id): partition
            for topic in metadata.topics
            for partition in topic.partitions
        }

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        return self._partitions.get((topic, partition))

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Who leads the partition; None while nobody does, or the partition is not known."""
        info = self._partitions.get((topic, partition))
        broker = self.brokers.get(info.leader) if info is not None else None
        if info is None or broker is None:
            return None
        return Leader(broker.broker_id, address_of(broker), info.leader_epoch, self.topics[topic].topic_id)

    def addresses(self) -> Iterable[str]:
        """Where to ask, most promising first: live brokers, then fenced ones (they may have come back since)."""
        yield from (address_of(broker) for broker in self.metadata.brokers if not broker.fenced)
        yield from (address_of(broker) for broker in self.metadata.brokers if broker.fenced)


def is_in_sync(topic: TopicInfo) -> bool:
    """Every partition has a leader and all its replicas in the ISR."""
    return all(p.leader >= 0 and set(p.isr) == set(p.replicas) for p in topic.partitions)


def has_leaders(topic: TopicInfo) -> bool:
    """Every partition has a leader."""
    return all(partition.leader >= 0 for partition in topic.partitions)


def is_ready(metadata: ClusterMetadata, brokers: int) -> bool:
    """At least `brokers` brokers are registered and unfenced, and there is a controller."""
    return metadata.controller_id >= 0 and sum(not broker.fenced for broker in metadata.brokers) >= brokers
