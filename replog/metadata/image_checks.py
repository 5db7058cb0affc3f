"""What must hold of every image, and of every step from one to the next (docs/KAFKA.md 4.10).

Pure: for the offline check of a metadata log, and for tests that follow a cluster.  Each problem is one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from replog.metadata.delta import MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import NO_LEADER
from replog.metadata.registrations import PartitionRegistration

_TABLES: Final = (
    *("brokers", "controllers", "topics_by_id", "topics_by_name", "configs", "features", "acls", "quotas"),
    *("scram_credentials", "delegation_tokens"),
)
_VALUES: Final = ("drained_brokers", "next_producer_id", "open_transaction")


def partition_problems(partition: PartitionRegistration) -> Iterator[str]:
    """Yields what is wrong with one partition."""
    replicas = set(partition.replicas)
    if not replicas:
        yield "it has no replicas"
    if len(replicas) != len(partition.replicas):
        yield f"a broker is twice in its replicas {list(partition.replicas)}"
    for name in ("isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas"):
        members: tuple[int, ...] = getattr(partition, name)
        if outside := sorted(set(members) - replicas):
            yield f"{name} has {outside}, which are not among the replicas {list(partition.replicas)}"
        if len(set(members)) != len(members):
            yield f"a broker is twice in its {name} {list(members)}"
    if both := sorted(set(partition.isr) & set(partition.elr)):
        yield f"{both} are in the ISR and in the ELR"
    if partition.leader != NO_LEADER and partition.leader not in partition.isr:
        yield f"its leader {partition.leader} is not in the ISR {list(partition.isr)}"
    if partition.leader_epoch < 0 or partition.partition_epoch < 0:
        yield f"an epoch is negative: leader epoch {partition.leader_epoch}, partition epoch {partition.partition_epoch}"


def step_problems(delta: MetadataDelta, after: MetadataImage) -> Iterator[str]:
    """Yields what is wrong with the changes of `delta`, of which `after` is the result.  Costs what changed."""
    before = delta.image
    for (topic_id, partition_id), partition in delta.changed_partitions().items():
        where = f"partition {_topic_name(after, topic_id)}-{partition_id}"
        yield from (f"{where}: {problem}" for problem in partition_problems(partition))
        if (old := before.partition(topic_id, partition_id)) is not None:
            yield from (f"{where}: {problem}" for problem in _epoch_problems(old, partition))
    for topic_id in delta.changed_topics:
        topic = after.topics_by_id[topic_id]
        if sorted(topic.partitions) != list(range(len(topic.partitions))):
            yield f'topic "{topic.name}" has partitions {_shortened(sorted(topic.partitions))}, not 0 to {len(topic.partitions) - 1}'
        if after.topics_by_name.get(topic.name) is not topic:
            yield f'topic "{topic.name}" is not the one found by its name'
    for broker_id, broker in delta.changed_brokers.items():
        old_broker = before.brokers.get(broker_id)
        if broker is not None and old_broker is not None and broker.broker_epoch < old_broker.broker_epoch:
            yield f"broker {broker_id} goes back from epoch {old_broker.broker_epoch} to {broker.broker_epoch}"


def image_problems(image: MetadataImage) -> Iterator[str]:
    """Yields what is wrong with an image as a whole.  Costs the size of the image."""
    yield from step_problems(MetadataDelta.between(MetadataImage(), image), image)
    if len(image.topics_by_id) != len(image.topics_by_name):
        yield f"{len(image.topics_by_id)} topics by id, {len(image.topics_by_name)} by name"


def image_differences(one: MetadataImage, other: MetadataImage) -> Iterator[str]:
    """Yields where two images, which should be the same, are not; does not look at offset and epoch."""
    for name in _VALUES:
        if getattr(one, name) != getattr(other, name):
            yield f"{name}: {getattr(one, name)} and {getattr(other, name)}"
    for name in _TABLES:
        mine: Mapping[Any, Any] = getattr(one, name)
        theirs: Mapping[Any, Any] = getattr(other, name)
        for key in sorted({*mine, *theirs}):
            if mine.get(key) != theirs.get(key):
                yield f"{name}[{key}]: {mine.get(key)} and {theirs.get(key)}"


def _epoch_problems(old: PartitionRegistration, new: PartitionRegistration) -> Iterator[str]:
    if new.partition_epoch <= old.partition_epoch:
        yield f"its partition epoch does not rise: {old.partition_epoch}, then {new.partition_epoch}"
    if new.leader_epoch < old.leader_epoch:
        yield f"its leader epoch goes back from {old.leader_epoch} to {new.leader_epoch}"
    if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
        yield f"its leader changes from {old.leader} to {new.leader} within leader epoch {new.leader_epoch}"


def _topic_name(image: MetadataImage, topic_id: UUID) -> str:
    topic = image.topics_by_id.get(topic_id)
    return str(topic_id) if topic is None else topic.name


def _shortened(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"[{shown}, ...]" if len(numbers) > 10 else f"[{shown}]"
