"""What one pass of compaction did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CompactionStats:
    """Counted while a job runs.

    Attributes:
        first_dirty_offset: where the part began that was read for the map.
        clean_end_offset: up to where the log is compacted now, exclusive.
        map_is_full: the map could not hold every key of the dirty part: another pass goes on from there.
        keys_count: in the map.
        map_bytes_read: read to fill the map.
        bytes_read: of the segments that were rewritten, without `map_bytes_read`.
        bytes_written: of the segments that took their place.
        records_read: in those segments.
        records_kept: of them.
        segments_before: that were replaced.
        segments_after: that replaced them.
        map_seconds: time to fill the map.
        rewrite_seconds: time to rewrite, fsync included.
        throttle_seconds: of both, time that the throttle slept.
    """

    first_dirty_offset: int = 0
    clean_end_offset: int = 0
    map_is_full: bool = False
    keys_count: int = 0
    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    segments_before: int = 0
    segments_after: int = 0
    map_seconds: float = 0.0
    rewrite_seconds: float = 0.0
    throttle_seconds: float = 0.0

    def describe(self) -> str:
        """One line for a log file."""
        text = (
            f"compacted to offset {self.clean_end_offset}: {self.records_kept} of {self.records_read} records kept, "
            f"{self.bytes_read} bytes became {self.bytes_written} in {self.map_seconds + self.rewrite_seconds:.1f} s "
            f"({self.map_seconds:.1f} s for the map of {self.keys_count} keys, {self.throttle_seconds:.1f} s throttled)"
        )
        if self.map_is_full:
            text += "; the map was full, the rest follows: a larger log.cleaner.dedupe.buffer.size needs fewer passes"
        return text
