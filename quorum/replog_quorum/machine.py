"""The current role and the way from one to the next: the only place where roles are exchanged."""

from __future__ import annotations

from typing import assert_never
from uuid import UUID

from replog_quorum.context import Context
from replog_quorum.errors import QuorumInvariantError
from replog_quorum.messages import (
    AppendLeaderChange,
    BecameLeader,
    ElectionState,
    LeaderChanged,
    LostLeadership,
    QuorumError,
    QuorumFetchRequest,
    QuorumFetchResponse,
)
from replog_quorum.roles.candidate import Candidate
from replog_quorum.roles.follower import Follower
from replog_quorum.roles.leader import Leader
from replog_quorum.roles.prospective import Prospective
from replog_quorum.roles.resigned import Resigned
from replog_quorum.roles.role import Role
from replog_quorum.roles.unattached import Unattached
from replog_quorum.transitions import (
    RoleName,
    ToCandidate,
    ToFollower,
    ToLeader,
    ToProspective,
    ToResigned,
    ToUnattached,
    Transition,
    check_transition,
)


class RoleMachine:
    """Holds the one current role of a node.

    Invariants:
        - a durable transition (all but those to Prospective and Resigned) persists before anything of the new role
          leaves the node;
        - there is one leader per epoch, and the epoch never decreases;
        - `LeaderChanged` follows every change of (leader, epoch) once.
    """

    def __init__(self, context: Context, now_ms: int) -> None:
        self.context = context
        self.role: Role = initial_role(context, now_ms)
        self._reported: tuple[int | None, int] = (None, 0)

    def settle(self, now_ms: int) -> None:
        """Lets the role act until it wants no change, then reports who leads."""
        while (transition := self.role.poll(now_ms)) is not None:
            self.become(transition, now_ms)
        leadership = (self.role.leader_id, self.context.epoch)
        if leadership != self._reported:
            self._reported = leadership
            self.context.emit(LeaderChanged(*leadership))

    def observe(self, epoch: int, leader_id: int | None, leader_endpoint: str = "") -> Transition | None:
        """Returns what a peer's view of (epoch, leader) makes of this node; None when it is nothing new.

        The leader need not be in the voter set here: the record that added it may not have come yet.

        Raises:
            QuorumInvariantError: The view names a second leader of the current epoch, or this node as the leader of
                an epoch in which it was not elected.
        """
        context = self.context
        if epoch < context.epoch:
            return None
        known_id = context.election.leader_id if epoch == context.epoch else None
        if leader_id == context.node_id and leader_id != known_id:
            raise QuorumInvariantError(f"node {leader_id} is said to lead epoch {epoch}, to which it was not elected")
        if leader_id is not None:
            if known_id not in (None, leader_id):
                raise QuorumInvariantError(f"two leaders in epoch {epoch}: {known_id} and {leader_id}")
            context.learn_peer(leader_id, leader_endpoint)
            is_reachable = leader_id != context.node_id and context.endpoint_of(leader_id) is not None
            if is_reachable and (epoch > context.epoch or self.role.leader_id is None):
                return ToFollower(leader_id, epoch)
        return ToUnattached(epoch) if epoch > context.epoch else None

    def leader_for(self, replica_id: int, directory_id: UUID) -> int | None:
        """Returns the leader to name to a replica; never that replica itself with another directory, which has lost its
        disk and does not know that it once led."""
        leader_id, voter = self.role.leader_id, self.context.voters.get(replica_id)
        is_impostor = voter is not None and not voter.matches(replica_id, directory_id)
        return None if is_impostor and leader_id == replica_id else leader_id

    def endpoint_of(self, leader_id: int | None) -> str:
        """Returns where the leader listens, "" if unknown."""
        if leader_id is None:
            return ""
        context = self.context
        return context.endpoint if leader_id == context.node_id else context.endpoint_of(leader_id) or ""

    def become(self, transition: Transition, now_ms: int) -> None:
        """Carries out a transition.

        Raises:
            QuorumInvariantError: The transition table does not list it.
        """
        old, context = self.role, self.context
        check_transition(old.name, _name_after(transition), context.epoch, _epoch_after(transition, context.epoch))
        if isinstance(old, Leader):
            context.emit(LostLeadership(old.epoch))
            old.voter_changes.abandon()
        match transition:
            case ToUnattached():
                self.role = self._unattached(transition, now_ms)
            case ToProspective():
                self.role = Prospective(context, now_ms)
            case ToCandidate():
                context.persist(ElectionState(context.epoch + 1, None, context.node_id, context.directory_id))
                self.role = Candidate(context, now_ms)
            case ToFollower():
                self.role = self._follower(transition, now_ms)
            case ToLeader():
                self.role = self._leader(transition, now_ms)
            case ToResigned():
                self.role = Resigned(context, transition.preferred_candidates, now_ms)
            case _ as unreachable:
                assert_never(unreachable)
        if isinstance(old, Leader):
            self._dismiss_parked_fetches(old)

    def not_leader_response(self, request: QuorumFetchRequest, error: QuorumError) -> QuorumFetchResponse:
        """Returns the answer that refuses a fetch and says who leads, as far as known."""
        leader_id = self.leader_for(request.replica_id, request.replica_directory_id)
        return QuorumFetchResponse(
            correlation_id=request.correlation_id,
            replica_id=self.context.node_id,
            error=error,
            leader_id=leader_id,
            leader_epoch=self.context.epoch,
            high_watermark=-1,
            log_start_offset=self.context.log.log_start_offset,
            leader_endpoint=self.endpoint_of(leader_id),
        )

    def _unattached(self, transition: ToUnattached, now_ms: int) -> Role:
        deadline_ms = transition.election_deadline_ms
        if deadline_ms is None:
            deadline_ms = self.role.election_deadline_ms  # a running timer goes on: newcomers do not postpone it
        if transition.epoch > self.context.epoch:
            self.context.persist(ElectionState(transition.epoch))
        return Unattached(self.context, now_ms, deadline_ms)

    def _follower(self, transition: ToFollower, now_ms: int) -> Role:
        is_same_epoch = transition.epoch == self.context.epoch
        vote = self.context.election if is_same_epoch else ElectionState()
        self.context.persist(
            ElectionState(transition.epoch, transition.leader_id, vote.voted_id, vote.voted_directory_id)
        )
        return Follower(self.context, transition.leader_id, now_ms)

    def _leader(self, transition: ToLeader, now_ms: int) -> Role:
        context = self.context
        context.persist(ElectionState(context.epoch, context.node_id, context.node_id, context.directory_id))
        leader = Leader(context, now_ms)
        context.emit(AppendLeaderChange(leader.epoch, context.node_id, context.voters.ids, transition.granting_voters))
        context.emit(BecameLeader(leader.epoch, leader.epoch_start_offset))
        return leader

    def _dismiss_parked_fetches(self, leader: Leader) -> None:
        for fetch in leader.take_parked_fetches():
            error = QuorumError.NOT_LEADER_OR_FOLLOWER
            self.context.send(fetch.source, self.not_leader_response(fetch.request, error))


