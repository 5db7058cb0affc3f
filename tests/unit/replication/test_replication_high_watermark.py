"""The arithmetic of the high watermark (docs/KAFKA.md 4.3)."""

from __future__ import annotations

import pytest

from replog.metadata.config_keys import FlushPolicy
from replog.replication.high_watermark import (
    counted_end_offset,
    effective_min_isr,
    follower_waits_for_flush,
    high_watermark,
    leader_waits_for_flush,
)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([15, 3, 4], 3), ([9, 7, 6], 6), ([9, 7], 7), ([9], 9), ([9, -1], 2), ([1], 2)],
)
def test_smallest_counted_end_but_never_lower_than_before(ends: list[int], expected: int) -> None:
    assert high_watermark(2, ends, committed_isr_size=1, min_isr=1) == expected


def test_nothing_moves_below_min_isr() -> None:
    assert high_watermark(2, [9, 9], committed_isr_size=1, min_isr=2) == 2


def test_min_isr_is_never_more_than_the_replicas_there_are() -> None:
    assert effective_min_isr(2, 1) == 1
    assert effective_min_isr(2, 3) == 2


@pytest.mark.parametrize(
    ("policy", "isr_size", "leader_waits", "follower_waits"),
    [
        (FlushPolicy.ALWAYS, 1, True, True),
        (FlushPolicy.ALWAYS, 3, True, True),
        (FlushPolicy.AUTO, 1, True, False),
        (FlushPolicy.AUTO, 2, False, False),
        (FlushPolicy.OS, 1, False, False),
    ],
)
def test_who_waits_for_the_disk(policy: FlushPolicy, isr_size: int, leader_waits: bool, follower_waits: bool) -> None:
    assert leader_waits_for_flush(policy, isr_size) is leader_waits
    assert follower_waits_for_flush(policy) is follower_waits


def test_flushed_offset_counts_only_where_it_is_waited_for() -> None:
    assert counted_end_offset(log_end_offset=9, flushed_offset=4, waits_for_flush=True) == 4
    assert counted_end_offset(log_end_offset=9, flushed_offset=4, waits_for_flush=False) == 9
    assert counted_end_offset(log_end_offset=9, flushed_offset=12, waits_for_flush=True) == 9
