"""Candidate: has voted for itself in a new epoch and asks the others.

Beyond Kafka: a candidate asks only while its whole log is on stable storage.  Otherwise it could win a vote with
records that a crash takes away, come back as the same candidate of the same epoch, be granted the same vote again without
a look at its log, and lead without a committed record.
"""

from __future__ import annotations

from replog_quorum.context import Context
from replog_quorum.messages import VoteRequest
from replog_quorum.roles.campaign import Campaign
from replog_quorum.transitions import RoleName, ToLeader, ToProspective, Transition


class Candidate(Campaign):
    """Collects real votes.  Even when it has lost it waits for its timer, so that the others get their turn.

    Beyond Kafka: where voters are gone the timer is short.  Two of three that stand at the same moment split the votes, the
    third has died as the leader, and nobody else could win meanwhile.
    """

    name = RoleName.CANDIDATE

    def __init__(self, context: Context, now_ms: int) -> None:
        super().__init__(context, now_ms)
        self._waits_for_the_gone = False

    @property
    def election_deadline_ms(self) -> int | None:
        return self._deadline_ms

    def poll(self, now_ms: int) -> Transition | None:
        if not self._context.may_elect:
            return ToProspective()
        if self._tally.is_won:
            return ToLeader(self._tally.granting_voters)
        if now_ms >= self._deadline_ms:
            return ToProspective()
        if not self._waits_for_the_gone and self._gone and self._tally.is_lost_without(self._gone):
            self._waits_for_the_gone = True
            self._deadline_ms = min(self._deadline_ms, now_ms + self._context.failover_delay_ms())
        if self._context.log_is_durable:
            self._ask_for_votes(now_ms, pre_vote=False)
        return None

    def grants(self, request: VoteRequest, *, is_up_to_date: bool) -> bool:
        return request.pre_vote and is_up_to_date
