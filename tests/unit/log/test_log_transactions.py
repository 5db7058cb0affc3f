"""Transactions in a log: open ones, aborted ones, the last stable offset (docs/KAFKA.md 1.8, 4.1)."""

from __future__ import annotations

import struct

import pytest
from log_test_kit import T0, TINY, batch, open_log, read_file, write_file

from replog.errors import CorruptIndexError, CorruptRecordError, DiskFullError
from replog.log import Log, LogConfig
from replog.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from replog.records import encode_batch, encode_end_transaction_marker
from replog.testing.simulated_filesystem import SimulatedFileSystem
from tests.work_counts import calls_of

PATH = f"/data/t-0/{0:020d}.txnindex"
BIG = LogConfig()
OTHERS = struct.pack(">hqqqq", 0, 4242, 0, 3, 4)
"""A good index of other transactions."""

GOLDEN = bytes.fromhex("000000000000000010920000000000000064000000000000006e000000000000006f")


def data(producer_id: int, sequence: int) -> bytes:
    records = [(T0, None, b"v" * 50, ())]
    return encode_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )


def marker(producer_id: int, *, commit: bool) -> bytes:
    return encode_end_transaction_marker(
        base_offset=0,
        leader_epoch=-1,
        timestamp_ms=T0,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=9,
        is_commit=commit,
    )


def write(log: Log, *batches: bytes) -> None:
    for one in batches:
        log.append_as_leader(one, leader_epoch=0, now_ms=T0)


def story(log: Log) -> None:
    """1 from 0 aborts at 3; 2 from 1 commits at 5; 3 from 4 stays open; 1 from 6 aborts at 7."""
    write(log, data(1, 0), data(2, 0), batch(b"plain"), marker(1, commit=False))
    write(log, data(3, 0), marker(2, commit=True), data(1, 1), marker(1, commit=False))


ABORTED = [AbortedTransaction(1, 0, 3, 1), AbortedTransaction(1, 6, 7, 4)]


def check(log: Log) -> None:
    end = log.log_end_offset
    assert log.aborted_transactions(0, end) == ABORTED
    assert log.aborted_transactions(4, end) == ABORTED[1:]
    assert log.aborted_transactions(0, 6) == ABORTED[:1]
    assert log.aborted_transactions(4, 6) == []
    assert log.last_stable_offset(end) == 4


def test_index_bytes_are_kafkas() -> None:
    index = TransactionIndex(100)
    index.append(AbortedTransaction(4242, 100, 110, 111))
    assert index.to_bytes() == GOLDEN
    assert list(TransactionIndex(100, GOLDEN)) == [AbortedTransaction(4242, 100, 110, 111)]


@pytest.mark.parametrize("wrong", [GOLDEN[:-1], b"\0\1" + GOLDEN[2:], GOLDEN + GOLDEN, bytes(34)])
def test_what_cannot_be_an_index(wrong: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        TransactionIndex(100, wrong)
    with pytest.raises(CorruptIndexError):
        TransactionIndex(111, GOLDEN)


@pytest.mark.parametrize("config", [BIG, TINY], ids=["one-segment", "many-segments"])
def test_a_leader_knows_what_was_aborted(config: LogConfig) -> None:
    log = open_log(SimulatedFileSystem(), config=config)
    story(log)
    check(log)


@pytest.mark.parametrize("config", [BIG, TINY], ids=["one-segment", "many-segments"])
def test_a_follower_knows_it_too(config: LogConfig) -> None:
    leader = open_log(SimulatedFileSystem())
    story(leader)
    follower = open_log(SimulatedFileSystem(), config=config)
    offset = 0
    while offset < leader.log_end_offset:
        follower.append_as_follower(leader.read(offset, max_bytes=400, end_offset=99, min_one_batch=True), now_ms=T0)
        offset = follower.log_end_offset
    check(follower)


def test_a_marker_that_cannot_be_read_is_refused_before_it_is_written() -> None:
    """Or the log would hold it and its end would not have moved: fetched and appended again, for ever."""
    follower = open_log(SimulatedFileSystem())
    records = [(T0, bytes(4), b"short", ())]
    broken = encode_batch(records, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    with pytest.raises(CorruptRecordError, match="a transaction marker of 5 bytes"):
        follower.append_as_follower(broken, now_ms=T0)
    assert follower.size_bytes == follower.log_end_offset == 0


@pytest.mark.parametrize("config", [BIG, TINY], ids=["one-segment", "many-segments"])
@pytest.mark.parametrize("flushed", [0, 4, 8])
def test_a_crash_forgets_none(config: LogConfig, flushed: int) -> None:
    fs = SimulatedFileSystem()
    story(open_log(fs, config=config))
    fs.kill()
    check(open_log(fs, config=config, recovery_point=flushed))
    fs.kill()
    for name in fs.list_dir("/data/t-0"):
        if not name.endswith(".log"):
            fs.remove(f"/data/t-0/{name}")
    check(open_log(fs, config=config))


@pytest.mark.parametrize("config", [BIG, TINY], ids=["one-segment", "many-segments"])
def test_a_clean_stop_forgets_none(config: LogConfig) -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=config)
    story(log)
    log.close(T0)
    log = open_log(fs, config=config, recovery_point=8, clean=True)
    check(log)
    assert log.recovery.segments_scanned == 0
    write(log, marker(3, commit=False))
    assert log.aborted_transactions(0, 9)[-1] == AbortedTransaction(3, 4, 8, 9)
    assert log.last_stable_offset(9) == 9


def test_a_producer_whose_marker_alone_is_left_is_known_by_the_snapshot_above() -> None:
    """A scan finds no batch of it; its own snapshot is torn, and a later one knows the last sequence."""
    fs = SimulatedFileSystem()
    log = open_log(fs)
    write(log, data(8, 0), data(8, 1))
    log.roll(T0)
    write(log, marker(8, commit=True))
    log.roll(T0)
    log.set_log_start_offset(2)
    log.delete_old_segments(T0, high_watermark=3)
    write_file(fs, f"/data/t-0/{2:020d}.snapshot", b"")
    fs.kill()
    log = open_log(fs, log_start_offset=2)
    assert log.append_as_leader(data(8, 1), leader_epoch=0, now_ms=T0).duplicate
    assert not log.append_as_leader(data(8, 2), leader_epoch=0, now_ms=T0).duplicate


def test_a_producer_that_expired_and_whose_marker_came_again_is_not_forgotten_by_a_crash() -> None:
    fs, config = SimulatedFileSystem(), LogConfig(producer_id_expiration_ms=1_000)
    log = open_log(fs, config=config)
    write(log, data(8, 0), marker(8, commit=True))
    log.roll(T0 + 5_000)
    log.append_as_leader(marker(8, commit=True), leader_epoch=0, now_ms=T0 + 5_000)
    known = list(log.producers.producers)
    fs.kill()
    log = open_log(fs, config=config, now_ms=T0 + 5_000)
    assert list(log.producers.producers) == known == [8]


def test_no_file_as_long_as_nothing_was_aborted() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=BIG)
    write(log, data(1, 0), marker(1, commit=True))
    log.close(T0)
    assert not fs.exists(PATH)


