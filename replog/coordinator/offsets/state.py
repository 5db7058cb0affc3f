"""The offsets of all groups of a shard, as the log says them.

Each is kept packed (`offset_commit_codec`): a million of them are replayed when a coordinator moves, few are ever asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from replog.coordinator.group_records import OFFSET_COMMIT_VERSION, OFFSET_COMMIT_WITH_EXPIRY_VERSION
from replog.coordinator.messages import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from replog.coordinator.offset_commit_codec import OffsetTimes, may_be_kept, pack, read_key, unpack, unpack_times
from replog.coordinator.records import CoordinatorRecord
from replog_timeline import SnapshotRegistry, TimelineNestedMap

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and partition."""


class GroupOffsets(Mapping[TopicPartition, OffsetCommitValue]):
    """The offsets of a group, to be read only; each is unpacked anew when it is asked for."""

    __slots__ = ("_packed",)

    def __init__(self, packed: Mapping[TopicPartition, bytes]) -> None:
        self._packed = packed

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


class OffsetState:
    """Offsets by group, topic and partition; a group that is here has an offset."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._packed = TimelineNestedMap[str, TopicPartition, bytes](registry)

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of the groups that have offsets."""
        return self._packed.current.keys()

    def has_group(self, group_id: str) -> bool:
        """Whether a group has offsets."""
        return group_id in self._packed.current

    def of_group(self, group_id: str) -> GroupOffsets:
        """Returns the offsets of a group."""
        return GroupOffsets(self._packed.current.get(group_id, {}))

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
            self._packed.discard(*place)
        else:
            self._packed.put(*place, value)
        return True

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Keeps an offset, or forgets it; one that is not there is forgotten already."""
        if value is None:
            self._packed.discard(key.group, (key.topic, key.partition))
        else:
            self._packed.put(key.group, (key.topic, key.partition), pack(value))

    def replay_legacy(self, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None) -> None:
        """Keeps or forgets an offset that a very old Kafka has written."""
        known = None
        if value is not None:
            known = OffsetCommitValue(value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)
        self.replay(OffsetCommitKey(key.group, key.topic, key.partition), known)


def commit_record(group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> CoordinatorRecord:
    """Returns the record that keeps an offset, in the version that Kafka writes."""
    version = OFFSET_COMMIT_VERSION if value.expire_timestamp < 0 else OFFSET_COMMIT_WITH_EXPIRY_VERSION
    return CoordinatorRecord(OffsetCommitKey(group_id, *partition), value, version)


def removal_record(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    """Returns the record that forgets an offset."""
    return CoordinatorRecord(OffsetCommitKey(group_id, *partition), None)
