"""The image as our clients see it: the steps from one to the next.

A step holds a bounded number of partitions, so that a client that asks for a hundred thousand of them does not keep the
event loop from everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from replog.controller.requests import ConfigEntry
from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import ResourceType
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration
from replog.rpc.metadata_messages import (
    BrokerInfo,
    MetadataUpdate,
    PartitionInfo,
    TopicInfo,
)

STEP_PARTITIONS: Final = 250
"""Partitions, or topics without any, in one step: some milliseconds of encoding."""


def watch_steps(
    before: MetadataImage | None,
    after: MetadataImage,
    *,
    cluster_id: str,
    controller_id: int,
    controller_epoch: int,
) -> Iterator[MetadataUpdate]:
    """Yields the steps that lead a client from `before` (None: it knows nothing) to `after`; at least one.

    The cost grows with the difference of the images, and is spread over the steps.
    """
    step = MetadataUpdate(
        cluster_id, after.end_offset, controller_id, controller_epoch, _brokers(after), (), is_full=before is None
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


def _brokers(image: MetadataImage) -> tuple[BrokerInfo, ...]:
    return tuple(_broker_info(image, broker) for _, broker in sorted(image.brokers.items()))


def _broker_info(image: MetadataImage, broker: BrokerRegistration) -> BrokerInfo:
    return BrokerInfo(
        broker_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        broker_epoch=broker.broker_epoch,
        fenced=not broker.is_active,
        rack=broker.rack,
        drained=broker.broker_id in image.drained_brokers,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        endpoints=broker.endpoints,
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
