"""Walks over whole batches: what counts as damage, what indexes are made of, and that both implementations agree."""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import Any

import pytest

from replog import records as r
from replog.errors import CorruptRecordError
from replog.records import _scan_py
from replog.records._select import PURE

try:
    compiled: ModuleType | None = importlib.import_module("replog.records._scan")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(compiled is None, reason="not built: python setup.py build_ext --inplace")
OFFSET_MAX = 2**31 - 1
FIELDS = [
    "size_bytes",
    "next_offset",
    "leader_epoch",
    "max_timestamp",
    "max_timestamp_offset",
    "first_timestamp",
    "bytes_since_index",
    "offset_entries",
    "time_entries",
    "epoch_starts",
    "producer_batches",
    "missing_bytes",
    "damage",
]


@pytest.fixture(params=[_scan_py, pytest.param(compiled, marks=needs_compiled)], ids=["python", "cython"])
def scanner(request: pytest.FixtureRequest) -> Any:
    return request.param


def batch(offset: int, *, epoch: int = 0, count: int = 1, timestamp: int = 5, producer_id: int = -1) -> bytes:
    return r.encode_batch(
        [(timestamp, None, b"v" * 20, ())] * count,
        base_offset=offset,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=offset if producer_id >= 0 else -1,
    )


def scan(scanner: Any, data: bytes, **changes: int) -> Any:
    settings = {
        "base_offset": 0,
        "next_offset": 0,
        "leader_epoch": -1,
        "offset_max": OFFSET_MAX,
        "index_interval_bytes": 100,
        "index_count_max": 1000,
        "time_count_max": 1000,
    }
    found = scanner.SegmentScan(**{**settings, **changes})
    found.feed(data, len(data))
    return found


def checked(scanner: Any, data: bytes, **changes: int) -> Any:
    settings = {"next_offset": 0, "leader_epoch": -1, "offset_max": OFFSET_MAX, "leader_epoch_max": 9}
    return scanner.scan_checked(data, **{**settings, **changes})


def test_the_compiled_one_is_loaded_where_it_is_built() -> None:
    assert ("python" if compiled is None or PURE else "cython") == r.SCAN_IMPLEMENTATION


def test_good_batches_and_what_follows_from_them(scanner: Any) -> None:
    parts = [batch(0, timestamp=9), batch(1, count=3, timestamp=7), batch(6, epoch=2, producer_id=4), batch(7, epoch=2)]
    data = b"".join(parts)
    found = scan(scanner, data)
    assert (found.size_bytes, found.next_offset, found.leader_epoch, found.damage) == (len(data), 8, 2, None)
    assert (found.max_timestamp, found.max_timestamp_offset, found.first_timestamp) == (9, 0, 9)
    assert found.epoch_starts == [(0, 0), (2, 6)]
    third = len(parts[0]) + len(parts[1])
    assert found.producer_batches == [(third, len(parts[2]), 6, 6, 2, 5, 4, 0, 6, 0)]
    batches, end, damage = checked(scanner, data)
    assert [one[2:5] for one in batches] == [(0, 0, 0), (1, 3, 0), (6, 6, 2), (7, 7, 2)]
    assert batches[2] == found.producer_batches[0]
    assert (end, damage) == (len(data), None)


def test_index_entries_are_those_of_an_append(scanner: Any) -> None:
    """docs/KAFKA.md 1.6, 1.7: an entry where more than the interval lies between, never for the first batch."""
    sizes = [len(batch(offset)) for offset in range(4)]
    data = b"".join(batch(offset, timestamp=offset) for offset in range(4))
    found = scan(scanner, data)
    at = sum(sizes[:2])
    assert bytes(found.offset_entries).hex() == f"00000002{at:08x}"
    assert bytes(found.time_entries).hex() == f"{2:016x}00000002"
    assert found.bytes_since_index == sum(sizes[2:])
    assert not scan(scanner, data, index_count_max=0, time_count_max=0).offset_entries


