"""Appending, rolling and reading, against a plain list of batches."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from log_test_kit import T0, TINY, append, batch, content, filled, offsets, open_log, stored

from replog.errors import (
    BrokerClosedError,
    CorruptRecordError,
    InvariantViolationError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from replog.log import LogConfig, MisfitRecordsError
from replog.records import HEADER_BYTES, Codec, encode_batch, parse_header
from replog.testing.simulated_filesystem import SimulatedFileSystem


def test_a_leader_gives_offsets_and_epoch_and_keeps_the_rest() -> None:
    log = open_log(SimulatedFileSystem())
    one, two = batch(b"a", b"b"), batch(b"c")
    first = log.append_as_leader(one, leader_epoch=4, now_ms=T0)
    second = log.append_as_leader(two, leader_epoch=4, now_ms=T0)
    assert (first.base_offset, first.last_offset, second.base_offset) == (0, 1, 2)
    assert (first.max_timestamp, first.size_bytes, first.duplicate) == (T0 + 1, len(one), False)
    assert content(log) == [stored(one, 0, 4), stored(two, 2, 4)]
    assert (log.last_epoch, log.log_end_offset, log.flushed_offset) == (4, 3, 0)


def test_a_lower_leader_epoch_is_our_bug() -> None:
    log = open_log(SimulatedFileSystem())
    log.assign_epoch_start(4)
    with pytest.raises(InvariantViolationError):
        log.append_as_leader(batch(), leader_epoch=3, now_ms=T0)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(SimulatedFileSystem())
    with pytest.raises(RecordTooLargeError):
        log.append_as_leader(batch(bytes(600)), leader_epoch=0, now_ms=T0)
    assert log.log_end_offset == 0


def test_a_follower_stores_what_the_leader_stored() -> None:
    _, leader = filled(30)
    follower = open_log(SimulatedFileSystem())
    while follower.log_end_offset < 30:
        data = leader.read(follower.log_end_offset, max_bytes=250, end_offset=30, min_one_batch=True)
        assert follower.append_as_follower(data + data[:40], now_ms=T0, leader_epoch=0) is not None
    assert content(follower) == content(leader)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert len(follower.segment_base_offsets) == len(leader.segment_base_offsets)


def test_a_follower_leaves_out_batches_of_a_higher_epoch_and_all_after_them() -> None:
    log = open_log(SimulatedFileSystem())
    data = b"".join(stored(batch(), offset, epoch) for offset, epoch in ((0, 1), (1, 3), (2, 1)))
    info = log.append_as_follower(data, now_ms=T0, leader_epoch=2)
    assert info is not None
    assert info.last_offset == 0
    assert log.append_as_follower(stored(batch(), 1, 3), now_ms=T0, leader_epoch=2) is None
    assert log.append_as_follower(b"", now_ms=T0) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (stored(batch(), 1, 1), "where 2 was expected"),
        (stored(batch(), 2, 0), "ends at 2 in leader epoch 1, where the leader's goes on in epoch 0"),
        (stored(batch(), 2, -1) + stored(batch(), 3, 0), "epoch 0 cannot follow epoch 1"),
        (stored(batch(), 2, -2), "epoch -2 cannot be"),
        (stored(batch(), 2, 1)[:-1] + b"x", "checksum"),
        (stored(batch(), 2, 1) + stored(batch(), 2, 1), "where 3 was expected"),
    ],
)
def test_a_follower_refuses_what_cannot_follow(data: bytes, reason: str) -> None:
    log = open_log(SimulatedFileSystem())
    append(log, 2, leader_epoch=1)
    with pytest.raises(CorruptRecordError, match=reason):
        log.append_as_follower(data, now_ms=T0)
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    ("data", "is_misfit"),
    [
        (stored(batch(b"a", b"b"), 1, 1), True),
        (stored(batch(), 2, 0), True),
        (stored(batch(), 1, 1), False),
        (stored(batch(), 2, 1) + stored(batch(b"a", b"b"), 2, 1), False),
        (stored(batch(), 2, 1) + stored(batch(), 3, 0), False),
        (stored(batch(b"a", b"b"), 1, 1)[:-1] + b"x", False),
    ],
    ids=[
        "overlaps",
        "an earlier epoch",
        "below",
        "the second overlaps",
        "the second is of an earlier epoch",
        "damaged",
    ],
)
def test_only_a_whole_first_batch_says_that_the_two_logs_do_not_fit(data: bytes, *, is_misfit: bool) -> None:
    """Whatever else is wrong is wrong at the leader, or on the way."""
    log = open_log(SimulatedFileSystem())
    append(log, 2, leader_epoch=1)
    with pytest.raises(CorruptRecordError) as refused:
        log.append_as_follower(data, now_ms=T0)
    assert isinstance(refused.value, MisfitRecordsError) is is_misfit
    assert log.log_end_offset == 2


def test_a_follower_keeps_the_gaps_of_a_compacted_log() -> None:
    log = open_log(SimulatedFileSystem())
    log.append_as_follower(stored(batch(), 5, 0) + stored(batch(b"a"), 2**31 + 9, 0), now_ms=T0)
    assert offsets(log) == [5, 2**31 + 9]
    assert log.segment_base_offsets == [0, 2**31 + 9]
    assert log.read(6, max_bytes=1, end_offset=2**40, min_one_batch=True) == stored(batch(b"a"), 2**31 + 9, 0)
    assert log.flushed_offset == 6  # flushed before the gap, so that it cannot be taken for a hole


@pytest.mark.parametrize(
    ("config", "bases"),
    [
        (LogConfig(segment_bytes=256), [0, 3, 6]),
        (LogConfig(segment_ms=4), [0, 5]),
        (LogConfig(segment_index_bytes=24, index_interval_bytes=0), [0, 2, 4, 6]),
    ],
)
def test_segments_roll_by_size_time_and_full_index(config: LogConfig, bases: list[int]) -> None:
    _, log = filled(8, config=config)
    assert log.segment_base_offsets == bases
    assert offsets(log) == list(range(8))


def test_a_segment_without_timestamps_rolls_by_its_age() -> None:
    log = open_log(SimulatedFileSystem(), config=LogConfig(segment_ms=1000))
    data = encode_batch([(-1, None, b"v", ())])
    for now_ms in (T0, T0 + 1000, T0 + 1001):
        log.append_as_leader(data, leader_epoch=0, now_ms=now_ms)
    assert log.segment_base_offsets == [0, 2]


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=40),
    reads=st.lists(
        st.tuples(st.integers(0, 120), st.integers(0, 700), st.integers(0, 130), st.booleans()), max_size=30
    ),
)
def test_a_read_is_the_run_of_batches_that_fits(counts: list[int], reads: list[tuple[int, int, int, bool]]) -> None:
    log = open_log(SimulatedFileSystem())
    for count in counts:
        log.append_as_leader(batch(*[b"value"] * count), leader_epoch=0, now_ms=T0)
    model = [(parse_header(data), data) for data in content(log)]
    bases = [*log.segment_base_offsets, log.log_end_offset]
    for offset, max_bytes, end_offset, min_one_batch in reads:
        if offset > log.log_end_offset:
            with pytest.raises(OffsetOutOfRangeError):
                log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=min_one_batch)
            continue
        expected = b""
        segment_end = next((base for base in bases if base > offset), 0)
        for header, data in model:
            if header.last_offset < offset:
                continue
            fits = len(expected) + len(data) <= max_bytes or (min_one_batch and not expected)
            if header.last_offset >= min(end_offset, segment_end) or not fits or offset >= end_offset:
                break
            expected += data
        for _ in range(2):  # the second time from the remembered place
            found = log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=min_one_batch)
            assert found == expected


def test_large_reads_use_the_index_and_end_at_a_batch() -> None:
    _, log = filled(2000, config=LogConfig(index_interval_bytes=512))
    batches = content(log)
    for start, max_bytes, end in ((0, 60_000, 2000), (500, 40_000, 777), (3, 100_000, 1500), (1999, 1 << 20, 2000)):
        expected = b""
        for data in batches[start:end]:
            if len(expected) + len(data) > max_bytes:
                break
            expected += data
        assert log.read(start, max_bytes=max_bytes, end_offset=end, min_one_batch=True) == expected


def test_first_record_at_or_after_a_time() -> None:
    log = open_log(SimulatedFileSystem(), config=TINY)
    for offset in range(40):  # 3 records each, timestamps fall back inside the log
        log.append_as_leader(batch(b"a", b"b", b"c", timestamp_ms=T0 + (offset % 7) * 10), leader_epoch=0, now_ms=T0)
    times = [T0 + (offset // 3 % 7) * 10 + offset % 3 for offset in range(120)]
    for timestamp in range(T0 - 5, T0 + 70):
        expected = next(((o, t) for o, t in enumerate(times) if t >= timestamp), None)
        assert log.offset_for_timestamp(timestamp, end_offset=120) == expected
    log.set_log_start_offset(20)
    assert log.offset_for_timestamp(T0, end_offset=120) == (20, times[20])
    assert log.offset_for_timestamp(T0 + 60, end_offset=19) is None


def test_the_first_record_with_the_largest_timestamp() -> None:
    log = open_log(SimulatedFileSystem(), config=TINY)
    assert log.offset_for_timestamp(None, end_offset=99) is None
    for offset in range(40):  # 3 records each, so that segments are sealed between and behind the largest
        stamp = T0 + (500 if offset == 11 else offset)
        log.append_as_leader(batch(b"a", b"b", b"c", timestamp_ms=stamp), leader_epoch=0, now_ms=T0)
    assert len(log.segment_base_offsets) > 2
    assert log.offset_for_timestamp(None, end_offset=120) == (35, T0 + 502)
    assert log.offset_for_timestamp(None, end_offset=35) is None  # not visible yet
    log.append_as_leader(batch(b"a", timestamp_ms=T0 + 600), leader_epoch=0, now_ms=T0)
    assert log.offset_for_timestamp(None, end_offset=121) == (120, T0 + 600)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_first_record_at_an_offset_and_its_time(codec: Codec) -> None:
    log = open_log(SimulatedFileSystem(), config=TINY)
    for number in range(12):  # 3 records each, timestamps fall back inside of a batch
        stamps = (T0 + number * 10, T0 + number * 10 - 7, T0 + number * 10 + 2)
        data = encode_batch([(stamp, b"k", b"v", ()) for stamp in stamps], codec=codec)
        log.append_as_leader(data, leader_epoch=0, now_ms=T0)
    assert len(log.segment_base_offsets) > 1
    for offset in range(36):
        expected = offset, T0 + offset // 3 * 10 + (0, -7, 2)[offset % 3]
        assert log.first_record(offset, end_offset=36) == expected
        assert log.first_record(offset, end_offset=offset) is None
    log.set_log_start_offset(20)
    assert log.first_record(3, end_offset=36) == (20, T0 + 62)


def test_the_time_of_a_record_that_nobody_can_read_is_that_of_its_batch() -> None:
    """The leader takes what a client says is a batch without looking into it; nor is it the log's fault."""
    log = open_log(SimulatedFileSystem())
    data = encode_batch([(T0 + number, b"k", b"v" * 9, ()) for number in range(3)])
    broken = bytearray(data[:HEADER_BYTES] + b"\x02" * (len(data) - HEADER_BYTES))
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    log.append_as_leader(bytes(broken), leader_epoch=0, now_ms=T0)
    assert [log.first_record(offset, end_offset=3) for offset in range(3)] == [(0, T0), (1, T0 + 2), (2, T0 + 2)]
    assert log.offset_for_timestamp(T0 + 1, end_offset=3) == (0, T0 + 2)
    assert log.offset_for_timestamp(T0 + 3, end_offset=3) is None


