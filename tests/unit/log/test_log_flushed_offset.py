"""The `flushed-offset` file: what it says after crashes and cuts, and what a start makes of damage below it."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from log_test_kit import T0, TINY, append, batch, content, open_log, read_file, stored, write_file
from msgspec.structs import replace

from replog.errors import CorruptRecordError
from replog.log import Cleanup, Log, LogConfig
from replog.log.deletion import retire_directory
from replog.log.recovery.flushed_offset import (
    RECORD_BYTES,
    FlushedOffsetFile,
    decode_flushed_offset,
    encode_flushed_offset,
)
from replog.testing.simulated_faults import Operation
from replog.testing.simulated_filesystem import SimulatedFileSystem

DIRECTORY = "/data/t-0"
FILE = f"{DIRECTORY}/flushed-offset"
BIG = LogConfig(index_interval_bytes=100)
FLUSHED, WRITTEN = 20, 25
UNCHECKED_BYTES = {*range(12, 16)}
"""Of a batch header: the leader epoch, which no checksum covers and in which a flip loses nothing."""


def said(fs: SimulatedFileSystem) -> int | None:
    return FlushedOffsetFile.load(fs, DIRECTORY).offset


def killed(config: LogConfig = BIG, *, flushed: int = FLUSHED) -> tuple[SimulatedFileSystem, list[bytes]]:
    """A log of 25 batches after kill -9, of which 20 were fsynced, and its batches; no checkpoint knows of any."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=config)
    append(log, flushed)
    log.flush()
    append(log, WRITTEN - flushed)
    batches = content(log)
    fs.kill()
    return fs, batches


def test_the_bytes_of_the_file() -> None:
    assert encode_flushed_offset(1000).hex(" ") == "00 01 00 00 00 00 00 00 03 e8 4a ed 7e 6f"
    assert decode_flushed_offset(encode_flushed_offset(1000) + b"more") == 1000
    for place in range(RECORD_BYTES):
        for bit in range(8):
            flipped = bytearray(encode_flushed_offset(1000))
            flipped[place] ^= 1 << bit
            assert decode_flushed_offset(bytes(flipped)) is None
        assert decode_flushed_offset(encode_flushed_offset(1000)[:place]) is None


def test_after_kill_9_it_says_exactly_what_was_fsynced() -> None:
    fs, _ = killed()
    assert said(fs) == FLUSHED


@pytest.mark.parametrize("flushed", [FLUSHED, WRITTEN])
@pytest.mark.parametrize("config", [BIG, TINY], ids=["one segment", "many segments"])
def test_one_flipped_bit_after_kill_9_is_never_a_silent_loss(config: LogConfig, flushed: int) -> None:
    """Every byte of the log, in one layout or the other: below what was flushed it is refused, and nothing is changed; above
    it is cut there.
    """
    fs, batches = killed(config, flushed=flushed)
    offset = 0
    logs = sorted(path for path in fs.image() if path.endswith(".log"))
    for path, data in [(path, read_file(fs, path)) for path in logs]:
        position = 0
        while position < len(data):
            size_bytes = len(batches[offset])
            for byte in set(range(config is TINY, size_bytes, 2)) - UNCHECKED_BYTES:
                check_flip(fs.copied(), config, path, position + byte, batches, is_flushed=offset < flushed)
            position, offset = position + size_bytes, offset + 1
    assert offset == WRITTEN


def check_flip(
    fs: SimulatedFileSystem, config: LogConfig, path: str, place: int, batches: list[bytes], *, is_flushed: bool
) -> None:
    fs.flip_bit(path, place, (place * 5 + 3) % 8)
    before = fs.image()
    if is_flushed:
        with pytest.raises(CorruptRecordError, match=f"repair {DIRECTORY} --accept-loss"):
            open_log(fs, config=config)
        assert fs.image() == before, f"byte {place} of {path}: a refusal has changed something"
    else:
        log = open_log(fs, config=config)
        assert content(log)[:FLUSHED] == batches[:FLUSHED], f"byte {place} of {path}: flushed records are gone"


@pytest.mark.parametrize("left_bytes", [0, 1, 61, 500])
def test_a_file_that_became_shorter_than_what_was_flushed_is_refused(left_bytes: int) -> None:
    fs, _ = killed()
    path = f"{DIRECTORY}/{0:020d}.log"
    write_file(fs, path, read_file(fs, path)[:left_bytes])
    with pytest.raises(CorruptRecordError, match="below offset 20 was flushed"):
        open_log(fs, config=BIG)


@pytest.mark.parametrize("kept", ["none", "first"])
def test_missing_segments_are_refused(kept: str) -> None:
    """With their indexes; the recovery point may be unknown."""
    fs, _ = killed(TINY)
    for path in fs.image():
        if path.startswith(f"{DIRECTORY}/0") and not (kept == "first" and path.startswith(f"{DIRECTORY}/{0:020d}")):
            fs.remove(path)
    with pytest.raises(CorruptRecordError, match="below offset 20 was flushed"):
        open_log(fs, config=TINY)


def test_above_what_was_flushed_a_torn_tail_is_cut() -> None:
    fs, batches = killed()
    path = f"{DIRECTORY}/{0:020d}.log"
    write_file(fs, path, read_file(fs, path)[:-1])
    assert content(open_log(fs, config=BIG)) == batches[:-1]


