"""The metadata log and its snapshots as one: what a start finds, and what the quorum's core decides by."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

import pytest
from broker_kit import FakeClock

from replog.broker.quorum import metadata_log
from replog.broker.quorum.metadata_log import MetadataLog
from replog.errors import CorruptRecordError
from replog.log import Log, LogConfig
from replog.log.snapshots.files import SnapshotContext, SnapshotId
from replog.records import scan
from replog.testing import SimulatedFileSystem
from replog_quorum import EpochEnd, Voter, VoterSet

DIRECTORY = "/data/__cluster_metadata-0"
EPOCH_BYTE = 15
"""The last one of the leader epoch in a batch."""


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(voter_id, UUID(int=voter_id), f"127.0.0.1:{9000 + voter_id}") for voter_id in ids))


def opened(fs: SimulatedFileSystem, log_start_offset: int = 0) -> MetadataLog:
    log = Log.open(
        fs,
        DIRECTORY,
        LogConfig(segment_bytes=400),
        topic_partition="__cluster_metadata-0",
        recovery_point=0,
        log_start_offset=log_start_offset,
        clean=False,
        now_ms=0,
    )
    return MetadataLog(fs, log, FakeClock(), lambda: False)


def leading(it: MetadataLog, epoch: int, values: Sequence[bytes] = ()) -> None:
    it.append_leader_change(epoch, 1, (1, 2), (1,))
    for value in values:
        it.append_values(epoch, [value])


def write_snapshot(it: MetadataLog, end_offset: int, epoch: int, voters: VoterSet | None = None) -> SnapshotId:
    from replog.broker.quorum.voter_records import to_records

    snapshot_id = SnapshotId(end_offset, epoch)
    context = SnapshotContext(7, () if voters is None else to_records(voters))
    job = it.snapshots.prepare_write(snapshot_id, context, [b"state"], timestamp_ms=9)
    assert job is not None
    job.run()
    it.snapshots.add(snapshot_id)
    return snapshot_id


def test_an_empty_log_knows_no_epoch() -> None:
    it = opened(SimulatedFileSystem())
    assert (it.log_start_offset, it.log_end_offset, it.last_epoch) == (0, 0, 0)
    assert it.end_offset_for_epoch(5) == EpochEnd(0, 0)
    assert it.latest_snapshot_id is it.earliest_snapshot_id is None


def test_voter_sets_are_found_again_after_a_restart() -> None:
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"a"])
    assert it.append_voters(1, voter_set(1, 2), writes_version=True) == [(3, voter_set(1, 2))]
    it.append_values(1, [b"b"])
    it.append_voters(1, voter_set(1, 2, 3), writes_version=False)
    it.log.flush()
    fs.kill()
    again = opened(fs)
    assert again.voter_sets == [(3, voter_set(1, 2)), (5, voter_set(1, 2, 3))]
    assert again.voters_at(3) is None
    assert again.voters_at(4) == voter_set(1, 2)
    assert again.voters_at(6) == voter_set(1, 2, 3)


def test_a_voter_set_that_damage_makes_look_like_records_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the node would count votes by the set before."""
    monkeypatch.setattr(metadata_log, "READ_BYTES", 1)
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1)
    position = it.log.size_bytes
    it.append_voters(1, voter_set(1, 2), writes_version=False)
    fs.flip_bit(f"{DIRECTORY}/{0:020d}.log", position + 22, 5)
    with pytest.raises(CorruptRecordError, match=rf"{0:020d}\.log at byte {position}: checksum"):
        MetadataLog(fs, it.log, FakeClock(), lambda: False)


def test_a_batch_whose_epoch_begins_without_a_leader_change_is_damaged() -> None:
    """A voter with it would win elections against those that hold more: what was committed would be gone."""
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 5, [b"a", b"b"])
    data = it.read(0, max_bytes=1 << 20, end_offset=it.log_end_offset)
    position = [header.position for header in scan(data)][-1]
    it.log.close(0)
    (path,) = (name for name in fs.image() if name.endswith(".log"))
    fs.flip_bit(path, position + EPOCH_BYTE, 1)
    with pytest.raises(CorruptRecordError, match="a later epoch begins with a leader change") as caught:
        opened(fs)
    assert (caught.value.path, caught.value.position) == (path, position)


def test_a_cut_takes_the_voter_set_with_it() -> None:
    it = opened(SimulatedFileSystem())
    leading(it, 1)
    it.append_voters(1, voter_set(1), writes_version=True)
    it.append_voters(1, voter_set(1, 2), writes_version=False)
    it.truncate_to(3)
    assert it.voter_sets == [(2, voter_set(1))]


def test_a_follower_finds_voter_sets_in_what_it_fetches() -> None:
    ours, theirs = opened(SimulatedFileSystem()), opened(SimulatedFileSystem())
    leading(theirs, 3)
    theirs.append_voters(3, voter_set(1, 2), writes_version=True)
    data = theirs.read(0, max_bytes=1 << 20, end_offset=theirs.log_end_offset)
    assert ours.append_fetched(data, 3) == [(2, voter_set(1, 2))]
    assert ours.append_fetched(b"", 3) == []
    assert ours.last_epoch == 3


