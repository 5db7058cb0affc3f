"""Follows the metadata log on a broker: committed records become images, images are published.

The first image is published only when it holds this process's own registration: until then it shows a past in which
an earlier incarnation of this broker may lead partitions, and an old leader epoch is never resumed (architecture 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import UUID

from replog.controller.messages import CommittedRecords
from replog.metadata.delta import LocalChanges, LocalPartition, MetadataDelta
from replog.metadata.image import MetadataImage
from replog.rpc.messages import BrokerInfo, ClusterMetadata, ConfigEntry, PartitionInfo, TopicInfo

Subscriber = Callable[[MetadataImage, LocalChanges, tuple[int, ...]], None]


class MetadataPublisher:
    """This node's image of the cluster.

    Args:
        broker_id: this node.
        incarnation_id: of this process; the gate of publishing.
        subscriber: gets each image with what changed for this broker, in order.
    """

    def __init__(self, broker_id: int, incarnation_id: UUID, subscriber: Subscriber) -> None:
        self.image = MetadataImage()
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._subscriber = subscriber
        self._delta: MetadataDelta | None = None
        self._epoch = -1
        self._end_offset = 0
        self._is_open = False
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether images are published."""
        return self._is_open

    def on_committed(self, batch: CommittedRecords) -> None:
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        for record in batch.records:
            self._delta.replay(record)
        self._epoch = batch.epoch
        self._end_offset = batch.end_offset

    def on_caught_up(self) -> None:
        """Publishes what has been replayed since the last call."""
        delta = self._delta
        if delta is None:
            return
        self._delta = None
        self.image = delta.apply(self._end_offset, self._epoch)
        if self._is_open:
            self._subscriber(self.image, delta.local_changes(self._broker_id), tuple(delta.changed_brokers))
        elif self._knows_this_process():
            self._is_open = True
            self._subscriber(self.image, _everything(self.image, self._broker_id), tuple(self.image.brokers))
        self.notify()

    def notify(self) -> None:
        """Wakes the watchers: something they are told has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changes(self) -> AsyncIterator[None]:
        """Yields at once and then after every change; changes in between are merged into one."""
        while True:
            changed = self._changed
            yield
            await changed.wait()

    def _knows_this_process(self) -> bool:
        own = self.image.brokers.get(self._broker_id)
        return own is not None and own.incarnation_id == self._incarnation_id


def cluster_metadata(
    image: MetadataImage, *, cluster_id: str, topics: tuple[str, ...], controller_id: int, controller_epoch: int
) -> ClusterMetadata:
    """The image as clients see it; `topics` empty means all."""
    names = topics or tuple(sorted(image.topics_by_name))
    return ClusterMetadata(
        cluster_id=cluster_id,
        metadata_offset=image.end_offset,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        brokers=tuple(
            BrokerInfo(b.broker_id, b.host, b.port, b.broker_epoch, not b.is_active, b.rack)
            for _, b in sorted(image.brokers.items())
        ),
        topics=tuple(_topic_info(image, name) for name in names if name in image.topics_by_name),
    )


def _topic_info(image: MetadataImage, name: str) -> TopicInfo:
    from replog.metadata.records import ResourceType

    topic = image.topics_by_name[name]
    configs = image.configs.get((ResourceType.TOPIC, name), {})
    return TopicInfo(
        name=name,
        topic_id=topic.topic_id,
        partitions=tuple(
            PartitionInfo(
                partition_id=partition_id,
                leader=p.leader,
                leader_epoch=p.leader_epoch,
                partition_epoch=p.partition_epoch,
                replicas=p.replicas,
                isr=p.isr,
                elr=p.elr,
                last_known_elr=p.last_known_elr,
            )
            for partition_id, p in sorted(topic.partitions.items())
        ),
        configs=tuple(ConfigEntry(key, value) for key, value in sorted(configs.items())),
    )


def _everything(image: MetadataImage, broker_id: int) -> LocalChanges:
    """All partitions of this broker, as if they had just changed."""
    leaders: list[LocalPartition] = []
    followers: list[LocalPartition] = []
    for topic in image.topics_by_id.values():
        for partition_id, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                local = LocalPartition(topic.name, topic.topic_id, partition_id, partition)
                (leaders if partition.leader == broker_id else followers).append(local)
    return LocalChanges((), tuple(leaders), tuple(followers))