def initial_role(context: Context, now_ms: int) -> Role:
    """Returns the role a node starts in, from what its disk says (docs/KAFKA.md 5.1).

    A former leader never continues its epoch; a candidate does (nobody else can have its own vote).  A voter that has seen
    no election at all waits for no leader: a new quorum serves at once, and an old one, which this voter joins with an empty
    disk, answers its pre-votes with the leader.
    """
    election = context.election
    if election.leader_id not in (None, context.node_id):
        is_reachable = context.endpoint_of(election.leader_id) is not None
        return Follower(context, election.leader_id, now_ms) if is_reachable else Unattached(context, now_ms, None)
    if not context.is_voter:
        return Unattached(context, now_ms, None)
    if election.leader_id == context.node_id:
        return Resigned(context, (), now_ms)
    if election.voted_id == context.node_id and election.voted_directory_id in (None, context.directory_id):
        return Candidate(context, now_ms)
    is_new = context.epoch == 0 and election.voted_id is None
    return Unattached(context, now_ms, now_ms + context.failover_delay_ms() if is_new else None)


def _name_after(transition: Transition) -> RoleName:
    match transition:
        case ToUnattached():
            return RoleName.UNATTACHED
        case ToProspective():
            return RoleName.PROSPECTIVE
        case ToCandidate():
            return RoleName.CANDIDATE
        case ToFollower():
            return RoleName.FOLLOWER
        case ToLeader():
            return RoleName.LEADER
        case ToResigned():
            return RoleName.RESIGNED
        case _ as unreachable:
            assert_never(unreachable)


def _epoch_after(transition: Transition, epoch: int) -> int:
    match transition:
        case ToUnattached() | ToFollower():
            return transition.epoch
        case ToCandidate():
            return epoch + 1
        case _:
            return epoch
