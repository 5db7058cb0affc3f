"""Follower: pulls the log of its leader (KIP-595; docs/KAFKA.md 5.4).

One fetch is in flight at a time.  The next one leaves when what the last one brought is on disk (voters) or in the log
(observers): its fetch offset is how the leader learns that this node has the data.
"""

from __future__ import annotations

from replog_quorum import arithmetic
from replog_quorum.arithmetic import UNKNOWN_OFFSET
from replog_quorum.context import Context, earliest
from replog_quorum.errors import QuorumInvariantError
from replog_quorum.messages import (
    AppendBatches,
    EpochEnd,
    FetchSnapshotResponse,
    QuorumError,
    QuorumFetchResponse,
    Response,
    SnapshotChunkWritten,
    SnapshotDamaged,
    SnapshotOpened,
    TruncateTo,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
)
from replog_quorum.roles.download import SnapshotDownload
from replog_quorum.roles.fetching import send_fetch
from replog_quorum.roles.role import Role
from replog_quorum.transitions import RoleName, ToProspective, Transition
from replog_quorum.voters import Voter


class Follower(Role):
    """Follows one leader in one epoch.

    Invariants:
        - at most one fetch in flight, and none while an append, a truncation or an install is under way;
        - the high watermark is taken only from answers that confirmed the log up to the fetch offset;
        - the log is never cut below the high watermark, nor replaced by a snapshot that ends below it.
    """

    name = RoleName.FOLLOWER

    def __init__(self, context: Context, leader_id: int, now_ms: int) -> None:
        super().__init__(context)
        self._leader_id = leader_id
        self._fetch_timeout_ms = context.fetch_timeout_ms()
        self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms
        self._leader_vouches = False  # a good fetch in this epoch: the leader is alive, no pre-votes against it
        self._leader_is_gone = False  # nobody listens where it was
        self._leader_time_ms = -1
        self._ask_another = False  # the leader does not answer: another voter may know a newer one
        self._is_log_busy = False
        self._fetch_offset = UNKNOWN_OFFSET
        self._leader_high_watermark = UNKNOWN_OFFSET
        self._download: SnapshotDownload | None = None
        self._update_due_ms = now_ms

    @property
    def leader_id(self) -> int | None:
        return self._leader_id

    def poll(self, now_ms: int) -> Transition | None:
        for peer_id in self.requests.expire(now_ms):
            self.request_failed(peer_id, now_ms)
        if now_ms >= self._fetch_deadline_ms:
            if self._context.may_elect:
                return ToProspective()
            self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms
            self._ask_another = True
            self._leader_vouches = False  # an observer here may be a voter by a set that it does not have yet
        self._maybe_fetch(now_ms)
        return None

    def next_deadline_ms(self) -> int | None:
        return earliest(self._fetch_deadline_ms, self.requests.next_deadline_ms())

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return request.pre_vote and is_up_to_date and (self._leader_is_gone or not self._leader_vouches)

    def leader_resigned(self, preferred_candidates: tuple[int, ...], now_ms: int) -> None:
        """Waits, after the leader said goodbye, for as long as the place in its list of successors says."""
        config = self._context.config
        backoff_ms = arithmetic.successor_backoff_ms(
            self._context.node_id, preferred_candidates, config.election_backoff_max_ms
        )
        self._fetch_deadline_ms = now_ms + backoff_ms
        self._leader_vouches = False

    def handle_response(self, source: int, response: Response, now_ms: int) -> Transition | None:
        match response:
            case QuorumFetchResponse(error=QuorumError.NONE) if source == self._leader_id:
                self._leader_answered(response.leader_time_ms, now_ms)
                self._handle_good_fetch(response)
            case FetchSnapshotResponse() if source == self._leader_id:
                self._handle_chunk(response, now_ms)
            case UpdateVoterResponse():
                if response.error is QuorumError.NONE:
                    self._leader_answered(self._leader_time_ms, now_ms)
            case _:
                self.request_failed(source, now_ms)
        return None

    def request_failed(self, destination: int, now_ms: int, *, refused: bool = False) -> None:
        """Notes a failed request: a leader that refuses connections is gone, so this node soon stands for election."""
        self.requests.back_off(destination, now_ms)
        self._ask_another = destination == self._leader_id
        if refused and destination == self._leader_id and not self._leader_is_gone:
            self._leader_is_gone = True
            self._fetch_deadline_ms = min(self._fetch_deadline_ms, now_ms + self._context.failover_delay_ms())

    def log_changed(self, now_ms: int) -> None:
        if self._is_log_busy:
            self._is_log_busy = False
            if self._context.log.log_end_offset == self._fetch_offset:  # nothing usable came: no busy loop
                self.requests.back_off(self._leader_id, now_ms)
        self._advance_high_watermark()

    def snapshot_installed(self, now_ms: int) -> None:
        self._download = None
        self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms  # loading took its time, the leader is not to blame
        self._advance_high_watermark()

    def snapshot_went_on(self, message: SnapshotOpened | SnapshotChunkWritten | SnapshotDamaged, now_ms: int) -> None:
        """Goes on with the download, after the host has done what it asked for."""
        match self._download, message:
            case SnapshotDownload() as download, SnapshotOpened():
                download.opened(message)
            case SnapshotDownload() as download, SnapshotChunkWritten():
                download.written(message)
            case SnapshotDownload() as download, SnapshotDamaged() if download.snapshot_id == message.snapshot_id:
                self._start_again(download, now_ms)
            case _:
                pass  # of a download that this role did not begin

    def _leader_answered(self, leader_time_ms: int, now_ms: int) -> None:
        self._fetch_deadline_ms = now_ms + self._fetch_timeout_ms
        self._leader_vouches = True
        self._leader_is_gone = False
        self._leader_time_ms = leader_time_ms
        self._ask_another = False

    def _handle_good_fetch(self, response: QuorumFetchResponse) -> None:
        if response.diverging is not None:  # our tail is from a leader that lost; nothing else in here counts
            self._truncate(response.diverging)
            return
        if response.snapshot_id is not None:
            self._begin_download(response.snapshot_id)
            return
        self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
        if len(response.batches) > 0:
            self._is_log_busy = True
            self._context.emit(AppendBatches(response.batches, self._context.epoch))
        self._advance_high_watermark()

    def _begin_download(self, snapshot_id: EpochEnd) -> None:
        if snapshot_id.end_offset < self._context.high_watermark:
            raise QuorumInvariantError(
                f"leader {self._leader_id} of epoch {self._context.epoch} wants the log replaced by snapshot "
                f"{snapshot_id}, which ends below the high watermark {self._context.high_watermark}"
            )
        self._download = SnapshotDownload(self._context, snapshot_id)

    def _handle_chunk(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        download = self._download
        if download is None:
            return
        match response.error:
            case QuorumError.NONE:
                self._leader_answered(response.leader_time_ms, now_ms)
                if not download.take(response):
                    self.requests.back_off(self._leader_id, now_ms)
            case QuorumError.POSITION_OUT_OF_RANGE:  # what is left of an interrupted download is not of this snapshot
                self._start_again(download, now_ms)
            case QuorumError.SNAPSHOT_NOT_FOUND:  # cleaned meanwhile; the next fetch names a newer one
                self._download = None
                self.requests.back_off(self._leader_id, now_ms)
            case _:
                self.request_failed(self._leader_id, now_ms)

    def _start_again(self, download: SnapshotDownload, now_ms: int) -> None:
        self.requests.back_off(self._leader_id, now_ms)
        self._download = SnapshotDownload(self._context, download.snapshot_id, restart=True)

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
        context = self._context
        if self.requests.is_waiting or self._is_log_busy or context.is_shutting_down or context.is_installing:
            return
        target = self._fetch_target()
        if target is None:
            return
        if target == self._leader_id:
            self._ask_leader(now_ms)
        else:
            self._fetch_offset = self._fetch(target, now_ms, leader_time_ms=-1)

    def _ask_leader(self, now_ms: int) -> None:
        """Asks for a chunk of the download, tells where this voter listens, or fetches."""
        context, download = self._context, self._download
        if download is not None:
            if download.wants_chunk:
                correlation_id = self.requests.begin(self._leader_id, now_ms)
                context.send(self._leader_id, download.request(correlation_id, self._leader_time_ms))
        elif now_ms >= self._update_due_ms and self._has_moved:
            self._update_due_ms = now_ms + self._fetch_timeout_ms
            voter = Voter(context.node_id, context.directory_id, context.endpoint)
            correlation_id = self.requests.begin(self._leader_id, now_ms)
            context.send(self._leader_id, UpdateVoterRequest(correlation_id, context.node_id, context.epoch, voter))
        else:
            self._fetch_offset = self._fetch(self._leader_id, now_ms, leader_time_ms=self._leader_time_ms)

    def _fetch(self, target: int, now_ms: int, *, leader_time_ms: int) -> int:
        offset = send_fetch(
            self._context,
            self.requests,
            target,
            now_ms,
            max_wait_ms=self._context.config.fetch_max_wait_ms,
            leader_time_ms=leader_time_ms,
        )
        return self._fetch_offset if offset is None else offset

    @property
    def _has_moved(self) -> bool:
        """Whether the voter set names another endpoint than this voter's."""
        context = self._context
        if not context.is_voter or not context.history.is_dynamic or not context.endpoint:
            return False
        voter = context.voters.get(context.node_id)
        return voter is not None and voter.endpoint != context.endpoint

    def _fetch_target(self) -> int | None:
        """Returns the leader; after a failure of it first some other voter."""
        if self._ask_another:
            others = [p for p in self._context.peer_ids if p != self._leader_id and self.requests.is_ready(p)]
            another = self._context.pick(others)
            if another is not None:
                return another
        return self._leader_id if self.requests.is_ready(self._leader_id) else None