def test_batches_of_a_later_epoch_are_left_out_with_their_voter_sets() -> None:
    ours, theirs = opened(SimulatedFileSystem()), opened(SimulatedFileSystem())
    leading(theirs, 3)
    leading(theirs, 4)
    theirs.append_voters(4, voter_set(1, 2), writes_version=True)
    data = theirs.read(0, max_bytes=1 << 20, end_offset=theirs.log_end_offset)
    assert ours.append_fetched(data, 3) == []
    assert ours.log_end_offset == 1


def install(it: MetadataLog, source: MetadataLog, snapshot_id: SnapshotId) -> VoterSet | None:
    chunk = source.snapshots.read_chunk(snapshot_id, 0, 1 << 20)
    assert chunk is not None
    it.snapshots.begin_download(snapshot_id, (1, 4))
    it.snapshots.write_chunk(snapshot_id, 0, chunk[1])
    it.snapshots.check_download(snapshot_id)
    return it.install(snapshot_id)


def test_an_installed_snapshot_replaces_the_log() -> None:
    source = opened(SimulatedFileSystem())
    leading(source, 4, [b"a", b"b", b"c"])
    snapshot_id = write_snapshot(source, 3, 4, voter_set(1, 2))
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 9)
    assert install(it, source, snapshot_id) == voter_set(1, 2)
    for log in (it, opened(fs)):
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (3, 3, 4)
        assert log.earliest_snapshot_id == EpochEnd(4, 3)
        assert log.voter_sets == [(2, voter_set(1, 2))]
        for epoch in (1, 4, 9):  # older, its own, unknown: all end where the snapshot ends
            assert log.end_offset_for_epoch(epoch) == EpochEnd(4, 3)


def test_a_power_cut_while_installing_leaves_the_old_log_or_the_snapshot() -> None:
    source = opened(SimulatedFileSystem())
    leading(source, 4, [b"a"] * 20)
    snapshot_id = write_snapshot(source, 15, 4)
    outcomes: set[tuple[int, int]] = set()
    for seed in range(40):
        fs = SimulatedFileSystem()
        it = opened(fs)
        leading(it, 1, [b"x"] * 4)
        it.log.flush()
        fs.sync_dir("/data")
        chunk = source.snapshots.read_chunk(snapshot_id, 0, 1 << 20)
        assert chunk is not None
        it.snapshots.begin_download(snapshot_id, (1, 4))
        it.snapshots.write_chunk(snapshot_id, 0, chunk[1])
        if seed % 2:
            it.snapshots.check_download(snapshot_id)
            it.snapshots.finish_download(snapshot_id)  # the crash is between the rename and the cut of the log
        fs.crash(random.Random(seed))
        again = opened(fs)
        outcomes.add((again.log_start_offset, again.log_end_offset))
    assert outcomes == {(0, 5), (15, 15)}


def test_a_snapshot_of_a_later_epoch_than_the_log_wins() -> None:
    """The log diverged: what the quorum committed since is in the snapshot."""
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 9)
    it.log.flush()
    write_snapshot(it, 5, 3)
    again = opened(fs)
    assert (again.log_start_offset, again.log_end_offset, again.last_epoch) == (5, 5, 3)


def test_snapshots_below_the_log_start_go() -> None:
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 9)
    it.log.flush()
    for end_offset in (2, 5, 8):
        write_snapshot(it, end_offset, 1)
    again = opened(fs, log_start_offset=5)
    assert again.snapshots.ids == (SnapshotId(5, 1), SnapshotId(8, 1))
    assert again.log_start_offset == 5


def test_a_log_start_between_snapshots_moves_up_to_the_next_one() -> None:
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 9)
    it.log.flush()
    write_snapshot(it, 8, 1)
    assert opened(fs, log_start_offset=5).log_start_offset == 8


def test_a_log_without_its_beginning_and_without_a_snapshot_is_refused() -> None:
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 9)
    it.log.flush()
    with pytest.raises(CorruptRecordError, match="starts at 5 and no whole snapshot"):
        opened(fs, log_start_offset=5)


def test_a_damaged_snapshot_is_set_aside_where_the_log_has_everything() -> None:
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 9)
    it.log.flush()
    good, bad = write_snapshot(it, 4, 1), write_snapshot(it, 8, 1)
    fs.flip_bit(it.snapshots.path(bad), 80)
    assert opened(fs).snapshots.ids == (good,)


def test_an_epoch_below_the_log_ends_with_the_snapshot_at_its_start() -> None:
    fs = SimulatedFileSystem()
    it = opened(fs)
    leading(it, 1, [b"x"] * 3)
    leading(it, 2, [b"x"] * 3)
    leading(it, 5, [b"x"] * 3)
    it.log.flush()
    write_snapshot(it, 6, 2)
    again = opened(fs, log_start_offset=6)
    assert again.end_offset_for_epoch(1) == EpochEnd(2, 6)
    assert again.end_offset_for_epoch(2) == EpochEnd(2, 8)
    assert again.end_offset_for_epoch(4) == EpochEnd(2, 8)
    assert again.end_offset_for_epoch(5) == EpochEnd(5, 12)
    assert again.end_offset_for_epoch(9) == EpochEnd(5, 12)
