"""The arithmetic of the quorum: majorities, the high watermark, whose log is newer.

Pure functions over plain numbers, apart from the roles so that each rule can be read and tested alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from replog_quorum.messages import EpochEnd

UNKNOWN_OFFSET = -1


def majority_size(voter_count: int) -> int:
    """Returns how many voters make a majority: 1 of 1, 2 of 3, 3 of 5."""
    return voter_count // 2 + 1


def majority_end_offset(end_offsets: Iterable[int]) -> int:
    """Returns the largest end offset that a majority of the voters has reached.

    Args:
        end_offsets: One flushed end offset (exclusive) per voter; `UNKNOWN_OFFSET` where none is known.
    """
    descending = sorted(end_offsets, reverse=True)
    return descending[len(descending) // 2]


def high_watermark(current: int, end_offsets: Mapping[int, int], epoch_start_offset: int) -> int:
    """Returns the next high watermark of a leader; never below `current`.

    A majority's end offset counts only once it is past the start of the leader's own epoch: records of an earlier
    epoch that sit on a majority may still be overwritten (Raft 5.4.2, figure 8; docs/KAFKA.md 5.3).

    Args:
        current: High watermark so far (exclusive), `UNKNOWN_OFFSET` before the first.
        end_offsets: Voter id -> flushed end offset (exclusive); the leader's own from its own fsync.
        epoch_start_offset: Offset of the first record of the leader's epoch.
    """
    candidate = majority_end_offset(end_offsets.values())
    return max(current, candidate) if candidate > epoch_start_offset else current


def log_is_up_to_date(last_epoch: int, last_offset: int, own_last_epoch: int, own_end_offset: int) -> bool:
    """Whether a candidate's log holds everything that may be committed in ours (Raft 5.4.1): the later last epoch
    wins, then the longer log."""
    return (last_epoch, last_offset) >= (own_last_epoch, own_end_offset)


def truncation_offset(diverging: EpochEnd, local: EpochEnd, log_end_offset: int) -> int:
    """Returns where a follower cuts when its leader answered with a diverging epoch (KIP-595; docs/KAFKA.md 5.4).

    Args:
        diverging: The largest epoch of the leader not above the follower's last one, and where it ends there.
        local: The answer of the follower's own log to the same question about `diverging.epoch`.
        log_end_offset: The end of the follower's log.
    """
    if diverging.epoch == 0:
        return min(diverging.end_offset, log_end_offset)
    if local.epoch == diverging.epoch:
        return min(local.end_offset, diverging.end_offset, log_end_offset)
    return min(local.end_offset, log_end_offset)


def successor_backoff_ms(node_id: int, preferred_candidates: Sequence[int], backoff_max_ms: int) -> int:
    """Returns how long a voter waits after its leader has resigned: the most caught-up one not at all, the others
    longer and longer, so that they do not split the vote (docs/KAFKA.md 5.2)."""
    if node_id not in preferred_candidates:
        return backoff_max_ms
    position = preferred_candidates.index(node_id)
    if position == 0:
        return 0
    return min(backoff_max_ms, (backoff_max_ms >> (len(preferred_candidates) - 1)) << (position - 1))
