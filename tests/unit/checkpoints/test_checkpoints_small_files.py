"""partition.metadata, the clean-shutdown marker, and uuids as text."""

from __future__ import annotations

import contextlib
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import (
    CleanShutdown,
    DamagedCheckpointError,
    PartitionMetadata,
    read_clean_shutdown,
    read_partition_metadata,
    remove_clean_shutdown,
    replace_file,
    uuid_from_text,
    uuid_to_text,
    write_clean_shutdown,
    write_partition_metadata,
)

U = UUID("01020304-0506-0708-1112-131415161718")
KAFKAS = b"version: 0\ntopic_id: AQIDBAUGBwgREhMUFRYXGA"


@given(st.uuids())
@settings(max_examples=60, deadline=None)
def test_uuid_round_trip(value: UUID) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "A", "AQIDBAUGBwgREhMUFRYXG", "AQIDBAUGBwgREhMUFRYXGAA", "AQIDBAUGBwgREhMUFRYXGB", "AQIDBAUGBwgREhMUFRYX==", "äQIDBAUGBwgREhMUFRYXGA", "AQIDBAUGBwgREhMUFRYX+/", "AQIDBAUG BwgREhMUFRYXGA"],
)  # fmt: skip
def test_uuid_text_that_no_encoder_makes(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)


@given(st.uuids(allow_nil=False))
@settings(max_examples=30, deadline=None)
def test_partition_metadata_round_trip(topic_id: UUID) -> None:
    disk = SimulatedFileSystem()
    write_partition_metadata(disk, "file", PartitionMetadata(topic_id))
    assert read_partition_metadata(disk, "file") == PartitionMetadata(topic_id)


def test_no_flipped_bit_makes_another_topic_or_partition(disk: SimulatedFileSystem) -> None:
    said = PartitionMetadata(U, "flights-3")
    write_partition_metadata(disk, "/logs/file", said)
    assert disk.image()["/logs/file"] == KAFKAS + b"\npartition: flights-3\nchecksum: 038b6c41"
    for at in range(8 * disk.size("/logs/file")):
        disk.flip_bit("/logs/file", at // 8, at % 8)
        with contextlib.suppress(DamagedCheckpointError):
            assert read_partition_metadata(disk, "/logs/file") in {said, PartitionMetadata(U)}, at
        disk.flip_bit("/logs/file", at // 8, at % 8)


def test_partition_metadata_of_a_newer_version_is_read(disk: SimulatedFileSystem) -> None:
    replace_file(disk, "/logs/file", b"version:  3\ntopic_id: AQIDBAUGBwgREhMUFRYXGA\nmore: 1\n")
    assert read_partition_metadata(disk, "/logs/file") == PartitionMetadata(U)


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"version: -1\ntopic_id: AQIDBAUGBwgREhMUFRYXGA", 1, "version '-1'"),
        (b"version: x\ntopic_id: AQIDBAUGBwgREhMUFRYXGA", 1, "version 'x'"),
        (b"topic_id: AQIDBAUGBwgREhMUFRYXGA\nversion: 0", 1, "expected 'version: ...'"),
        (b"version: 0", 2, "expected 'topic_id: ...'"),
        (b"version: 0\ntopic_id AQIDBAUGBwgREhMUFRYXGA", 2, "expected 'topic_id: ...'"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2, "zero uuid"),
        (b"version: 0\ntopic_id: AQIDBAUGBwgREhMUFRYXG", 2, "base64url"),
        (b"version: 0\ntopic_id: \xff", 2, "not ASCII"),
        (b"\n", 1, "expected 'version: ...'"),
        (KAFKAS + b"\npartition:", 3, "expected 'partition: ...'"),
        (KAFKAS + b"\npartition: t-1\nchecksum: 00000000", 4, "the checksum is wrong"),
    ],
)
def test_damaged_partition_metadata(refused: Any, data: bytes, line: int, reason: str) -> None:
    error = refused(read_partition_metadata, data)
    assert error.line == line
    assert reason in error.reason


@pytest.mark.parametrize("broker_epoch", [-1, 0, 17, 2**63 - 1])
def test_clean_shutdown_round_trip(disk: SimulatedFileSystem, broker_epoch: int) -> None:
    write_clean_shutdown(disk, "/logs/marker", CleanShutdown(broker_epoch))
    assert read_clean_shutdown(disk, "/logs/marker") == CleanShutdown(broker_epoch)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"version":1,"brokerEpoch":17}', "version 1 is not supported"),
        (b'{"version":0,"brokerEpoch":-2}', "brokerEpoch is not a number"),
        (b'{"version":0,"brokerEpoch":1.5}', "brokerEpoch is not a number"),
        (b'{"version":0}', "brokerEpoch is missing"),
        (b"clean", "not JSON"),
    ],
)
def test_damaged_marker(refused: Any, data: bytes, reason: str) -> None:
    error = refused(read_clean_shutdown, data)
    assert error.line == 1
    assert reason in error.reason


def test_a_removed_marker_does_not_come_back_after_a_crash(disk: SimulatedFileSystem) -> None:
    disk.sync_dir("/")
    for seed in range(20):
        write_clean_shutdown(disk, "/logs/marker", CleanShutdown(seed))
        remove_clean_shutdown(disk, "/logs/marker")
        disk.crash(random.Random(seed))
        assert read_clean_shutdown(disk, "/logs/marker") is None
    remove_clean_shutdown(disk, "/logs/marker")  # absent is fine


def test_out_of_range() -> None:
    with pytest.raises(ValueError):
        CleanShutdown(-2)
    with pytest.raises(ValueError):
        PartitionMetadata(UUID(int=0))