def test_a_closed_log_says_so() -> None:
    _, log = filled(1)
    log.close(T0)
    log.close(T0)
    with pytest.raises(BrokerClosedError):
        log.append_as_leader(batch(), leader_epoch=0, now_ms=T0)


def test_sealed_segments_do_not_keep_descriptors() -> None:
    fs, log = filled(200)
    log.flush()
    assert len(log.segment_base_offsets) > 20
    assert len(content(log)) == 200
    assert len(fs._files) <= 8


def test_the_size_from_an_offset_on_is_exact_for_whole_segments_and_in_proportion_within_one() -> None:
    _, log = filled(30)  # batches of about one size
    bases = [*log.segment_base_offsets, 30]
    assert len(bases) > 4
    assert log.size_from(0) == log.size_bytes
    assert log.size_from(30) == 0
    assert open_log(SimulatedFileSystem()).size_from(0) == 0
    for offset in range(31):
        exact = sum(len(data) for data in content(log) if parse_header(data).base_offset >= offset)
        assert abs(log.size_from(offset) - exact) <= (0 if offset in bases else 2)


def test_an_empty_log_begins_inside_of_a_batch() -> None:
    """The leader's records were deleted up to 5, inside the batch of 0 to 9: it is all the leader can give."""
    straddling = stored(batch(*(b"%d" % number for number in range(10))), 0, 0)
    following = stored(batch(b"10"), 10, 0)
    fs, log = filled(0)
    log.truncate_fully_and_start_at(5)
    info = log.append_as_follower(straddling + following, now_ms=T0)
    assert info is not None
    assert (info.base_offset, info.last_offset, info.log_start_offset) == (0, 10, 5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 11)
    assert content(log) == [straddling, following]
    log.close(T0)
    again = open_log(fs, recovery_point=11, log_start_offset=5)
    assert (again.log_start_offset, again.log_end_offset, content(again)) == (5, 11, [straddling, following])


def test_a_straddling_batch_that_is_refused_leaves_the_log_as_it_was() -> None:
    straddling = bytearray(stored(batch(*(b"%d" % number for number in range(10))), 0, 0))
    straddling[-1] ^= 1
    _, log = filled(0)
    log.truncate_fully_and_start_at(5)
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(straddling, now_ms=T0)
    straddling[-1] ^= 1
    assert log.append_as_follower(stored(bytes(straddling), 0, 3), now_ms=T0, leader_epoch=2) is None
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


def test_what_has_records_takes_no_batch_from_before_its_end() -> None:
    _, log = filled(5)
    straddling = stored(batch(*(b"%d" % number for number in range(10))), 0, 0)
    with pytest.raises(CorruptRecordError, match="ends at 5, inside of the leader's batch of offsets 0 to 9"):
        log.append_as_follower(straddling, now_ms=T0)
    _, log = filled(0)
    log.truncate_fully_and_start_at(10)
    with pytest.raises(CorruptRecordError, match="offset 0 where 10 was expected"):
        log.append_as_follower(straddling, now_ms=T0)  # ends before the start: none of it is wanted
