"""The configuration keys of logs, the one of the metadata aside: segments, retention, compaction, flushes; a part of `ServerKeys`."""

from typing import Annotated

from replog.config.group_keys import GroupKeys
from replog.config.keys import Differs
from replog.config.kinds import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT_MAX,
    KIB,
    LONG_MAX,
    MIB,
    YEAR_MS,
    Choice,
    Choices,
    Fraction,
    Number,
    milliseconds,
    size_bytes,
)
from replog.metadata.config_keys import CleanupPolicy, FlushPolicy


class LogKeys(GroupKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page; `GroupKeys` are its base because a struct has one base only."""

    # ---- log --------------------------------------------------------------------------------------------------------

    log_segment_bytes: Annotated[int, size_bytes(KIB, INT_MAX)] = GIB
    """Size at which a segment file is closed and the next begun.  Retention deletes whole segments, so large ones keep
    data longer; small ones mean many files.  Kafka's least is 1 MiB."""

    log_roll_ms: Annotated[int, milliseconds(1, LONG_MAX)] = 7 * DAY_MS
    """Age at which a segment is closed even if it is small, so that retention can reach it."""

    log_index_interval_bytes: Annotated[int, size_bytes(0, INT_MAX)] = 4 * KIB
    """Record bytes between two index entries.  Smaller finds offsets faster and makes larger indexes."""

    log_index_size_max_bytes: Annotated[int, size_bytes(KIB, GIB)] = 10 * MIB
    """Largest offset index of a segment; a full index closes the segment."""

    log_cleanup_policy: Annotated[tuple[CleanupPolicy, ...], Choices(CleanupPolicy, '"delete", "compact" or both')] = (
        CleanupPolicy.DELETE,
    )
    """What happens to old records of topics that do not say it themselves.  delete: retention by age and size.  compact: of
    every key the newest record stays, and records need keys."""

    log_retention_ms: Annotated[int, milliseconds(-1, LONG_MAX, (-1, "for ever"))] = 7 * DAY_MS
    """Age after which segments are deleted, by their newest timestamp: also the newest one of a quiet partition, behind
    which an empty one begins."""

    log_retention_bytes: Annotated[int, size_bytes(-1, LONG_MAX, (-1, "no limit"))] = -1
    """Size of a partition above which its oldest segments are deleted; what is left is at least that large."""

    log_segment_delete_delay_ms: Annotated[int, milliseconds(0, LONG_MAX)] = 60_000
    """How long the files of a deleted segment wait under `.deleted` names before they are removed, so that readers
    of them can go on.  On a disk without room they are removed at once."""

    log_retention_check_interval_ms: Annotated[int, milliseconds(1, DAY_MS)] = 300_000
    """How often segments are checked for retention."""

    # ---- compaction -------------------------------------------------------------------------------------------------

    log_cleaner_backoff_ms: Annotated[int, milliseconds(1, DAY_MS)] = 15_000
    """How often is looked for a log to compact when there was none."""

    log_cleaner_min_cleanable_ratio: Annotated[float, Fraction(0, 1)] = 0.5
    """Share of a log's bytes not compacted yet, above which it is compacted.  Smaller reads and writes the same data more
    often; larger lets more superseded records wait."""

    log_cleaner_min_compaction_lag_ms: Annotated[int, milliseconds(0, LONG_MAX)] = 0
    """How long a record is at least left alone, so that slow readers see the versions in between."""

    log_cleaner_max_compaction_lag_ms: Annotated[int, milliseconds(1, LONG_MAX)] = LONG_MAX
    """Age at which a record is compacted for any ratio.  Segments are rolled at this age too."""

    log_cleaner_delete_retention_ms: Annotated[int, milliseconds(0, LONG_MAX)] = DAY_MS
    """How long a tombstone is kept after the pass that first met it.  A reader slower than this misses the deletion."""

    log_cleaner_dedupe_buffer_size: Annotated[int, size_bytes(MIB, 64 * GIB)] = 128 * MIB
    """Memory for the keys of one pass, 24 bytes each.  Too small for the keys of the dirty part: several passes."""

    log_cleaner_io_buffer_load_factor: Annotated[float, Fraction(0.1, 0.99)] = 0.9
    """How full that memory may get.  Larger: fewer passes, slower look-ups."""

    log_cleaner_io_buffer_size: Annotated[int, size_bytes(4 * KIB, GIB)] = 512 * KIB
    """Bytes that compaction reads and works on at once.  Larger: requests wait longer for their turn of the processor."""

    log_cleaner_io_max_bytes_per_second: Annotated[int | None, size_bytes(KIB, LONG_MAX)] = None
    """Bytes that compaction reads and writes in a second, together.  Not set: no limit."""

    # ---- producers --------------------------------------------------------------------------------------------------

    producer_id_expiration_ms: Annotated[int, milliseconds(1, YEAR_MS)] = DAY_MS
    """How long a silent idempotent producer is remembered.  Too short: its retry after a pause is refused."""

    # ---- flushing ---------------------------------------------------------------------------------------------------

    flush_policy: Annotated[
        FlushPolicy,
        Choice(FlushPolicy),
        Differs("no such key; Kafka acts as os", "an acknowledgement should survive the loss of any one machine"),
    ] = FlushPolicy.AUTO
    """When an acks=all acknowledgement waits for fsync.  auto: only while one replica is in sync, since no other has
    the record then.  always: on every in-sync replica; survives a power loss of all.  os: never.  A new cluster takes
    always and os from its first controller; later it is changed in the cluster.  Changed to always, it covers what was
    acknowledged before once that is on every disk, which begins at once: change it while all replicas are in sync."""

    log_flush_interval_messages: Annotated[int, Number(1, LONG_MAX)] = LONG_MAX
    """Records after which a partition is flushed under any policy.  The default is never."""

    log_flush_interval_ms: Annotated[int | None, milliseconds(1, LONG_MAX)] = None
    """Age of unflushed records at which a partition is flushed under any policy.  Not set: never."""

    log_flush_scheduler_interval_ms: Annotated[int, milliseconds(1, LONG_MAX)] = LONG_MAX
    """How often partitions are looked at for log.flush.interval.ms and flush.ms.  The default: twice in the shortest of
    these (Kafka never looks unless this is set too)."""

    log_dirty_window_bytes: Annotated[
        int,
        size_bytes(0, GIB, (0, "off")),
        Differs("no such key; Kafka leaves it to the kernel", "steady writes, and memory that is used again"),
    ] = 8 * MIB
    """Bytes appended to a partition after which the older half is handed to the disk, without waiting for it, and its
    memory is given back behind what followers and consumers close to the end still read.  Too small: many small writes.
    Too large: bursts, and more memory for each busy partition.  At four windows producers wait for the disk."""

    log_flush_offset_checkpoint_interval_ms: Annotated[int, milliseconds(1, HOUR_MS)] = 60_000
    """How often recovery points are written.  Longer means that more of the log is checked after a crash."""

    log_flush_start_offset_checkpoint_interval_ms: Annotated[int, milliseconds(1, HOUR_MS)] = 60_000
    """How often log start offsets are written.  Longer means that more deleted records may reappear after a crash."""
