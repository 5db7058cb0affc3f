"""The topics of coordinators: which partition a name belongs to, and how a topic is made on first use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from replog.broker.quorum.metadata_publisher import MetadataPublisher
from replog.config.server import ServerConfig
from replog.controller.requests import ConfigEntry, CreateInternalTopic, CreateTopicsResponse, NewTopic
from replog.errors import CoordinatorNotAvailableError, ErrorCode, ReplogError
from replog.metadata.image import MetadataImage
from replog.metadata.records import NO_LEADER
from replog.metadata.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from replog.waiting.task_ends import end_tasks

WAIT_MS: Final = 5_000
"""How long whoever looks for a coordinator waits for the topic to be made; then it asks again."""

REPLICAS: Final = 3
"""Replicas of the topic where the cluster has as many brokers."""

_log = logging.getLogger(__name__)

Create = Callable[[CreateInternalTopic], Awaitable[CreateTopicsResponse]]
"""Hands a request over to the active controller, within `WAIT_MS`."""


def partition_of(name: str, partitions: int) -> int:
    """Returns the partition that a group or a transactional id belongs to: Kafka's clients and tools count on it.

    Args:
        name: The name of the group, or the transactional id.
        partitions: The number of partitions of the topic.
    """
    return abs(java_hash(name)) % 2**31 % partitions  # in Java the least number has no absolute value: 0


def java_hash(text: str) -> int:
    """Returns what Java's `String.hashCode` does."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (value >> 31 << 32)


class TopicShape(Struct, frozen=True):
    """What an internal topic is to be like.

    Attributes:
        replication_factor: The number of its replicas; None: `REPLICAS`, or as many as there are brokers.
        min_insync_replicas: How many in-sync replicas a change needs; None: what holds for the cluster.
    """

    topic: str
    num_partitions: int
    replication_factor: int | None
    segment_bytes: int
    min_insync_replicas: Callable[[int], int] | None = None


def offsets_shape(config: ServerConfig) -> TopicShape:
    """Returns what a node's configuration says of the topic of groups and their offsets."""
    return TopicShape(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        config.offsets_topic_segment_bytes,
    )


def transactions_shape(config: ServerConfig) -> TopicShape:
    """Returns what a node's configuration says of the topic of transactions."""
    wanted = config.transaction_state_log_min_isr
    return TopicShape(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_segment_bytes,
        lambda replicas: wanted or (2 if replicas > 2 else 1),
    )


class InternalTopic:
    """Makes the topic of one kind of coordinators, once for all who wait for it.

    Args:
        shape: What the topic is to be like.
        config: The configuration of the node.
        publisher: The metadata as this node knows them.
        create: What hands the request over to the controller.
    """

    def __init__(self, shape: TopicShape, config: ServerConfig, publisher: MetadataPublisher, create: Create) -> None:
        self._shape = shape
        self._config = config
        self._publisher = publisher
        self._create = create
        self._making: asyncio.Task[ReplogError | None] | None = None

    async def make(self) -> None:
        """Makes the topic unless it is there; returns when its partitions have leaders, or after `WAIT_MS`.

        Raises:
            CoordinatorNotAvailableError: It could not be made; the text says why.
        """
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._made(), name="make-internal-topic")
        error = await asyncio.shield(self._making)
        if error is not None:
            raise CoordinatorNotAvailableError(
                f"the topic {self._shape.topic} cannot be made now: {error.told}"
            ) from error

    async def stop(self) -> None:
        """Waits for nothing any more."""
        await end_tasks(self._making)

    async def _made(self) -> ReplogError | None:
        """Makes the topic; returns why it could not be."""
        request = CreateInternalTopic(self._wanted())
        try:
            (result,) = (await self._create(request)).topics
        except ReplogError as error:
            return error
        if result.error not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            _log.warning("%s cannot be made, so it has no coordinators: %s", self._shape.topic, result.message)
            return CoordinatorNotAvailableError(result.message)
        await self._wait_for_leaders()
        return None

    def _wanted(self) -> NewTopic:
        shape = self._shape
        factor = shape.replication_factor or min(REPLICAS, self._expected_brokers())
        configs = [ConfigEntry("cleanup.policy", "compact"), ConfigEntry("segment.bytes", str(shape.segment_bytes))]
        if shape.min_insync_replicas is not None:
            configs.append(ConfigEntry("min.insync.replicas", str(shape.min_insync_replicas(factor))))
        return NewTopic(shape.topic, shape.num_partitions, factor, (), tuple(configs))

    def _expected_brokers(self) -> int:
        """Returns how many brokers the cluster has, also while most of them are still on their way.

        Why the voters count: the first broker that is up in a new cluster must not make the topic with one replica.
        """
        voters = len(self._config.voter_ids) if self._config.is_controller else 1
        return max(voters, len(self._publisher.image.brokers))

    async def _wait_for_leaders(self) -> None:
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                async for _ in self._publisher.changes():
                    if _has_leaders(self._publisher.image, self._shape.topic):
                        return
        except TimeoutError:
            return  # whoever looks for a coordinator is told that there is none yet


def _has_leaders(image: MetadataImage, name: str) -> bool:
    topic = image.topics_by_name.get(name)
    return topic is not None and all(each.leader != NO_LEADER for each in topic.partitions.values())
