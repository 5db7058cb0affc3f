"""Voter sets of the quorum's core, as the control records of the metadata log hold them, and back."""

from __future__ import annotations

from collections.abc import Iterable

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
from replog_quorum import Voter, VoterSet

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
