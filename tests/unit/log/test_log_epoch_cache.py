"""Leader-epoch cache (docs/KAFKA.md 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replog.errors import InvariantViolationError
from replog.log.epoch_cache import LeaderEpochCache

Entries = list[tuple[int, int]]


def cache(*entries: tuple[int, int]) -> tuple[LeaderEpochCache, list[Entries]]:
    """A cache and everything it has written."""
    written: list[Entries] = []

    def write(new: Sequence[tuple[int, int]]) -> None:
        written.append(list(new))

    return LeaderEpochCache(entries, write), written


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (3, 130, [(0, 0), (3, 120)]),  # goes on
        (5, 150, [(0, 0), (3, 120), (5, 150)]),
        (5, 120, [(0, 0), (5, 120)]),  # 3 never wrote
        (5, 90, [(0, 0), (5, 90)]),  # what began above is gone
        (2, 150, [(0, 0), (2, 150)]),  # a lower epoch is right, the higher one was cut
        (0, 120, [(0, 0)]),  # 3 led without writing, 0 goes on
    ],
)
def test_assign(epoch: int, start: int, expected: Entries) -> None:
    epochs, written = cache((0, 0), (3, 120))
    epochs.assign(epoch, start)
    assert epochs.entries == expected
    assert written == ([expected] if expected != [(0, 0), (3, 120)] else [])


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, None), (0, (0, 120)), (2, (0, 120)), (3, (3, 150)), (4, None)],
)
def test_end_offset(epoch: int, expected: tuple[int, int] | None) -> None:
    epochs, _ = cache((0, 0), (3, 120))
    assert epochs.end_offset_for(epoch, 150) == expected


def test_end_offset_below_the_first_epoch_is_where_the_log_begins() -> None:
    epochs, _ = cache((3, 120), (4, 130))
    assert epochs.end_offset_for(1, 150) == (1, 120)
    assert cache()[0].end_offset_for(0, 0) is None


def test_truncation_is_written_at_once() -> None:
    epochs, written = cache((0, 0), (3, 120), (4, 140))
    epochs.truncate_from_end(120)
    assert written == [[(0, 0)]]
    epochs.truncate_from_end(120)
    assert len(written) == 1


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, [(0, 0), (3, 120)]),
        (50, [(0, 50), (3, 120)]),
        (120, [(3, 120)]),
        (130, [(3, 130)]),
    ],
)
def test_truncate_from_start(start: int, expected: Entries) -> None:
    epochs, _ = cache((0, 0), (3, 120))
    epochs.truncate_from_start(start)
    assert epochs.entries == expected


def test_epoch_for_offset() -> None:
    epochs, _ = cache((2, 10), (3, 120))
    assert [epochs.epoch_for_offset(o) for o in (9, 10, 119, 120)] == [None, 2, 2, 3]


def test_negative_epoch_is_our_bug() -> None:
    with pytest.raises(InvariantViolationError):
        cache()[0].assign(-1, 0)
