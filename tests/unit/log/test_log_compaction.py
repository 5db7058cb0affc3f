"""Compaction of a log while its owner goes on: what may happen meanwhile, and what can go wrong."""

from __future__ import annotations

import errno
import random

import pytest
from log_compaction_kit import COMPACTED, compact, end_transaction, new_log, put, records, seal
from log_test_kit import T0, content, open_log
from msgspec.structs import replace

from replog.errors import (
    BrokerClosedError,
    CorruptRecordError,
    DiskFullError,
    InvariantViolationError,
    StorageError,
)
from replog.log import Cleanup, CompactionJob, CompactionSettings, Log, Throttle
from replog.records import Codec, decode_batch, parse_header
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import FileSystem

FOLDER = "/data/t-0"


def filled(fs: FileSystem, count: int = 60, keys: int = 7) -> Log:
    """Several sealed segments of batches of two records."""
    log = new_log(fs)
    for number in range(count):
        put(log, (b"k%d" % (number % keys), b"%d" % number), (b"k%d" % (number * 3 % keys), b"%d'" % number))
    seal(log)
    return log


def prepared(log: Log) -> CompactionJob:
    job = log.prepare_compaction(T0, log.log_end_offset)
    assert job is not None
    return job


def newest(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {key: (offset, value) for offset, key, value in records(log)}


def leftovers(fs: FileSystem) -> list[str]:
    return [name for name in fs.list_dir(FOLDER) if name.endswith((".cleaned", ".swap"))]


def reopened(fs: SimulatedFileSystem, log: Log, **options: int) -> Log:
    fs.kill()
    return open_log(fs, config=log.config, recovery_point=log.flushed_offset, **options)  # type: ignore[arg-type]


# What is left


def test_of_every_key_the_newest_record_is_left_and_offsets_stay() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    before, end_offset, segments = newest(log), log.log_end_offset, len(log.segment_base_offsets)
    stats = compact(log)
    assert stats is not None
    assert {key: (offset, value) for offset, key, value in records(log)} == before
    assert len(records(log)) == len(before)
    assert log.log_end_offset == end_offset == stats.clean_end_offset == log.first_dirty_offset
    assert (stats.segments_before, stats.records_kept) == (segments - 1, len(before))
    assert stats.bytes_written < stats.bytes_read
    assert "records kept" in stats.describe()
    assert leftovers(fs) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_what_is_left_is_found_again(clean: bool, checkpointed: bool) -> None:
    """Without a recovery point too: no gap between two segments looks like a power cut."""
    fs = SimulatedFileSystem()
    log = filled(fs)
    compact(log)
    put(log, (b"later", b"1"))
    found, recovery_point = content(log), log.log_end_offset
    log.close(T0)
    again = open_log(
        fs, config=COMPACTED, recovery_point=recovery_point if checkpointed else 0, clean=clean and checkpointed
    )
    assert content(again) == found
    assert again.recovery.bytes_cut == 0


def test_every_offset_and_time_is_found() -> None:
    log = filled(SimulatedFileSystem())
    compact(log)
    batches = content(log)
    left = [record for data in batches for record in decode_batch(data)]
    for offset in range(log.log_end_offset):
        expected = next(data for data in batches if parse_header(data).last_offset >= offset)
        assert log.read(offset, max_bytes=1, end_offset=log.log_end_offset, min_one_batch=True) == expected
    for stamp in range(T0 - 1, max(record.timestamp for record in left) + 2):
        expected_time = next(((one.offset, one.timestamp) for one in left if one.timestamp >= stamp), None)
        assert log.offset_for_timestamp(stamp, end_offset=log.log_end_offset) == expected_time


def test_small_segments_become_one() -> None:
    log = filled(SimulatedFileSystem())
    compact(log)
    put(log, (b"k0", b"last"))
    seal(log)
    before = newest(log)
    stats = compact(log)
    assert stats is not None
    assert stats.segments_before > 3 > stats.segments_after
    assert newest(log) == before


def test_a_full_map_takes_several_passes() -> None:
    log = new_log(SimulatedFileSystem())
    for number in range(150):
        put(log, (b"%d" % (number % 50), b"a"), (b"%d" % (number * 7 % 50), b"b"))
    seal(log)
    before = newest(log)
    settings = CompactionSettings(dedupe_buffer_bytes=1024)  # 38 keys
    ends = []
    while (stats := compact(log, settings=settings)) is not None:
        ends.append(stats.clean_end_offset)
        assert stats.keys_count <= 38
        assert newest(log) == before
    assert len(ends) > 2
    assert ends == sorted(set(ends))
    assert ends[-1] == log.log_end_offset
    assert len(records(log)) == 50


def test_a_result_larger_than_a_segment_becomes_two() -> None:
    log = new_log(SimulatedFileSystem(), replace(COMPACTED, segment_bytes=4000))
    for number in range(30):
        put(log, (b"%d" % number, b"v" * 50))
    seal(log)
    log.set_config(replace(log.config, segment_bytes=700))
    before = records(log)
    stats = compact(log)
    assert stats is not None
    assert stats.segments_after > stats.segments_before
    assert records(log) == before
    bases = log.segment_base_offsets
    assert all(log.read(base, max_bytes=1, end_offset=30, min_one_batch=True) for base in bases[:-1])


def test_compressed_batches_are_compressed_again() -> None:
    log = new_log(SimulatedFileSystem())
    put(log, *[(b"%d" % i, b"v" * 40) for i in range(10)], codec=Codec.GZIP)
    put(log, (b"3", b"new"))
    seal(log)
    compact(log)
    headers = [parse_header(data) for data in content(log)]
    assert [(header.codec, header.records_count) for header in headers] == [(Codec.GZIP, 9), (Codec.NONE, 1)]


def test_the_transaction_index_says_what_is_left() -> None:
    fs = SimulatedFileSystem()
    log = new_log(fs)
    for number in range(8):
        put(log, (b"a", b"%d" % number), producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True)
        put(log, (b"b", b"%d" % number))
        end_transaction(log, 1, is_commit=number % 2 == 0)
    seal(log)
    compact(log)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert [one.last_offset for one in aborted] == [5, 11, 17, 23]
    assert [value for _, key, value in records(log) if key == b"a"] == [b"6"]
    again = reopened(fs, log)
    assert again.aborted_transactions(0, log.log_end_offset) == aborted
    put(again, (b"c", b"1"))
    seal(again)
    compact(again, now_ms=T0 + 1)
    left = again.aborted_transactions(0, log.log_end_offset)  # the last batch of a producer keeps its marker
    assert [one.last_offset for one in left] == [23]


def test_producers_go_on_after_a_restart() -> None:
    fs = SimulatedFileSystem()
    log = new_log(fs)
    for number in range(40):
        put(log, (b"a", b"%d" % number), producer_id=number % 3, producer_epoch=2, base_sequence=number // 3)
    seal(log)
    compact(log)
    snapshot = sorted(log.producers.to_snapshot())
    for name in fs.list_dir(FOLDER):
        if name.endswith(".snapshot"):
            fs.remove(f"{FOLDER}/{name}")
    assert sorted(reopened(fs, log).producers.to_snapshot()) == snapshot


# What the owner does meanwhile


def test_only_one_pass_at_a_time_and_only_where_it_is_wanted() -> None:
    log = filled(SimulatedFileSystem())
    job = prepared(log)
    assert log.prepare_compaction(T0, log.log_end_offset) is None
    job.run()
    assert log.complete_compaction(job, T0) is not None
    with pytest.raises(InvariantViolationError):
        log.complete_compaction(job, T0)
    log.set_config(replace(log.config, cleanup_policy=Cleanup.DELETE))
    put(log, (b"a", b"1"))
    seal(log)
    assert log.prepare_compaction(T0, log.log_end_offset) is None


def test_appends_and_rolls_go_on() -> None:
    log = filled(SimulatedFileSystem())
    job = prepared(log)
    job.run()
    for number in range(20):
        put(log, (b"k0", b"later %d" % number))
    expected = newest(log)
    flush = log.prepare_flush()
    assert flush is not None
    assert log.complete_compaction(job, T0) is not None
    flush.run()
    log.complete_flush(flush)
    assert newest(log) == expected
    assert log.flushed_offset == log.log_end_offset


def test_a_read_in_another_thread_reads_on() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    job = prepared(log)
    job.run()
    read = log.prepare_read(3, max_bytes=1 << 16, end_offset=log.log_end_offset, min_one_batch=True)
    log.complete_compaction(job, T0)
    read.run()
    found = log.complete_read(read)
    assert found is not None
    assert parse_header(found).base_offset == 2
    left = content(log)
    assert [parse_header(data).base_offset for data in left] == sorted(parse_header(data).base_offset for data in left)


@pytest.mark.parametrize("runs_first", [True, False])
def test_a_truncation_throws_the_result_away(runs_first: bool) -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    job = prepared(log)
    if runs_first:
        job.run()
    log.truncate_to(50)
    if not runs_first:
        job.run()
    left = records(log)
    assert log.complete_compaction(job, T0) is None
    assert records(log) == left
    assert leftovers(fs) == []
    assert prepared(log) is not job


def test_a_segment_that_was_cut_and_filled_again_is_not_exchanged() -> None:
    """It is the same segment of the same log, with other records in it."""
    log = new_log(SimulatedFileSystem())
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    seal(log)
    job = prepared(log)
    job.run()
    log.truncate_to(1)
    put(log, (b"b", b"acknowledged"), leader_epoch=1)
    seal(log)
    assert log.complete_compaction(job, T0) is None
    assert records(log) == [(0, b"a", b"1"), (1, b"b", b"acknowledged")]


def test_a_truncation_lowers_the_first_dirty_offset() -> None:
    log = filled(SimulatedFileSystem())
    compact(log)
    log.truncate_to(20)
    assert log.first_dirty_offset <= log.log_end_offset <= 20


def test_deleted_segments_do_not_come_back() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    job = prepared(log)
    job.run()
    log.set_log_start_offset(log.segment_base_offsets[2])
    assert log.delete_old_segments(T0, log.log_end_offset) == 2
    left = records(log)
    assert log.complete_compaction(job, T0) is None
    assert records(log) == left
    assert leftovers(fs) == []


def test_closing_cancels_the_pass() -> None:
    log = filled(SimulatedFileSystem())
    job = prepared(log)
    log.close(T0)
    assert job.is_cancelled
    job.run()
    assert log.complete_compaction(job, T0) is None
    with pytest.raises(BrokerClosedError):
        log.prepare_compaction(T0, 0)


def test_a_pass_ends_early_when_it_is_cancelled() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    job, before = prepared(log), records(log)
    slept: list[float] = []

    def cancel(seconds: float) -> None:
        slept.append(seconds)
        job.cancel()

    job.run(Throttle(100, clock=lambda: 0.0, sleep=cancel))
    assert len(slept) == 1
    assert job.error is None
    assert log.complete_compaction(job, T0) is None
    assert records(log) == before
    assert leftovers(fs) == []


def test_a_log_that_is_deleted_takes_its_pass_with_it() -> None:
    log = filled(SimulatedFileSystem())
    job = prepared(log)
    log.close_for_good()
    job.run()
    assert log.complete_compaction(job, T0) is None


# What goes wrong


def test_a_damaged_batch_stops_the_pass_and_leaves_the_log_as_it_is() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    path = f"{FOLDER}/{log.segment_base_offsets[1]:020d}.log"
    before = fs.list_dir(FOLDER)
    fs.flip_bit(path, 90)
    job = prepared(log)
    job.run()
    with pytest.raises(CorruptRecordError) as caught:
        log.complete_compaction(job, T0)
    assert caught.value.path == path
    assert not log.failed
    assert fs.list_dir(FOLDER) == before
    put(log, (b"a", b"1"))


def test_a_full_disk_leaves_the_log_as_it_is() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    before, names = records(log), fs.list_dir(FOLDER)
    fs.capacity_bytes = fs.used_bytes() + 300
    job = prepared(log)
    job.run()
    with pytest.raises(DiskFullError):
        log.complete_compaction(job, T0)
    assert (records(log), fs.list_dir(FOLDER), log.failed) == (before, names, False)
    fs.capacity_bytes = None
    assert compact(log) is not None


@pytest.mark.parametrize(
    ("operation", "fails"), [(Operation.READ, False), (Operation.SYNC, True), (Operation.WRITE, False)]
)
def test_a_failed_fsync_is_the_end_of_the_log_other_errors_are_not(operation: Operation, fails: bool) -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    job = prepared(log)
    fs.faults.fail_next(
        operation, error_number=errno.EIO, path_part=".cleaned" if operation is not Operation.READ else ".log"
    )
    job.run()
    with pytest.raises(StorageError):
        log.complete_compaction(job, T0)
    assert log.failed is fails


def test_a_failed_rename_fails_the_log_and_the_next_start_finds_all_of_it() -> None:
    fs = SimulatedFileSystem()
    log = filled(fs)
    expected = newest(log)
    job = prepared(log)
    job.run()
    fs.faults.fail_next(Operation.RENAME, error_number=errno.EIO)
    with pytest.raises(StorageError):
        log.complete_compaction(job, T0)
    assert log.failed
    assert newest(reopened(fs, log)) == expected


# Retention beside it


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [
        (Cleanup.COMPACT, False),
        (Cleanup.DELETE, True),
        (Cleanup.COMPACT | Cleanup.DELETE, True),
    ],
)
def test_retention_applies_where_the_policy_says_so(policy: Cleanup, deleted: bool) -> None:
    log = filled(SimulatedFileSystem())
    log.set_config(replace(log.config, cleanup_policy=policy, retention_ms=1, retention_bytes=1))
    assert (log.delete_old_segments(T0 + 1_000_000, log.log_end_offset) > 0) is deleted


def test_segments_are_rolled_before_the_lag_is_over() -> None:
    log = new_log(SimulatedFileSystem(), replace(COMPACTED, max_compaction_lag_ms=50))
    put(log, (b"a", b"1"))
    log.maybe_roll(T0 + 50)
    assert log.segment_base_offsets == [0]
    log.maybe_roll(T0 + 51)
    assert log.segment_base_offsets == [0, 1]


# Throttle


def test_the_throttle_keeps_the_rate() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(1000, clock=lambda: now[0], sleep=sleep)
    throttle.take(1000)
    now[0] += 0.1
    throttle.take(600)
    assert slept == [pytest.approx(0.5)]
    for _ in range(20):
        throttle.take(500)
    assert now[0] == pytest.approx(0.6 + 10, abs=0.01)
    assert throttle.slept_seconds == pytest.approx(sum(slept))
    now[0] += 100  # not saved up
    throttle.take(1500)
    assert slept[-1] == pytest.approx(0.5)


def test_a_pass_takes_what_it_reads_and_writes() -> None:
    log = filled(SimulatedFileSystem())
    slept: list[float] = []
    job = prepared(log)
    job.run(Throttle(10, clock=lambda: 0.0, sleep=slept.append))
    stats = log.complete_compaction(job, T0)
    assert stats is not None
    assert stats.throttle_seconds == pytest.approx(sum(slept))
    assert sum(slept) * 10 >= stats.map_bytes_read + stats.bytes_read + stats.bytes_written - 10


def test_random_seeds_do_not_matter() -> None:
    """The hash of keys is keyed anew in each pass."""
    rng = random.Random(4711)
    pairs = [(rng.randbytes(3), rng.randbytes(5)) for _ in range(80)]
    results = []
    for _ in range(2):
        log = new_log(SimulatedFileSystem())
        for pair in pairs:
            put(log, pair)
        seal(log)
        compact(log)
        results.append(content(log))
    assert results[0] == results[1]