def test_a_time_entry_is_added_only_where_time_moves_on(scanner: Any) -> None:
    found = scan(scanner, b"".join(batch(offset, timestamp=50 - offset) for offset in range(8)), index_interval_bytes=0)
    assert len(found.offset_entries) == 7 * 8
    assert bytes(found.time_entries).hex() == f"{50:016x}00000000"


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (batch(0), "offsets 0 to 0 cannot follow offset 0"),
        (batch(OFFSET_MAX, count=2), "cannot follow"),
        (batch(1, epoch=1), "leader epoch 1 cannot follow epoch 3"),
        (batch(1, epoch=-2), "leader epoch -2 cannot be, the lowest one is -1"),
        (batch(1, epoch=3)[:-1] + b"x", "checksum"),
        (batch(1, epoch=3)[:16] + b"\1" + batch(1, epoch=3)[17:], "magic 1 is not 2"),
        (batch(1, epoch=3)[:57] + b"\0\0\0\2" + batch(1, epoch=3)[61:], "2 records cannot stand in 1 offsets"),
        (batch(1, epoch=3)[:23] + b"\xff" * 4 + batch(1, epoch=3)[27:], "offsets 1 to 0 cannot follow"),
        (bytes(100), "batch length 0 is below the minimum of 49"),
        (b"\xff" * 100, "batch length -1 is below"),
    ],
)
def test_damage(scanner: Any, second: bytes, reason: str) -> None:
    data = batch(0, epoch=3) + second
    found = scan(scanner, data)
    assert reason in found.damage
    assert (found.size_bytes, found.next_offset) == (len(batch(0)), 1)
    batches, end, damage = checked(scanner, data)
    assert (len(batches), end, damage) == (1, len(batch(0)), found.damage)


def test_an_epoch_of_minus_one_is_good_and_is_no_new_beginning(scanner: Any) -> None:
    data = batch(0, epoch=3) + batch(1, epoch=-1) + batch(2, epoch=3)
    assert scan(scanner, data).epoch_starts == [(3, 0)]
    assert (
        "epoch 2 cannot follow epoch 3"
        in scan(scanner, batch(0, epoch=3) + batch(1, epoch=-1) + batch(2, epoch=2)).damage
    )


def test_a_torn_last_batch_ends_the_walk_quietly(scanner: Any) -> None:
    data = batch(0) + batch(1)
    for cut in range(1, len(batch(1))):
        found = scan(scanner, data[:-cut])
        assert (found.size_bytes, found.damage) == (len(batch(0)), None)
        assert found.missing_bytes == (len(batch(1)) if len(batch(1)) - cut >= r.HEADER_BYTES else 0)
        assert checked(scanner, data[:-cut])[1:] == (len(batch(0)), None)


def test_a_later_leaders_batches_are_left_out(scanner: Any) -> None:
    data = batch(0, epoch=3) + batch(1, epoch=4) + batch(2, epoch=3)
    batches, end, damage = checked(scanner, data, leader_epoch_max=3)
    assert (len(batches), end, damage) == (1, len(batch(0)), None)


def test_without_checksums_offsets_and_epochs_still_count(scanner: Any) -> None:
    damaged = batch(1, epoch=3)[:-1] + b"x"
    assert len(checked(scanner, batch(0, epoch=3) + damaged)[0]) == 1
    batches, end, damage = checked(scanner, batch(0, epoch=3) + damaged, is_checked=False)
    assert (len(batches), end, damage) == (2, len(batch(0)) + len(damaged), None)
    for wrong, reason in ((batch(0, epoch=3), "cannot follow offset"), (batch(1, epoch=2), "cannot follow epoch")):
        assert reason in checked(scanner, batch(0, epoch=3) + wrong, is_checked=False)[2]


