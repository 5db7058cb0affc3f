"""Unattached: knows the epoch, knows no leader.

A voter waits for its random election timeout; meanwhile it, and an observer all the time, asks the voters for data: the
answer of any of them names the leader.
"""

from __future__ import annotations

from replog_quorum.context import Context, earliest
from replog_quorum.messages import VoteRequest
from replog_quorum.roles.fetching import send_fetch
from replog_quorum.roles.role import Role, grants_without_leader
from replog_quorum.transitions import RoleName, ToProspective, Transition


class Unattached(Role):
    """Waits for a leader or for its turn to ask for votes.  Observers have no election timer."""

    name = RoleName.UNATTACHED

    def __init__(self, context: Context, now_ms: int, election_deadline_ms: int | None) -> None:
        super().__init__(context)
        if election_deadline_ms is None:
            election_deadline_ms = context.election_deadline_ms(now_ms)
        self._deadline_ms = election_deadline_ms

    @property
    def election_deadline_ms(self) -> int | None:
        return self._deadline_ms

    def poll(self, now_ms: int) -> Transition | None:
        for voter_id in self.requests.expire(now_ms):
            self.requests.back_off(voter_id, now_ms)
        if self._context.may_elect and now_ms >= self._deadline_ms:
            return ToProspective()
        self._look_for_leader(now_ms)
        return None

    def next_deadline_ms(self) -> int | None:
        return earliest(self._deadline_ms if self._context.may_elect else None, self.requests.next_deadline_ms())

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return grants_without_leader(self._context, request, is_up_to_date=is_up_to_date)

    def voted(self, now_ms: int) -> None:
        self._deadline_ms = self._context.election_deadline_ms(now_ms)

    def _look_for_leader(self, now_ms: int) -> None:
        if self.requests.is_waiting or self._context.is_shutting_down:
            return
        peer_id = self._context.pick([peer_id for peer_id in self._context.peer_ids if self.requests.is_ready(peer_id)])
        if peer_id is not None:
            send_fetch(self._context, self.requests, peer_id, now_ms, max_wait_ms=0)
