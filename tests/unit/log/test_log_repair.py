"""`repair_log`: what it mends, what it refuses, and what a crash in the middle of it leaves."""

from __future__ import annotations

import random

import pytest
from log_test_kit import T0, batch, content
from test_log_verification import bases, files

import replog_checkpoints as checkpoints
from replog.errors import CorruptRecordError, DirectoryLockedError, StorageError
from replog.log import Log, LogConfig
from replog.log.file_names import file_path
from replog.log.repair.repair import repair_log
from replog.log.repair.verification import FindingKind, LogVerifier
from replog.testing.simulated_faults import PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode

DIRECTORY = "/data/t-0"
RECORDS = 40
POINTS = "/data/recovery-point-offset-checkpoint"


def disk_with_log(recovery_point: int | None = RECORDS, records: int = RECORDS) -> SimulatedFileSystem:
    """A log of so many batches, eleven in a segment, in a log directory whose checkpoint says how far it was flushed."""
    fs = SimulatedFileSystem()
    log = opened(fs)
    for number in range(records):
        data = batch(bytes([number]) * 1000, timestamp_ms=T0 + number)
        log.append_as_leader(data, leader_epoch=0, now_ms=T0)
    log.close(T0)
    if recovery_point != records:  # Kafka writes no such file
        fs.remove(f"{DIRECTORY}/flushed-offset")
    if recovery_point is not None:
        checkpoints.write_offset_checkpoint(fs, POINTS, {("t", 0): recovery_point, ("other", 1): 7})
    return fs


def opened(fs: SimulatedFileSystem, recovery_point: int = 0, *, clean: bool = False) -> Log:
    config = LogConfig(segment_bytes=12_000)
    return Log.open(
        fs,
        DIRECTORY,
        config,
        topic_partition="t-0",
        recovery_point=recovery_point,
        log_start_offset=0,
        clean=clean,
        now_ms=T0,
    )


def recovery_points(fs: SimulatedFileSystem) -> dict[tuple[str, int], int] | None:
    return checkpoints.read_offset_checkpoint(fs, POINTS)


def test_a_sound_log_is_left_alone() -> None:
    fs = disk_with_log()
    before = files(fs)
    report = repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0)
    assert (report.found, report.left, report.end_offset) == ((), (), RECORDS)
    assert files(fs) == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("number", [0, -1])
def test_wrong_and_missing_indexes_are_made_again_byte_for_byte(suffix: str, number: int) -> None:
    """The last segment may have none: those of a log that is open live in memory."""
    for damage in ("flip", "cut", "remove") if number == 0 else ("flip", "cut"):
        fs = disk_with_log()
        before = files(fs)
        path = file_path(DIRECTORY, bases(fs)[number], suffix)
        if damage == "flip":
            fs.flip_bit(path, 0, 6)
        elif damage == "remove":
            fs.remove(path)
        else:
            file = fs.open(path, OpenMode.WRITE)
            file.truncate(file.size() - 1)
            file.close()
        report = repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0)
        assert report.left == ()
        assert (report.end_offset, report.recovery is None) == (RECORDS, False)
        after = files(fs)
        assert {name: after[name] for name in before if name.endswith(("log", "index"))} == {
            name: data for name, data in before.items() if name.endswith(("log", "index"))
        }


def test_a_torn_tail_above_the_recovery_point_is_cut() -> None:
    fs = disk_with_log(recovery_point=RECORDS - 3)
    path = file_path(DIRECTORY, bases(fs)[-1], ".log")
    fs.flip_bit(path, fs.size(path) - 1)
    report = repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0)
    assert [finding.kind for finding in report.found] == [FindingKind.TORN]
    assert (report.left, report.end_offset) == ((), RECORDS - 1)
    assert len(content(opened(fs, RECORDS - 3))) == RECORDS - 1


@pytest.mark.parametrize("recovery_point", [RECORDS, None])
def test_flushed_records_are_given_up_only_when_told_to(recovery_point: int | None) -> None:
    fs = disk_with_log(recovery_point)
    second = bases(fs)[1]
    path = file_path(DIRECTORY, second, ".log")
    fs.flip_bit(path, 30)
    before, points = files(fs), recovery_points(fs)
    with pytest.raises(CorruptRecordError, match="--accept-loss") as raised:
        repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0)
    assert (raised.value.path, raised.value.position) == (path, 0)
    assert (files(fs), recovery_points(fs)) == (before, points)

    report = repair_log(fs, DIRECTORY, accept_loss=True, now_ms=T0)
    assert (report.left, report.end_offset) == ((), second)
    assert report.end_offset_before == RECORDS or recovery_point is None
    log = opened(fs, second, clean=True)
    assert len(content(log)) == second
    assert recovery_points(fs) == ({("t", 0): second, ("other", 1): 7} if recovery_point else None)


def test_a_directory_in_use_is_left_alone() -> None:
    fs = disk_with_log()
    lock = fs.lock("/data/.lock")
    with pytest.raises(DirectoryLockedError):
        repair_log(fs, DIRECTORY, accept_loss=True, now_ms=T0)
    lock.release()


def test_a_folder_without_segments_is_refused() -> None:
    fs = SimulatedFileSystem()
    fs.make_dirs(DIRECTORY)
    with pytest.raises(StorageError, match="no segments"):
        repair_log(fs, DIRECTORY, accept_loss=True, now_ms=T0)


def test_a_power_cut_at_every_step_leaves_something_that_can_be_repaired() -> None:
    """Records below the damage are never lost, and the repair can always be begun again."""
    for step in range(1, 200):
        fs = disk_with_log()
        second = bases(fs)[1]
        fs.flip_bit(file_path(DIRECTORY, second, ".log"), 30)
        fs.flip_bit(file_path(DIRECTORY, 0, ".index"), 0, 6)
        for directory in ("/", "/data", DIRECTORY):
            fs.sync_dir(directory)
        fs.faults.cut_power_after(step)
        try:
            repair_log(fs, DIRECTORY, accept_loss=True, now_ms=T0)
        except (PowerCutError, StorageError):
            fs.crash(random.Random(step))
        else:
            assert step > 5
            return
        repair_log(fs, DIRECTORY, accept_loss=True, now_ms=T0)
        assert list(LogVerifier(fs, DIRECTORY, second).run()) == []
        assert len(content(opened(fs, second, clean=True))) == second
    raise AssertionError("the repair never came to its end")


@pytest.mark.parametrize("place", [30, 7])
def test_what_was_fsynced_after_the_last_checkpoint_is_given_up_only_when_told_to(place: int) -> None:
    """Byte 7: the last flushed batch jumps up, and nothing follows that would contradict it."""
    fs = disk_with_log()
    checkpoints.write_offset_checkpoint(fs, POINTS, {("t", 0): 3})
    path = file_path(DIRECTORY, bases(fs)[-1], ".log")
    fs.flip_bit(path, fs.size(path) - len(batch(bytes(1000))) + place, 4)
    for opens in (lambda: opened(fs, 3), lambda: repair_log(fs, DIRECTORY, accept_loss=False, now_ms=T0)):
        with pytest.raises(CorruptRecordError, match="--accept-loss"):
            opens()
    report = repair_log(fs, DIRECTORY, accept_loss=True, now_ms=T0)
    assert (report.left, report.end_offset_before, report.end_offset) == ((), RECORDS, RECORDS - 1)
    assert len(content(opened(fs, RECORDS - 1))) == RECORDS - 1
