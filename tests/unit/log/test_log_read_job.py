"""Reads from the page cache alone, and reads in another thread while the owner goes on."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable

import pytest
from log_test_kit import T0, TINY, append, batch, content, filled, offsets, open_log, stored, write_file

from replog.errors import BrokerClosedError, CorruptRecordError, OffsetOutOfRangeError, StorageError
from replog.log import Log, LogConfig, ReadJob, SearchJob
from replog.log.recovery.completeness import COMPLETE_FROM_FILE
from replog.records import Codec, encode_batch, scan
from replog.records._crc32c import crc32c
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import OpenMode
from tests.interrupting import Stepper

BIG = batch(b"x" * 5000)


def make_cold(fs: SimulatedFileSystem, log: Log) -> None:
    """Everything is on the disk, nothing in the page cache."""
    log.flush()
    for name in fs.list_dir(log.directory):
        if name.endswith(".log"):
            file = fs.open(f"{log.directory}/{name}", OpenMode.READ)
            file.drop_cache(0, 1 << 30)
            file.close()


def cold(count: int = 20, config: LogConfig = TINY) -> tuple[SimulatedFileSystem, Log]:
    fs, log = filled(count, config=config)
    make_cold(fs, log)
    return fs, log


def prepared(log: Log, offset: int, *, max_bytes: int = 1 << 20, end_offset: int = 1 << 40) -> ReadJob:
    return log.prepare_read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True)


def run(job: ReadJob) -> None:
    thread = threading.Thread(target=job.run)
    thread.start()
    thread.join()


def bases(data: bytes | None) -> list[int]:
    assert data is not None
    return [header.base_offset for header in scan(data)]


def test_a_cached_read_is_a_read_or_none() -> None:
    fs, log = filled(20)
    for offset in range(21):
        for max_bytes in (0, 100, 300, 1 << 20):
            for end_offset in (offset, offset + 2, 100):
                wanted = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True)
                found = log.read_cached(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True)
                assert found == wanted
    make_cold(fs, log)
    assert log.read_cached(3, max_bytes=100, end_offset=20, min_one_batch=True) is None
    assert log.read_cached(20, max_bytes=100, end_offset=20, min_one_batch=True) == b""
    assert log.read_cached(3, max_bytes=100, end_offset=3, min_one_batch=True) == b""
    log.read(3, max_bytes=100, end_offset=20, min_one_batch=True)
    assert bases(log.read_cached(3, max_bytes=100, end_offset=20, min_one_batch=True)) == [3]


def test_a_cached_read_that_misses_keeps_its_place() -> None:
    fs, log = filled(5, config=LogConfig())
    log.append_as_leader(BIG, leader_epoch=0, now_ms=T0)
    log.append_as_leader(BIG, leader_epoch=0, now_ms=T0)
    log.read(4, max_bytes=1, end_offset=5, min_one_batch=True)
    before = list(log._reader.places)
    assert len(before) == 1
    make_cold(fs, log)
    assert log.read_cached(5, max_bytes=1 << 20, end_offset=7, min_one_batch=True) is None
    assert list(log._reader.places) == before


@pytest.mark.parametrize("max_bytes", [0, 100, 300, 1 << 20])
def test_a_job_reads_what_a_read_would(max_bytes: int) -> None:
    fs, log = cold(30)
    for offset in range(31):
        for end_offset in (offset + 1, offset + 3, 100):
            make_cold(fs, log)
            job = prepared(log, offset, max_bytes=max_bytes, end_offset=end_offset)
            run(job)
            found = log.complete_read(job)
            assert found == log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=True)


def test_a_job_sees_the_log_as_it_was_prepared() -> None:
    _, log = cold(4, LogConfig())
    job = prepared(log, 1)
    append(log, 3)
    log.roll(T0)
    append(log, 3)
    run(job)
    assert bases(log.complete_read(job)) == [1, 2, 3]
    assert bases(log.read(4, max_bytes=1 << 20, end_offset=100, min_one_batch=True)) == [4, 5, 6]


def test_what_a_job_reads_is_kept_open_through_a_deletion() -> None:
    fs, log = cold(30, LogConfig(segment_bytes=600, retention_ms=-1, retention_bytes=0, file_delete_delay_ms=0))
    job = prepared(log, 3)
    assert log.delete_old_segments(T0, high_watermark=30) > 0
    log.remove_deleted_files(T0 + 1)
    run(job)
    assert bases(job.outcome.found.data if job.outcome else b"")[0] == 3
    with pytest.raises(OffsetOutOfRangeError):
        log.complete_read(job)
    log.close(T0)
    assert not fs._files


def test_many_jobs_hold_only_what_they_read() -> None:
    """A file is closed when the last job that reads it has ended, whatever other jobs there are."""
    fs, log = cold(40)
    jobs = [prepared(log, offset) for offset in range(0, 40, 4)]
    log.close(T0)
    for job in jobs:
        open_before = len(fs._files)
        run(job)
        with pytest.raises(BrokerClosedError):
            log.complete_read(job)
        assert len(fs._files) <= open_before
    assert not fs._files


@pytest.mark.parametrize("ran", [True, False])
def test_a_truncation_makes_a_job_worthless(ran: bool) -> None:
    _, log = cold()
    job = prepared(log, 2)
    if ran:
        run(job)
    log.truncate_to(5)
    append(log, 4, leader_epoch=1)
    if not ran:
        run(job)
    assert log.complete_read(job) is None
    assert bases(log.read(2, max_bytes=1, end_offset=100, min_one_batch=True)) == [2]


def test_an_error_met_because_of_a_truncation_is_nobodys() -> None:
    fs, log = cold()
    job = prepared(log, 18)
    log.truncate_to(17)
    fs.faults.fail_next(Operation.READ)
    run(job)
    assert job.error is not None
    assert log.complete_read(job) is None


def test_a_disk_that_does_not_give_the_bytes() -> None:
    fs, log = cold()
    for read in (
        lambda: log.read(3, max_bytes=1, end_offset=20, min_one_batch=True),
        lambda: log.offset_for_timestamp(T0 + 3, end_offset=20),
    ):
        fs.faults.fail_next(Operation.READ)
        with pytest.raises(StorageError, match="cannot be read"):
            read()
    job = prepared(log, 3)
    fs.faults.fail_next(Operation.READ)
    run(job)
    with pytest.raises(StorageError, match="cannot be read"):
        log.complete_read(job)
    assert not log.failed, "what was written is still known"
    assert len(offsets(log)) == 20


def test_damage_is_told_by_a_job_as_by_a_read() -> None:
    fs, log = cold(4, LogConfig())
    fs.flip_bit(f"{log.directory}/{0:020d}.log", 8, 7)  # the length of the first batch
    job = prepared(log, 1)
    run(job)
    with pytest.raises(CorruptRecordError):
        log.complete_read(job)


def test_a_job_that_never_ran_says_nothing_and_lets_go() -> None:
    fs, log = cold()
    job = prepared(log, 3)
    assert log.complete_read(job) is None
    log.close(T0)
    assert not fs._files


def test_a_job_for_nothing() -> None:
    _, log = cold()
    job = prepared(log, 20)
    run(job)
    assert log.complete_read(job) == b""
    with pytest.raises(OffsetOutOfRangeError):
        prepared(log, 21)


def test_a_reader_goes_on_where_a_job_ended() -> None:
    _, log = cold(20, LogConfig())
    job = prepared(log, 0, end_offset=7)
    run(job)
    log.complete_read(job)
    assert 7 in log._reader._places


CHANGES: list[Callable[[Log], object]] = [
    lambda log: append(log, 3, leader_epoch=9),
    lambda log: log.roll(T0),
    lambda log: log.truncate_to(max(log.log_start_offset, log.log_end_offset - 4)),
    lambda log: log.delete_old_segments(T0 + 10**6, high_watermark=log.log_end_offset),
    lambda log: log.flush(),
]


@pytest.mark.parametrize("seed", range(12))
def test_jobs_beside_an_owner_that_goes_on(seed: int) -> None:
    """Whatever happens meanwhile, a job answers with records that were in the log when it was prepared, or not at all."""
    rng = random.Random(seed)
    fs, log = filled(30, config=LogConfig(segment_bytes=600, retention_ms=1000), leader_epoch=9)
    for _ in range(30):
        make_cold(fs, log)
        before = dict(zip(offsets(log), content(log), strict=True))
        offset = rng.randint(log.log_start_offset, log.log_end_offset)
        job = prepared(log, offset, max_bytes=rng.choice([0, 200, 1 << 20]))
        thread = threading.Thread(target=job.run)
        thread.start()
        for change in rng.sample(CHANGES, 2):
            change(log)
        thread.join()
        try:
            found = log.complete_read(job)
        except OffsetOutOfRangeError:
            assert offset < log.log_start_offset
            continue
        for header in scan(found or b""):
            assert before[header.base_offset] == (found or b"")[header.position : header.end_position]


def test_segments_without_a_batch_close_no_file_under_a_job() -> None:
    """Kafka's cleaner leaves them, many in a row: a job must not have the file closed that it begins with."""
    fs, log = filled(5, config=LogConfig())
    log.close(T0)
    fs.remove(f"/data/t-0/{COMPLETE_FROM_FILE}")
    for base_offset in range(5, 9):
        write_file(fs, f"/data/t-0/{base_offset:020d}.log", b"")
    write_file(fs, f"/data/t-0/{9:020d}.log", stored(batch(b"9"), 9, 0))
    log = open_log(fs, config=LogConfig(), recovery_point=10, clean=True)
    log.roll(T0)
    log.flush()
    assert log.segment_base_offsets == [0, *range(5, 11)]
    for offset, found in ((1, [1, 2, 3, 4]), (5, [9]), (9, [9])):
        job = prepared(log, offset)
        run(job)
        assert bases(log.complete_read(job)) == found
        assert len(job.files) <= 2