@pytest.mark.parametrize("damaged", [b"", b"\0" * RECORD_BYTES, encode_flushed_offset(99)[:-1] + b"x"])
def test_a_damaged_file_says_nothing_and_is_written_again(damaged: bytes) -> None:
    fs, batches = killed()
    write_file(fs, FILE, damaged)
    log = open_log(fs, config=BIG)
    assert (said(fs), content(log)) == (None, batches)
    log.flush()
    assert said(fs) == WRITTEN


@pytest.mark.parametrize("offset", [0, 7, FLUSHED - 1])
def test_a_cut_lowers_it_durably_before_anything_is_cut(offset: int) -> None:
    fs, _ = killed()
    log = open_log(fs, config=BIG)
    log.flush()
    fs.faults.fail_next(Operation.TRUNCATE, path_part=".log")
    with pytest.raises(Exception, match="truncation failed"):
        log.truncate_to(offset)
    assert fs.durable_content(FILE) == encode_flushed_offset(offset)


def test_starting_anew_promises_nothing_until_the_next_flush() -> None:
    fs, _ = killed()
    log = open_log(fs, config=BIG)
    log.truncate_fully_and_start_at(100)
    assert said(fs) == 0
    append(log, 1)
    log.flush()
    assert said(fs) == 101


def test_a_flush_that_a_cut_has_overtaken_writes_nothing() -> None:
    fs, _ = killed()
    log = open_log(fs, config=BIG)
    job = log.prepare_flush()
    assert job is not None
    log.truncate_to(5)
    job.run()
    assert said(fs) == 5
    log.complete_flush(job)


def test_a_flush_that_outlives_its_log_writes_nothing() -> None:
    """The folder's name may belong to another log by then."""
    fs, _ = killed()
    log = open_log(fs, config=BIG)
    job = log.prepare_flush()
    assert job is not None
    log.close_for_good()
    retire_directory(fs, log.directory, UUID(int=5)).run()
    other = open_log(fs, config=BIG)
    job.run()
    assert (said(fs), other.log_end_offset) == (None, 0)


def test_a_failed_fsync_moves_nothing() -> None:
    fs, _ = killed()
    log = open_log(fs, config=BIG)
    fs.faults.fail_next(Operation.SYNC, path_part=".log")
    with pytest.raises(Exception, match="nothing more is appended"):
        log.flush()
    assert said(fs) == FLUSHED


def test_a_write_that_fails_leaves_a_lower_bound_and_the_flush_counts(caplog: pytest.LogCaptureFixture) -> None:
    fs, _ = killed()
    log = open_log(fs, config=BIG)
    fs.faults.fail_next(Operation.WRITE, path_part="flushed-offset")
    log.flush()
    assert (said(fs), log.flushed_offset) == (FLUSHED, WRITTEN)
    assert "knows less" in caplog.text
    append(log, 1)
    log.flush()
    assert said(fs) == WRITTEN + 1


def test_after_a_clean_stop_it_is_not_believed_and_brought_in_line() -> None:
    """Kafka does not know the file, and may have cut the log since."""
    fs, _ = killed()
    open_log(fs, config=BIG).close(T0)
    write_file(fs, FILE, encode_flushed_offset(1000))
    log = open_log(fs, config=BIG, recovery_point=WRITTEN, clean=True)
    assert (log.log_end_offset, fs.durable_content(FILE)) == (WRITTEN, encode_flushed_offset(WRITTEN))


@pytest.mark.parametrize("seed", range(30))
def test_after_a_power_cut_it_never_says_too_much(seed: int) -> None:
    rng = random.Random(seed)
    fs = SimulatedFileSystem()
    log: Log = open_log(fs, config=TINY)
    for _ in range(30):
        match rng.randrange(5):
            case 0:
                log.truncate_to(max(0, log.log_end_offset - rng.randrange(9)))
            case 1 | 2:
                log.flush()
            case _:
                append(log, rng.randrange(4))
    fs.crash(rng)
    end_offset = open_log(fs, config=TINY).log_end_offset
    assert (said(fs) or 0) <= end_offset


def test_a_reader_beside_a_killed_writer_refuses_too() -> None:
    fs, _ = killed()
    fs.flip_bit(f"{DIRECTORY}/{0:020d}.log", 800)
    with pytest.raises(CorruptRecordError, match="below offset 20 was flushed"):
        Log.open_read_only(fs, DIRECTORY, BIG, now_ms=T0)


@pytest.mark.parametrize("flushed", [0, FLUSHED])
def test_a_last_batch_whose_offset_has_changed_is_cut_like_a_torn_one(flushed: int) -> None:
    """Nothing behind it contradicts it, and offsets that are missing in a log without compaction do."""
    fs, batches = killed(flushed=flushed)
    path = f"{DIRECTORY}/{0:020d}.log"
    fs.flip_bit(path, fs.size(path) - len(batches[-1]) + 4, 2)
    log = open_log(fs, config=BIG)
    assert (log.log_end_offset, content(log)) == (WRITTEN - 1, batches[:-1])
    assert log.recovery.bytes_cut == len(batches[-1])


@pytest.mark.parametrize("policy", [Cleanup.DELETE, Cleanup.COMPACT])
def test_a_flush_may_have_ended_at_a_batch_that_compaction_took(policy: Cleanup) -> None:
    """Also where the topic is not compacted any more: a batch behind the gap does not reach over the end of the flush."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=BIG)
    append(log, 5)
    log.append_as_follower(
        stored(batch(b"behind the gap"), 10, 0), now_ms=T0
    )  # as a leader gives it whose log was compacted
    log.flush()
    batches = content(log)
    fs.kill()
    write_file(fs, FILE, encode_flushed_offset(7))
    assert content(open_log(fs, config=replace(BIG, cleanup_policy=policy))) == batches