def test_truncation_cuts_the_index_and_opens_the_transaction_again() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=BIG)
    story(log)
    log.close(T0)
    log = open_log(fs, config=BIG, recovery_point=8, clean=True)
    log.truncate_to(3)
    assert log.aborted_transactions(0, 3) == []
    assert log.last_stable_offset(3) == 0
    log.close(T0)
    assert not fs.exists(PATH)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [b"", b"half an entry", bytes(34), OTHERS, None])
def test_a_wrong_or_missing_index_is_made_again(clean: bool, damage: bytes | None) -> None:
    """One that is gone, or would do for another log: readers would be shown aborted records."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=TINY)
    story(log)
    log.roll(T0)
    write(log, batch(b"more"))
    log.close(T0)
    good = read_file(fs, PATH)
    if damage is not None:
        write_file(fs, PATH, damage)
    else:
        fs.remove(PATH)
    log = open_log(fs, config=TINY, recovery_point=9 if clean else 0, clean=clean)
    assert log.aborted_transactions(0, 9) == ABORTED
    assert read_file(fs, PATH) == good


def test_an_index_without_a_witness_is_believed_as_one_of_kafka() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=TINY)
    story(log)
    log.roll(T0)
    write(log, batch(b"more"))
    log.close(T0)
    fs.remove(PATH.replace(".txnindex", ".txnwitness"))
    write_file(fs, PATH, OTHERS)
    log = open_log(fs, config=TINY, recovery_point=9, clean=True)
    assert [found.producer_id for found in log.aborted_transactions(0, 4)] == [4242]


def test_a_cut_makes_a_wrong_index_of_the_segment_that_stays_again() -> None:
    """A follower that could not cut would leave the ISR for good."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=BIG)
    story(log)
    log.roll(T0)
    write(log, batch(b"more"), batch(b"gone"))
    fs.remove(PATH)
    log.truncate_to(8)
    assert log.aborted_transactions(0, 8) == ABORTED


def test_an_index_that_goes_wrong_later_is_noticed_when_it_is_used() -> None:
    fs = SimulatedFileSystem()
    log = open_log(fs, config=BIG)
    story(log)
    log.roll(T0)
    good = read_file(fs, PATH)
    for wrong in (good[:-1], bytes(68), OTHERS):
        write_file(fs, PATH, wrong)
        assert log.aborted_transactions(0, 8) == ABORTED
    fs.remove(PATH)
    assert log.aborted_transactions(0, 8) == ABORTED


def test_an_ended_transaction_is_unstable_until_its_end_is_replicated() -> None:
    log = open_log(SimulatedFileSystem(), config=BIG)
    write(log, batch(b"plain"), data(1, 0), marker(1, commit=True), batch(b"plain"))
    assert [log.last_stable_offset(high_watermark) for high_watermark in range(5)] == [0, 1, 1, 3, 4]
    write(log, data(1, 1))
    log.set_log_start_offset(3)
    assert log.last_stable_offset(5) == 4


def test_a_transaction_that_did_not_fit_on_the_disk_holds_nothing_up() -> None:
    """Begun and ended in a group that was not written: readers would stop at its offset until another record came."""
    fs = SimulatedFileSystem()
    log = open_log(fs, config=BIG)
    write(log, batch(b"plain"))
    fs.capacity_bytes = fs.used_bytes() + 30
    group = [data(1, 0), marker(1, commit=False), data(2, 0), data(1, 1)]
    outcomes = log.append_all_as_leader(group, leader_epoch=0, now_ms=T0)
    assert all(isinstance(outcome, DiskFullError) for outcome in outcomes)
    fs.capacity_bytes = None
    write(log, batch(b"plain"))
    assert log.last_stable_offset(2) == 2


def test_a_long_transaction_costs_readers_no_object_for_each_that_was_aborted_meanwhile() -> None:
    index = TransactionIndex(0)
    for number in range(1_000):
        index.append(AbortedTransaction(number, 2 * number + 1, 2 * number + 2, 0))
    long = AbortedTransaction(5_000, 0, 2_001, 2_002)
    index.append(long)
    found: list[AbortedTransaction] = []
    assert calls_of(lambda: index.collect(0, 2, found)) < 50
    assert found == [AbortedTransaction(0, 1, 2, 0), long]
