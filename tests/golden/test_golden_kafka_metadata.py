"""KRaft's metadata log and the small files of a data directory, as Kafka 4.1.1 wrote them.

The values in the metadata log are Kafka's own and stay unread (ours are protobuf); batches, control records, epochs and
the files beside them are the same as ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

import replog_checkpoints as checkpoints
from replog.log import Log
from replog.records import (
    ControlRecordType,
    Record,
    control_record_type,
    decode_batch,
    decode_leader_change,
    scan,
)
from replog_checkpoints import OsFileSystem
from tests import kafka_fixtures as kafka

FS = OsFileSystem()
VOTERS = (0, 1, 2)
METADATA_TOPIC_ID = UUID(int=1)
KAFKA_FRAME_VERSION = 1
every_directory = pytest.mark.parametrize("directory", kafka.DIRECTORIES)


def metadata_path(directory: str) -> Path:
    return kafka.ROOT / directory / f"{kafka.METADATA}-0"


def metadata_log(directory: str, tmp_path: Path) -> Log:
    """As every start opens it: nothing is trusted (docs/KAFKA.md 5.8)."""
    folder = kafka.copy_partition(directory, kafka.METADATA, tmp_path)
    return kafka.open_log(folder, recovery_point=0, log_start_offset=0, clean=False)


def control_records(log: Log) -> list[Record]:
    return [record for header, batch in kafka.batches(log) if header.is_control for record in decode_batch(batch)]


@every_directory
def test_batches_control_records_and_epochs(tmp_path: Path, directory: str) -> None:
    log = metadata_log(directory, tmp_path)
    assert log.recovery.bytes_cut == 0
    path = metadata_path(directory)
    assert log.log_end_offset >= int(max(path.glob("*.snapshot")).stem)
    assert log.leader_epochs.entries == checkpoints.read_leader_epochs(FS, str(path / checkpoints.LEADER_EPOCH_FILE))
    records = [record for _, batch in kafka.batches(log) for record in decode_batch(batch)]
    assert [record.offset for record in records] == list(range(log.log_end_offset))
    changes = control_records(log)
    assert changes[0].offset == 0
    assert [control_record_type(record) for record in changes] == [ControlRecordType.LEADER_CHANGE] * len(changes)
    data = [record for record in records if record not in changes]
    assert {(record.key, (record.value or b"")[0]) for record in data} == {(None, KAFKA_FRAME_VERSION)}
    log.close(kafka.NOW_MS)


@every_directory
def test_the_leader_change_names_whom_the_election_state_names(tmp_path: Path, directory: str) -> None:
    state = checkpoints.read_quorum_state(FS, str(metadata_path(directory) / checkpoints.QUORUM_STATE_FILE))
    log = metadata_log(directory, tmp_path)
    change = decode_leader_change(control_records(log)[-1])
    log.close(kafka.NOW_MS)
    assert state is not None
    assert state.leader_id is not None
    assert sorted(state.current_voters or ()) == sorted(change.voters) == list(VOTERS)
    assert change.leader_id in change.granting_voters
    epoch = log.leader_epochs.latest_epoch
    assert epoch is not None
    if state.leader_epoch == epoch:
        assert change.leader_id == state.leader_id
    else:  # the leader stopped; who was elected then appended nothing here any more
        assert (directory, state.leader_epoch) == ("clean", epoch + 1)


@every_directory
def test_identity_and_topic_ids(directory: str) -> None:
    root = kafka.ROOT / directory
    meta = checkpoints.read_meta_properties(FS, str(root / checkpoints.META_PROPERTIES_FILE))
    assert meta is not None
    lines = dict(
        line.split("=") for line in (root / "meta.properties").read_text().splitlines() if not line.startswith("#")
    )
    assert (meta.cluster_id, str(meta.node_id)) == (lines["cluster.id"], lines["node.id"])
    assert checkpoints.uuid_to_text(meta.directory_id) == lines["directory.id"]
    for topic in (*kafka.TOPICS, kafka.METADATA):
        path = root / f"{topic}-0" / checkpoints.PARTITION_METADATA_FILE
        metadata = checkpoints.read_partition_metadata(FS, str(path))
        assert metadata is not None
        assert path.read_text() == f"version: 0\ntopic_id: {checkpoints.uuid_to_text(metadata.topic_id)}"
        if topic == kafka.METADATA:
            assert metadata.topic_id == METADATA_TOPIC_ID


def test_the_clean_marker_carries_the_broker_epoch() -> None:
    path = kafka.ROOT / "clean" / checkpoints.CLEAN_SHUTDOWN_FILE
    marker = checkpoints.read_clean_shutdown(FS, str(path))
    assert marker is not None
    assert marker.broker_epoch == json.loads(path.read_text())["brokerEpoch"]
    assert checkpoints.read_clean_shutdown(FS, str(kafka.ROOT / "killed" / checkpoints.CLEAN_SHUTDOWN_FILE)) is None


@every_directory
def test_every_offset_checkpoint_is_read(directory: str) -> None:
    names = sorted((kafka.ROOT / directory).glob("*-offset-checkpoint"))
    assert len(names) == 4
    for path in names:
        lines = path.read_text().splitlines()
        entries = checkpoints.read_offset_checkpoint(FS, str(path)) or {}
        assert [f"{topic} {partition} {offset}" for (topic, partition), offset in entries.items()] == lines[2:]
        assert str(len(entries)) == lines[1]


@every_directory
def test_the_bootstrap_snapshot(directory: str) -> None:
    """A snapshot of the metadata log: a header, records, a footer, offsets from 0."""
    data = (kafka.ROOT / directory / "bootstrap.checkpoint").read_bytes()
    batches = [(header, decode_batch(data, header.position)) for header in scan(data)]
    kinds = [control_record_type(records[0]) if header.is_control else None for header, records in batches]
    assert kinds == [ControlRecordType.SNAPSHOT_HEADER, None, ControlRecordType.SNAPSHOT_FOOTER]
    assert [r.offset for _, records in batches for r in records] == list(range(batches[-1][0].next_offset))
    assert {header.partition_leader_epoch for header, _ in batches} == {0}
