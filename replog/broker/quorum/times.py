"""How long elections and commits of the metadata quorum take, as one node sees it."""

from __future__ import annotations

from collections import deque

COMMITS_KEPT = 1024
APPENDS_KEPT = 4096


class QuorumTimes:
    """The last elections and commits.

    Attributes:
        elections: The number of times that another leader became known.
        election_ms: The time for which there was no leader before the present one; None before the first.
    """

    def __init__(self) -> None:
        self.elections = 0
        self.election_ms: int | None = None
        self._leaderless_since_ms: int | None = None
        self._pending: deque[tuple[int, int]] = deque(maxlen=APPENDS_KEPT)
        self._commits_ms: deque[int] = deque(maxlen=COMMITS_KEPT)

    def leader_changed(self, leader_id: int | None, now_ms: int) -> None:
        """Notes that another leader, or none, is known."""
        if leader_id is None:
            self._leaderless_since_ms = now_ms if self._leaderless_since_ms is None else self._leaderless_since_ms
            return
        self.elections += 1
        if self._leaderless_since_ms is not None:
            self.election_ms = now_ms - self._leaderless_since_ms
            self._leaderless_since_ms = None

    def appended(self, end_offset: int, now_ms: int) -> None:
        """Notes that a batch of this leader, which ends at `end_offset`, was handed in at `now_ms`."""
        self._pending.append((end_offset, now_ms))

    def committed(self, high_watermark: int, now_ms: int) -> None:
        """Notes that everything below `high_watermark` is committed."""
        while self._pending and self._pending[0][0] <= high_watermark:
            self._commits_ms.append(now_ms - self._pending.popleft()[1])

    def forget_appends(self) -> None:
        """Forgets what waits to commit: leadership is lost, and nobody knows when it will."""
        self._pending.clear()

    def commit_ms(self, quantile: float) -> int | None:
        """Returns a quantile, 0 to 1, of the times of the last commits; None when there were none."""
        ordered = sorted(self._commits_ms)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else None
