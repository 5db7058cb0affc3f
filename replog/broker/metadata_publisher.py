"""Follows the metadata log on a broker: committed records become images, images are published.

The first image is published only when it holds this process's own registration: until then it shows a past in which
an earlier incarnation of this broker may lead partitions, and an old leader epoch is never resumed (architecture 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import UUID

from replog.broker.committed_log import LoadedSnapshot
from replog.controller.messages import CommittedRecords
from replog.metadata.delta import LocalChanges, MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.loader import MetadataLoader
from replog.rpc.messages import BrokerInfo, ClusterMetadata, ConfigEntry, PartitionInfo, TopicInfo

Subscriber = Callable[[MetadataImage, LocalChanges, tuple[int, ...]], None]


class MetadataPublisher:
    """This node's image of the cluster.

    Args:
        broker_id: this node.
        incarnation_id: of this process; the gate of publishing.
        subscriber: gets each image with what changed for this broker, in order.
        on_failure: told when the subscriber fails; the node stops.
    """

    def __init__(
        self,
        broker_id: int,
        incarnation_id: UUID,
        subscriber: Subscriber,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._subscriber = subscriber
        self._loader = MetadataLoader(
            [self._tell_subscriber], self._knows_this_process, lambda _, error: on_failure(error)
        )
        self._changed = asyncio.Event()

    @property
    def image(self) -> MetadataImage:
        """The newest image, published or not."""
        return self._loader.image

    @property
    def is_open(self) -> bool:
        """Whether images are published."""
        return self._loader.is_open

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Everything before is replaced."""
        end_offset, epoch = snapshot.snapshot_id
        self._loader.load_snapshot(snapshot.replay(), end_offset=end_offset, epoch=epoch)

    def on_committed(self, batch: CommittedRecords) -> None:
        """Takes in a batch; nobody is told yet."""
        self._loader.load_batch(batch.records, end_offset=batch.end_offset, epoch=batch.epoch)

    def on_caught_up(self) -> None:
        """Publishes what has been taken in since the last call."""
        self._loader.flush()
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

    def _tell_subscriber(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._subscriber(image, delta.local_changes(self._broker_id), tuple(delta.changed_brokers))

    def _knows_this_process(self, image: MetadataImage) -> bool:
        own = image.brokers.get(self._broker_id)
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
            BrokerInfo(
                broker_id=b.broker_id,
                host=b.host,
                port=b.port,
                broker_epoch=b.broker_epoch,
                fenced=not b.is_active,
                rack=b.rack,
                drained=b.broker_id in image.drained_brokers,
                in_controlled_shutdown=b.in_controlled_shutdown,
            )
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
                adding_replicas=p.adding_replicas,
                removing_replicas=p.removing_replicas,
            )
            for partition_id, p in sorted(topic.partitions.items())
        ),
        configs=tuple(ConfigEntry(key, value) for key, value in sorted(configs.items())),
    )
