"""The high watermark's arithmetic: which offsets count, and what follows from them.

Records below the high watermark are on every replica that may be elected cleanly, so consumers may see them and an
acks=all produce may be answered.  Which offset of a replica *counts* depends on the flush policy (docs/KAFKA.md 4.3):
where an acknowledgement waits for an fsync, so does the high watermark, otherwise a consumer could read what a power
cut removes.

| policy   | leader counts with                         | other replicas count with |
|----------|--------------------------------------------|---------------------------|
| `always` | flushed offset                             | flushed offset            |
| `auto`   | flushed offset while the ISR has one member| log end offset            |
| `os`     | log end offset                             | log end offset            |
"""

from __future__ import annotations

from collections.abc import Iterable

from replog.metadata.config_keys import FlushPolicy


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Returns `min.insync.replicas`, but never more than there are replicas (docs/KAFKA.md 4.3)."""
    return min(min_insync_replicas, replica_count)


def leader_waits_for_flush(flush_policy: FlushPolicy, committed_isr_size: int) -> bool:
    """Whether the leader's own share counts only after its fsync.

    Args:
        flush_policy: The policy of the topic.
        committed_isr_size: The size of the last ISR known to be committed; a member still being added does not
            replace the fsync, because the controller may yet refuse it.
    """
    match flush_policy:
        case FlushPolicy.ALWAYS:
            return True
        case FlushPolicy.AUTO:
            return committed_isr_size <= 1
        case FlushPolicy.OS:
            return False


def follower_waits_for_flush(flush_policy: FlushPolicy) -> bool:
    """Whether a follower's share counts only after its fsync."""
    return flush_policy is FlushPolicy.ALWAYS


def counted_end_offset(*, log_end_offset: int, flushed_offset: int, waits_for_flush: bool) -> int:
    """Returns the end offset (exclusive) that one replica puts into the minimum."""
    return min(log_end_offset, flushed_offset) if waits_for_flush else log_end_offset


def high_watermark(current: int, counted_ends: Iterable[int], *, committed_isr_size: int, min_isr: int) -> int:
    """Returns the smallest counted end offset, never below `current` within one leader epoch (docs/KAFKA.md 4.3).

    Args:
        current: The high watermark so far, exclusive.
        counted_ends: The counted end offsets (exclusive; -1 where unknown) of the leader itself, of the maximal ISR
            (the committed ISR plus an addition still being committed, which may already be electable), of the ELR,
            which is electable when the ISR is gone, and of every eligible, caught-up replica that waits to join, so
            that the watermark does not run away from it.
        committed_isr_size: The size of the committed ISR.
        min_isr: The effective min ISR; with fewer committed members nothing new becomes visible (KIP-966).

    Returns:
        The new high watermark; `current` when nothing may move.
    """
    if committed_isr_size < min_isr:
        return current
    return max(current, min(counted_ends, default=current))
