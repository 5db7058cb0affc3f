"""Which snapshots go: from the oldest, by size or age, and never the newest."""

from __future__ import annotations

import pytest

from replog.log.snapshots.store import SnapshotAge, log_start_after_cleaning

SNAPSHOTS = [SnapshotAge(10, 100, 1_000), SnapshotAge(20, 100, 2_000), SnapshotAge(30, 100, 3_000)]


@pytest.mark.parametrize(
    ("retention_bytes", "retention_ms", "start_offset"),
    [
        (-1, -1, None),  # no limits
        (700, -1, None),  # exactly as large as allowed
        (699, -1, 20),
        (599, -1, 30),
        (0, -1, 30),  # the newest stays whatever it costs
        (-1, 9_000, None),  # the oldest is exactly as old as allowed
        (-1, 8_999, 20),
        (-1, 0, 30),
        (699, 7_999, 30),  # one goes by size, the next by age
    ],
)
def test_retention(retention_bytes: int, retention_ms: int, start_offset: int | None) -> None:
    found = log_start_after_cleaning(
        SNAPSHOTS, log_size_bytes=400, now_ms=10_000, retention_bytes=retention_bytes, retention_ms=retention_ms
    )
    assert found == start_offset


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_snapshots_never_go(count: int) -> None:
    found = log_start_after_cleaning(
        SNAPSHOTS[:count], log_size_bytes=1 << 40, now_ms=1 << 40, retention_bytes=0, retention_ms=0
    )
    assert found is None
