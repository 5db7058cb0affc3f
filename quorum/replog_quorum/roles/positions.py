"""Whether a replica's log is a prefix of the leader's, and what it is told if not (docs/KAFKA.md 5.4)."""

from __future__ import annotations

from msgspec import Struct

from replog_quorum.messages import EpochEnd, LogView, QuorumError


class Redirect(Struct, frozen=True):
    """Exactly one field is set: where the two logs part, which snapshot to take instead, or an error."""

    diverging: EpochEnd | None = None
    snapshot_id: EpochEnd | None = None
    error: QuorumError = QuorumError.NONE


def redirect(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> Redirect | None:
    """Returns what a replica is told whose log ends at `fetch_offset` with a record of `last_fetched_epoch`.

    A replica with nothing at all gets the latest snapshot even while offset 0 is still in the log: it is shorter.

    Args:
        log: The log of the leader.
        fetch_offset: The end of the replica's log.
        last_fetched_epoch: The epoch of its last record; 0 if it has none.

    Returns:
        None when the replica's log is a prefix of the leader's, and the leader's log goes on from there.
    """
    latest = log.latest_snapshot_id
    if fetch_offset == 0 and latest is not None:
        return Redirect(snapshot_id=latest)
    if fetch_offset == 0 and log.log_start_offset == 0:
        return None
    if _is_behind_log(log, fetch_offset, last_fetched_epoch):
        return Redirect(error=QuorumError.OFFSET_OUT_OF_RANGE) if latest is None else Redirect(snapshot_id=latest)
    end = log.end_offset_for_epoch(last_fetched_epoch)
    is_prefix = end.epoch == last_fetched_epoch and fetch_offset <= end.end_offset
    return None if is_prefix else Redirect(diverging=end)


def _is_behind_log(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> bool:
    """Whether the leader cannot tell if what the replica has is right: the snapshot at its log start replaced it."""
    start_offset, earliest = log.log_start_offset, log.earliest_snapshot_id
    if fetch_offset < start_offset:
        return True
    if earliest is None or start_offset == 0:
        return False
    return last_fetched_epoch < earliest.epoch or (
        fetch_offset == start_offset and last_fetched_epoch != earliest.epoch
    )
