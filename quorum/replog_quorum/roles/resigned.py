"""Resigned: led this epoch, leads no more, and must not lead it again.

Why a restarted leader comes up here: what it appended last may be lost with the crash, and a second leadership of the same
epoch would give the same (offset, epoch) to another record (docs/KAFKA.md 5.1).
"""

from __future__ import annotations

from replog_quorum.context import Context, earliest
from replog_quorum.messages import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    QuorumError,
    Response,
    VoteRequest,
)
from replog_quorum.roles.role import Role
from replog_quorum.transitions import RoleName, ToUnattached, Transition


class Resigned(Role):
    """Tells the other voters, then moves to the next epoch when its election timer ends (never while stopping)."""

    name = RoleName.RESIGNED

    def __init__(self, context: Context, preferred_candidates: tuple[int, ...], now_ms: int) -> None:
        super().__init__(context)
        self._preferred_candidates = preferred_candidates
        self._unacknowledged = {voter.voter_id: voter for voter in context.other_voters}
        self._deadline_ms = context.election_deadline_ms(now_ms)
        self._is_over = False

    @property
    def election_deadline_ms(self) -> int | None:
        return self._deadline_ms

    def poll(self, now_ms: int) -> Transition | None:
        self._is_over = now_ms >= self._deadline_ms
        if self._is_over and not self._context.is_shutting_down:
            return ToUnattached(self._context.epoch + 1, self._deadline_ms)
        for voter_id in self.requests.expire(now_ms):
            self.requests.back_off(voter_id, now_ms)
        if not self._is_over:
            self._say_goodbye(now_ms)
        return None

    def next_deadline_ms(self) -> int | None:
        return earliest(None if self._is_over else self._deadline_ms, self.requests.next_deadline_ms())

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return request.pre_vote and is_up_to_date

    def handle_response(self, source: int, response: Response, now_ms: int) -> Transition | None:
        match response:
            case EndQuorumEpochResponse(error=QuorumError.NONE) if source in self._unacknowledged:
                del self._unacknowledged[source]
            case _:
                self.requests.back_off(source, now_ms)
        return None

    def _say_goodbye(self, now_ms: int) -> None:
        for voter in self._unacknowledged.values():
            if self.requests.is_ready(voter.voter_id):
                request = EndQuorumEpochRequest(
                    correlation_id=self.requests.begin(voter.voter_id, now_ms),
                    voter_id=voter.voter_id,
                    leader_id=self._context.node_id,
                    leader_epoch=self._context.epoch,
                    preferred_candidates=self._preferred_candidates,
                    voter_directory_id=voter.directory_id,
                )
                self._context.send(voter.voter_id, request)
