"""Leader: answers fetches, moves the high watermark, changes the voter set, and resigns when no majority fetches any
more (docs/KAFKA.md 5.3, 5.4, 5.6)."""

# ruff: noqa: ARG002 - overrides keep the signature of Role
from __future__ import annotations

from uuid import UUID

from replog_quorum import arithmetic
from replog_quorum.arithmetic import UNKNOWN_OFFSET
from replog_quorum.context import Context, earliest
from replog_quorum.errors import QuorumInvariantError
from replog_quorum.messages import (
    BeginQuorumEpochRequest,
    ChangeVoters,
    EpochEnd,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
    Response,
    SendFetchedData,
    SendSnapshotChunk,
    UpdateVoterRequest,
    VoteRequest,
)
from replog_quorum.roles.majority import CheckQuorum, Lease
from replog_quorum.roles.positions import Redirect, redirect
from replog_quorum.roles.progress import ProgressTable
from replog_quorum.roles.purgatory import FetchPurgatory, ParkedFetch
from replog_quorum.roles.role import Role
from replog_quorum.roles.voter_changes import VoterChanges
from replog_quorum.transitions import RoleName, ToResigned, Transition


class Leader(Role):
    """Leads one epoch.

    Invariants:
        - the high watermark of this leadership is unknown until a record of its own epoch is on a majority, and
          never decreases;
        - this node's own share of a majority is what its own fsync has covered, and nothing if it is no voter;
        - a fetch that waits asks for the end of the log;
        - no snapshot is installed here.
    """

    name = RoleName.LEADER

    def __init__(self, context: Context, now_ms: int) -> None:
        super().__init__(context)
        config, leader_id, voters = context.config, context.node_id, context.voters
        self.epoch = context.epoch
        self.epoch_start_offset = context.log.log_end_offset
        self.progress = ProgressTable((leader_id, context.directory_id), context.log.flushed_offset)
        self.voter_changes = VoterChanges(context, self.progress)
        self._high_watermark = UNKNOWN_OFFSET
        self._purgatory = FetchPurgatory()
        self._check_quorum = CheckQuorum(
            leader_id, voters, config.check_quorum_timeout_ms, now_ms, leader_votes=context.is_voter
        )
        self._lease = Lease(leader_id, voters, config.fetch_timeout_ms, leader_votes=context.is_voter)
        self._begin_due_ms = dict.fromkeys(context.other_voters, now_ms)
        self._resign_requested = False

    @property
    def leader_id(self) -> int | None:
        return self._context.node_id

    def poll(self, now_ms: int) -> Transition | None:
        deadline_ms = self._check_quorum.deadline_ms
        is_forsaken = deadline_ms is not None and now_ms >= deadline_ms
        if self._resign_requested or is_forsaken or self._is_removed:
            return ToResigned(self.progress.preferred_candidates(self._context.voters))
        self.requests.expire(now_ms)
        self.progress.forget_silent_observers(self._context.voters, now_ms)
        for fetch in self._purgatory.take_expired(now_ms):
            self._answer(fetch.source, fetch.request, now_ms)
        self._announce_epoch(now_ms)
        self.voter_changes.maybe_write(self._high_watermark)
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

    def request_failed(self, destination: int, now_ms: int, *, refused: bool = False) -> None:
        """Ignores the failure: BeginQuorumEpoch has a schedule of its own."""

    def resign(self) -> None:
        """Gives up at the next poll."""
        self._resign_requested = True

    def take_parked_fetches(self) -> tuple[ParkedFetch, ...]:
        """Fetches still waiting when leadership ends."""
        return self._purgatory.take_all()

    def log_changed(self, now_ms: int) -> None:
        self.voter_changes.appended()
        for fetch in self._purgatory.take_below(self._context.log.log_end_offset):
            self._answer(fetch.source, fetch.request, now_ms)

    def voters_changed(self, now_ms: int) -> None:
        context = self._context
        self._check_quorum.voters_changed(context.voters, now_ms, leader_votes=context.is_voter)
        self._lease.voters_changed(context.voters, leader_votes=context.is_voter)
        self._begin_due_ms = {voter: self._begin_due_ms.get(voter, now_ms) for voter in context.other_voters}
        self._maybe_advance_high_watermark(now_ms)

    def log_flushed(self, flushed_offset: int, now_ms: int) -> None:
        """Counts this node's own share: its fsync has covered everything below `flushed_offset`."""
        self.progress.set_leader_end_offset(min(flushed_offset, self._context.log.flushed_offset))
        self._maybe_advance_high_watermark(now_ms)

    def holds_lease(self, now_ms: int) -> bool:
        """Whether nobody else can have been elected yet; see `Lease`."""
        return self._lease.is_held(now_ms)

    def change_voters(self, request: ChangeVoters, now_ms: int) -> None:
        """Adds or removes a voter, or says why not."""
        self.voter_changes.change(request, self._high_watermark, now_ms)

    def update_voter(self, request: UpdateVoterRequest) -> QuorumError:
        """Takes a voter's new endpoint; returns the error of the answer, NONE for none."""
        return self.voter_changes.update(request, self._high_watermark)

    def handle_fetch(self, source: int, request: QuorumFetchRequest, now_ms: int) -> None:
        """Replies to a fetch of this epoch, now or when there is something new."""
        self._heard(request.replica_id, request.replica_directory_id, request.leader_time_ms, now_ms)
        elsewhere = redirect(self._context.log, request.fetch_offset, request.last_fetched_epoch)
        if elsewhere is not None:
            self._context.send(source, self._response(request, now_ms, elsewhere))
            return
        log_end_offset = self._context.log.log_end_offset
        replica = (request.replica_id, request.replica_directory_id)
        self.progress.fetched(replica, request.fetch_offset, log_end_offset, now_ms)
        self._maybe_advance_high_watermark(now_ms)
        wait_ms = self._wait_ms(request)
        if wait_ms == 0:
            self._answer(source, request, now_ms)
        else:
            self._park(ParkedFetch(source, request, now_ms + wait_ms), now_ms)

    def handle_fetch_snapshot(self, source: int, request: FetchSnapshotRequest, now_ms: int) -> None:
        """Lets the host send a chunk, a bounded one."""
        self._heard(request.replica_id, request.replica_directory_id, request.leader_time_ms, now_ms)
        response = FetchSnapshotResponse(
            correlation_id=request.correlation_id,
            replica_id=self._context.node_id,
            error=QuorumError.NONE,
            leader_id=self._context.node_id,
            leader_epoch=self.epoch,
            snapshot_id=request.snapshot_id,
            size=0,
            position=request.position,
            leader_time_ms=now_ms,
            leader_endpoint=self._context.endpoint,
        )
        max_bytes = min(request.max_bytes, self._context.config.snapshot_chunk_max_bytes)
        self._context.emit(SendSnapshotChunk(source, response, max_bytes))

    @property
    def _is_removed(self) -> bool:
        """The set without this node has committed: nothing is left to lead."""
        return not self._context.is_voter and self._high_watermark > self._context.history.offset

    def _heard(self, replica_id: int, directory_id: UUID, leader_time_ms: int, now_ms: int) -> None:
        """Notes that a replica fetches; of a voter it shows that it is there."""
        self.progress.touch((replica_id, directory_id), now_ms)
        if self._context.voters.contains(replica_id, directory_id):
            self._check_quorum.fetched(replica_id, now_ms)
            self._lease.fetched(replica_id, leader_time_ms, now_ms)

    def _wait_ms(self, request: QuorumFetchRequest) -> int:
        """Returns how long a fetch may wait for data; news of a commit wait for some too, for a little while."""
        if request.fetch_offset < self._context.log.log_end_offset:
            return 0
        config = self._context.config
        wait_ms = min(request.max_wait_ms, config.request_timeout_ms)  # a peer does not set our bounds
        return min(wait_ms, config.commit_notice_ms) if request.high_watermark < self._high_watermark else wait_ms

    def _answer(self, source: int, request: QuorumFetchRequest, now_ms: int) -> None:
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
        ends = self.progress.voter_end_offsets(self._context.history)
        reached = arithmetic.high_watermark(self._high_watermark, ends, self.epoch_start_offset)
        advanced = max(self._high_watermark, self.voter_changes.limit(reached))
        if advanced == self._high_watermark:
            return
        self._high_watermark = advanced
        self._context.advance_high_watermark(advanced)
        self.voter_changes.committed(advanced)
        self._purgatory.hurry(now_ms + self._context.config.commit_notice_ms)
        for fetch in self._purgatory.take_expired(now_ms):
            self._answer(fetch.source, fetch.request, now_ms)

    def _announce_epoch(self, now_ms: int) -> None:
        """Sends BeginQuorumEpoch to every voter that does not fetch (a fetch shows that it knows)."""
        interval_ms = self._context.config.begin_quorum_interval_ms
        for voter, due_ms in self._begin_due_ms.items():
            if now_ms < due_ms:
                continue
            last_fetch_ms = self.progress.last_fetch_ms(voter.voter_id, voter.directory_id)
            if last_fetch_ms is not None and now_ms < last_fetch_ms + interval_ms:
                self._begin_due_ms[voter] = last_fetch_ms + interval_ms
                continue
            self._begin_due_ms[voter] = now_ms + interval_ms
            request = BeginQuorumEpochRequest(
                correlation_id=self.requests.begin(voter.voter_id, now_ms),
                voter_id=voter.voter_id,
                leader_id=self._context.node_id,
                leader_epoch=self.epoch,
                voter_directory_id=voter.directory_id,
                leader_endpoint=self._context.endpoint,
            )
            self._context.send(voter.voter_id, request)

    def _response(
        self, request: QuorumFetchRequest, now_ms: int, elsewhere: Redirect | None = None
    ) -> QuorumFetchResponse:
        log, elsewhere = self._context.log, elsewhere or Redirect()
        self._check_snapshot(elsewhere.snapshot_id)
        return QuorumFetchResponse(
            correlation_id=request.correlation_id,
            replica_id=self._context.node_id,
            error=elsewhere.error,
            leader_id=self._context.node_id,
            leader_epoch=self.epoch,
            high_watermark=self._high_watermark,
            log_start_offset=log.log_start_offset,
            diverging=elsewhere.diverging,
            snapshot_id=elsewhere.snapshot_id,
            leader_time_ms=now_ms,
            leader_endpoint=self._context.endpoint,
        )

    def _check_snapshot(self, snapshot_id: EpochEnd | None) -> None:
        """Raises where a replica takes for committed a snapshot that ends above the high watermark."""
        if snapshot_id is not None and snapshot_id.end_offset > self._context.high_watermark:
            raise QuorumInvariantError(
                f"snapshot {snapshot_id} ends above the high watermark {self._context.high_watermark}"
            )
