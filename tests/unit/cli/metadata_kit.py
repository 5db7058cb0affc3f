"""A node's data directory with a metadata log, made batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import replog_checkpoints as checkpoints
from replog.log import Log, LogConfig
from replog.log.snapshots.files import SnapshotContext, SnapshotId
from replog.log.snapshots.store import SnapshotStore
from replog.metadata import MetadataDelta, MetadataImage, image_records
from replog.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    ResourceType,
    TopicRecord,
)
from replog.records import encode_batch, encode_leader_change
from replog.rpc.metadata_records import encode_metadata_record
from replog_checkpoints import MetaProperties, OsFileSystem, QuorumState

NOW_MS = 1_700_000_000_000
FLIGHTS, TAXIS = UUID(int=0xF), UUID(int=0xA)
NAME = "__cluster_metadata-0"


def register(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id, UUID(int=broker_id), broker_id, "localhost", 9000, (UUID(int=9),), fenced=False
    )


def partition(topic_id: UUID, partition_id: int, *replicas: int) -> PartitionRecord:
    return PartitionRecord(partition_id, topic_id, replicas, replicas, replicas[0], 0, 0)


STORY: tuple[tuple[MetadataRecord, ...], ...] = (
    (FeatureLevelRecord("metadata.version", 1), register(1), register(2)),  # offsets 1 to 3; 0 is the leader change
    (TopicRecord("flights", FLIGHTS), partition(FLIGHTS, 0, 1, 2), partition(FLIGHTS, 1, 2, 1)),  # 4 to 6
    (ConfigRecord(ResourceType.TOPIC, "flights", "retention.ms", "1000"),),  # 7
    (PartitionChangeRecord(0, FLIGHTS, leader=2, isr=(2,)),),  # 8
    (TopicRecord("taxis", TAXIS), partition(TAXIS, 0, 1, 2)),  # 9 and 10
)
STORY_END = 11


class MetadataDirectory:
    """Writes a metadata log.  Epoch 1 throughout, unless told otherwise."""

    def __init__(self, parent: Path, *, segment_bytes: int = 1 << 20) -> None:
        self.path = parent
        self.log_path = parent / NAME
        self.fs = OsFileSystem()
        self.image = MetadataImage()
        self.log = Log.open(
            self.fs,
            str(self.log_path),
            LogConfig(segment_bytes=segment_bytes),
            topic_partition=NAME,
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=NOW_MS,
        )
        change = encode_leader_change(
            base_offset=0, leader_id=1, voters=(1,), granting_voters=(1,), leader_epoch=1, timestamp_ms=NOW_MS
        )
        self.log.append_as_leader(change, leader_epoch=1, now_ms=NOW_MS)
        checkpoints.write_meta_properties(
            self.fs, str(parent / checkpoints.META_PROPERTIES_FILE), MetaProperties("a-cluster", 1, UUID(int=7 << 64))
        )
        checkpoints.write_quorum_state(
            self.fs, str(self.log_path / checkpoints.QUORUM_STATE_FILE), QuorumState(1, 1, None)
        )

    def append(self, *records: MetadataRecord, epoch: int = 1) -> None:
        """One batch that can be replayed."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.append_values([encode_metadata_record(record) for record in records], epoch=epoch)
        self.image = delta.apply(self.log.log_end_offset, epoch)

    def append_values(self, values: Sequence[bytes], epoch: int = 1) -> None:
        """One batch, whatever is in it."""
        batch = encode_batch([(NOW_MS, None, value, ()) for value in values])
        self.log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS)

    def story(self) -> None:
        for records in STORY:
            self.append(*records)

    def snapshot(self, image: MetadataImage | None = None, *, end_offset: int | None = None) -> SnapshotId:
        """A snapshot of the newest image, or of another one under its name."""
        of = self.image if image is None else image
        snapshot = SnapshotId(self.image.end_offset if end_offset is None else end_offset, 1)
        values = [encode_metadata_record(record) for record in image_records(of)]
        store = SnapshotStore(self.fs, str(self.log_path))
        job = store.prepare_write(snapshot, SnapshotContext(NOW_MS, ()), values, timestamp_ms=NOW_MS)
        assert job is not None
        job.run()
        return snapshot

    def cut_below(self, offset: int) -> None:
        """Deletes the segments below an offset, at which the log starts then; after `close`."""
        base_offsets = sorted(int(file.stem) for file in self.log_path.glob("*.log"))
        for base_offset, following in pairwise(base_offsets):
            if following <= offset:
                for file in self.log_path.glob(f"{base_offset:020d}.*"):
                    file.unlink()
        path = str(self.path / checkpoints.LOG_START_OFFSET_FILE)
        checkpoints.write_offset_checkpoint(self.fs, path, {("__cluster_metadata", 0): offset})

    def close(self) -> None:
        self.log.flush()
        self.log.close(NOW_MS)
        path = str(self.path / checkpoints.RECOVERY_POINT_FILE)
        checkpoints.write_offset_checkpoint(self.fs, path, {("__cluster_metadata", 0): self.log.log_end_offset})
