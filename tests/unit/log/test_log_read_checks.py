"""Damage in a file is found by whoever comes again to the same place, and costs a reader that goes on nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_test_kit import filled

from replog.errors import CorruptRecordError
from replog.log import Log, LogConfig
from replog.records import scan

COUNT = 10
DAMAGED = 4
BATCH_BYTES = 69
PATH = "/data/t-0/00000000000000000000.log"
RECORD, LENGTH = 64, 9
"""Bytes of a batch: in its record, in its length."""


def damaged(byte: int = RECORD) -> Log:
    """One segment of ten batches; a bit of the fifth is wrong."""
    fs, log = filled(COUNT, config=LogConfig())
    assert fs.size(PATH) == COUNT * BATCH_BYTES
    fs.flip_bit(PATH, DAMAGED * BATCH_BYTES + byte)
    return log


def read(log: Log, offset: int) -> bytes:
    return log.read(offset, max_bytes=2 * BATCH_BYTES, end_offset=COUNT, min_one_batch=True)


def read_cached(log: Log, offset: int) -> bytes:
    found = log.read_cached(offset, max_bytes=2 * BATCH_BYTES, end_offset=COUNT, min_one_batch=True)
    assert found is not None
    return found


def read_in_job(log: Log, offset: int) -> bytes:
    job = log.prepare_read(offset, max_bytes=2 * BATCH_BYTES, end_offset=COUNT, min_one_batch=True)
    job.run()
    found = log.complete_read(job)
    assert found is not None
    return found


READERS = (read, read_cached, read_in_job)
Read = Callable[[Log, int], bytes]


def bases(data: bytes) -> list[int]:
    return [header.base_offset for header in scan(data)]


@pytest.mark.parametrize("read", READERS)
def test_who_comes_again_is_told_of_the_damage(read: Read) -> None:
    log = damaged()
    assert [bases(read(log, offset)) for offset in (0, 2, 4)] == [[0, 1], [2, 3], [4, 5]], "it goes on, unchecked"
    with pytest.raises(CorruptRecordError, match="checksum") as raised:
        read(log, 4)
    assert (raised.value.path, raised.value.position) == (PATH, DAMAGED * BATCH_BYTES)
    with pytest.raises(CorruptRecordError):
        read(log, 4)


@pytest.mark.parametrize("read", READERS)
def test_what_is_good_before_the_damage_is_read(read: Read) -> None:
    log = damaged()
    assert bases(read(log, 3)) == [3]
    with pytest.raises(CorruptRecordError):
        read(log, 4)
    assert bases(read(log, 5)) == [5, 6]


def test_a_batch_that_goes_beyond_the_end_of_the_file() -> None:
    log = damaged(LENGTH)
    with pytest.raises(CorruptRecordError, match="beyond the end of the file"):
        log.read(DAMAGED, max_bytes=1 << 20, end_offset=COUNT, min_one_batch=True)


def test_a_reader_that_goes_on_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its receiver does; a second walk over every batch would cost as much as reading it."""
    _, log = filled(COUNT, config=LogConfig())
    read(log, 0)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("checked")

    monkeypatch.setattr("replog.log.segments.reader.scan_checked", refuse)
    for offset in range(2, COUNT, 2):
        assert bases(read(log, offset)) == [offset, offset + 1]


def test_an_untouched_log_is_read_alike() -> None:
    _, log = filled(COUNT)  # several segments
    for offset in range(COUNT):
        assert bases(read(log, offset))[0] == offset
        assert bases(read(log, offset))[0] == offset


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("number", range(COUNT))
def test_no_record_is_handed_out_under_the_offset_of_another(read: Read, number: int) -> None:
    """No checksum covers a batch's base offset: its lowest bit, flipped, makes it a whole batch at a neighbour's offset."""
    for offset in range(COUNT):
        fs, log = filled(COUNT, config=LogConfig())
        whole = fs.image()[PATH]
        fs.flip_bit(PATH, number * BATCH_BYTES + 7)
        try:
            data = read(log, offset)
        except CorruptRecordError:
            assert offset in {number, number ^ 1}, "damage elsewhere"
            continue
        at = offset * BATCH_BYTES
        assert data
        assert data == whole[at : at + len(data)], f"offset {offset}"


MANY, JUMPING = 600, 100
"""Batches, and which of them says that it begins 256 offsets further on."""


def jumping(*, is_compacted: bool = False, complete_from: int = 0) -> Log:
    fs, log = filled(MANY, config=LogConfig())
    if is_compacted:
        log._state.complete.withdraw()
    log._state.complete.raise_to(complete_from)
    position = [header.position for header in scan(fs.image()[PATH])][JUMPING]
    fs.flip_bit(PATH, position + 6)
    return log


@pytest.mark.parametrize("first", [0, 50, JUMPING - 1])
def test_a_batch_that_jumps_up_is_never_passed_over(first: int) -> None:
    """Goal: a hole inside of what one read brings, also where it goes on from another one, is where the next read begins."""
    log = jumping()
    ends = ([first] if first else []) + [MANY]
    offset = 0
    for end in ends:
        data = log.read(offset, max_bytes=1 << 20, end_offset=end, min_one_batch=True)
        assert bases(data) == list(range(offset, min(end, JUMPING)))
        offset = min(end, JUMPING)
    with pytest.raises(CorruptRecordError, match=f"offsets {JUMPING} to {JUMPING + 255} are missing"):
        log.read(JUMPING, max_bytes=1 << 20, end_offset=MANY, min_one_batch=True)


@pytest.mark.parametrize("complete_from", [1, JUMPING - 1, JUMPING, JUMPING + 1, JUMPING + 255])
def test_a_hole_is_found_where_a_read_begins_below_what_must_be_complete(complete_from: int) -> None:
    """After a repair that gave something up, also what one read brings of both sides ends where offsets are missing."""
    log = jumping(complete_from=complete_from)
    assert bases(log.read(0, max_bytes=1 << 20, end_offset=MANY, min_one_batch=True)) == list(range(JUMPING))
    missing = f"offsets {max(JUMPING, complete_from)} to {JUMPING + 255} are missing"
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=missing):
            log.read(JUMPING, max_bytes=1 << 20, end_offset=MANY, min_one_batch=True)


def test_a_gap_below_what_must_be_complete_is_read_over() -> None:
    log = jumping(complete_from=JUMPING + 256)
    data = log.read(0, max_bytes=1 << 20, end_offset=MANY, min_one_batch=True)
    assert bases(data)[JUMPING - 1 :] == [JUMPING - 1, JUMPING + 256]


def test_a_gap_where_offsets_may_be_left_out_is_read_over() -> None:
    data = jumping(is_compacted=True).read(0, max_bytes=1 << 20, end_offset=MANY, min_one_batch=True)
    assert bases(data)[JUMPING - 1 :] == [JUMPING - 1, JUMPING + 256]


def test_whoever_looks_at_every_batch_gets_all() -> None:
    """`open_log` tells a hole from a gap itself, and what is behind it may be wanted."""
    log = jumping()
    data = log.read_cached(0, max_bytes=1 << 20, end_offset=MANY, min_one_batch=True, is_checked=False)
    assert bases(data or b"")[JUMPING:] == [JUMPING + 256, *range(JUMPING + 1, MANY)]
