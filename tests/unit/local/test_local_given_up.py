"""What a repair says that it gave up is what cannot be read after it, and could before the damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_local_repair import FOLDER, RECORDS, doubled, killed, opened, placed_wrong, raised_by, swapped, write_file

from replog.log.file_names import LOG_SUFFIX, file_path
from replog.log.repair.plan import ranges_given_up
from replog.log.repair.repair import repair_log
from replog.testing import SimulatedFileSystem

Damage = Callable[[SimulatedFileSystem, int], None]


def log_gone(fs: SimulatedFileSystem, base: int) -> None:
    fs.remove(file_path(FOLDER, base, LOG_SUFFIX))


def segment_gone(fs: SimulatedFileSystem, base: int) -> None:
    for name in fs.list_dir(FOLDER):
        if name.startswith(f"{base:020d}"):
            fs.remove(f"{FOLDER}/{name}")


def log_empty(fs: SimulatedFileSystem, base: int) -> None:
    write_file(fs, file_path(FOLDER, base, LOG_SUFFIX), b"")


def bit_flipped(fs: SimulatedFileSystem, base: int) -> None:
    fs.flip_bit(file_path(FOLDER, base, LOG_SUFFIX), 80, 0)


def check(fs: SimulatedFileSystem, start: int = 0) -> None:
    """Repairs a log that had every offset from `start` to `RECORDS`."""
    report = repair_log(fs, FOLDER, accept_loss=True, now_ms=1)
    with opened(fs) as log:
        read: set[int] = set()
        for offset in range(max(log.log_start_offset, start), log.log_end_offset):
            read |= {record.offset for record in log.read(offset, max_records=1) if record.offset >= start}
    lost = [offset for first, end in report.given_up for offset in range(first, end)]
    assert lost == sorted(set(range(start, RECORDS)) - read)
    assert report.offsets_given_up == len(lost) > 0


DAMAGES: list[Damage] = [log_gone, segment_gone, log_empty, bit_flipped]


@pytest.mark.parametrize("start_offset", [0, 7])
@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_one_segment(damage: Damage, start_offset: int, *, is_clean: bool) -> None:
    _, bases = killed(start_offset)
    for base, end in zip(bases, (*bases[1:], RECORDS), strict=True):
        if end <= start_offset:
            continue
        fs, _ = killed(start_offset)
        if is_clean:
            opened(fs).close()
        damage(fs, base)
        check(fs, start_offset)


@pytest.mark.parametrize("second", DAMAGES)
@pytest.mark.parametrize("first", DAMAGES)
def test_damage_of_two_segments(first: Damage, second: Damage) -> None:
    for distance in (1, 3):
        fs, bases = killed()
        first(fs, bases[2])
        second(fs, bases[2 + distance])
        check(fs)


@pytest.mark.parametrize("number", [0, 10, RECORDS - 2])
@pytest.mark.parametrize("damage", [raised_by(1 << 34), raised_by(2), doubled, swapped])
def test_batches_that_contradict_each_other(damage: Callable[[list[bytes], int], list[bytes]], number: int) -> None:
    check(placed_wrong(damage, number, is_clean=False))


@pytest.mark.parametrize(
    ("holes", "expected"),
    [
        ([], ((25, 30),)),
        ([(0, 4), (10, 12)], ((10, 12), (25, 30))),
        ([(2, 8), (8, 10), (9, 11)], ((5, 11), (25, 30))),
        ([(20, 25)], ((20, 30),)),
        ([(26, 40)], ((25, 40),)),
        ([(7, 7)], ((25, 30),)),
    ],
)
def test_ranges_are_merged_and_begin_where_the_log_did(
    holes: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]
) -> None:
    assert ranges_given_up(holes, 5, 30, 25) == expected
    assert ranges_given_up(holes[::-1], 5, 30, 25) == expected
