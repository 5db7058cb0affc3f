"""An image as the records that make it: the content of a snapshot of the metadata log (docs/KAFKA.md 5.8, 6.4).

Order, Kafka's: features first, so that a reader knows how to take what follows; then brokers, controllers and what
operators want of them; each topic with its partitions behind it; configurations; producer ids.  Within a kind by name or
number, so that equal images give equal records on every node.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from replog.errors import InvariantViolationError
from replog.metadata.image import MetadataImage, TopicImage
from replog.metadata.records import (
    ConfigRecord,
    DrainBrokerRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)

NO_BROKER: Final = -1
"""Stands where a producer ids record names who asked: an image does not know any more."""

_broker_values = attrgetter(*RegisterBrokerRecord.__struct_fields__)
_controller_values = attrgetter(*RegisterControllerRecord.__struct_fields__)
_partition_values = attrgetter(*PartitionRecord.__struct_fields__[2:])  # all but its place


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Returns the records that make `image` of an empty one, in order, lazily: the image never changes.

    Raises:
        InvariantViolationError: A transaction is open; its records are no state yet, and a snapshot would lose them.
    """
    if image.open_transaction is not None:
        raise InvariantViolationError(f"the image at offset {image.end_offset} ends inside a transaction")
    return _records(image)


def _records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for name, level in sorted(image.features.items()):
        yield FeatureLevelRecord(name, level)
    for broker_id in sorted(image.brokers):
        yield RegisterBrokerRecord(*_broker_values(image.brokers[broker_id]))
    for controller_id in sorted(image.controllers):
        yield RegisterControllerRecord(*_controller_values(image.controllers[controller_id]))
    for broker_id in sorted(image.drained_brokers):
        yield DrainBrokerRecord(broker_id, drained=True)
    for name in sorted(image.topics_by_name):
        yield from _topic_records(image.topics_by_name[name])
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield ConfigRecord(resource_type, resource_name, name, value)
    if image.next_producer_id:
        yield ProducerIdsRecord(NO_BROKER, NO_BROKER, image.next_producer_id)


def _topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic.name, topic.topic_id)
    for partition_id, partition in sorted(topic.partitions.items()):
        yield PartitionRecord(partition_id, topic.topic_id, *_partition_values(partition))
