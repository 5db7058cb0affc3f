"""The offsets of all groups of a shard, as the log says them: those that are committed, and those of open transactions.

Each is kept packed (`offset_commit_codec`): a million of them are replayed when a coordinator moves, few are ever asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from replog.coordinator.group_records import OFFSET_COMMIT_VERSION, OFFSET_COMMIT_WITH_EXPIRY_VERSION
from replog.coordinator.messages import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replog.coordinator.offset_commit_codec import OffsetTimes, may_be_kept, pack, read_key, unpack, unpack_times
from replog.coordinator.offsets.pending import PendingOffset, PendingOffsets
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.transactions import EndMarker, TransactionWriter
from replog_timeline import SnapshotRegistry, TimelineNestedMap

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and partition."""

NEWEST: Final = 2**63 - 1
"""The offset in the log of a record that is just being replayed: that of every pending one is lower."""


class GroupOffsets(Mapping[TopicPartition, OffsetCommitValue]):
    """The offsets of a group, to be read only; each is unpacked anew when it is asked for."""

    __slots__ = ("_packed",)

    def __init__(self, packed: Mapping[TopicPartition, bytes]) -> None:
        self._packed = packed

    def copy(self) -> GroupOffsets:
        """Returns the offsets as they are now, whatever becomes of the group."""
        return GroupOffsets(dict(self._packed))

    def __getitem__(self, partition: TopicPartition) -> OffsetCommitValue:
        return unpack(self._packed[partition])

    def __contains__(self, partition: object) -> bool:
        return partition in self._packed

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def times(self, partition: TopicPartition) -> OffsetTimes:
        """Returns when an offset that there is was committed, and when it expires."""
        return unpack_times(self._packed[partition])


class GroupPartitions(Collection[TopicPartition]):
    """The partitions of which a group has offsets, as they are now: nothing is copied, for there may be a hundred thousand."""

    __slots__ = ("_committed", "_pending")

    def __init__(self, committed: Mapping[TopicPartition, object], pending: Mapping[TopicPartition, object]) -> None:
        self._committed = committed
        self._pending = pending

    def __contains__(self, partition: object) -> bool:
        return partition in self._committed or partition in self._pending

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from self._committed
        yield from (each for each in self._pending if each not in self._committed)

    def __len__(self) -> int:
        return len(self._committed) + sum(each not in self._committed for each in self._pending)


class OffsetState:
    """Offsets by group, topic and partition; a group that is here has an offset, which may be pending.

    Attributes:
        pending: The offsets of open transactions.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.pending = PendingOffsets(registry)
        self._packed = TimelineNestedMap[str, TopicPartition, bytes](registry)

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of the groups that have offsets."""
        committed = self._packed.current
        yield from committed
        yield from (each for each in self.pending.group_ids() if each not in committed)

    def has_group(self, group_id: str) -> bool:
        """Whether a group has offsets."""
        return group_id in self._packed.current or self.pending.has_group(group_id)

    def of_group(self, group_id: str) -> GroupOffsets:
        """Returns the committed offsets of a group."""
        return GroupOffsets(self._packed.current.get(group_id, {}))

    def partitions(self, group_id: str) -> GroupPartitions:
        """Returns the partitions of which a group has offsets, committed or pending."""
        return GroupPartitions(self._packed.current.get(group_id, {}), self.pending.partitions(group_id))

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay_encoded(self, key: bytes, value: bytes | None) -> bool:
        """Keeps an offset as it stands in the log, or forgets it.

        Returns:
            Whether it has; False: nothing has changed, since the record is of another shape, of another type, or damaged.
        """
        if value is not None and not may_be_kept(value):
            return False
        place = read_key(key)
        if place is None:
            return False
        if value is None:
            self._forget(*place)
        else:
            self._keep(*place, value)
        return True

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Keeps an offset, or forgets it; one that is not there is forgotten already."""
        if value is None:
            self._forget(key.group, (key.topic, key.partition))
        else:
            self._keep(key.group, (key.topic, key.partition), pack(value))

    def _keep(self, group_id: str, partition: TopicPartition, packed: bytes) -> None:
        self._packed.put(group_id, partition, packed)
        self.pending.overtake(group_id, partition, NEWEST)

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        self._packed.discard(group_id, partition)
        self.pending.discard(group_id, partition)

    def replay_legacy(self, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None) -> None:
        """Keeps or forgets an offset that a very old Kafka has written."""
        self.replay(_renewed_key(key), _renewed_value(value))

    def replay_pending_encoded(self, key: bytes, value: bytes | None, offset: int, writer: TransactionWriter) -> bool:
        """Keeps an offset of an open transaction as it stands in the log; one that is removed is so at once, as in Kafka.

        Returns:
            Whether it has; as of `replay_encoded`.
        """
        if value is None:
            return self.replay_encoded(key, value)
        place = read_key(key) if may_be_kept(value) else None
        if place is None:
            return False
        group_id, (topic, number) = place
        self.pending.put(
            writer.producer_id, (group_id, topic, number), PendingOffset(offset, writer.producer_epoch, value)
        )
        return True

    def replay_pending(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, writer: TransactionWriter
    ) -> None:
        """Keeps an offset of an open transaction; one that is removed is so at once, as in Kafka."""
        if value is None:
            self.replay(key, value)
            return
        place = (key.group, key.topic, key.partition)
        self.pending.put(writer.producer_id, place, PendingOffset(offset, writer.producer_epoch, pack(value)))

    def replay_pending_legacy(
        self,
        key: LegacyOffsetCommitKey,
        value: LegacyOffsetCommitValue | None,
        offset: int,
        writer: TransactionWriter,
    ) -> None:
        """Keeps an offset of an open transaction that a very old Kafka has written."""
        self.replay_pending(_renewed_key(key), _renewed_value(value), offset, writer)

    def replay_marker(self, marker: EndMarker) -> None:
        """Commits or forgets the pending offsets of a producer."""
        for (group_id, topic, number), pending in self.pending.take(marker.producer_id).items():
            if marker.is_commit:
                self._packed.put(group_id, (topic, number), pending.packed)
                self.pending.overtake(group_id, (topic, number), pending.offset)


def _renewed_key(key: LegacyOffsetCommitKey) -> OffsetCommitKey:
    return OffsetCommitKey(key.group, key.topic, key.partition)


def _renewed_value(value: LegacyOffsetCommitValue | None) -> OffsetCommitValue | None:
    if value is None:
        return None
    return OffsetCommitValue(value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)


def commit_record(group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> CoordinatorRecord:
    """Returns the record that keeps an offset, in the version that Kafka writes."""
    version = OFFSET_COMMIT_VERSION if value.expire_timestamp < 0 else OFFSET_COMMIT_WITH_EXPIRY_VERSION
    return CoordinatorRecord(OffsetCommitKey(group_id, *partition), value, version)


def removal_record(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    """Returns the record that forgets an offset."""
    return CoordinatorRecord(OffsetCommitKey(group_id, *partition), None)
