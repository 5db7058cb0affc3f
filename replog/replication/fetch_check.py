"""Whether a fetch continues the leader's log: the leader's half of truncation (KIP-101, KIP-595; docs/KAFKA.md 4.5).

A replica that led an earlier epoch may hold records its successor never had.  Its fetch names the epoch of its last
record; the leader looks up where that epoch ended in its own log.  If it ended earlier (or never existed here), the
replica must cut its log before it may go on.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from replog.errors import ErrorCode
from replog.replication.messages import EpochEnd, ReplicaLogView


class FetchCheck(Struct, frozen=True):
    """The answer: ok (`error` NONE, nothing diverging), out of range, or diverging.

    A diverging fetch is answered without data, and does not count as the follower's progress.
    """

    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None

    @property
    def ok(self) -> bool:
        return self.error is ErrorCode.NONE and self.diverging is None


_OK: Final = FetchCheck()
_OUT_OF_RANGE: Final = FetchCheck(ErrorCode.OFFSET_OUT_OF_RANGE)


def check_fetch(fetch_offset: int, last_fetched_epoch: int, log: ReplicaLogView) -> FetchCheck:
    """Checks a fetch against the leader's log.

    Args:
        fetch_offset: The next offset the replica wants, its log end offset.
        last_fetched_epoch: The latest epoch in the replica's epoch cache; -1 when it has none, or for a client that
            does not track epochs: then only the range is checked.
        log: The log of the leader.

    Returns:
        OFFSET_OUT_OF_RANGE for an epoch the leader cannot place and for an offset outside of
        [log start, log end]; being below the log start is found before a divergence is, since a cut could not help.
    """
    if last_fetched_epoch >= 0:
        epoch_end = log.end_offset_for_epoch(last_fetched_epoch)
        if epoch_end is None or fetch_offset < log.log_start_offset:
            return _OUT_OF_RANGE
        if epoch_end.epoch < last_fetched_epoch or epoch_end.end_offset < fetch_offset:
            return FetchCheck(diverging=epoch_end)
    if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
        return _OUT_OF_RANGE
    return _OK
