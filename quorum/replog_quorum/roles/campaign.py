"""What Prospective and Candidate share: asking every voter for its vote until the election is decided."""

from __future__ import annotations

from replog_quorum.context import Context, earliest
from replog_quorum.messages import QuorumError, Response, VoteRequest, VoteResponse
from replog_quorum.roles.role import Role
from replog_quorum.roles.votes import VoteTally
from replog_quorum.transitions import Transition
from replog_quorum.voters import Voter

_REFUSALS = (QuorumError.INVALID_REQUEST, QuorumError.INVALID_VOTER_KEY)


class Campaign(Role):
    """Sends vote requests to voters that have not answered, and counts."""

    def __init__(self, context: Context, now_ms: int) -> None:
        super().__init__(context)
        self._tally = VoteTally(context.voters, granted_by=context.node_id)
        self._deadline_ms = context.election_deadline_ms(now_ms)
        self._gone: set[int] = set()  # voters whose process refused the last connection

    def next_deadline_ms(self) -> int | None:
        return earliest(self._deadline_ms, self.requests.next_deadline_ms())

    def handle_response(self, source: int, response: Response, now_ms: int) -> Transition | None:
        self._gone.discard(source)
        match response:
            case VoteResponse(error=QuorumError.NONE):
                self._tally.record(source, granted=response.vote_granted)
            case VoteResponse() if response.error in _REFUSALS:
                self._tally.record(source, granted=False)
            case _:
                self.requests.back_off(source, now_ms)
        return None

    def request_failed(self, destination: int, now_ms: int, *, refused: bool = False) -> None:
        """Notes a failed request: a voter that refuses connections is gone, and votes for nobody for now."""
        super().request_failed(destination, now_ms, refused=refused)
        if refused:
            self._gone.add(destination)
        else:
            self._gone.discard(destination)

    def voters_changed(self, now_ms: int) -> None:  # noqa: ARG002 - the signature of Role
        self._tally.use(self._context.voters)

    def _ask_for_votes(self, now_ms: int, *, pre_vote: bool) -> None:
        for voter_id in self.requests.expire(now_ms):
            self.requests.back_off(voter_id, now_ms)
        for voter in self._tally.unanswered:
            if self.requests.is_ready(voter.voter_id):
                self._send_vote_request(voter, now_ms, pre_vote=pre_vote)

    def _send_vote_request(self, voter: Voter, now_ms: int, *, pre_vote: bool) -> None:
        context = self._context
        request = VoteRequest(
            correlation_id=self.requests.begin(voter.voter_id, now_ms),
            voter_id=voter.voter_id,
            replica_id=context.node_id,
            replica_epoch=context.epoch,
            last_epoch=context.log.last_epoch,
            last_offset=context.log.log_end_offset,
            pre_vote=pre_vote,
            replica_directory_id=context.directory_id,
            voter_directory_id=voter.directory_id,
        )
        context.send(voter.voter_id, request)
