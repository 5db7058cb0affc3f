"""The snapshots of one metadata log: made, served in chunks, fetched, dropped; and what a crash leaves."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from replog.errors import CorruptRecordError, InvariantViolationError
from replog.log.snapshots.files import SnapshotContext, SnapshotId, read_values, verify_snapshot
from replog.log.snapshots.store import SnapshotStore
from replog.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = "/d/__cluster_metadata-0"
FIRST, SECOND, THIRD = SnapshotId(10, 1), SnapshotId(20, 1), SnapshotId(30, 4)
CONTEXT = SnapshotContext(5, ())
SOURCE = (1, 4)


def new_disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(DIRECTORY)
    fs.sync_dir("/d")
    fs.sync_dir("/")
    return fs


def with_snapshots(*ids: SnapshotId) -> tuple[SimulatedFileSystem, SnapshotStore]:
    fs = new_disk()
    store = SnapshotStore(fs, DIRECTORY)
    for snapshot_id in ids:
        job = store.prepare_write(snapshot_id, CONTEXT, [b"v"] * snapshot_id.end_offset, timestamp_ms=7)
        assert job is not None
        job.run()
        store.add(snapshot_id)
    return fs, store


def chunks(store: SnapshotStore, snapshot_id: SnapshotId, size: int) -> list[bytes]:
    found: list[bytes] = []
    position = 0
    while True:
        chunk = store.read_chunk(snapshot_id, position, size)
        assert chunk is not None
        total, data = chunk
        found.append(data)
        position += len(data)
        if position == total:
            return found


def test_snapshots_are_found_again_in_order() -> None:
    fs, store = with_snapshots(THIRD, FIRST, SECOND)
    assert store.ids == SnapshotStore(fs, DIRECTORY).ids == (FIRST, SECOND, THIRD)
    assert (store.earliest, store.latest) == (FIRST, THIRD)
    assert store.context(SECOND) == CONTEXT
    assert store.prepare_write(SECOND, CONTEXT, [], timestamp_ms=1) is None


class PowerCutError(Exception):
    """The machine stops here."""


def cut_after(count: int) -> Iterator[bytes]:
    for number in range(10):
        if number == count:
            raise PowerCutError
        yield b"v"


def test_a_power_cut_at_any_time_leaves_a_whole_snapshot_or_none() -> None:
    outcomes = set[int]()
    for seed in range(60):
        rng = random.Random(seed)
        fs = new_disk()
        job = SnapshotStore(fs, DIRECTORY).prepare_write(FIRST, CONTEXT, cut_after(rng.randrange(15)), timestamp_ms=7)
        assert job is not None
        with contextlib.suppress(PowerCutError):
            job.run()
        fs.crash(rng)
        store = SnapshotStore(fs, DIRECTORY)
        outcomes.add(len(store.ids))
        for snapshot_id in store.ids:
            assert [value for _, value in read_values(fs, store.path(snapshot_id))] == [b"v"] * 10
        assert [name for name in fs.list_dir(DIRECTORY) if name.endswith(".part")] == []
    assert outcomes == {0, 1}


def test_one_snapshot_is_written_and_fetched_at_the_same_time() -> None:
    """A node is told to fetch a snapshot at the end that its own has just reached."""
    _, ours = with_snapshots(SECOND)
    (whole,) = chunks(ours, SECOND, 1 << 20)
    fs, theirs = with_snapshots()
    theirs.begin_download(SECOND, SOURCE)
    theirs.write_chunk(SECOND, 0, whole[:7])
    own = theirs.prepare_write(SECOND, CONTEXT, [b"v"] * SECOND.end_offset, timestamp_ms=7)
    assert own is not None
    own.run()
    theirs.add(SECOND)
    theirs.write_chunk(SECOND, 7, whole[7:])
    theirs.check_download(SECOND)
    theirs.finish_download(SECOND)
    assert theirs.ids == SnapshotStore(fs, DIRECTORY).ids == (SECOND,)
    assert chunks(theirs, SECOND, 1 << 20) == [whole]


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_snapshot_travels_in_chunks(size: int) -> None:
    _, ours = with_snapshots(SECOND)
    fs, theirs = with_snapshots()
    assert theirs.begin_download(SECOND, SOURCE) == 0
    position = 0
    for data in chunks(ours, SECOND, size):
        position = theirs.write_chunk(SECOND, position, data)
    theirs.check_download(SECOND)
    theirs.finish_download(SECOND)
    assert theirs.ids == (SECOND,)
    verify_snapshot(fs, theirs.path(SECOND))
    fs.crash(random.Random(1))
    assert SnapshotStore(fs, DIRECTORY).ids == (SECOND,)


def test_an_interrupted_download_goes_on_from_the_same_leader_only() -> None:
    _, ours = with_snapshots(SECOND)
    _, theirs = with_snapshots()
    first, second, *_ = chunks(ours, SECOND, 64)
    theirs.begin_download(SECOND, SOURCE)
    theirs.write_chunk(SECOND, 0, first)
    assert theirs.begin_download(SECOND, SOURCE) == 64
    assert theirs.write_chunk(SECOND, 0, first) == 64  # a doubled answer changes nothing
    assert theirs.write_chunk(SECOND, 64, second) == 128
    assert theirs.begin_download(SECOND, (2, 5)) == 0


def test_a_damaged_download_is_dropped() -> None:
    _, ours = with_snapshots(SECOND)
    fs, theirs = with_snapshots()
    data = bytearray(b"".join(chunks(ours, SECOND, 1000)))
    data[len(data) // 2] ^= 1
    theirs.begin_download(SECOND, SOURCE)
    theirs.write_chunk(SECOND, 0, bytes(data))
    with pytest.raises(CorruptRecordError):
        theirs.check_download(SECOND)
    theirs.abandon_download()
    assert fs.list_dir(DIRECTORY) == []
    assert theirs.begin_download(SECOND, SOURCE) == 0


def test_half_a_download_is_gone_after_a_restart() -> None:
    _, ours = with_snapshots(SECOND)
    fs, theirs = with_snapshots()
    theirs.begin_download(SECOND, SOURCE)
    theirs.write_chunk(SECOND, 0, chunks(ours, SECOND, 64)[0])
    fs.kill()
    assert SnapshotStore(fs, DIRECTORY).ids == ()
    assert fs.list_dir(DIRECTORY) == []


def test_old_snapshots_are_dropped_and_removed_later() -> None:
    fs, store = with_snapshots(FIRST, SECOND, THIRD)
    job = store.drop_below(30)
    assert store.ids == (THIRD,)
    assert store.read_chunk(FIRST, 0, 10) is None
    assert len(fs.list_dir(DIRECTORY)) == 3
    job.run()
    assert len(fs.list_dir(DIRECTORY)) == 1
    store.drop_below(30)
    store = SnapshotStore(fs, DIRECTORY)
    assert store.ids == (THIRD,)


def test_a_chunk_without_a_download_is_a_bug() -> None:
    _, store = with_snapshots()
    with pytest.raises(InvariantViolationError):
        store.write_chunk(FIRST, 0, b"x")