def test_a_read_costs_the_same_however_many_wait() -> None:
    _, log = cold()
    steps = []
    for waiting in (1, 200):
        jobs = [prepared(log, 3) for _ in range(waiting)]
        stepper = Stepper(0)
        stepper.run(lambda: log.complete_read(prepared(log, 3)))
        steps.append(stepper.steps)
        for job in jobs:
            log.complete_read(job)
    assert 0 < steps[1] == steps[0]


# ---- searches by time ------------------------------------------------------------------------------------------------------


def searched(log: Log, found: SearchJob | tuple[int, int] | None) -> tuple[int, int] | None:
    while isinstance(found, SearchJob):
        run(found)
        found = log.complete_search(found)
    return found


def lying(count: int) -> bytes:
    """A batch whose header claims a later time than any of its records has."""
    data = bytearray(batch(*[b"v"] * count))
    struct.pack_into(">q", data, 35, T0 + 1_000)  # the largest timestamp
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def test_a_search_is_what_the_log_was_when_it_began() -> None:
    _, log = cold(40)
    for offset in range(41):
        wanted = log.offset_for_timestamp(T0 + offset, end_offset=40)
        assert searched(log, log.prepare_search(T0 + offset, end_offset=40)) == wanted
        wanted = log.first_record(offset, end_offset=40)
        assert searched(log, log.prepare_search_from(offset, end_offset=40)) == wanted


