"""What a client knows of the cluster, indexed for look-ups; immutable, replaced as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from replog.client.cluster.addresses import LeaderAddress, address_of
from replog.client.protocol.seam import Connection
from replog.rpc.metadata_messages import (
    BrokerInfo,
    ClusterMetadata,
    MetadataUpdate,
    PartitionInfo,
    TopicInfo,
    WatchRequest,
)
from replog.rpc.transport import ConnectionLostError

if TYPE_CHECKING:
    from replog.client.protocol.questions.cluster import ClusterDetails, Move


def _no_topics() -> Mapping[str, TopicInfo]:
    return {}


class ClusterImage(Struct, frozen=True, dict=True):
    """The newest metadata; `ClusterImage()` knows nothing.  Pure.

    Attributes:
        cluster_id: The id of the cluster; "" while nothing is known.
        metadata_offset: The offset that the metadata is up to; -1 while nothing is known.  Where brokers tell none, the number of
            answers with news: it means nothing to another client (`shared_offset`).
        controller_id: The broker id of the active controller; -1 for unknown.
        topics: Topics by name, each with its partitions in the order of their ids.
    """

    cluster_id: str = ""
    metadata_offset: int = -1
    controller_id: int = -1
    controller_epoch: int = -1
    broker_infos: tuple[BrokerInfo, ...] = ()
    topics: Mapping[str, TopicInfo] = field(default_factory=_no_topics)

    @cached_property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        return {broker.broker_id: broker for broker in self.broker_infos}

    @property
    def is_counted(self) -> bool:
        """Whether brokers of Apache Kafka have told this: without offsets, and with the brokers that are not fenced only."""
        return are_kafkas(self.broker_infos)

    @property
    def or_hidden(self) -> str:
        """What else the absence of a topic may mean, for the end of a sentence about it; "": nothing."""
        return ", or this client may not DESCRIBE it" if self.is_counted else ""

    @property
    def shared_offset(self) -> int:
        """The offset, for comparison with that of other clients; -1 where brokers tell none, or nothing is known."""
        return -1 if self.is_counted else self.metadata_offset

    @cached_property
    def metadata(self) -> ClusterMetadata:
        """All of it as one value, topics in the order of their names."""
        return ClusterMetadata(
            self.cluster_id,
            self.shared_offset,
            self.controller_id,
            self.controller_epoch,
            self.broker_infos,
            tuple(topic for _, topic in sorted(self.topics.items())),
        )

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        found = info.partitions[partition]
        return found if found.partition_id == partition else None

    def nearest(self, topic: str, partition: int, rack: str) -> LeaderAddress | None:
        """Returns whom a consumer in `rack` reads from: the leader if it is there, else an in-sync replica that is.

        The leader where none of them is there; None while nobody leads, or the partition or its leader is not known.
        """
        leader, info = self.leader(topic, partition), self.partition(topic, partition)
        if leader is None or info is None or self.brokers[leader.broker_id].rack == rack:
            return leader
        near = [
            broker
            for broker_id in info.isr
            if (broker := self.brokers.get(broker_id)) is not None and broker.rack == rack and not broker.fenced
        ]
        if not near:
            return leader
        chosen = near[partition % len(near)]  # spread over the rack
        return replace(leader, broker_id=chosen.broker_id, address=address_of(chosen))

    def leader(self, topic: str, partition: int) -> LeaderAddress | None:
        """Returns who leads the partition; None while nobody does, or the partition or its leader is not known."""
        info = self.partition(topic, partition)
        broker = self.brokers.get(info.leader) if info is not None else None
        if info is None or broker is None:
            return None
        return LeaderAddress(broker.broker_id, address_of(broker), info.leader_epoch, self.topics[topic].topic_id)

    def why_leaderless(self, topic: str, partition: int) -> str:
        """Tells what is known of a partition that nobody leads, for people: which brokers it waits for."""
        info = self.partition(topic, partition)
        if info is None:
            return f"{topic}-{partition} is not known"
        waits_for = info.isr or info.elr or info.last_known_elr or info.replicas
        return f"{topic}-{partition} has no leader; it waits for one of the brokers {','.join(map(str, waits_for))}"

    def addresses(self) -> Iterable[str]:
        """Yields where to ask, most promising first: live brokers, then fenced ones (they may have come back since)."""
        yield from (address_of(broker) for broker in self.broker_infos if not broker.fenced)
        yield from (address_of(broker) for broker in self.broker_infos if broker.fenced)

    def after(self, steps: Sequence[MetadataUpdate]) -> ClusterImage:
        """Returns the image that the steps of an update lead to; this one if the sender is behind or nothing changed.

        Args:
            steps: The steps of a watch since this image, up to the one with `is_last`.
        """
        last = steps[-1]
        is_same_count = (
            are_kafkas(last.brokers) is self.is_counted
        )  # it is another where rights were given, or taken away
        if last.cluster_id == self.cluster_id and is_same_count and last.metadata_offset < self.metadata_offset:
            return self
        topics = self.topics
        if any(map(_changes_topics, steps)):
            topics = dict(topics)
            for step in steps:
                _take_in(step, topics)
        found = ClusterImage(
            last.cluster_id, last.metadata_offset, last.controller_id, last.controller_epoch, last.brokers, topics
        )
        return self if found == self else found


def _changes_topics(step: MetadataUpdate) -> bool:
    return step.is_full or bool(step.topics or step.deleted_topics)


def _take_in(step: MetadataUpdate, topics: dict[str, TopicInfo]) -> None:
    if step.is_full:
        topics.clear()
    for name in step.deleted_topics:
        topics.pop(name, None)
    for topic in step.topics:
        topics[topic.name] = _merged(topics.get(topic.name), topic)


def _merged(known: TopicInfo | None, update: TopicInfo) -> TopicInfo:
    if known is None or known.topic_id != update.topic_id:
        return update
    if not update.partitions:
        return replace(update, partitions=known.partitions)
    partitions = {partition.partition_id: partition for partition in (*known.partitions, *update.partitions)}
    return replace(update, partitions=tuple(partition for _, partition in sorted(partitions.items())))


def are_kafkas(brokers: Collection[BrokerInfo]) -> bool:
    """Whether these are brokers of Apache Kafka, as the metadata tell: they have no broker epochs there."""
    return bool(brokers) and all(broker.broker_epoch < 0 for broker in brokers)


def with_details(metadata: ClusterMetadata, details: ClusterDetails) -> ClusterMetadata:
    """Returns the metadata of Apache Kafka with what they leave out."""
    brokers = {broker.broker_id: broker for broker in (*details.fenced, *metadata.brokers)}
    moves = {(one.topic, one.partition_id): one for one in details.moves}
    moving = {one.topic for one in details.moves}
    return replace(
        metadata,
        controller_id=details.controller_id,
        brokers=tuple(broker for _, broker in sorted(brokers.items())),
        topics=tuple(_with_moves(topic, moves) if topic.name in moving else topic for topic in metadata.topics),
    )


def _with_moves(topic: TopicInfo, moves: Mapping[tuple[str, int], Move]) -> TopicInfo:
    return replace(
        topic,
        partitions=tuple(
            replace(
                one,
                replicas=tuple(dict.fromkeys((*one.replicas, *move.adding_replicas))),  # the metadata may be older
                adding_replicas=move.adding_replicas,
                removing_replicas=move.removing_replicas,
            )
            if (move := moves.get((topic.name, one.partition_id))) is not None
            else one
            for one in topic.partitions
        ),
    )


def is_in_sync(topic: TopicInfo) -> bool:
    """Whether every partition has a leader and all its replicas in the ISR."""
    return all(p.leader >= 0 and set(p.isr) == set(p.replicas) for p in topic.partitions)


def has_leaders(topic: TopicInfo) -> bool:
    """Whether every partition has a leader."""
    return all(partition.leader >= 0 for partition in topic.partitions)


def is_ready(image: ClusterImage, brokers: int) -> bool:
    """Whether at least `brokers` brokers are registered and unfenced, and there is a controller."""
    return image.controller_id >= 0 and sum(not broker.fenced for broker in image.broker_infos) >= brokers


class WatchedImage(Struct, frozen=True):
    """What one broker's metadata led to: `image` may be newer than what that broker knows.

    Attributes:
        knows_controller: Whether that broker knows of an active controller.
    """

    image: ClusterImage
    knows_controller: bool


async def watched_images(
    connection: Connection, known: ClusterImage, limit_ms: int, *, follow: bool = True
) -> AsyncGenerator[WatchedImage]:
    """Yields the images of a watch on one broker, one for each whole update.

    Args:
        connection: The connection to that broker.
        known: The image to start from.
        limit_ms: The longest silence, in ms, up to the end of the first image, and while the broker knows of no
            controller; otherwise silence means that nothing changes.
        follow: Whether to go on after the first image.

    Raises:
        ConnectionLostError: Nothing came within the limit, or the connection was lost.
    """
    updates = connection.watch_metadata(WatchRequest(known.shared_offset, follow))
    problem = "sends no metadata"
    try:
        steps: list[MetadataUpdate] = []
        limit_s: float | None = limit_ms / 1000
        while True:
            async with asyncio.timeout(limit_s):
                steps.append(await anext(updates))
            if steps[-1].is_last:
                known, knows_controller = known.after(steps), steps[-1].controller_id >= 0
                yield WatchedImage(known, knows_controller)
                steps, limit_s = [], None if knows_controller else limit_ms / 1000
                problem = "ended the metadata watch" if knows_controller else "knows of no controller"
    except (TimeoutError, StopAsyncIteration):
        raise ConnectionLostError(f"{connection.address} {problem}") from None
    finally:
        await _close_iterator(updates)


async def _close_iterator(updates: AsyncIterator[MetadataUpdate]) -> None:
    close = getattr(updates, "aclose", None)
    if close is not None:
        await close()
