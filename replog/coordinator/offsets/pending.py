"""The offsets of open transactions: they are committed, or forgotten, with the marker of their producer.

Of a transactional offset and a plain one of the same partition the later one in the log counts, whenever the marker comes
(`OffsetMetadataManager.replayEndTransactionMarker` of Kafka).  So where a later one is committed, the pending one is
overtaken: its partition stays unstable until the marker, which then changes nothing there.  Kafka compares offsets in the log
instead, and has to keep that of each committed offset for it; here it is kept of partitions that have pending ones, and no step
goes through the producers of a partition, of which there may be thousands.
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
        packed: The offset as it is kept (`offset_commit_codec`).
    """

    offset: int
    producer_epoch: int
    packed: bytes


class Standing(NamedTuple):
    """What there is to know of a partition of a group that has pending offsets.

    Attributes:
        overtaken: Where overtaken ones end: those whose record is below it in the log are not committed any more.
        newest: Where the record of the newest one is.
    """

    overtaken: int
    newest: int


class PendingOffsets:
    """Offsets by producer, and the producers by group, topic and partition.

    Invariants:
        - a producer stands beside a partition exactly while it has a pending offset of it, and a partition has a standing
          exactly while a producer stands beside it.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._by_producer = TimelineNestedMap[int, GroupPartition, PendingOffset](registry)
        self._producers = TimelineNestedMap[GroupPartition, int, None](registry)
        self._standings = TimelineNestedMap[str, tuple[str, int], Standing](registry)

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of the groups that have pending offsets."""
        return self._standings.current.keys()

    def has_group(self, group_id: str) -> bool:
        """Whether a group has pending offsets."""
        return group_id in self._standings.current

    def partitions(self, group_id: str) -> Mapping[tuple[str, int], Standing]:
        """Returns the partitions of which a group has pending offsets."""
        return self._standings.current.get(group_id, {})

    def of_partition(self, group_id: str, partition: tuple[str, int]) -> list[bytes]:
        """Returns the pending offsets of a partition, without those that are overtaken."""
        standing = self.partitions(group_id).get(partition)
        if standing is None:
            return []
        key = (group_id, *partition)
        found = (self._by_producer.current[each][key] for each in self._producers.current[key])
        return [each.packed for each in found if each.offset >= standing.overtaken]

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
        standing = self.partitions(group_id).get((topic, number))
        overtaken = 0 if standing is None else standing.overtaken
        self._standings.put(group_id, (topic, number), Standing(overtaken, pending.offset))
        self._producers.put(key, producer_id, None)
        self._by_producer.put(producer_id, key, pending)

    def overtake(self, group_id: str, partition: tuple[str, int], offset: int) -> None:
        """Notes that an offset is committed whose record stands at `offset` of the log."""
        if not self._standings.current:
            return  # as a rule, and this is asked for each committed offset
        standing = self.partitions(group_id).get(partition)
        if standing is not None and standing.overtaken < (end := min(offset, standing.newest + 1)):
            self._standings.put(group_id, partition, Standing(end, standing.newest))

    def discard(self, group_id: str, partition: tuple[str, int]) -> None:
        """Forgets all pending offsets of a partition."""
        key = (group_id, *partition)
        for producer_id in self._producers.current.get(key, ()):
            self._by_producer.discard(producer_id, key)
        self._producers.remove(key)
        self._standings.discard(group_id, partition)

    def take(self, producer_id: int) -> dict[GroupPartition, PendingOffset]:
        """Takes out what a producer has pending; returns what of it is not overtaken."""
        found = self._by_producer.current.get(producer_id, {})
        self._by_producer.remove(producer_id)
        counting: dict[GroupPartition, PendingOffset] = {}
        for key, pending in found.items():
            group_id, topic, number = key
            if pending.offset >= self._standings.current[group_id][topic, number].overtaken:
                counting[key] = pending
            self._producers.discard(key, producer_id)
            if key not in self._producers.current:
                self._standings.discard(group_id, (topic, number))
        return counting
