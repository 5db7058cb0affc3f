"""The image as our clients see it: the steps from one to the next.

A step holds a bounded number of partitions, so that a client that asks for a hundred thousand of them does not keep the
event loop from everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from replog.controller.requests import ConfigEntry
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import CLIENT_LISTENER, ResourceType
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration
from replog.protocol.private import encoded
from replog.rpc.metadata_messages import (
    BrokerInfo,
    MetadataUpdate,
    PartitionInfo,
    TopicInfo,
)

KEPT_NEWS_MAX: Final = 4
"""Answers that are kept for other clients: the whole picture, and the last steps."""

STEP_PARTITIONS: Final = 250
"""Partitions, or topics without any, in one step: some milliseconds of encoding."""


class MetadataNews(NamedTuple):
    """The steps from one image to another, and what they follow from.

    Attributes:
        before_offset: The end of the image that they begin with; -1: they begin with nothing.
        end_offset: The end of the image that they lead to.
        controller_id, controller_epoch: The controller that they tell.
        listener: The listener whose addresses they tell.
        steps: The steps, made as they are taken.
    """

    before_offset: int
    end_offset: int
    controller_id: int
    controller_epoch: int
    listener: str
    steps: Iterator[MetadataUpdate]


class EncodedNews:
    """The last news that clients were told, encoded once for all: they wait for the same change.

    Why: an image of 200,000 partitions has ten megabytes.  A thousand clients that start together, or hear of a change,
    would each have a copy, and take a second of the loop's time.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int | str, ...], asyncio.Task[list[bytes]]] = {}

    async def encoded(self, news: MetadataNews) -> list[bytes]:
        """Returns the steps as MessagePack; other work has its turn between them."""
        key = news[:-1]
        task = self._kept.get(key)
        if task is None:
            task = self._kept[key] = asyncio.create_task(_encoded(news.steps))
            task.add_done_callback(lambda done: self._forget_failed(key, done))
            while len(self._kept) > KEPT_NEWS_MAX:
                del self._kept[next(iter(self._kept))]
        return await asyncio.shield(task)

    def _forget_failed(self, key: tuple[int | str, ...], done: asyncio.Task[list[bytes]]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._kept.get(key) is done:
            del self._kept[key]


async def _encoded(steps: Iterator[MetadataUpdate]) -> list[bytes]:
    parts: list[bytes] = []
    for step in steps:
        parts.append(encoded(step))
        await asyncio.sleep(0)
    return parts


def watch_steps(
    before: MetadataImage | None,
    after: MetadataImage,
    *,
    cluster_id: str,
    controller_id: int,
    controller_epoch: int,
    listener: str = CLIENT_LISTENER,
) -> Iterator[MetadataUpdate]:
    """Yields the steps that lead a client of a listener from `before` (None: it knows nothing) to `after`; at least one.

    The cost grows with the difference of the images, and is spread over the steps.
    """
    step = MetadataUpdate(
        cluster_id,
        after.end_offset,
        controller_id,
        controller_epoch,
        _brokers(after, listener),
        (),
        is_full=before is None,
    )
    if before is None:
        changes = _all_topics(after)
    else:
        delta = MetadataDelta.between(before, after)
        step = replace(step, deleted_topics=tuple(sorted(topic.name for topic in delta.removed_topics.values())))
        changes = _changed_topics(delta, after)
    held: list[TopicInfo] = []
    entries = 0
    for topic, partitions in changes:
        for piece in _pieces(partitions):
            if entries and entries + max(len(piece), 1) > STEP_PARTITIONS:
                yield replace(step, topics=tuple(held), is_last=False)
                step = replace(step, deleted_topics=(), is_full=False)
                held, entries = [], 0
            held.append(_topic_info(after, topic, piece))
            entries += max(len(piece), 1)
    yield replace(step, topics=tuple(held))


def _all_topics(image: MetadataImage) -> Iterator[tuple[TopicImage, Mapping[int, PartitionRegistration]]]:
    return ((topic, topic.partitions) for topic in image.topics_by_name.values())


def _changed_topics(
    delta: MetadataDelta, after: MetadataImage
) -> Iterator[tuple[TopicImage, Mapping[int, PartitionRegistration]]]:
    for topic_id, changed in delta.changed_topics.items():
        yield after.topics_by_id[topic_id], changed.partitions
    for resource_type, name in delta.changed_configs:
        topic = after.topics_by_name.get(name) if resource_type is ResourceType.TOPIC else None
        if topic is not None and topic.topic_id not in delta.changed_topics:
            yield topic, {}


def _pieces(partitions: Mapping[int, PartitionRegistration]) -> Iterator[Mapping[int, PartitionRegistration]]:
    if len(partitions) <= STEP_PARTITIONS:
        yield partitions
        return
    entries = sorted(partitions.items())
    for start in range(0, len(entries), STEP_PARTITIONS):
        yield dict(entries[start : start + STEP_PARTITIONS])


def _brokers(image: MetadataImage, listener: str) -> tuple[BrokerInfo, ...]:
    return tuple(_broker_info(image, broker, listener) for _, broker in sorted(image.brokers.items()))


def _broker_info(image: MetadataImage, broker: BrokerRegistration, listener: str) -> BrokerInfo:
    endpoint = broker.endpoint(listener)
    return BrokerInfo(
        broker_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        broker_epoch=broker.broker_epoch,
        fenced=not broker.is_active,
        rack=broker.rack,
        drained=broker.broker_id in image.drained_brokers,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        endpoints=() if endpoint is None else (endpoint,),
    )


def _topic_info(image: MetadataImage, topic: TopicImage, partitions: Mapping[int, PartitionRegistration]) -> TopicInfo:
    configs = image.configs.get((ResourceType.TOPIC, topic.name), {})
    return TopicInfo(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(_partition_info(number, partition) for number, partition in sorted(partitions.items())),
        configs=tuple(ConfigEntry(key, value) for key, value in sorted(configs.items())),
    )


def _partition_info(partition_id: int, partition: PartitionRegistration) -> PartitionInfo:
    return PartitionInfo(
        partition_id=partition_id,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        elr=partition.elr,
        last_known_elr=partition.last_known_elr,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )
