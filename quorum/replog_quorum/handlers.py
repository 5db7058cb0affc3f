"""Requests of other nodes: validate, adopt a higher epoch, let the role decide, answer (kafka-reference 5.2)."""

from __future__ import annotations

from replog_quorum import arithmetic
from replog_quorum.follower import Follower
from replog_quorum.leader import Leader
from replog_quorum.machine import RoleMachine
from replog_quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    QuorumError,
    VoteRequest,
    VoteResponse,
)
from replog_quorum.transitions import ToUnattached


def handle_vote(machine: RoleMachine, source: int, request: VoteRequest, now_ms: int) -> None:
    """Grant or refuse.  A higher epoch is adopted even from a pre-vote, and before checking who was meant."""
    error, is_granted = _vote(machine, request, now_ms)
    response = VoteResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=machine.role.leader_id,
        leader_epoch=machine.context.epoch,
        vote_granted=is_granted,
    )
    machine.context.send(source, response)


def handle_begin_quorum_epoch(machine: RoleMachine, source: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    """Follow the new leader."""
    error = _follow_sender(machine, request, now_ms)
    response = BeginQuorumEpochResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=machine.role.leader_id,
        leader_epoch=machine.context.epoch,
    )
    machine.context.send(source, response)


def handle_end_quorum_epoch(machine: RoleMachine, source: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
    """The leader resigned: line up for its succession."""
    error = _follow_sender(machine, request, now_ms)
    role = machine.role
    if error is QuorumError.NONE and isinstance(role, Follower):
        role.leader_resigned(request.preferred_candidates, now_ms)
    response = EndQuorumEpochResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=role.leader_id,
        leader_epoch=machine.context.epoch,
    )
    machine.context.send(source, response)


def handle_fetch(machine: RoleMachine, source: int, request: FetchRequest, now_ms: int) -> None:
    """Serve a fetch, if this node leads the epoch that the replica follows."""
    error = _fetch_error(machine, request)
    role = machine.role
    if error is QuorumError.NONE and isinstance(role, Leader):
        role.handle_fetch(source, request, now_ms)
    else:
        machine.context.send(source, machine.not_leader_response(request, error))


def _vote(machine: RoleMachine, request: VoteRequest, now_ms: int) -> tuple[QuorumError, bool]:
    context = machine.context
    if not _is_valid_vote(request):
        return QuorumError.INVALID_REQUEST, False
    if request.replica_epoch < context.epoch:
        return QuorumError.FENCED_LEADER_EPOCH, False
    if request.replica_epoch > context.epoch:
        machine.become(ToUnattached(request.replica_epoch), now_ms)
    if request.voter_id != context.node_id:
        return QuorumError.INVALID_VOTER_KEY, False
    is_up_to_date = arithmetic.log_is_up_to_date(
        request.last_epoch, request.last_offset, context.log.last_epoch, context.log.log_end_offset
    )
    is_granted = machine.role.grants(request, is_up_to_date=is_up_to_date)
    if is_granted and not request.pre_vote:
        context.vote_for(request.replica_id)
        machine.role.voted(now_ms)
    return QuorumError.NONE, is_granted


def _is_valid_vote(request: VoteRequest) -> bool:
    """A real vote asks for an epoch after the candidate's last one; a pre-vote names its current one."""
    if min(request.replica_id, request.last_offset, request.last_epoch, request.replica_epoch) < 0:
        return False
    if request.pre_vote:
        return request.last_epoch <= request.replica_epoch
    return request.last_epoch < request.replica_epoch


def _follow_sender(
    machine: RoleMachine, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int
) -> QuorumError:
    context = machine.context
    if request.leader_id not in context.other_voters or request.leader_epoch < 0:
        return QuorumError.INVALID_REQUEST
    if request.leader_epoch < context.epoch:
        return QuorumError.FENCED_LEADER_EPOCH
    transition = machine.observe(request.leader_epoch, request.leader_id)
    if transition is not None:
        machine.become(transition, now_ms)
    if request.voter_id != context.node_id:
        return QuorumError.INVALID_VOTER_KEY
    return QuorumError.NONE


def _fetch_error(machine: RoleMachine, request: FetchRequest) -> QuorumError:
    context = machine.context
    if not _is_valid_fetch(request) or request.replica_id == context.node_id:
        return QuorumError.INVALID_REQUEST
    if context.is_shutting_down:
        return QuorumError.BROKER_NOT_AVAILABLE
    if request.leader_epoch < context.epoch:
        return QuorumError.FENCED_LEADER_EPOCH
    if request.leader_epoch > context.epoch:
        return QuorumError.UNKNOWN_LEADER_EPOCH
    return QuorumError.NONE if isinstance(machine.role, Leader) else QuorumError.NOT_LEADER_OR_FOLLOWER


def _is_valid_fetch(request: FetchRequest) -> bool:
    if min(request.replica_id, request.max_wait_ms, request.fetch_offset) < 0:
        return False
    return 0 <= request.last_fetched_epoch <= request.leader_epoch
