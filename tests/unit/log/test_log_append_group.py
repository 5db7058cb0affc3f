"""Several batches at once: one write, one outcome for each, and nothing of a batch before its bytes."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Sequence

import pytest
from log_test_kit import T0, append, batch, content, offsets, open_log, stored

from replog.errors import (
    CorruptRecordError,
    DiskFullError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    StorageError,
)
from replog.log import AppendInfo, AppendOutcome, Log, LogConfig
from replog.records import TimestampType, parse_header
from replog.testing.simulated_faults import Operation, PowerCutError
from replog.testing.simulated_filesystem import SimulatedFileSystem, _SimulatedFile
from replog_checkpoints import Buffer

WIDE = LogConfig(index_interval_bytes=100)


class CountingDisk(SimulatedFileSystem):
    """Counts the writes to record files."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write_file_bytes(self, file: _SimulatedFile, data: bytes, position: int) -> None:
        self.writes += file.path.endswith(".log")
        super().write_file_bytes(file, data, position)


def all_at_once(log: Log, *batches: Buffer, leader_epoch: int = 0) -> list[AppendOutcome]:
    return log.append_all_as_leader(batches, leader_epoch=leader_epoch, now_ms=T0)


def bases(outcomes: Sequence[AppendOutcome]) -> list[int | type[Exception]]:
    return [outcome.base_offset if isinstance(outcome, AppendInfo) else type(outcome) for outcome in outcomes]


def numbered(producer_id: int, sequence: int, value: bytes = b"v") -> bytes:
    return batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def state(log: Log) -> dict[int, list[tuple[int, int]]]:
    """What is known of producers: (first sequence, base offset) of their batches."""
    return {
        producer_id: [(kept.first_sequence, kept.base_offset) for kept in entry.batches]
        for producer_id, entry in log.producers.producers.items()
    }


def test_a_group_is_one_write_and_the_same_log_as_one_by_one() -> None:
    fs = CountingDisk()
    together, alone = open_log(fs, config=WIDE), open_log(SimulatedFileSystem(), config=WIDE)
    batches = [batch(*[b"v" * size] * (size % 3 + 1), timestamp_ms=T0 + size) for size in range(40)]
    outcomes = all_at_once(together, *batches)
    singles = [alone.append_as_leader(each, leader_epoch=0, now_ms=T0) for each in batches]
    assert fs.writes == 2  # the first batch of a segment goes alone: its limits count from there
    assert outcomes == singles
    assert content(together) == content(alone)
    assert together.log_end_offset == alone.log_end_offset
    for log in (together, alone):
        log.close(T0)
    for suffix in ("index", "timeindex"):
        path = f"/data/t-0/{0:020d}.{suffix}"
        assert fs.image()[path] == alone._state.fs.image()[path]  # type: ignore[attr-defined]


def test_nothing_to_append() -> None:
    assert all_at_once(open_log(SimulatedFileSystem())) == []


def test_a_group_across_rolls_is_one_write_for_each_segment() -> None:
    fs = CountingDisk()
    log = open_log(fs)  # segments of 600 bytes
    all_at_once(log, batch())
    fs.writes = 0
    outcomes = all_at_once(log, *[batch(str(number).encode()) for number in range(1, 20)])
    assert bases(outcomes) == offsets(log)[1:] == list(range(1, 20))
    assert len(log.segment_base_offsets) > 2
    assert fs.writes <= 2 * len(log.segment_base_offsets)
    one_by_one = open_log(SimulatedFileSystem())
    append(one_by_one, 20)
    assert log.segment_base_offsets == one_by_one.segment_base_offsets


def test_segments_roll_by_age_inside_a_group() -> None:
    config = LogConfig(segment_ms=1000)
    log = open_log(SimulatedFileSystem(), config=config)
    all_at_once(log, *[batch(timestamp_ms=T0 + 600 * number) for number in range(4)])
    assert log.segment_base_offsets == [0, 2]


def test_more_batches_than_one_system_call_takes() -> None:
    fs = CountingDisk()
    log = open_log(fs, config=LogConfig())
    all_at_once(log, batch())
    fs.writes = 0
    assert bases(all_at_once(log, *[batch()] * 1200))[-1] == 1200
    assert fs.writes == 3


