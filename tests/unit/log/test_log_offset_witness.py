"""A log start that no other file confirms is refused, alone, and such a high watermark unknown; whatever crashes, a checkpoint
and its witness never contradict each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from log_test_kit import T0, append, write_file

from replog.errors import CorruptCheckpointError, ForeignDirectoryError, ReplogError
from replog.log import LogConfig, LogDirectory
from replog.log.recovery.offset_witness import WITNESS_FILES
from replog.log.recovery.promises import read_promises
from replog.log.repair.repair import repair_log
from replog.testing import PowerCutError, SimulatedFileSystem
from replog_checkpoints import (
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
)

DATA = "/data"
CHECKPOINT, WITNESS = f"{DATA}/{LOG_START_OFFSET_FILE}", f"{DATA}/{WITNESS_FILES[LOG_START_OFFSET_FILE]}"
TOPIC_IDS = {partition: UUID(int=1000 + partition) for partition in range(2)}
CONFIG = LogConfig(segment_bytes=1024)
COUNT = 30


def opened(disk: SimulatedFileSystem) -> LogDirectory:
    return LogDirectory.open(disk, DATA, cluster_id="c", node_id=1, now_ms=T0, config=CONFIG)


def stopped(start: int = 12) -> SimulatedFileSystem:
    """A disk with two replicas, both in several segments, that start inside of one."""
    disk = SimulatedFileSystem()
    directory = opened(disk)
    for partition, topic_id in TOPIC_IDS.items():
        log = directory.open_log("t", partition, topic_id, CONFIG, now_ms=T0)
        append(log, COUNT)
        log.flush()
        log.set_log_start_offset(start + partition)
    directory.checkpoint_recovery_points()
    directory.close(now_ms=T0, broker_epoch=1)
    return disk


def changed(disk: SimulatedFileSystem, path: str, old: bytes, new: bytes) -> SimulatedFileSystem:
    copy = disk.copied()
    content = copy.image()[path]
    assert old in content
    write_file(copy, path, content.replace(old, new))
    return copy


@pytest.mark.parametrize("line", [b"t 0 22", b"t 0 02", b"t 0 28", b"t 8 12", b"u 0 12"])
def test_a_flipped_digit_takes_one_replica_offline_and_it_stays_so(line: bytes) -> None:
    disk = changed(stopped(), CHECKPOINT, b"t 0 12", line)
    for _ in range(3):
        directory = opened(disk)
        error = directory.offline["t", 0]
        assert isinstance(error, CorruptCheckpointError)
        assert [name in str(error) for name in (CHECKPOINT, WITNESS, "12", "repair")] == [True] * 4
        assert directory.logs["t", 1].log_start_offset == 13
        directory.checkpoint_recovery_points()
        directory.close(now_ms=T0, broker_epoch=1)


def test_a_repair_takes_the_lowest_start_and_hides_nothing() -> None:
    for line, start in ((b"t 0 22", 12), (b"t 0 10", 10), (b"u 0 12", 0)):
        disk = changed(stopped(), CHECKPOINT, b"t 0 12", line)
        assert read_promises(disk, f"{DATA}/t-0").log_start_offset == start
        report = repair_log(disk, f"{DATA}/t-0", accept_loss=False, now_ms=T0)
        assert [finding.path for finding in report.found] == [CHECKPOINT]
        assert report.offsets_given_up == 0
        assert opened(disk).logs["t", 0].log_start_offset == start


@pytest.mark.parametrize(("line", "start"), [(b"t 0 22", 12), (b"t 0 10", 10), (b"u 0 12", 0)])
def test_a_crash_inside_a_repair_settles_on_no_higher_start(line: bytes, start: int) -> None:
    damaged = changed(stopped(), CHECKPOINT, b"t 0 12", line)
    for point in range(1_000):
        disk = damaged.copied()
        disk.faults.cut_power_after(point)
        try:
            repair_log(disk, f"{DATA}/t-0", accept_loss=False, now_ms=T0)
        except (PowerCutError, ReplogError, OSError):
            is_over = False
        else:
            is_over = True
        disk.crash(random.Random(point))
        directory = opened(disk)
        if is_over or ("t", 0) not in directory.offline:
            assert directory.logs["t", 0].log_start_offset == start
        if is_over:
            return
    pytest.fail("it never ends")


def test_what_another_program_wrote_alike_or_without_a_witness_is_no_doubt() -> None:
    disk = stopped()
    lines = disk.image()[CHECKPOINT].splitlines(keepends=True)
    reordered = disk.copied()
    write_file(reordered, CHECKPOINT, b"".join(lines[:2] + lines[:1:-1]))
    without = changed(disk, CHECKPOINT, b"t 0 12", b"t 0 15")
    without.remove(WITNESS)
    damaged = changed(disk, WITNESS, b"t 0", b"t 4")
    for one, start in ((reordered, 12), (without, 15), (damaged, 12)):
        directory = opened(one)
        assert not directory.offline
        assert directory.logs["t", 0].log_start_offset == start
        directory.checkpoint_recovery_points()
        assert one.exists(WITNESS)
        directory.close(now_ms=T0, broker_epoch=1)
    again = changed(without, CHECKPOINT, b"t 0 15", b"t 0 25")
    assert list(opened(again).offline) == [("t", 0)]


@pytest.mark.parametrize("line", [b"t 0 22", b"u 0 12"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_replica_made_anew_is_not_doubted(line: bytes, *, is_lost: bool) -> None:
    disk = changed(stopped(), CHECKPOINT, b"t 0 12", line)
    if is_lost:
        disk.remove_tree(f"{DATA}/t-0")
    directory = opened(disk)
    directory.delete_log("t", 0)
    directory.open_log("t", 0, UUID(int=7), CONFIG, now_ms=T0)
    disk.kill()
    assert not opened(disk).offline


def raise_starts(directory: LogDirectory) -> None:
    for start in (15, 21):
        for partition in TOPIC_IDS:
            directory.logs["t", partition].set_log_start_offset(start)
        directory.checkpoint_log_start_offsets()


def begin_anew(directory: LogDirectory) -> None:
    directory.logs["t", 0].truncate_fully_and_start_at(40)
    directory.delete_log("t", 1)


@pytest.mark.parametrize("work", [raise_starts, begin_anew])
def test_a_crash_at_any_point_leaves_no_doubt(work: Callable[[LogDirectory], None]) -> None:
    before = stopped()
    for point in range(1_000):
        disk = before.copied()
        directory = opened(disk)
        disk.faults.cut_power_after(point)
        try:
            work(directory)
        except (PowerCutError, ReplogError, OSError):
            is_over = False
        else:
            is_over = True
        disk.crash(random.Random(point))
        assert not opened(disk).offline
        if is_over:
            return
    pytest.fail("it never ends")


def test_what_stands_beside_the_log_names_the_way_out() -> None:
    disk = stopped()
    for path, old, new in (
        (f"{DATA}/{RECOVERY_POINT_FILE}", b"0\n2", b"x\n2"),
        (CHECKPOINT, b"0\n2", b"x\n2"),
    ):
        damaged = changed(disk, path, old, new)
        for use in (opened, lambda it: repair_log(it, f"{DATA}/t-0", accept_loss=False, now_ms=T0)):
            with pytest.raises(CorruptCheckpointError, match="delete it"):
                use(damaged)
        damaged.remove(path)
        assert not opened(damaged).offline
    damaged = changed(disk, f"{DATA}/{META_PROPERTIES_FILE}", b"replog.format=1", b"replog.format=3")
    for use in (opened, lambda it: repair_log(it, f"{DATA}/t-0", accept_loss=False, now_ms=T0)):
        with pytest.raises(ForeignDirectoryError, match=r"put replog\.format=1 back"):
            use(damaged)


# ---- high watermarks -----------------------------------------------------------------------------------------------------

MARKS = f"{DATA}/{REPLICATION_OFFSET_FILE}"


def with_marks() -> SimulatedFileSystem:
    """A disk with two replicas of 30 records, of which 20 and 21 are committed."""
    disk = stopped()
    directory = opened(disk)
    for marks in ({("t", 0): 17, ("t", 1): 19}, {("t", 0): 20, ("t", 1): 21}):
        directory.checkpoint_high_watermarks(marks)
    directory.close(now_ms=T0, broker_epoch=1)
    return disk


def test_a_checkpoint_that_is_gone_is_made_again_from_its_witness(caplog: pytest.LogCaptureFixture) -> None:
    """Records that were deleted inside of a segment were there again."""
    disk = stopped()
    disk.remove(CHECKPOINT)
    assert read_promises(disk, f"{DATA}/t-0").log_start_offset == 12
    directory = opened(disk)
    assert [directory.logs["t", partition].log_start_offset for partition in TOPIC_IDS] == [12, 13]
    assert f"{CHECKPOINT} is gone" in caplog.text
    directory.checkpoint_recovery_points()
    directory.close(now_ms=T0, broker_epoch=1)
    disk.remove(WITNESS)
    assert opened(disk).logs["t", 1].log_start_offset == 13


def test_high_watermarks_that_were_written_are_believed() -> None:
    disk = with_marks()
    assert opened(disk).high_watermarks == {("t", 0): 20, ("t", 1): 21}
    assert read_promises(disk, f"{DATA}/t-0").high_watermark == 20


@pytest.mark.parametrize("line", [b"t 0 30", b"t 0 00", b"t 8 20", b"u 0 20"])
def test_a_flipped_digit_makes_one_high_watermark_unknown(line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A higher one would show records that are not committed, and may vanish with the leader."""
    disk = changed(with_marks(), MARKS, b"t 0 20", line)
    directory = opened(disk)
    assert not directory.offline
    assert directory.high_watermarks == {("t", 1): 21}
    assert (read_promises(disk, f"{DATA}/t-0").high_watermark or 0) <= 20
    assert b"t 0" not in line or "t-0 among them" in caplog.text
    directory.checkpoint_high_watermarks({("t", 0): 22})
    directory.close(now_ms=T0, broker_epoch=1)
    assert opened(disk).high_watermarks == {("t", 0): 22, ("t", 1): 21}


def test_a_crash_at_any_point_leaves_no_high_watermark_in_doubt() -> None:
    before = with_marks()
    for point in range(1, 1_000):
        disk = before.copied()
        directory = opened(disk)
        disk.faults.cut_power_after(point)
        try:
            directory.checkpoint_high_watermarks({("t", 0): 25})
            directory.checkpoint_high_watermarks({("t", 0): 28, ("t", 1): 29})
        except (PowerCutError, ReplogError):
            disk.crash(random.Random(point))
        else:
            assert point > 5
            return
        marks = opened(disk).high_watermarks
        assert (marks["t", 0], marks["t", 1]) in {(20, 21), (25, 21), (28, 29)}
    raise AssertionError("it never came to an end")