def test_segments_may_go_and_come_while_one_is_searched() -> None:
    log = open_log(SimulatedFileSystem())
    for _ in range(20):
        log.append_as_leader(lying(2), leader_epoch=0, now_ms=T0)
    log.append_as_leader(batch(timestamp_ms=T0 + 2_000), leader_epoch=0, now_ms=T0)
    log.flush()
    job = log.prepare_search(T0 + 999, end_offset=100)
    assert isinstance(job, SearchJob)
    log.set_log_start_offset(30)
    assert log.delete_old_segments(T0, 41)
    log.append_as_leader(batch(timestamp_ms=T0 + 3_000), leader_epoch=0, now_ms=T0)
    assert searched(log, job) == (40, T0 + 2_000)


def test_a_search_in_a_log_that_was_cut_or_closed_says_nothing() -> None:
    _, log = cold()
    job = log.prepare_search(T0 + 17, end_offset=20)
    assert job is not None
    log.truncate_to(5)
    run(job)
    assert log.complete_search(job) is None
    job = log.prepare_search(T0 + 3, end_offset=20)
    assert job is not None
    log.close(T0)
    run(job)
    with pytest.raises(BrokerClosedError):
        log.complete_search(job)


def test_a_batch_that_is_too_large_when_decompressed_counts_as_its_header_says() -> None:
    log = open_log(SimulatedFileSystem())
    data = encode_batch([(T0 + n, None, bytes(1_000), ()) for n in range(50)], codec=Codec.GZIP)
    log.append_as_leader(data, leader_epoch=0, now_ms=T0)
    assert log.offset_for_timestamp(T0 + 20, end_offset=50) == (20, T0 + 20)
    assert log.offset_for_timestamp(T0 + 20, end_offset=50, max_decompressed_bytes=10_000) == (0, T0 + 49)


def test_a_disk_that_does_not_give_the_bytes_of_a_search() -> None:
    fs, log = cold()
    job = log.prepare_search(T0 + 3, end_offset=20)
    assert job is not None
    fs.faults.fail_next(Operation.READ)
    run(job)
    with pytest.raises(StorageError, match="cannot be read"):
        log.complete_search(job)