def test_buffers_one_after_the_other_are_like_one(scanner: Any) -> None:
    data = b"".join(batch(offset, timestamp=offset % 7, producer_id=offset % 3 - 1) for offset in range(50))
    whole, pieces = scan(scanner, data), scan(scanner, b"")
    while pieces.size_bytes < len(data):
        part = data[pieces.size_bytes : pieces.size_bytes + 700]
        assert pieces.feed(bytearray(part) + b"beyond the length", len(part)) > 0
    pieces.feed(b"", 0)
    assert [getattr(pieces, name) for name in FIELDS] == [getattr(whole, name) for name in FIELDS]


@needs_compiled
def test_both_implementations_agree_on_anything() -> None:
    rng = random.Random(4711)
    good = b"".join(batch(o, epoch=o // 9, timestamp=o * 7 % 11, producer_id=o % 4 - 1) for o in range(30))
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        del data[rng.randrange(len(data)) :]
        ours, twin = scan(compiled, bytes(data)), scan(_scan_py, bytes(data))
        assert [getattr(ours, name) for name in FIELDS] == [getattr(twin, name) for name in FIELDS]
        assert checked(compiled, bytes(data), leader_epoch_max=2) == checked(_scan_py, bytes(data), leader_epoch_max=2)


def end_by_headers(data: bytes, next_offset: int, *, is_complete: bool) -> int:
    """What `consecutive_end` means, by the walk that explains what is wrong."""
    start = next_offset
    try:
        for header in r.scan(data):
            is_first = header.position == 0
            if (not is_first and header.base_offset < next_offset) or (
                is_complete and header.base_offset > next_offset
            ):
                return -1
            if header.next_offset <= next_offset:
                return -1
            next_offset = header.next_offset
    except CorruptRecordError:
        return -1
    return next_offset if next_offset > start else -1


@pytest.mark.parametrize("is_complete", [False, True])
def test_consecutive_batches_have_an_end(scanner: Any, is_complete: bool) -> None:
    data = batch(5, count=3) + batch(8) + batch(9, count=2)
    assert scanner.consecutive_end(data, next_offset=6, is_complete=is_complete) == 11
    assert scanner.consecutive_end(data[:-1], next_offset=6, is_complete=is_complete) == 9  # a torn tail
    assert scanner.consecutive_end(data[:60], next_offset=6, is_complete=is_complete) == -1
    assert scanner.consecutive_end(data, next_offset=8, is_complete=is_complete) == -1  # the first ends too early
    assert scanner.consecutive_end(data + batch(10), next_offset=6, is_complete=is_complete) == -1


def test_a_gap_is_a_fault_only_where_all_offsets_must_be_there(scanner: Any) -> None:
    data = batch(0) + batch(2)
    assert scanner.consecutive_end(data, next_offset=0, is_complete=False) == 3
    assert scanner.consecutive_end(data, next_offset=0, is_complete=True) == -1
    assert scanner.consecutive_end(batch(2), next_offset=0, is_complete=False) == 3
    assert scanner.consecutive_end(batch(2), next_offset=0, is_complete=True) == -1


def test_the_end_of_any_bytes_is_that_of_the_walk_over_headers(scanner: Any) -> None:
    generator = random.Random(7)
    refused = 0
    for _ in range(3_000):
        data, offset = bytearray(), generator.choice([0, 5, 2**63 - 4])
        start = offset
        for _ in range(generator.randint(1, 4)):
            offset += generator.choice([0, 0, 0, 1])
            data += batch(min(offset, 2**63 - 2))
            offset += 1
        if generator.random() < 0.7:
            data[generator.choice([0, 7, 8, 11, 16, 23, 26, 57, 60]) % len(data)] ^= 1 << generator.randint(0, 7)
        whole = bytes(data[: len(data) - generator.choice([0, 0, 1, 70])])
        for is_complete in (False, True):
            expected = end_by_headers(whole, start, is_complete=is_complete)
            assert scanner.consecutive_end(whole, next_offset=start, is_complete=is_complete) == expected
            refused += expected == -1
    assert 300 < refused < 5_700
