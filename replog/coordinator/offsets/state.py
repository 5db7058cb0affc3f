"""The offsets of all groups of a shard, as the log says them.

The value of a record is kept as it was read: a million of them are replayed when a coordinator moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from replog.coordinator.group_records import OFFSET_COMMIT_VERSION, OFFSET_COMMIT_WITH_EXPIRY_VERSION
from replog.coordinator.messages.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from replog.coordinator.messages.offset_commit import OffsetCommitKey, OffsetCommitValue
from replog.coordinator.records import Record
from replog_timeline import SnapshotRegistry, TimelineHashMap

TopicPartition: TypeAlias = tuple[str, int]
"""Topic and partition."""


class OffsetState:
    """Offsets by group, topic and partition.

    Invariants:
        - a group that is here has an offset.
    """

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._groups = TimelineHashMap[str, TimelineHashMap[TopicPartition, OffsetCommitValue]](registry)

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of the groups that have offsets."""
        return self._groups.keys()

    def of_group(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """Returns the offsets of a group, to be read only."""
        return self._groups.get(group_id, {})

    # ---- replay -----------------------------------------------------------------------------------------------------

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Keeps an offset, or forgets it; one that is not there is forgotten already."""
        group = self._groups.get(key.group)
        if value is not None:
            if group is None:
                group = self._groups[key.group] = TimelineHashMap(self._registry)
            group[key.topic, key.partition] = value
        elif group is not None and group.pop((key.topic, key.partition), None) is not None and not group:
            del self._groups[key.group]

    def replay_legacy(self, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None) -> None:
        """Keeps or forgets an offset that a very old Kafka has written."""
        known = None
        if value is not None:
            known = OffsetCommitValue(value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)
        self.replay(OffsetCommitKey(key.group, key.topic, key.partition), known)


def commit_record(group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> Record:
    """Returns the record that keeps an offset, in the version that Kafka writes."""
    version = OFFSET_COMMIT_VERSION if value.expire_timestamp < 0 else OFFSET_COMMIT_WITH_EXPIRY_VERSION
    return Record(OffsetCommitKey(group_id, *partition), value, version)


def removal_record(group_id: str, partition: TopicPartition) -> Record:
    """Returns the record that forgets an offset."""
    return Record(OffsetCommitKey(group_id, *partition), None)
