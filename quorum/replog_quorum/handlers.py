"""Requests of other nodes: validate, adopt a higher epoch, let the role decide, answer (docs/KAFKA.md 5.2)."""

from __future__ import annotations

from uuid import UUID

from replog_quorum import arithmetic
from replog_quorum.machine import RoleMachine
from replog_quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumError,
    QuorumFetchRequest,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from replog_quorum.roles.follower import Follower
from replog_quorum.roles.leader import Leader
from replog_quorum.transitions import ToUnattached


def handle_vote(machine: RoleMachine, source: int, request: VoteRequest, now_ms: int) -> None:
    """Grants or refuses a vote.  A higher epoch is adopted even from a pre-vote, and before checking who was meant."""
    error, is_granted = _vote(machine, source, request, now_ms)
    leader_id = machine.leader_for(request.replica_id, request.replica_directory_id)
    response = VoteResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=leader_id,
        leader_epoch=machine.context.epoch,
        vote_granted=is_granted,
        leader_endpoint=machine.endpoint_of(leader_id),
    )
    machine.context.send(source, response)


def handle_begin_quorum_epoch(machine: RoleMachine, source: int, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    """Follows the new leader."""
    error = _follow_sender(machine, source, request, now_ms)
    response = BeginQuorumEpochResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=machine.role.leader_id,
        leader_epoch=machine.context.epoch,
        leader_endpoint=machine.endpoint_of(machine.role.leader_id),
    )
    machine.context.send(source, response)


def handle_end_quorum_epoch(machine: RoleMachine, source: int, request: EndQuorumEpochRequest, now_ms: int) -> None:
    """Takes this node's place in the succession of a leader that has resigned."""
    error = _follow_sender(machine, source, request, now_ms)
    role = machine.role
    if error is QuorumError.NONE and isinstance(role, Follower):
        role.leader_resigned(request.preferred_candidates, now_ms)
    response = EndQuorumEpochResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=role.leader_id,
        leader_epoch=machine.context.epoch,
        leader_endpoint=machine.endpoint_of(role.leader_id),
    )
    machine.context.send(source, response)


def handle_fetch(machine: RoleMachine, source: int, request: QuorumFetchRequest, now_ms: int) -> None:
    """Serves a fetch, if this node leads the epoch that the replica follows."""
    error = _leader_error(machine, source, request) if _is_valid_fetch(request) else QuorumError.INVALID_REQUEST
    role = machine.role
    if error is QuorumError.NONE and isinstance(role, Leader):
        role.handle_fetch(source, request, now_ms)
    else:
        machine.context.send(source, machine.not_leader_response(request, error))


def handle_fetch_snapshot(machine: RoleMachine, source: int, request: FetchSnapshotRequest, now_ms: int) -> None:
    """Serves a chunk of a snapshot, by the same conditions as a fetch."""
    error = _leader_error(machine, source, request) if _is_valid_chunk(request) else QuorumError.INVALID_REQUEST
    role = machine.role
    if error is QuorumError.NONE and isinstance(role, Leader):
        role.handle_fetch_snapshot(source, request, now_ms)
        return
    leader_id = machine.leader_for(request.replica_id, request.replica_directory_id)
    response = FetchSnapshotResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=leader_id,
        leader_epoch=machine.context.epoch,
        snapshot_id=request.snapshot_id,
        size=0,
        position=request.position,
        leader_endpoint=machine.endpoint_of(leader_id),
    )
    machine.context.send(source, response)


def handle_update_voter(machine: RoleMachine, source: int, request: UpdateVoterRequest) -> None:
    """Takes news of where a voter listens now."""
    is_valid = request.replica_id >= 0 and request.voter.voter_id == request.replica_id
    error = _leader_error(machine, source, request) if is_valid else QuorumError.INVALID_REQUEST
    role = machine.role
    if error is QuorumError.NONE and isinstance(role, Leader):
        error = role.update_voter(request)
    response = UpdateVoterResponse(
        correlation_id=request.correlation_id,
        replica_id=machine.context.node_id,
        error=error,
        leader_id=role.leader_id,
        leader_epoch=machine.context.epoch,
        leader_endpoint=machine.endpoint_of(role.leader_id),
    )
    machine.context.send(source, response)


