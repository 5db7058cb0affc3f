"""Leader: answers fetches, moves the high watermark, and resigns when no majority fetches any more
(kafka-reference 5.3, 5.4)."""

# ruff: noqa: ARG002 - overrides keep the signature of Role
from __future__ import annotations

from replog_quorum import arithmetic
from replog_quorum.arithmetic import UNKNOWN_OFFSET
from replog_quorum.context import Context, earliest
from replog_quorum.messages import (
    BeginQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    QuorumError,
    Response,
    SendFetchedData,
    VoteRequest,
)
from replog_quorum.progress import CheckQuorum, Lease, ProgressTable
from replog_quorum.purgatory import FetchPurgatory, ParkedFetch
from replog_quorum.role import Role
from replog_quorum.transitions import RoleName, ToResigned, Transition


class Leader(Role):
    """Leads one epoch.

    Invariants:
        - the high watermark of this leadership is unknown until a record of its own epoch is on a majority, and
          never decreases;
        - this node's own share of a majority is what its own fsync has covered;
        - a fetch that waits asks for the end of the log.
    """

    name = RoleName.LEADER

    def __init__(self, context: Context, now_ms: int) -> None:
        super().__init__(context)
        self.epoch = context.epoch
        self.epoch_start_offset = context.log.log_end_offset
        self.progress = ProgressTable(context.node_id, context.voters, context.log.flushed_offset)
        self._high_watermark = UNKNOWN_OFFSET
        self._purgatory = FetchPurgatory()
        self._check_quorum = CheckQuorum(
            context.node_id, context.voters, context.config.check_quorum_timeout_ms, now_ms
        )
        self._lease = Lease(context.node_id, context.voters, context.config.fetch_timeout_ms)
        self._begin_due_ms = dict.fromkeys(context.other_voters, now_ms)
        self._resign_requested = False

    @property
    def leader_id(self) -> int | None:
        return self._context.node_id

    def poll(self, now_ms: int) -> Transition | None:
        deadline_ms = self._check_quorum.deadline_ms
        if self._resign_requested or (deadline_ms is not None and now_ms >= deadline_ms):
            return ToResigned(self.progress.preferred_candidates())
        self.requests.expire(now_ms)
        self.progress.forget_silent_observers(now_ms)
        for fetch in self._purgatory.take_expired(now_ms):
            self._answer(fetch.source, fetch.request, now_ms)
        self._announce_epoch(now_ms)
        return None

    def next_deadline_ms(self) -> int | None:
        return earliest(
            self._check_quorum.deadline_ms,
            self._purgatory.next_deadline_ms(),
            self.requests.next_deadline_ms(),
            *self._begin_due_ms.values(),
        )

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return False

    def handle_response(self, source: int, response: Response, now_ms: int) -> Transition | None:
        return None  # an acknowledged BeginQuorumEpoch; the fetch that follows is what counts

    def request_failed(self, destination: int, now_ms: int) -> None:
        """BeginQuorumEpoch has a schedule of its own."""

    def resign(self) -> None:
        """Give up at the next poll."""
        self._resign_requested = True

    def take_parked_fetches(self) -> tuple[ParkedFetch, ...]:
        """Fetches still waiting when leadership ends."""
        return self._purgatory.take_all()

    def log_changed(self, now_ms: int) -> None:
        for fetch in self._purgatory.take_below(self._context.log.log_end_offset):
            self._answer(fetch.source, fetch.request, now_ms)

    def log_flushed(self, flushed_offset: int, now_ms: int) -> None:
        """This node's fsync has covered everything below `flushed_offset`: its own share counts now."""
        self.progress.set_end_offset(self._context.node_id, min(flushed_offset, self._context.log.flushed_offset))
        self._maybe_advance_high_watermark(now_ms)

    def holds_lease(self, now_ms: int) -> bool:
        """Whether nobody else can have been elected yet; see `Lease`."""
        return self._lease.is_held(now_ms)

    def handle_fetch(self, source: int, request: FetchRequest, now_ms: int) -> None:
        """Answer a fetch of this epoch, now or when there is something new."""
        self.progress.touch(request.replica_id, now_ms)
        self._check_quorum.fetched(request.replica_id, now_ms)
        self._lease.fetched(request.replica_id, request.leader_time_ms, now_ms)
        if request.fetch_offset < self._context.log.log_start_offset:
            self._context.send(source, self._response(request, now_ms, error=QuorumError.OFFSET_OUT_OF_RANGE))
            return
        diverging = self._diverging_epoch(request)
        if diverging is not None:
            self._context.send(source, self._response(request, now_ms, diverging=diverging))
            return
        self.progress.set_end_offset(request.replica_id, request.fetch_offset)
        self._maybe_advance_high_watermark(now_ms)
        if self._has_news(request) or request.max_wait_ms == 0:
            self._answer(source, request, now_ms)
        else:
            wait_ms = min(
                request.max_wait_ms, self._context.config.request_timeout_ms
            )  # a peer does not set our bounds
            self._park(ParkedFetch(source, request, now_ms + wait_ms), now_ms)

    def _diverging_epoch(self, request: FetchRequest) -> EpochEnd | None:
        """Where the two logs part, if the replica's is no prefix of ours; None when it is."""
        if request.fetch_offset == 0 and self._context.log.log_start_offset == 0:
            return None
        end = self._context.log.end_offset_for_epoch(request.last_fetched_epoch)
        is_prefix = end.epoch == request.last_fetched_epoch and request.fetch_offset <= end.end_offset
        return None if is_prefix else end

    def _has_news(self, request: FetchRequest) -> bool:
        has_data = request.fetch_offset < self._context.log.log_end_offset
        return has_data or request.high_watermark < self._high_watermark

    def _answer(self, source: int, request: FetchRequest, now_ms: int) -> None:
        response = self._response(request, now_ms)
        if request.fetch_offset < self._context.log.log_end_offset:
            self._context.emit(SendFetchedData(source, response, request.fetch_offset))
        else:
            self._context.send(source, response)

    def _park(self, fetch: ParkedFetch, now_ms: int) -> None:
        replaced = self._purgatory.park(fetch)
        if replaced is not None:
            self._answer(replaced.source, replaced.request, now_ms)

    def _maybe_advance_high_watermark(self, now_ms: int) -> None:
        ends = self.progress.voter_end_offsets()
        advanced = arithmetic.high_watermark(self._high_watermark, ends, self.epoch_start_offset)
        if advanced == self._high_watermark:
            return
        self._high_watermark = advanced
        self._context.advance_high_watermark(advanced)
        for fetch in self._purgatory.take_all():
            self._answer(fetch.source, fetch.request, now_ms)

    def _announce_epoch(self, now_ms: int) -> None:
        """BeginQuorumEpoch to every voter that does not fetch (a fetch shows that it knows)."""
        interval_ms = self._context.config.begin_quorum_interval_ms
        for voter_id, due_ms in self._begin_due_ms.items():
            if now_ms < due_ms:
                continue
            last_fetch_ms = self.progress.last_fetch_ms(voter_id)
            if last_fetch_ms is not None and now_ms < last_fetch_ms + interval_ms:
                self._begin_due_ms[voter_id] = last_fetch_ms + interval_ms
                continue
            self._begin_due_ms[voter_id] = now_ms + interval_ms
            correlation_id = self.requests.begin(voter_id, now_ms)
            request = BeginQuorumEpochRequest(correlation_id, voter_id, self._context.node_id, self.epoch)
            self._context.send(voter_id, request)

    def _response(
        self,
        request: FetchRequest,
        now_ms: int,
        *,
        error: QuorumError = QuorumError.NONE,
        diverging: EpochEnd | None = None,
    ) -> FetchResponse:
        return FetchResponse(
            correlation_id=request.correlation_id,
            replica_id=self._context.node_id,
            error=error,
            leader_id=self._context.node_id,
            leader_epoch=self.epoch,
            high_watermark=self._high_watermark,
            log_start_offset=self._context.log.log_start_offset,
            diverging=diverging,
            leader_time_ms=now_ms,
        )
