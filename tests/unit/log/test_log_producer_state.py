"""Producer state and its snapshot file (docs/KAFKA.md 1.9, 4.1)."""

from __future__ import annotations

import random

import pytest
from log_test_kit import T0, TINY, append, batch, content, open_log, read_file, write_file

from replog.errors import CorruptCheckpointError, InvalidProducerEpochError, OutOfOrderSequenceError
from replog.log import Log, LogConfig
from replog.log.producers.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from replog.testing.simulated_filesystem import SimulatedFileSystem

GOLDEN = bytes.fromhex(
    "0001f55741d70000000200000000000000050000ffffffffffffffffffffffff000000000000000000000001ffffffffffffffffffffffff"
    "0000000000001092000300000007000000000000000c000000020000018bcfe5680000000009000000000000000a"
)
DIRECTORY = "/data/t-0"


def produce(log: Log, sequence: int, *, epoch: int = 0, producer_id: int = 7, count: int = 1) -> tuple[int, bool]:
    data = batch(*[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    info = log.append_as_leader(data, leader_epoch=0, now_ms=T0)
    return info.base_offset, info.duplicate


def test_snapshot_bytes_are_kafkas() -> None:
    entries = [
        ProducerSnapshotEntry(5, 0, -1, -1, 0, 1, -1, -1),
        ProducerSnapshotEntry(4242, 3, 7, 12, 2, T0, 9, 10),
    ]
    assert decode_snapshot("f", GOLDEN) == entries
    assert encode_snapshot(entries) == GOLDEN
    assert encode_snapshot([]).hex() == "000148674bc700000000"


@pytest.mark.parametrize("damaged", [b"", GOLDEN[:-1], b"\0\2" + GOLDEN[2:], GOLDEN[:20] + b"x" + GOLDEN[21:]])
def test_a_damaged_snapshot_is_not_read(damaged: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode_snapshot("f", damaged)


def test_the_last_five_batches_are_recognised() -> None:
    log = open_log(SimulatedFileSystem())
    assert [produce(log, s) for s in range(7)] == [(s, False) for s in range(7)]
    assert [produce(log, s) for s in range(2, 7)] == [(s, True) for s in range(2, 7)]
    assert log.log_end_offset == 7
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 1)  # the sixth
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 8)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 6, count=2)  # begins like the last one, but is another batch


def test_epochs_of_a_producer() -> None:
    log = open_log(SimulatedFileSystem())
    produce(log, 4)  # unknown producer: any sequence
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 5, epoch=1)
    assert produce(log, 0, epoch=1) == (1, False)
    with pytest.raises(InvalidProducerEpochError):
        produce(log, 5, epoch=0)


def test_sequences_wrap() -> None:
    log = open_log(SimulatedFileSystem())
    produce(log, 2**31 - 2, count=3)  # 2^31 - 2, 2^31 - 1, 0
    assert produce(log, 1) == (3, False)
    assert produce(log, 2**31 - 2, count=3) == (0, True)


@pytest.mark.parametrize("last", [2**31 - 1, 2**31 - 2, 2**31 - 3])
def test_nothing_is_left_out_where_sequences_wrap(last: int) -> None:
    """0 follows 2^31 - 1 and nothing else, and nothing else follows 2^31 - 1."""
    log = open_log(SimulatedFileSystem())
    produce(log, last)
    following = [*range(last + 1, 2**31), 0, 1, 2]
    for sequence, count in [(following[1], 1), (following[2], 1), (following[1], 3)]:
        with pytest.raises(OutOfOrderSequenceError):
            produce(log, sequence, count=count)
    assert log.log_end_offset == 1
    assert [produce(log, sequence) for sequence in following] == [(n, False) for n in range(1, len(following) + 1)]


@pytest.mark.parametrize("clean", [True, False])
def test_five_batches_survive_a_restart_across_segments(clean: bool) -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=LogConfig(segment_bytes=256, index_interval_bytes=0))
    for sequence in range(9):
        produce(log, sequence)
    assert len(log.segment_base_offsets) > 2
    if clean:
        log.close(T0)
    else:
        fs.kill()
    log = open_log(fs, recovery_point=9 if clean else 0, clean=clean)
    assert [produce(log, s) for s in range(4, 9)] == [(s, True) for s in range(4, 9)]
    assert produce(log, 9) == (9, False)


def test_a_damaged_snapshot_falls_back_to_the_log() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs)
    for sequence in range(3):
        produce(log, sequence)
    log.close(T0)
    path = f"{DIRECTORY}/{3:020d}.snapshot"
    write_file(fs, path, read_file(fs, path)[:-2])
    log = open_log(fs, recovery_point=3, clean=True)
    assert produce(log, 2) == (2, True)


