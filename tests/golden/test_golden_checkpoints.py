"""Checkpoint files as Kafka 4.1.1's own classes print them (KAFKA.md 1.9 to 1.11): read, and written byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import replog_checkpoints as ck

U = UUID("01020304-0506-0708-1112-131415161718")
FS = ck.OsFileSystem()

Reader = Callable[[ck.FileSystem, str], Any]
Writer = Callable[[ck.FileSystem, str, Any], None]

CHECKSUM = re.compile(rb',"checksum":"[0-9a-f]{8}"(?=\}$)|replog\.checksum=[0-9a-f]{8}\n')
"""What ours add to quorum-state and meta.properties; Kafka's readers pass over fields that they do not know."""

GOLDEN: list[tuple[str, Reader, Writer, Any, bytes]] = [
    (
        "leader-epoch-checkpoint",
        ck.read_leader_epochs,
        ck.write_leader_epochs,
        [(0, 0), (3, 120)],
        b"0\n2\n0 0\n3 120\n",
    ),
    (
        "recovery-point-offset-checkpoint",
        ck.read_offset_checkpoint,
        ck.write_offset_checkpoint,
        {("t", 0): 42},
        b"0\n1\nt 0 42\n",
    ),
    (
        ".kafka_cleanshutdown",
        ck.read_clean_shutdown,
        ck.write_clean_shutdown,
        ck.CleanShutdown(17),
        b'{"version":0,"brokerEpoch":17}',
    ),
    (
        "partition.metadata",
        ck.read_partition_metadata,
        ck.write_partition_metadata,
        ck.PartitionMetadata(U),
        b"version: 0\ntopic_id: AQIDBAUGBwgREhMUFRYXGA",
    ),
    (
        "quorum-state v0",
        ck.read_quorum_state,
        ck.write_quorum_state,
        ck.QuorumState(leader_id=1, leader_epoch=5, voted_id=None, current_voters=(3, 2, 1), data_version=0),
        b'{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":3},{"voterId":2},{"voterId":1}],"data_version":0}',
    ),
    (
        "quorum-state v1 voted",
        ck.read_quorum_state,
        ck.write_quorum_state,
        ck.QuorumState(leader_id=None, leader_epoch=6, voted_id=2, voted_directory_id=U),
        b'{"leaderId":-1,"leaderEpoch":6,"votedId":2,"votedDirectoryId":"AQIDBAUGBwgREhMUFRYXGA","data_version":1}',
    ),
    (
        "quorum-state v1 nobody known",
        ck.read_quorum_state,
        ck.write_quorum_state,
        ck.QuorumState(leader_id=None, leader_epoch=7, voted_id=None),
        b'{"leaderId":-1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    ),
    (
        "meta.properties without its date",
        ck.read_meta_properties,
        ck.write_meta_properties,
        ck.MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 1, U),
        b"#\nnode.id=1\ndirectory.id=AQIDBAUGBwgREhMUFRYXGA\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n",
    ),
]


@pytest.mark.parametrize(("name", "read", "write", "value", "data"), GOLDEN, ids=[row[0] for row in GOLDEN])
def test_kafka_bytes(tmp_path: Path, name: str, read: Reader, write: Writer, value: Any, data: bytes) -> None:
    kafka, ours = tmp_path / "kafka", tmp_path / "ours"
    kafka.write_bytes(data)
    assert read(FS, str(kafka)) == value
    write(FS, str(ours), value)
    assert CHECKSUM.sub(b"", ours.read_bytes()) == data
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")] == []


def test_kafka_meta_properties_with_its_date(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(
        b"#\n#Tue Nov 14 22:13:20 UTC 2023\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        b"directory.id=AQIDBAUGBwgREhMUFRYXGA\nnode.id=1\n"
    )
    assert ck.read_meta_properties(FS, str(path)) == ck.MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 1, U)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("AQIDBAUGBwgREhMUFRYXGA", U),
        ("AAAAAAAAAAAAAAAAAAAAAA", UUID(int=0)),
        ("AAAAAAAAAAAAAAAAAAAAAQ", UUID(int=1)),
    ],
)
def test_kafka_uuids(text: str, value: UUID) -> None:
    assert ck.uuid_from_text(text) == value
    assert ck.uuid_to_text(value) == text