def test_one_refusal_does_not_stop_the_others() -> None:
    log = open_log(SimulatedFileSystem())
    damaged = bytearray(batch())
    damaged[16] = 9  # magic
    outcomes = all_at_once(
        log, numbered(7, 0), numbered(7, 5), batch(b"x" * 700), batch() + b"!", damaged, numbered(7, 1)
    )
    assert bases(outcomes) == [
        0,
        OutOfOrderSequenceError,
        RecordTooLargeError,
        InvalidRecordError,
        CorruptRecordError,
        1,
    ]
    assert offsets(log) == [0, 1]


def test_a_producers_batches_follow_each_other_inside_a_group() -> None:
    log = open_log(SimulatedFileSystem(), config=LogConfig())
    outcomes = all_at_once(log, *[numbered(producer, sequence) for sequence in range(7) for producer in (7, 8)])
    assert bases(outcomes) == list(range(14))
    assert state(log)[7] == [(sequence, 2 * sequence) for sequence in range(2, 7)]
    assert state(log)[8] == [(sequence, 2 * sequence + 1) for sequence in range(2, 7)]


def test_a_repeated_batch_is_answered_with_the_original_in_the_same_group_too() -> None:
    log = open_log(SimulatedFileSystem(), config=LogConfig())
    all_at_once(log, numbered(7, 0))
    outcomes = all_at_once(log, numbered(7, 0), numbered(7, 1), numbered(7, 1), numbered(8, 0), numbered(7, 1))
    assert bases(outcomes) == [0, 1, 1, 2, 1]
    duplicates = [outcome.duplicate for outcome in outcomes if isinstance(outcome, AppendInfo)]
    assert duplicates == [True, False, True, False, True]
    assert offsets(log) == [0, 1, 2]
    assert state(log) == {7: [(0, 0), (1, 1)], 8: [(0, 2)]}


def test_a_group_of_repeats_writes_nothing_and_begins_no_epoch() -> None:
    log = open_log(SimulatedFileSystem())
    all_at_once(log, numbered(7, 0))
    assert bases(all_at_once(log, numbered(7, 0), leader_epoch=3)) == [0]
    assert log.last_epoch == 0


def test_a_group_begins_the_leaders_epoch_once() -> None:
    log = open_log(SimulatedFileSystem())
    append(log, 2)
    all_at_once(log, batch(b"a"), batch(b"b"), leader_epoch=5)
    assert log.leader_epochs.entries == [(0, 0), (5, 2)]
    assert content(log)[2:] == [stored(batch(b"a"), 2, 5), stored(batch(b"b"), 3, 5)]


def test_append_time_is_stamped_on_every_batch_and_not_on_the_clients_bytes() -> None:
    log = open_log(SimulatedFileSystem(), config=LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    data = batch(timestamp_ms=5)
    outcomes = log.append_all_as_leader([data, data], leader_epoch=0, now_ms=T0 + 9)
    assert [outcome.max_timestamp for outcome in outcomes if isinstance(outcome, AppendInfo)] == [T0 + 9] * 2
    assert [parse_header(each).timestamp_type for each in content(log)] == [TimestampType.LOG_APPEND_TIME] * 2
    assert parse_header(data).max_timestamp == 5


# Disks that are full or fail


@pytest.mark.parametrize("room_bytes", [0, 30, 68, 100, 200])
def test_a_full_disk_takes_nothing_of_a_group_and_the_log_goes_on(room_bytes: int) -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=LogConfig())
    all_at_once(log, numbered(7, 0), batch(b"kept"))
    before, producers, size = content(log), state(log), fs.used_bytes()
    fs.capacity_bytes = size + room_bytes
    outcomes = all_at_once(
        log, numbered(7, 1), numbered(7, 9), numbered(8, 0), numbered(7, 2), numbered(7, 0), batch(b"x" * 100)
    )
    assert bases(outcomes) == [DiskFullError, OutOfOrderSequenceError] + [DiskFullError] * 4
    assert (content(log), state(log), log.log_end_offset, fs.used_bytes()) == (before, producers, 2, size)
    assert not log.failed
    fs.capacity_bytes = None
    assert bases(all_at_once(log, numbered(7, 1), numbered(8, 0), numbered(7, 0))) == [2, 3, 0]


