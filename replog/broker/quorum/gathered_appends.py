"""The active controller's records on their way into the log: a batch fills while the ones before it commit.

Why: a request is a record or two, and each batch costs an append, a message to every follower and a share of an fsync.  As
long as few batches are under way a request is appended in its turn of the loop; when the quorum is busy, whatever comes
until one of them commits shares the next (natural batching: the busier, the larger, and nobody waits for a timer).  A
linger gathers for longer, at the price of that latency.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from replog.broker.clock import Clock
from replog.broker.quorum.committed_log import CommittedLog
from replog.broker.quorum.metadata_log import MetadataLog
from replog.errors import InvariantViolationError
from replog.metadata.records import MetadataRecord
from replog.rpc.metadata_records import encode_metadata_record
from replog_quorum import AccumulatorFullError, BatchAccumulator

MAX_UNCOMMITTED_BATCHES = 2
"""One on its way through the quorum, one behind it: a change now and then never waits for another."""


class GatheredAppends:
    """Appends of one leadership at a time.

    Args:
        log: The metadata log, to which the records go.
        committed: What keeps the records for their commit.
        times: What is told about each batch.
        clock: The clock of the node.
        linger_ms: The time for which to gather; 0 for the rest of the loop's turn.
        on_appended: The function that is called after batches were appended.
        on_failure: The function that is told about a bug or a failed disk; the node stops then.
    """

    def __init__(
        self,
        log: MetadataLog,
        committed: CommittedLog,
        times: QuorumTimes,
        clock: Clock,
        *,
        linger_ms: int,
        on_appended: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._committed = committed
        self._times = times
        self._clock = clock
        self._on_appended = on_appended
        self._on_failure = on_failure
        self._accumulator = BatchAccumulator(linger_ms=linger_ms)
        self._planned: asyncio.Handle | None = None
        self._uncommitted: deque[int] = deque()  # where the batches under way end

    @property
    def is_open(self) -> bool:
        """Whether a controller appends."""
        return self._accumulator.epoch is not None

    def open(self, epoch: int) -> None:
        """Begins to take the controller's records of `epoch`, at the end of the log."""
        self._accumulator.open(epoch, self._log.log_end_offset)

    def close(self) -> None:
        """Drops what was not appended, which never will be: leadership is lost."""
        self._accumulator.close()
        self._committed.forget_kept()
        self._times.forget_appends()
        self._uncommitted.clear()
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None

    def add(self, records: Sequence[MetadataRecord], *, epoch: int, base_offset: int) -> None:
        """Takes records that go into one batch.

        Raises:
            InvariantViolationError: The records would not land at `base_offset`.
            ReplogQuorumError: Another epoch is led, or they do not fit into a batch.
        """
        values = [encode_metadata_record(record) for record in records]
        try:
            offset = self._accumulator.append(epoch, values, self._clock.now_ms())
        except AccumulatorFullError:  # a turn of the loop with very many large requests
            self.append_all()
            offset = self._accumulator.append(epoch, values, self._clock.now_ms())
        if offset != base_offset:
            raise InvariantViolationError(f"records for offset {base_offset}, the next one is {offset}")
        size_bytes, now_ms = sum(map(len, values)), self._clock.wall_ms()
        self._committed.keep(base_offset, epoch, records, size_bytes=size_bytes, timestamp_ms=now_ms)
        self._plan()

    def committed(self, high_watermark: int) -> None:
        """Notes that everything below `high_watermark` is committed: what has been gathered meanwhile may go."""
        while self._uncommitted and self._uncommitted[0] <= high_watermark:
            self._uncommitted.popleft()
        if not self._accumulator.is_empty:
            self._plan()

    def append_all(self) -> None:
        """Appends what has been gathered, now: something else goes behind it."""
        self._append(everything=True)

    def skip_to(self, next_offset: int) -> None:
        """Goes on at `next_offset`, since the log has got records of others; nothing may be waiting."""
        self._accumulator.skip_to(next_offset)

    def _plan(self) -> None:
        if self._planned is not None or len(self._uncommitted) >= MAX_UNCOMMITTED_BATCHES:
            return
        loop = asyncio.get_running_loop()
        deadline_ms = self._accumulator.next_deadline_ms()
        delay_ms = 0 if deadline_ms is None else deadline_ms - self._clock.now_ms()
        if delay_ms > 0:
            self._planned = loop.call_later(delay_ms / 1000, self._drain)
        else:
            self._planned = loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._planned = None
        try:
            self._append(everything=False)
            if self._accumulator.next_deadline_ms() is not None:
                self._plan()
        except BaseException as error:  # noqa: BLE001 -- a callback of the loop: nobody else would hear of it
            self._on_failure(error)

    def _append(self, *, everything: bool) -> None:
        now_ms, epoch = self._clock.now_ms(), self._accumulator.epoch
        batches = self._accumulator.drain_all(now_ms) if everything else self._accumulator.drain(now_ms)
        for batch in batches:
            if epoch is None or batch.base_offset != self._log.log_end_offset:
                raise InvariantViolationError(
                    f"a batch for offset {batch.base_offset}, the metadata log ends at {self._log.log_end_offset}"
                )
            self._log.append_values(epoch, batch.values)
            self._times.appended(self._log.log_end_offset, batch.created_ms)
            self._uncommitted.append(self._log.log_end_offset)
        if batches:
            self._on_appended()


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
