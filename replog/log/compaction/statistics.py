"""The statistics of one pass of compaction."""

from __future__ import annotations

from msgspec import Struct


class CompactionStats(Struct):
    """Counted while a job runs.

    Attributes:
        first_dirty_offset: The offset at which the part began that was read for the map.
        clean_end_offset: End of the part of the log that is compacted now, exclusive.
        map_is_full: Whether the map could not hold every key of the dirty part: then another pass goes on from there.
        keys_count: Number of keys in the map.
        map_bytes_read: Bytes read to fill the map.
        bytes_read: Bytes of the segments that were rewritten, without `map_bytes_read`.
        bytes_written: Bytes of the segments that took their place.
        records_read: Number of records in the segments that were rewritten.
        records_kept: Number of those records that were kept.
        segments_before: Number of segments that were replaced.
        segments_after: Number of segments that replaced them.
        map_seconds: Time to fill the map.
        rewrite_seconds: Time to rewrite, fsync included.
        throttle_seconds: Part of both times that the throttle slept.
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
        """Returns one line for a log file."""
        text = (
            f"compacted to offset {self.clean_end_offset}: {self.records_kept} of {self.records_read} records kept, "
            f"{self.bytes_read} bytes became {self.bytes_written} in {self.map_seconds + self.rewrite_seconds:.1f} s "
            f"({self.map_seconds:.1f} s for the map of {self.keys_count} keys, {self.throttle_seconds:.1f} s throttled)"
        )
        if self.map_is_full:
            text += "; the map was full, the rest follows: a larger log.cleaner.dedupe.buffer.size needs fewer passes"
        return text