def test_one_append_on_a_full_disk_raises_and_can_be_repeated() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs)
    append(log, 3)
    fs.capacity_bytes = fs.used_bytes() + 30
    for _ in range(2):
        with pytest.raises(DiskFullError, match="writing goes on by itself"):
            append(log, 1)
    fs.capacity_bytes = None
    append(log, 1)
    assert offsets(log) == [0, 1, 2, 3]


def test_a_follower_on_a_full_disk_keeps_what_it_had() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=LogConfig())
    append(log, 1)
    fetched = b"".join(stored(batch(b"x" * 40), offset, 0) for offset in (1, 2, 3))
    fs.capacity_bytes = fs.used_bytes() + 150
    with pytest.raises(DiskFullError):
        log.append_as_follower(fetched, now_ms=T0)
    assert (log.log_end_offset, offsets(log)) == (1, [0])
    fs.capacity_bytes = None
    assert log.append_as_follower(fetched, now_ms=T0) is not None
    assert offsets(log) == [0, 1, 2, 3]


def test_what_was_written_before_the_disk_was_full_stays() -> None:
    """The first segment takes its part; the second one cannot be begun."""
    fs = SimulatedFileSystem()
    log = open_log(fs)
    append(log, 6)
    room = fs.used_bytes() + 2 * len(batch(b"0")) + 10
    fs.capacity_bytes = room
    outcomes = all_at_once(log, *[batch(b"0")] * 6)
    written = [outcome for outcome in outcomes if isinstance(outcome, AppendInfo)]
    assert bases(outcomes) == list(range(6, 6 + len(written))) + [DiskFullError] * (6 - len(written))
    assert 0 < len(written) < 6
    assert log.log_end_offset == 6 + len(written) == len(offsets(log))


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.TRUNCATE])
def test_any_other_failure_of_a_write_fails_the_log(operation: Operation) -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs)
    append(log, 2)
    if operation is Operation.TRUNCATE:  # of the half-written batch
        fs.capacity_bytes = fs.used_bytes() + 10
    fs.faults.fail_next(operation, error_number=errno.EIO)
    with pytest.raises(StorageError):
        all_at_once(log, batch(), batch())
    assert log.failed
    assert log.log_end_offset == 2


def test_admission_is_asked_before_anything_is_written() -> None:
    fs = CountingDisk()
    asked: list[int] = []

    def admission(size_bytes: int) -> None:
        asked.append(size_bytes)
        if len(asked) > 2:
            raise DiskFullError("read-only")

    log = Log.open(
        fs, "/data/t-0", WIDE, topic_partition="t-0", recovery_point=0, log_start_offset=0, clean=True, now_ms=T0,
        admission=admission,
    )  # fmt: skip
    log.append_as_leader(batch(), leader_epoch=0, now_ms=T0)
    fs.writes = 0
    assert bases(all_at_once(log, batch(), batch(), leader_epoch=4)) == [DiskFullError] * 2
    with pytest.raises(DiskFullError):
        log.append_as_follower(stored(batch(), 1, 9), now_ms=T0)
    assert fs.writes == 0
    assert asked == [len(batch())] * 4
    assert log.log_end_offset == 1
    assert 9 not in dict(log.leader_epochs.entries)


def test_a_power_cut_inside_a_group_leaves_a_prefix_of_it() -> None:
    lengths = set()
    for seed in range(60):
        fs = SimulatedFileSystem()
        log = open_log(fs, config=LogConfig())
        append(log, 2)
        log.flush()
        whole = [stored(batch(b"x" * 300, timestamp_ms=T0), 2 + number, 0) for number in range(6)]
        all_at_once(log, *[batch(b"x" * 300)] * 6)
        fs.crash(random.Random(seed))
        found = content(open_log(fs, config=LogConfig(), recovery_point=2))[2:]
        assert found == whole[: len(found)]
        lengths.add(len(found))
    assert len(lengths) > 3


def test_a_power_cut_between_the_segments_of_a_group_loses_nothing_below_the_recovery_point() -> None:
    for operations in range(20):
        fs = SimulatedFileSystem()
        log = open_log(fs)
        append(log, 5)
        log.flush()
        kept = content(log)
        fs.faults.cut_power_after(operations)
        with contextlib.suppress(PowerCutError):
            all_at_once(log, *[batch(b"x" * 50)] * 12)
        fs.crash(random.Random(operations))
        found = content(open_log(fs, recovery_point=5))
        assert found[:5] == kept
        assert [parse_header(each).base_offset for each in found] == list(range(len(found)))
