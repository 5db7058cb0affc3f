"""Which snapshots of the metadata log, and how much of the log, may go (docs/KAFKA.md 5.8)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class SnapshotAge(Struct, frozen=True):
    """One snapshot, for retention.

    Attributes:
        end_offset: The offset below which it stands for everything.
        size_bytes: Size of its file.
        timestamp_ms: Wall time of the last record it contains.
    """

    end_offset: int
    size_bytes: int
    timestamp_ms: int


def log_start_after_cleaning(
    snapshots: Sequence[SnapshotAge], *, log_size_bytes: int, now_ms: int, retention_bytes: int, retention_ms: int
) -> int | None:
    """Returns where the log may start: at the end of the first snapshot that is kept.

    Snapshots go from the oldest, as long as log and snapshots together are too large or the oldest is too old, and never
    the newest: it and the log behind it are the state.

    Args:
        snapshots: All snapshots, the oldest first.
        log_size_bytes: Bytes of all segments.
        now_ms: Wall time.
        retention_bytes: Limit of log and snapshots together; negative: no limit.
        retention_ms: Limit of the age of the oldest one's last record; negative: no limit.

    Returns:
        None: all of them stay.
    """
    total_bytes = log_size_bytes + sum(snapshot.size_bytes for snapshot in snapshots)
    kept = 0
    while kept < len(snapshots) - 1:
        oldest = snapshots[kept]
        is_too_large = 0 <= retention_bytes < total_bytes
        is_too_old = 0 <= retention_ms < now_ms - oldest.timestamp_ms
        if not (is_too_large or is_too_old):
            break
        total_bytes -= oldest.size_bytes
        kept += 1
    return snapshots[kept].end_offset if kept else None
