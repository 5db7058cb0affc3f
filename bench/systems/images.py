"""Pictures of the metadata: replog's image, and plain dicts that are copied whenever something in them changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.model import System
from replog.metadata import MetadataDelta, MetadataImage
from replog.metadata.records import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from replog.metadata.registrations import PartitionRegistration
from replog.rpc.metadata_records import decode_metadata_record


class ImageSystem(System):
    """Builds a picture of topics and partitions and publishes changes of it: readers of an older one see no change."""

    picture: Any
    """Everything it keeps."""

    def start(self, directory: Path) -> None:  # noqa: ARG002 -- nothing is written to disk
        self.clear()

    def stop(self) -> None:
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Forgets everything."""

    @abstractmethod
    def build(self, values: Sequence[bytes]) -> None:
        """Makes the picture of the values of a snapshot."""

    @abstractmethod
    def publish(self, change: PartitionChangeRecord) -> None:
        """Makes the next picture."""

    @abstractmethod
    def partition(self, topic_id: UUID, partition_id: int) -> PartitionRegistration | None:
        """What the newest picture says."""


class ReplogImage(ImageSystem):
    name = "replog"

    def clear(self) -> None:
        self.picture = MetadataImage()

    def build(self, values: Sequence[bytes]) -> None:
        delta = MetadataDelta(MetadataImage())
        for offset, value in enumerate(values):
            delta.replay(decode_metadata_record(value, offset=offset))
        self.picture = delta.apply(len(values), 0)

    def publish(self, change: PartitionChangeRecord) -> None:
        delta = MetadataDelta(self.picture)
        delta.replay(change)
        self.picture = delta.apply(self.picture.end_offset + 1, 0)
        delta.local_changes(0)

    def partition(self, topic_id: UUID, partition_id: int) -> PartitionRegistration | None:
        image: MetadataImage = self.picture
        return image.partition(topic_id, partition_id)


class CopiedDicts(ImageSystem):
    """The simplest picture that never changes under a reader: each dict on the way to a change is copied."""

    name = "copied-dicts"

    def clear(self) -> None:
        self.picture: tuple[dict[UUID, dict[int, PartitionRegistration]], dict[str, UUID]] = ({}, {})

    def build(self, values: Sequence[bytes]) -> None:
        by_id, names = self.picture
        for offset, value in enumerate(values):
            record: MetadataRecord = decode_metadata_record(value, offset=offset)
            if isinstance(record, TopicRecord):
                by_id[record.topic_id] = {}
                names[record.name] = record.topic_id
            elif isinstance(record, PartitionRecord):
                by_id[record.topic_id][record.partition_id] = PartitionRegistration.from_record(record)

    def publish(self, change: PartitionChangeRecord) -> None:
        by_id, names = self.picture
        partitions = by_id[change.topic_id].copy()
        partitions[change.partition_id] = partitions[change.partition_id].merge(change)
        after = by_id.copy()
        after[change.topic_id] = partitions
        self.picture = (after, names)

    def partition(self, topic_id: UUID, partition_id: int) -> PartitionRegistration | None:
        return self.picture[0][topic_id].get(partition_id)
