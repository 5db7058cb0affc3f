"""The offsets of open transactions: they are committed, or forgotten, with the marker of their producer.

Of a transactional offset and a plain one of the same partition the later one in the log counts, whenever the marker comes
(`OffsetMetadataManager.replayEndTransactionMarker` of Kafka).  So where a later one is committed, the pending one is
overtaken: its partition stays unstable until the marker, which then changes nothing there.  Kafka compares offsets in the log
instead, and has to keep that of each committed offset for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from replog_timeline import SnapshotRegistry, TimelineNestedMap

GroupPartition: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""


class PendingOffset(NamedTuple):
    """A pending offset.

    Attributes:
        offset: The offset of its record in the log.
        producer_epoch: The epoch with which the producer has written it.
        packed: The offset as it is kept (`offset_commit_codec`); None: a later one is committed.
    """

    offset: int
    producer_epoch: int
    packed: bytes | None


class PendingOffsets:
    """Offsets by producer, and the producers by group, topic and partition.

    Invariants:
        - a producer stands beside a partition exactly while it has a pending offset of it;
        - one that is not overtaken is later in the log than what is committed.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._by_producer = TimelineNestedMap[int, GroupPartition, PendingOffset](registry)
        self._producers = TimelineNestedMap[str, tuple[str, int], tuple[int, ...]](registry)

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of the groups that have pending offsets."""
        return self._producers.current.keys()

    def has_group(self, group_id: str) -> bool:
        """Whether a group has pending offsets."""
        return group_id in self._producers.current

    def partitions(self, group_id: str) -> Mapping[tuple[str, int], tuple[int, ...]]:
        """Returns the partitions of which a group has pending offsets, with their producers."""
        return self._producers.current.get(group_id, {})

    def of_partition(self, group_id: str, partition: tuple[str, int]) -> list[bytes]:
        """Returns the pending offsets of a partition, without those that are overtaken."""
        key = (group_id, *partition)
        found = (self._by_producer.current[each][key].packed for each in self.partitions(group_id).get(partition, ()))
        return [each for each in found if each is not None]

    def count(self, producer_id: int) -> int:
        """Returns the number of offsets that a producer has pending."""
        return len(self._by_producer.current.get(producer_id, {}))

    def open_epoch(self, producer_id: int) -> int | None:
        """Returns the epoch of the open transaction of a producer; None: it has nothing pending."""
        pending = self._by_producer.current.get(producer_id)
        return None if pending is None else next(reversed(pending.values())).producer_epoch

    # ---- replay -----------------------------------------------------------------------------------------------------

    def put(self, producer_id: int, key: GroupPartition, pending: PendingOffset) -> None:
        """Keeps a pending offset in place of an earlier one of the same producer."""
        group_id, topic, number = key
        producers = self.partitions(group_id).get((topic, number), ())
        if producer_id not in producers:
            self._producers.put(group_id, (topic, number), (*producers, producer_id))
        self._by_producer.put(producer_id, key, pending)

    def overtake(self, group_id: str, partition: tuple[str, int], offset: int) -> None:
        """Notes that an offset is committed whose record stands at `offset` of the log."""
        if not self._producers.current:
            return  # as a rule, and this is asked for each committed offset
        key = (group_id, *partition)
        for producer_id in self.partitions(group_id).get(partition, ()):
            pending = self._by_producer.current[producer_id][key]
            if pending.offset < offset and pending.packed is not None:
                self._by_producer.put(producer_id, key, pending._replace(packed=None))

    def discard(self, group_id: str, partition: tuple[str, int]) -> None:
        """Forgets all pending offsets of a partition."""
        for producer_id in self.partitions(group_id).get(partition, ()):
            self._by_producer.discard(producer_id, (group_id, *partition))
        self._producers.discard(group_id, partition)

    def take(self, producer_id: int) -> dict[GroupPartition, PendingOffset]:
        """Takes out and returns what a producer has pending."""
        found = dict(self._by_producer.current.get(producer_id, {}))
        for key in found:
            group_id, topic, number = key
            self._by_producer.discard(producer_id, key)
            left = tuple(each for each in self.partitions(group_id)[topic, number] if each != producer_id)
            if left:
                self._producers.put(group_id, (topic, number), left)
            else:
                self._producers.discard(group_id, (topic, number))
        return found
