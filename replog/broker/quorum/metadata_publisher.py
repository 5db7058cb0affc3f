"""Follows the metadata log on a broker: committed records become images, images are published.

The first image is published only when it holds this process's own registration: until then it shows a past in which
an earlier incarnation of this broker may lead partitions, and an old leader epoch is never resumed (docs/KAFKA.md 6.5).
Nor is anybody answered from an older one: the log is read from its start, so it lacks topics that exist.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

from replog.broker.quorum.committed_log import LoadedSnapshot
from replog.controller.messages import CommittedRecords
from replog.errors import BrokerNotAvailableError
from replog.metadata.delta import LocalChanges, MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.loader import MetadataLoader
from replog.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord

Subscriber = Callable[[MetadataImage, LocalChanges, tuple[int, ...]], None]

PUBLISHED_TOGETHER: Final = 2_000
"""Records, about, that become one image."""

KEPT_IMAGES: Final = 256
"""Past images that a client's watch can go on from.  They share what did not change, so they cost what changed."""


class MetadataPublisher:
    """This node's image of the cluster.

    Args:
        broker_id: The id of this node.
        incarnation_id: The incarnation of this process; nothing is published before the image holds its registration.
        known_end_offset: The end of the metadata that the disk held when the process started; 0: none.
        subscriber: The function that gets each image with what changed for this broker, in order.
        on_failure: The function that is told when the subscriber fails; the node stops then.
        on_image: The function that gets each image that others may be told of; None: nobody does.
    """

    def __init__(
        self,
        broker_id: int,
        incarnation_id: UUID,
        known_end_offset: int,
        subscriber: Subscriber,
        on_failure: Callable[[BaseException], None],
        on_image: Callable[[MetadataImage], None] | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._known_end_offset = known_end_offset
        self._subscriber = subscriber
        self._on_image = on_image
        self._loader = MetadataLoader(
            [self._tell_subscriber], self._knows_this_process, lambda _, error: on_failure(error)
        )
        self._changed = asyncio.Event()
        self._unpublished_count = 0
        self._removed_topics: set[UUID] = set()  # before the first image that is published
        self._known_topics: set[UUID] = set()  # when the process started
        self._past = deque[MetadataImage](maxlen=KEPT_IMAGES)

    @property
    def image(self) -> MetadataImage:
        """The newest image, published or not."""
        return self._loader.image

    def image_or_raise(self) -> MetadataImage:
        """Returns the newest image, for what others are told of the cluster.

        Raises:
            BrokerNotAvailableError: None is known yet that is newer than the start of this process.
        """
        if not self._is_known:
            raise BrokerNotAvailableError(
                f"node {self._broker_id} has not read the metadata of the cluster since its start: it waits for a majority of "
                "the controllers. Start those that are down, or ask another node"
            )
        return self.image

    @property
    def is_open(self) -> bool:
        """Whether images are published."""
        return self._loader.is_open

    @property
    def _is_known(self) -> bool:
        """Whether the newest image is newer than the start of this process."""
        return self.is_open or self._knows_this_controller(self.image)

    def has_seen_removal(self, topic_id: UUID) -> bool:
        """Whether the log that was read before the first image tells that a topic, if it is not in that image, was deleted."""
        return topic_id in self._removed_topics

    def is_later(self, topic_id: UUID) -> bool:
        """Whether a topic was created after the last process ended: none of the folders that this one found can be its.

        False, too, where that process left no metadata.  What it knew above a snapshot that the leader sent was never read.
        """
        return self._known_end_offset > 0 and topic_id not in self._known_topics

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replaces everything before by a snapshot."""
        end_offset, epoch = snapshot.snapshot_id
        records = snapshot.replay()
        if end_offset <= self._known_end_offset:
            records = self._noting_topics(records)
        self._loader.load_snapshot(records, end_offset=end_offset, epoch=epoch)

    def on_committed(self, batch: CommittedRecords) -> None:
        """Takes in a batch; it is published with those that follow at once, but a long row of them is not one step."""
        if not self.is_open:
            self._removed_topics.update(
                record.topic_id for record in batch.records if isinstance(record, RemoveTopicRecord)
            )
        is_known = batch.end_offset <= self._known_end_offset
        records = self._noting_topics(batch.records) if is_known else batch.records
        self._loader.load_batch(records, end_offset=batch.end_offset, epoch=batch.epoch)
        self._unpublished_count += len(batch.records)
        if self._unpublished_count >= PUBLISHED_TOGETHER:
            self.on_caught_up()

    def on_caught_up(self) -> None:
        """Publishes what has been taken in since the last call."""
        self._unpublished_count = 0
        self._loader.flush()
        self._past.append(self.image)
        if self._on_image is not None and self._is_known:
            self._on_image(self.image)
        self.notify()

    def notify(self) -> None:
        """Wakes the watchers: something they are told has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def image_at(self, offset: int) -> MetadataImage | None:
        """Returns the image that ends at `offset`; None where none is kept that ends there."""
        return next((image for image in reversed(self._past) if image.end_offset == offset), None)

    async def changes(self) -> AsyncGenerator[None]:
        """Yields at once and then after every change; changes in between are merged into one."""
        while True:
            changed = self._changed
            yield
            await changed.wait()

    def _noting_topics(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
        for record in records:
            if isinstance(record, TopicRecord):
                self._known_topics.add(record.topic_id)
            yield record

    def _tell_subscriber(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._subscriber(image, delta.local_changes(self._broker_id), tuple(delta.changed_brokers))

    def _knows_this_process(self, image: MetadataImage) -> bool:
        own = image.brokers.get(self._broker_id)
        return own is not None and own.incarnation_id == self._incarnation_id

    def _knows_this_controller(self, image: MetadataImage) -> bool:
        own = image.controllers.get(self._broker_id)
        return own is not None and own.incarnation_id == self._incarnation_id
