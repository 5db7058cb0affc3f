"""Prospective: would a majority vote for this node?  (pre-vote, KIP-996)

Asking changes neither epoch nor leader anywhere, so a node that was cut off and comes back does not push a working
leader aside.
"""

from __future__ import annotations

from replog_quorum.context import Context
from replog_quorum.messages import VoteRequest
from replog_quorum.roles.campaign import Campaign
from replog_quorum.roles.role import grants_without_leader
from replog_quorum.transitions import RoleName, ToCandidate, ToFollower, ToUnattached, Transition


class Prospective(Campaign):
    """Collects pre-votes; keeps epoch, vote and the leader it knew."""

    name = RoleName.PROSPECTIVE

    def __init__(self, context: Context, now_ms: int) -> None:
        super().__init__(context, now_ms)
        leader_id = context.election.leader_id
        is_known = leader_id is not None and leader_id != context.node_id and context.endpoint_of(leader_id) is not None
        self._leader_id = leader_id if is_known else None

    @property
    def leader_id(self) -> int | None:
        return self._leader_id

    @property
    def election_deadline_ms(self) -> int | None:
        return None if self._tally.is_lost else self._deadline_ms

    def poll(self, now_ms: int) -> Transition | None:
        if not self._context.may_elect or self._tally.is_lost or now_ms >= self._deadline_ms:
            return self._give_up()
        if self._tally.is_won:
            return ToCandidate()
        self._ask_for_votes(now_ms, pre_vote=True)
        return None

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return grants_without_leader(self._context, request, is_up_to_date=is_up_to_date)

    def voted(self, now_ms: int) -> None:
        self._deadline_ms = self._context.election_deadline_ms(now_ms)

    def _give_up(self) -> Transition:
        if self._leader_id is not None:
            return ToFollower(self._leader_id, self._context.epoch)
        return ToUnattached(self._context.epoch, self.election_deadline_ms)
