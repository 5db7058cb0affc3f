"""Follower: pulls the log of its leader (KIP-595; kafka-reference 5.4).

One fetch is in flight at a time.  The next one leaves when what the last one brought is on disk (voters) or in the log
(observers): its fetch offset is how the leader learns that this node has the data.
"""

from __future__ import annotations

from replog_quorum import arithmetic
from replog_quorum.arithmetic import UNKNOWN_OFFSET
from replog_quorum.context import Context, earliest
from replog_quorum.errors import QuorumInvariantError
from replog_quorum.fetching import send_fetch
from replog_quorum.messages import (
    AppendBatches,
    EpochEnd,
    FetchResponse,
    QuorumError,
    Response,
    TruncateTo,
    VoteRequest,
)
from replog_quorum.role import Role
from replog_quorum.transitions import RoleName, ToProspective, Transition


class Follower(Role):
    """Follows one leader in one epoch.

    Invariants:
        - at most one fetch in flight, and none while an append or a truncation is under way;
        - the high watermark is taken only from answers that confirmed the log up to the fetch offset;
        - the log is never cut below the high watermark.
    """

    name = RoleName.FOLLOWER

    def __init__(self, context: Context, leader_id: int, now_ms: int) -> None:
        super().__init__(context)
        self._leader_id = leader_id
        self._fetch_timeout_ms = context.fetch_timeout_ms()
        self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms
        self._leader_vouches = False  # a good fetch in this epoch: the leader is alive, no pre-votes against it
        self._leader_time_ms = -1
        self._ask_another = False  # the leader does not answer: another voter may know a newer one
        self._is_log_busy = False
        self._fetch_offset = UNKNOWN_OFFSET
        self._leader_high_watermark = UNKNOWN_OFFSET

    @property
    def leader_id(self) -> int | None:
        return self._leader_id

    def poll(self, now_ms: int) -> Transition | None:
        for voter_id in self.requests.expire(now_ms):
            self.request_failed(voter_id, now_ms)
        if now_ms >= self._fetch_deadline_ms:
            if self._context.is_voter and not self._context.is_shutting_down:
                return ToProspective()
            self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms
            self._ask_another = True
        self._maybe_fetch(now_ms)
        return None

    def next_deadline_ms(self) -> int | None:
        return earliest(self._fetch_deadline_ms, self.requests.next_deadline_ms())

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return request.pre_vote and is_up_to_date and not self._leader_vouches

    def leader_resigned(self, preferred_candidates: tuple[int, ...], now_ms: int) -> None:
        """The leader said goodbye: wait for as long as the place in its list of successors says."""
        config = self._context.config
        backoff_ms = arithmetic.successor_backoff_ms(
            self._context.node_id, preferred_candidates, config.election_backoff_max_ms
        )
        self._fetch_deadline_ms = now_ms + backoff_ms
        self._leader_vouches = False

    def handle_response(self, source: int, response: Response, now_ms: int) -> Transition | None:
        match response:
            case FetchResponse(error=QuorumError.NONE) if source == self._leader_id:
                self._handle_good_fetch(response, now_ms)
            case _:
                self.request_failed(source, now_ms)
        return None

    def request_failed(self, destination: int, now_ms: int) -> None:
        self.requests.back_off(destination, now_ms)
        self._ask_another = destination == self._leader_id

    def log_changed(self, now_ms: int) -> None:
        if self._is_log_busy:
            self._is_log_busy = False
            if self._context.log.log_end_offset == self._fetch_offset:  # nothing usable came: no busy loop
                self.requests.back_off(self._leader_id, now_ms)
        self._advance_high_watermark()

    def _handle_good_fetch(self, response: FetchResponse, now_ms: int) -> None:
        self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms
        self._leader_vouches = True
        self._leader_time_ms = response.leader_time_ms
        self._ask_another = False
        if response.diverging is not None:  # our tail is from a leader that lost; nothing else in here counts
            self._truncate(response.diverging)
            return
        self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
        if len(response.batches) > 0:
            self._is_log_busy = True
            self._context.emit(AppendBatches(response.batches, self._context.epoch))
        self._advance_high_watermark()

    def _truncate(self, diverging: EpochEnd) -> None:
        log = self._context.log
        local = log.end_offset_for_epoch(diverging.epoch)
        end_offset = arithmetic.truncation_offset(diverging, local, log.log_end_offset)
        if end_offset < self._context.high_watermark:
            raise QuorumInvariantError(
                f"leader {self._leader_id} of epoch {self._context.epoch} asks to cut the log at {end_offset}, "
                f"below the high watermark {self._context.high_watermark}"
            )
        self._is_log_busy = True
        self._context.emit(TruncateTo(end_offset))

    def _advance_high_watermark(self) -> None:
        self._context.advance_high_watermark(min(self._leader_high_watermark, self._context.log.log_end_offset))

    def _maybe_fetch(self, now_ms: int) -> None:
        if self.requests.is_waiting or self._is_log_busy or self._context.is_shutting_down:
            return
        target = self._fetch_target()
        if target is None:
            return
        max_wait_ms = self._context.config.fetch_max_wait_ms
        offset = send_fetch(
            self._context,
            self.requests,
            target,
            now_ms,
            max_wait_ms=max_wait_ms,
            leader_time_ms=self._leader_time_ms if target == self._leader_id else -1,
        )
        if offset is not None:
            self._fetch_offset = offset

    def _fetch_target(self) -> int | None:
        """The leader; after a failure of it first some other voter."""
        if self._ask_another:
            others = [v for v in self._context.other_voters if v != self._leader_id and self.requests.is_ready(v)]
            another = self._context.pick(others)
            if another is not None:
                return another
        return self._leader_id if self.requests.is_ready(self._leader_id) else None
