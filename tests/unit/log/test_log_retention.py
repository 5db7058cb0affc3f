"""Retention rules as Kafka has them, the active segment among the segments that go (docs/KAFKA.md 4.8)."""

from __future__ import annotations

import errno
import random

import pytest
from log_test_kit import T0, append, batch, content, filled, open_log
from msgspec.structs import replace

from replog.log import Cleanup, Log, LogConfig
from replog.testing import Operation, PowerCutError, SimulatedFileSystem

CONFIG = LogConfig(segment_bytes=600, retention_ms=1000)
LATE_MS = T0 + 10**6


def _bounds(log: Log) -> tuple[int, int]:
    return log.log_start_offset, log.log_end_offset


def test_a_quiet_log_loses_its_active_segment_too() -> None:
    fs, log = filled(30, config=CONFIG)
    newest_ms = T0 + 29
    assert log.delete_old_segments(newest_ms + 1000, high_watermark=30) == 3
    assert log.delete_old_segments(newest_ms + 1001, high_watermark=30) == 1
    assert (_bounds(log), log.segment_base_offsets, content(log)) == ((30, 30), [30], [])
    assert log.delete_old_segments(LATE_MS, high_watermark=30) == 0  # an empty one stays
    append(log, 2)
    assert log.delete_old_segments(newest_ms + 1000, high_watermark=32) == 0
    log.remove_deleted_files(LATE_MS)
    fs.kill()
    assert _bounds(open_log(fs, config=CONFIG)) == (30, 32)


def test_what_reaches_above_the_high_watermark_stays() -> None:
    _, log = filled(30, config=CONFIG)
    assert log.delete_old_segments(LATE_MS, high_watermark=29) == 3
    assert _bounds(log) == (24, 30)


def test_timestamps_in_the_future_keep_a_segment() -> None:
    _, log = filled(3, config=CONFIG)
    log.append_as_leader(batch(timestamp_ms=LATE_MS + 1), leader_epoch=0, now_ms=T0)
    assert log.delete_old_segments(LATE_MS, high_watermark=4) == 0
    assert log.delete_old_segments(LATE_MS + 1002, high_watermark=4) == 1


def test_without_timestamps_the_age_of_the_file_counts() -> None:
    fs = SimulatedFileSystem(now_ms=lambda: LATE_MS)
    log = open_log(fs, config=CONFIG)
    log.append_as_leader(batch(timestamp_ms=-1), leader_epoch=0, now_ms=T0)
    assert log.delete_old_segments(LATE_MS + 1000, high_watermark=1) == 0
    assert log.delete_old_segments(LATE_MS + 1001, high_watermark=1) == 1


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"cleanup_policy": Cleanup.COMPACT}, (0, 30)),
        ({"retention_ms": -1}, (0, 30)),
        ({"retention_ms": -1, "retention_bytes": 1}, (24, 30)),  # the rest is at least that large
        ({"retention_ms": -1, "retention_bytes": 0}, (30, 30)),
        ({"retention_ms": 0}, (30, 30)),
    ],
)
def test_which_rule_reaches_the_active_segment(changes: dict[str, object], left: tuple[int, int]) -> None:
    _, log = filled(30, config=CONFIG)
    log.set_config(replace(CONFIG, **changes))  # type: ignore[arg-type] -- the names are those of fields
    log.delete_old_segments(LATE_MS, high_watermark=30)
    assert _bounds(log) == left


def test_a_log_start_at_the_end_spares_the_active_segment() -> None:
    _, log = filled(30, config=replace(CONFIG, retention_ms=-1))
    log.set_log_start_offset(30)
    assert log.delete_old_segments(LATE_MS, high_watermark=30) == 3
    assert log.segment_base_offsets == [24]


def _cut_power_while_deleting(appended: int, steps: int, seed: int, recovery_point: int) -> Log | None:
    """The log after a power cut inside of retention; None: retention ended before that many steps."""
    fs, log = filled(8, config=CONFIG)
    log.flush()
    append(log, appended)
    fs.faults.cut_power_after(steps)
    try:
        log.delete_old_segments(LATE_MS, high_watermark=recovery_point)
    except PowerCutError:
        fs.crash(random.Random(seed))
        return open_log(fs, config=CONFIG, recovery_point=recovery_point)
    return None


@pytest.mark.parametrize("appended", [0, 1])  # 1: the roll before is not durable yet
def test_a_power_cut_at_any_step_never_lowers_the_log_end(appended: int) -> None:
    for steps in range(100):
        log = None
        for seed in range(10):
            log = _cut_power_while_deleting(appended, steps, seed, recovery_point=8)
            if log is not None:
                assert log.log_end_offset >= 8, f"step {steps}, seed {seed}"
        if log is None:
            break
    assert 3 < steps < 99


def test_a_producer_is_known_after_its_batches_are_gone() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=CONFIG)
    sent = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(sent, leader_epoch=0, now_ms=T0)
    log.flush()
    assert log.delete_old_segments(LATE_MS, high_watermark=1) == 1
    fs.crash(random.Random(1))
    log = open_log(fs, config=CONFIG, recovery_point=1, now_ms=LATE_MS)
    assert log.append_as_leader(sent, leader_epoch=1, now_ms=LATE_MS).duplicate


def test_without_room_for_an_empty_segment_the_active_one_stays() -> None:
    fs, log = filled(30, config=CONFIG)
    fs.faults.fail_always(Operation.CREATE, error_number=errno.ENOSPC)
    assert log.delete_old_segments(LATE_MS, high_watermark=30) == 3
    assert _bounds(log) == (24, 30)
    fs.faults.clear()
    assert log.delete_old_segments(LATE_MS, high_watermark=30) == 1
    append(log, 1)
    assert _bounds(log) == (30, 31)