def _vote(machine: RoleMachine, source: int, request: VoteRequest, now_ms: int) -> tuple[QuorumError, bool]:
    context = machine.context
    if request.replica_id != source or not _is_valid_vote(request):
        return QuorumError.INVALID_REQUEST, False
    if request.replica_epoch < context.epoch:
        return QuorumError.FENCED_LEADER_EPOCH, False
    if request.replica_epoch > context.epoch:
        machine.become(ToUnattached(request.replica_epoch), now_ms)
    if not _is_meant(machine, request.voter_id, request.voter_directory_id):
        return QuorumError.INVALID_VOTER_KEY, False
    is_up_to_date = arithmetic.log_is_up_to_date(
        request.last_epoch, request.last_offset, context.log.last_epoch, context.log.log_end_offset
    )
    is_granted = machine.role.grants(request, is_up_to_date=is_up_to_date)
    if is_granted and not request.pre_vote:
        context.vote_for(request.replica_id, request.replica_directory_id)
        machine.role.voted(now_ms)
    return QuorumError.NONE, is_granted


def _is_valid_vote(request: VoteRequest) -> bool:
    """Whether the numbers make sense: a real vote names an epoch after the candidate's last, a pre-vote its current."""
    if min(request.replica_id, request.last_offset, request.last_epoch, request.replica_epoch) < 0:
        return False
    if request.pre_vote:
        return request.last_epoch <= request.replica_epoch
    return request.last_epoch < request.replica_epoch


def _follow_sender(
    machine: RoleMachine, source: int, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int
) -> QuorumError:
    context = machine.context
    if request.leader_id != source or source < 0 or source == context.node_id or request.leader_epoch < 0:
        return QuorumError.INVALID_REQUEST
    if request.leader_epoch < context.epoch:
        return QuorumError.FENCED_LEADER_EPOCH
    endpoint = request.leader_endpoint if isinstance(request, BeginQuorumEpochRequest) else ""
    known_id = context.election.leader_id
    if request.leader_epoch == context.epoch and known_id not in {None, request.leader_id}:
        return QuorumError.INVALID_REQUEST  # an epoch has one leader: whoever else says so is wrong, and not this node
    transition = machine.observe(request.leader_epoch, request.leader_id, endpoint)
    if transition is not None:
        machine.become(transition, now_ms)
    if not _is_meant(machine, request.voter_id, request.voter_directory_id):
        return QuorumError.INVALID_VOTER_KEY
    return QuorumError.NONE


def _is_meant(machine: RoleMachine, voter_id: int, directory_id: UUID | None) -> bool:
    """Whether the sender of a request speaks to this node and this disk."""
    return voter_id == machine.context.node_id and directory_id in (None, machine.context.directory_id)


def _leader_error(
    machine: RoleMachine, source: int, request: QuorumFetchRequest | FetchSnapshotRequest | UpdateVoterRequest
) -> QuorumError:
    """Returns what stands against serving a request that only the leader of its epoch serves."""
    context = machine.context
    if request.replica_id != source or source == context.node_id:
        return QuorumError.INVALID_REQUEST
    if context.is_shutting_down:
        return QuorumError.BROKER_NOT_AVAILABLE
    if request.leader_epoch < context.epoch:
        return QuorumError.FENCED_LEADER_EPOCH
    if request.leader_epoch > context.epoch:
        return QuorumError.UNKNOWN_LEADER_EPOCH
    return QuorumError.NONE if isinstance(machine.role, Leader) else QuorumError.NOT_LEADER_OR_FOLLOWER


def _is_valid_fetch(request: QuorumFetchRequest) -> bool:
    if min(request.replica_id, request.max_wait_ms, request.fetch_offset) < 0:
        return False
    return 0 <= request.last_fetched_epoch <= request.leader_epoch


def _is_valid_chunk(request: FetchSnapshotRequest) -> bool:
    numbers = (request.replica_id, request.position, request.snapshot_id.epoch, request.snapshot_id.end_offset)
    return min(numbers) >= 0 and request.max_bytes > 0
