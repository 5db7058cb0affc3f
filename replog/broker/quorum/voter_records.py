"""Voter sets of the quorum's core as records of the metadata log, and back; why a node that they name does not vote."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from replog.errors import InvariantViolationError
from replog.records import (
    BatchHeader,
    ControlRecordType,
    QuorumVoter,
    VoterEndpoint,
    control_record_type,
    decode_batch,
    decode_voters,
    scan,
)
from replog_checkpoints import META_PROPERTIES_FILE, uuid_to_text
from replog_quorum import ElectionState, Voter, VoterSet


def knows_no_other_voter(node_id: int, sets: Iterable[VoterSet], state: ElectionState | None) -> bool:
    """Whether nothing says that another node votes, or did.

    Args:
        node_id: The id of this node.
        sets: The voter sets that are known: what stands in the metadata log, and what is configured.
        state: What this node has kept of elections; None: it took part in none.
    """
    named = {voter.voter_id for voters in sets for voter in voters.voters}
    seen = () if state is None else (state.leader_id, state.voted_id)
    return {*named, *seen} <= {node_id, None}


def lost_vote(voters: VoterSet, node_id: int, directory_id: UUID, directory: str) -> str:
    """Returns why the node does not vote, and what to do; "" where it does, or where it is no voter.

    A vote is a promise about what is on a disk, so that a directory with another id is another voter (docs/KAFKA.md 5.6).  The
    id differs where the disk is another one, and where it was changed in `meta.properties`: nothing else knows the id, and a
    node whose vote is missing would wait for a quorum for ever without a cause.

    Args:
        voters: The voter set in force.
        node_id: The id of this node.
        directory_id: The id of the log directory that holds its metadata log.
        directory: The path of that directory.
    """
    voter = voters.get(node_id)
    if voter is None or voter.directory_id is None or voter.directory_id == directory_id:
        return ""
    path, named, own = (
        f"{directory}/{META_PROPERTIES_FILE}",
        uuid_to_text(voter.directory_id),
        uuid_to_text(directory_id),
    )
    return (
        f"node {node_id} does not vote: the voter set in the metadata log names it with directory {named} "
        f"({voter.directory_id}), and {path} says {own} ({directory_id}). Where that file was damaged or changed, stop the node and "
        f"put directory.id={named} back, without the line replog.checksum; where the disk is another one, `replog quorum remove-voter {node_id}`, then `add-voter {node_id}`"
    )


LISTENER_NAME = "CONTROLLER"


def to_records(voters: VoterSet) -> tuple[QuorumVoter, ...]:
    """Makes what stands in a voters record.

    Raises:
        InvariantViolationError: A voter's directory is not known; such a set comes from the configuration only.
    """
    return tuple(map(_to_record, voters.voters))


def from_records(voters: Iterable[QuorumVoter]) -> VoterSet:
    """Returns the voter set that a voters record puts in force."""
    return VoterSet(tuple(_from_record(voter) for voter in voters))


def voter_sets_in(batches: bytes | memoryview) -> list[tuple[int, VoterSet]]:
    """Finds the voters records in whole batches; returns (offset, voter set) of each, in order."""
    found: list[tuple[int, VoterSet]] = []
    for header in scan(batches):
        if header.is_control:
            found += _voter_sets_of(batches, header)
    return found


def _voter_sets_of(batches: bytes | memoryview, header: BatchHeader) -> list[tuple[int, VoterSet]]:
    return [
        (record.offset, from_records(decode_voters(record)))
        for record in decode_batch(batches, header.position)
        if control_record_type(record) is ControlRecordType.KRAFT_VOTERS
    ]


def _to_record(voter: Voter) -> QuorumVoter:
    if voter.directory_id is None:
        raise InvariantViolationError(f"voter {voter.voter_id} without a directory id cannot stand in the log")
    host, _, port = voter.endpoint.rpartition(":")
    return QuorumVoter(voter.voter_id, voter.directory_id, (VoterEndpoint(LISTENER_NAME, host, int(port)),))


def _from_record(voter: QuorumVoter) -> Voter:
    endpoint = f"{voter.endpoints[0].host}:{voter.endpoints[0].port}" if voter.endpoints else ""
    return Voter(voter.voter_id, voter.directory_id, endpoint)