def test_a_producer_that_only_a_later_snapshot_knows_is_not_forgotten() -> None:
    """Its segment is deleted, and the snapshot from which the scan begins is torn; the one above has it."""
    fs = SimulatedFileSystem()
    log = open_log(fs)
    produce(log, 0, producer_id=8)
    log.roll(T0)
    produce(log, 0)
    log.roll(T0)
    log.set_log_start_offset(1)
    log.delete_old_segments(T0, high_watermark=2)
    write_file(fs, f"{DIRECTORY}/{1:020d}.snapshot", b"")
    fs.kill()
    log = open_log(fs, log_start_offset=1)
    assert sorted(log.producers.producers) == [7, 8]
    assert produce(log, 0, producer_id=8) == (0, True)
    assert produce(log, 1, producer_id=8) == (2, False)


def with_torn_snapshot() -> SimulatedFileSystem:
    """Returns the disk of a killed log: producer 8 below the active segment, whose snapshot a power cut has torn."""
    fs = SimulatedFileSystem()
    log = open_log(fs)
    produce(log, 0, producer_id=8)
    log.roll(T0)
    produce(log, 0)
    write_file(fs, f"{DIRECTORY}/{1:020d}.snapshot", b"")
    fs.kill()
    return fs


def test_a_torn_snapshot_below_which_all_is_going_to_be_deleted_is_written_again() -> None:
    """Retention deletes the good ones below it, and then a mere kill would forget producers."""
    fs = with_torn_snapshot()
    log = open_log(fs)
    log.flush()
    log.set_log_start_offset(1)
    log.delete_old_segments(T0, high_watermark=2)
    log.flush()
    fs.kill()
    log = open_log(fs, log_start_offset=1, recovery_point=2)
    assert produce(log, 0, producer_id=8) == (0, True)


def test_a_torn_snapshot_that_was_written_again_outlives_a_power_cut() -> None:
    for seed in range(20):  # which bytes that are not durable a power cut keeps
        fs = with_torn_snapshot()
        log = open_log(fs)
        log.flush()
        log.set_log_start_offset(1)
        log.delete_old_segments(T0, high_watermark=2)
        log.flush()
        fs.crash(random.Random(seed))
        log = open_log(fs, log_start_offset=1, recovery_point=2)
        assert produce(log, 0, producer_id=8) == (0, True)


def test_a_full_disk_does_not_keep_a_log_closed_whose_snapshot_is_torn() -> None:
    fs = with_torn_snapshot()
    fs.capacity_bytes = fs.used_bytes()
    log = open_log(fs)
    assert produce(log, 0, producer_id=8) == (0, True)


@pytest.mark.parametrize("own", ["torn", "missing"])
def test_a_snapshot_below_the_first_segment_is_not_believed(own: str) -> None:
    """A power cut brings its name back, and batches between it and the first segment are gone."""
    fs = SimulatedFileSystem()
    log = open_log(fs)
    produce(log, 0, producer_id=8)
    log.roll(T0)
    produce(log, 1, producer_id=8)
    log.roll(T0)
    stale = read_file(fs, f"{DIRECTORY}/{1:020d}.snapshot")
    log.set_log_start_offset(2)
    log.delete_old_segments(T0, high_watermark=2)
    write_file(fs, f"{DIRECTORY}/{1:020d}.snapshot", stale)
    write_file(fs, f"{DIRECTORY}/{2:020d}.snapshot", b"")
    if own == "missing":
        fs.remove(f"{DIRECTORY}/{2:020d}.snapshot")
    fs.kill()
    log = open_log(fs, log_start_offset=2)
    assert produce(log, 2, producer_id=8) == (2, False)


def test_truncation_forgets_what_it_cuts() -> None:
    log = open_log(SimulatedFileSystem())
    for sequence in range(6):
        produce(log, sequence)
    log.truncate_to(4)
    assert produce(log, 3) == (3, True)
    assert produce(log, 4) == (4, False)


def test_idle_producers_are_forgotten_by_the_brokers_time() -> None:
    log = open_log(SimulatedFileSystem(), config=LogConfig(producer_id_expiration_ms=1000))
    produce(log, 0)  # record timestamps do not matter
    log.producers.expire(T0 + 999, 1000)
    assert 7 in log.producers.producers
    log.producers.expire(T0 + 1000, 1000)
    assert 7 not in log.producers.producers


def test_snapshots_are_written_at_rolls_and_on_close() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=TINY)
    append(log, 3)
    log.roll(T0)
    append(log, 1)
    log.close(T0)
    names = [name for name in fs.list_dir(DIRECTORY) if name.endswith(".snapshot")]
    assert names == [f"{3:020d}.snapshot", f"{4:020d}.snapshot"]
    assert len(content(open_log(fs, clean=True, recovery_point=4))) == 4
