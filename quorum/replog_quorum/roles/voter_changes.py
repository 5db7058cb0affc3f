"""Changes of the voter set, as the leader makes them: one voter at a time (KIP-853; docs/KAFKA.md 5.6).

Two rules make a change safe: something of the leader's own epoch has committed, and so has the change before.  Then at most
one uncommitted set is around anywhere, and the majorities of any two sets that nodes act by have a voter in common
(Ongaro's thesis 4.1, and the correction of 2015 for the first rule).
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from replog_quorum.context import Context
from replog_quorum.messages import (
    AddVoter,
    AppendVoters,
    ChangeVoters,
    QuorumError,
    RemoveVoter,
    UpdateVoterRequest,
    VoterChangeAnswered,
)
from replog_quorum.roles.progress import ProgressTable
from replog_quorum.voters import Voter, VoterSet


class ChangeRefusal(Struct, frozen=True):
    """Why a change is not made, and what to do."""

    error: QuorumError
    reason: str


class _Pending(Struct):
    """A set that was given to the host for appending: by whose request, and where its record is, once known."""

    request_id: int | None
    log_end_offset: int
    offset: int | None = None


class VoterChanges:
    """Guards and makes changes of one leadership.

    Invariants:
        - at most one set is appended and not committed;
        - none is appended before a record of this leader's epoch has committed.
    """

    def __init__(self, context: Context, progress: ProgressTable) -> None:
        self._context = context
        self._progress = progress
        self._epoch = context.epoch
        self._pending: _Pending | None = None
        self._endpoints: dict[int, str] = {}

    def limit(self, high_watermark: int) -> int:
        """Returns `high_watermark`, but not past a set that is being appended and does not count votes yet."""
        if self._pending is not None and self._pending.offset is None:
            return min(high_watermark, self._pending.log_end_offset)
        return high_watermark

    def appended(self) -> None:
        """Notes that the log was appended to; the history already holds the sets in it."""
        pending, offset = self._pending, self._context.history.offset
        if pending is not None and pending.offset is None and offset >= pending.log_end_offset:
            pending.offset = offset

    def committed(self, high_watermark: int) -> None:
        """Completes the change that the high watermark, which has moved, covers."""
        pending = self._pending
        if pending is not None and pending.offset is not None and high_watermark > pending.offset:
            self._pending = None
            self._answer(pending.request_id, QuorumError.NONE, "")

    def abandon(self) -> None:
        """Gives the pending change up with an error as its answer: leadership is over."""
        pending, self._pending = self._pending, None
        if pending is not None:
            reason = (
                f"node {self._context.node_id} lost the leadership of epoch {self._epoch} before the change committed: it "
                "may take effect or not. Describe the quorum, and repeat it if it is not there"
            )
            self._answer(pending.request_id, QuorumError.NOT_LEADER_OR_FOLLOWER, reason)

    def change(self, request: ChangeVoters, high_watermark: int, now_ms: int) -> None:
        """Makes or refuses the change that an operator wants."""
        outcome = self._guard(high_watermark) or self._changed(request.change, now_ms)
        if isinstance(outcome, ChangeRefusal):
            self._answer(request.request_id, outcome.error, outcome.reason)
        else:
            self._append(outcome, request.request_id, writes_version=False)

    def update(self, request: UpdateVoterRequest, high_watermark: int) -> QuorumError:
        """Takes news of where a voter listens now; returns the error of the answer, at once (docs/KAFKA.md 5.6)."""
        voter, voters = request.voter, self._context.voters
        if voter.directory_id is None or not voter.endpoint:
            return QuorumError.INVALID_REQUEST
        if not voters.contains(voter.voter_id, voter.directory_id):
            return QuorumError.VOTER_NOT_FOUND
        if not self._context.history.is_dynamic:
            self._endpoints[voter.voter_id] = voter.endpoint  # written with the first dynamic set
            return QuorumError.NONE
        if voters.get(voter.voter_id) == voter:
            return QuorumError.NONE
        refusal = self._guard(high_watermark)
        if refusal is not None:
            return refusal.error
        self._append(voters.with_voter(voter), None, writes_version=False)
        return QuorumError.NONE

    def maybe_write(self, high_watermark: int) -> None:
        """Writes what the leader changes by itself: the configured set becomes the first dynamic one once all voters'
        directories are known; and where the leader itself listens."""
        if self._busy(high_watermark) is not None:
            return
        context = self._context
        if not context.history.is_dynamic:
            if not self._unheard():
                voters = VoterSet(tuple(self._completed(voter) for voter in context.voters))
                self._append(voters, None, writes_version=True)
            return
        own = context.voters.get(context.node_id)
        if context.is_voter and own is not None and context.endpoint not in ("", own.endpoint):
            self._append(context.voters.with_voter(replace(own, endpoint=context.endpoint)), None, writes_version=False)

    def _guard(self, high_watermark: int) -> ChangeRefusal | None:
        busy = self._busy(high_watermark)
        if busy is not None or self._context.history.is_dynamic:
            return busy
        return ChangeRefusal(
            QuorumError.UNSUPPORTED_VERSION,
            f"the voter set is the configured one until the directories of all voters are known; not yet heard of: "
            f"{list(self._unheard())}. Start them (with the data directory they had), then try again",
        )

    def _busy(self, high_watermark: int) -> ChangeRefusal | None:
        """Returns why no set may be appended now, whatever is in it."""
        if high_watermark < 0:
            return ChangeRefusal(
                QuorumError.REQUEST_TIMED_OUT,
                f"nothing of epoch {self._epoch} has committed yet. Try again; if it lasts, see that a majority of the "
                "voters is up",
            )
        if self._pending is not None or self._context.history.offset >= high_watermark:
            return ChangeRefusal(
                QuorumError.REQUEST_TIMED_OUT,
                f"the voter set before (offset {self._context.history.offset}) is not committed yet. Try again; if it "
                "lasts, see that a majority of the voters is up",
            )
        return None

    def _changed(self, change: AddVoter | RemoveVoter, now_ms: int) -> VoterSet | ChangeRefusal:
        match change:
            case AddVoter():
                return self._with_added(change.voter, now_ms)
            case RemoveVoter():
                return self._without_removed(change)
            case _ as unreachable:
                assert_never(unreachable)

    def _with_added(self, voter: Voter, now_ms: int) -> VoterSet | ChangeRefusal:
        known = self._context.voters.get(voter.voter_id)
        if voter.voter_id < 0 or voter.directory_id is None or not voter.endpoint:
            return ChangeRefusal(QuorumError.INVALID_REQUEST, "a new voter needs an id, a directory id and an endpoint")
        if known is not None and known.directory_id == voter.directory_id:
            return ChangeRefusal(
                QuorumError.DUPLICATE_VOTER, f"voter {voter.voter_id} is in the set. Nothing is to be done"
            )
        if known is not None:
            reason = (
                f"voter {voter.voter_id} is in the set with directory {known.directory_id}. If that disk is lost, "
                "remove that voter first, then add this one"
            )
            return ChangeRefusal(QuorumError.DUPLICATE_VOTER, reason)
        return self._lag_of(voter, now_ms) or self._context.voters.with_voter(voter)

    def _lag_of(self, voter: Voter, now_ms: int) -> ChangeRefusal | None:
        """Returns why an observer is no voter yet: one that lags, or is gone, only makes a majority harder to get."""
        if voter.directory_id is None:
            return None
        progress = self._progress.get((voter.voter_id, voter.directory_id))
        name = f"node {voter.voter_id} (directory {voter.directory_id})"
        if progress is None or now_ms >= progress.last_fetch_ms + self._context.config.fetch_timeout_ms:
            reason = f"{name} does not fetch from this leader. Start it as an observer, then try again"
            return ChangeRefusal(QuorumError.REQUEST_TIMED_OUT, reason)
        if progress.caught_up_ms is None:
            reason = (
                f"{name} has fetched up to {max(progress.end_offset, 0)} of {self._context.log.log_end_offset}. "
                "Wait until it has caught up, then try again"
            )
            return ChangeRefusal(QuorumError.REQUEST_TIMED_OUT, reason)
        return None

    def _without_removed(self, change: RemoveVoter) -> VoterSet | ChangeRefusal:
        voters = self._context.voters
        known = voters.get(change.voter_id)
        if known is None:
            reason = f"there is no voter {change.voter_id}; the voters are {list(voters.ids)}"
            return ChangeRefusal(QuorumError.VOTER_NOT_FOUND, reason)
        if change.directory_id is not None and change.directory_id != known.directory_id:
            reason = (
                f"voter {change.voter_id} has directory {known.directory_id}, not {change.directory_id}. Describe the "
                "quorum and name the one that is meant"
            )
            return ChangeRefusal(QuorumError.VOTER_NOT_FOUND, reason)
        if len(voters) == 1:
            reason = f"voter {change.voter_id} is the only one. Add another before removing it"
            return ChangeRefusal(QuorumError.VOTER_NOT_FOUND, reason)
        return voters.without(change.voter_id)

    def _unheard(self) -> tuple[int, ...]:
        """Returns the voters whose directory nobody has told yet: neither the configuration nor a fetch."""
        voters = self._context.voters
        unknown = [voter.voter_id for voter in voters if voter.directory_id is None]
        return tuple(voter_id for voter_id in unknown if self._progress.directory_of(voter_id) is None)

    def _completed(self, voter: Voter) -> Voter:
        directory_id = voter.directory_id or self._progress.directory_of(voter.voter_id)
        endpoint = self._endpoints.get(voter.voter_id, voter.endpoint)
        if voter.voter_id == self._context.node_id:
            endpoint = self._context.endpoint or endpoint
        return Voter(voter.voter_id, directory_id, endpoint)

    def _append(self, voters: VoterSet, request_id: int | None, *, writes_version: bool) -> None:
        self._pending = _Pending(request_id, self._context.log.log_end_offset)
        self._context.emit(AppendVoters(self._epoch, voters, writes_version))

    def _answer(self, request_id: int | None, error: QuorumError, reason: str) -> None:
        if request_id is not None:
            self._context.emit(VoterChangeAnswered(request_id, error, reason))
