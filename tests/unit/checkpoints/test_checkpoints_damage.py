"""Whatever happens to a file, no reader makes up a value: it says which file, which line, and what is wrong."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replog_checkpoints as ck
from replog.testing.simulated_filesystem import SimulatedFileSystem

Reader = Callable[[ck.FileSystem, str], Any]

UUID_TEXT = b"AQIDBAUGBwgREhMUFRYXGA"
COMPLETE: list[tuple[Reader, bytes]] = [
    (ck.read_offset_checkpoint, b"0\n2\nflights 0 42\nflights 1 4000\n"),
    (ck.read_leader_epochs, b"0\n2\n0 0\n3 120\n"),
    (ck.read_quorum_state, b'{"leaderId":1,"leaderEpoch":6,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'),
    (ck.read_quorum_state, b'{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'),
    (ck.read_clean_shutdown, b'{"version":0,"brokerEpoch":17}'),
    (ck.read_partition_metadata, b"version: 0\ntopic_id: " + UUID_TEXT),
    (ck.read_meta_properties, b"#\nnode.id=12\ndirectory.id=" + UUID_TEXT + b"\nversion=1\ncluster.id=abc\n"),
]  # fmt: skip
IDS = ["offsets", "epochs", "quorum v1", "quorum v0", "clean shutdown", "partition", "meta"]
READERS = [read for read, _ in COMPLETE]


@pytest.mark.parametrize(("read", "data"), COMPLETE, ids=IDS)
def test_absent_is_none_and_complete_is_read(disk: SimulatedFileSystem, read: Reader, data: bytes) -> None:
    assert read(disk, "/logs/absent") is None
    ck.replace_file(disk, "/logs/file", data)
    assert read(disk, "/logs/file") is not None


@pytest.mark.parametrize(("read", "data"), COMPLETE, ids=IDS)
def test_cut_anywhere_is_refused(refused: Any, read: Reader, data: bytes) -> None:
    for length in range(len(data)):
        assert "empty" in refused(read, data[:length]).reason or length > 0


@pytest.mark.parametrize(("read", "data"), COMPLETE, ids=IDS)
def test_empty_names_line_1(refused: Any, read: Reader, data: bytes) -> None:
    error = refused(read, b"")
    assert (error.line, error.reason) == (1, "the file is empty")


@pytest.mark.parametrize(("read", "data"), COMPLETE, ids=IDS)
def test_zeros_in_place_of_the_data_are_refused(refused: Any, read: Reader, data: bytes) -> None:
    refused(read, bytes(len(data)))


@pytest.mark.parametrize("read", [READERS[0], READERS[1], READERS[2], READERS[4], READERS[5], READERS[6]])
@given(data=st.binary(max_size=60))
@settings(max_examples=60, deadline=None)
def test_garbage_is_refused_and_nothing_else_is_raised(read: Reader, data: bytes) -> None:
    disk = SimulatedFileSystem()
    ck.replace_file(disk, "file", b"0\n1\n" + data + b"\n")
    with contextlib.suppress(ck.DamagedCheckpointError):
        read(disk, "file")


def test_a_file_that_is_far_too_large_is_not_read_into_memory(refused: Any) -> None:
    error = refused(ck.read_partition_metadata, b"version: 0\n" * 1000)
    assert error.line == 0
    assert "11000 bytes" in error.reason


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ck.DamagedCheckpointError("/logs/file", 3, "why")))
    assert (error.path, error.line, error.reason, str(error)) == ("/logs/file", 3, "why", "/logs/file line 3: why")
