"""Snapshot files of the metadata log: written, read back, and every kind of damage named."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest

from replog.errors import CorruptRecordError
from replog.log.snapshots.files import (
    SnapshotContext,
    SnapshotId,
    parse_snapshot_name,
    read_context,
    read_snapshot,
    read_values,
    snapshot_path,
    verify_snapshot,
    write_part,
)
from replog.records import QuorumVoter, VoterEndpoint
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode

ID = SnapshotId(1234, 7)
VOTERS = (QuorumVoter(1, UUID(int=5), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),)),)
CONTEXT = SnapshotContext(99, VOTERS)
PATH = "/s"


def written(values: list[bytes], context: SnapshotContext = CONTEXT) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    write_part(fs, PATH, ID, context, values, timestamp_ms=100)
    return fs


def replace(fs: SimulatedFileSystem, data: bytes) -> None:
    file = fs.open(PATH, OpenMode.REPLACE)
    file.pwrite([data], 0)
    file.close()


def content(fs: SimulatedFileSystem) -> bytes:
    file = fs.open(PATH, OpenMode.READ)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_names() -> None:
    assert snapshot_path("/d", ID) == "/d/00000000000000001234-0000000007.checkpoint"
    assert parse_snapshot_name("00000000000000001234-0000000007.checkpoint") == ID
    for other in ["bootstrap.checkpoint", "00000000000000001234-0000000007.checkpoint.part", "1-2.checkpoint"]:
        assert parse_snapshot_name(other) is None


@pytest.mark.parametrize("count", [0, 1, 3, 25_000])
def test_what_was_written_is_read_back(count: int) -> None:
    values = [b"value %d" % i for i in range(count)]
    fs = written(values)
    assert [value for _, value in read_values(fs, PATH)] == values
    assert read_context(fs, PATH) == CONTEXT
    offsets = [offset for offset, _ in read_values(fs, PATH)]
    assert all(later == earlier + 1 for earlier, later in pairwise(offsets))


def test_batches_stay_small() -> None:
    fs = written([bytes(300_000)] * 10)
    batches = list(read_snapshot(fs, PATH))
    assert [batch.is_control for batch in batches] == [True, False, False, False, False, True]


def test_a_snapshot_of_a_static_quorum_names_no_voters() -> None:
    assert read_context(written([b"x"], SnapshotContext(99, ())), PATH) == SnapshotContext(99, ())


def test_every_cut_is_seen() -> None:
    fs = written([b"a", b"b"])
    data = content(fs)
    for size in range(len(data)):
        replace(fs, data[:size])
        with pytest.raises(CorruptRecordError):
            verify_snapshot(fs, PATH)


def test_every_flipped_bit_is_seen() -> None:
    fs = written([b"a", b"b"])
    data = content(fs)
    for position in range(len(data)):
        if position in range(17, 21):  # the checksum itself is covered by the case of the bytes it covers
            continue
        fs.flip_bit(PATH, position)
        with pytest.raises(CorruptRecordError):
            verify_snapshot(fs, PATH)
        fs.flip_bit(PATH, position)


def test_bytes_behind_the_footer_are_seen() -> None:
    fs = written([b"a"])
    data = content(fs)
    replace(fs, data + data)
    with pytest.raises(CorruptRecordError, match="behind the snapshot's footer"):
        verify_snapshot(fs, PATH)


def test_a_batch_from_another_snapshot_is_seen() -> None:
    """Two nodes' files of one id need not be the same bytes: a mixture is no snapshot."""
    fs = written([b"a"] * 5)
    ours = content(fs)
    write_part(fs, PATH, SnapshotId(1234, 8), CONTEXT, [b"a"] * 5, timestamp_ms=100)
    theirs = content(fs)
    cut = int.from_bytes(ours[8:12], "big") + 12
    replace(fs, ours[:cut] + theirs[cut:])
    with pytest.raises(CorruptRecordError, match="expected"):
        verify_snapshot(fs, PATH)
