"""The roles and the legal ways between them, as data (kafka-reference 5.1).

A role decides *that* it must change by returning one of the `To...` values; `RoleMachine.become` carries it out and
checks it against `TRANSITIONS` first.  The diagram in `quorum/README.md` is checked against this table by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from types import MappingProxyType
from typing import TypeAlias

from replog_quorum.errors import QuorumInvariantError


@unique
class RoleName(Enum):
    """What a node currently is; the value is the name used in status and documents."""

    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    FOLLOWER = "Follower"
    LEADER = "Leader"
    RESIGNED = "Resigned"


@unique
class EpochRule(Enum):
    """How the epoch may move on a transition."""

    SAME = "same epoch"
    NEXT = "epoch + 1"
    HIGHER = "higher epoch"
    SAME_OR_HIGHER = "same or higher epoch"

    def allows(self, old_epoch: int, new_epoch: int) -> bool:
        """Whether `old_epoch -> new_epoch` obeys this rule."""
        match self:
            case EpochRule.SAME:
                return new_epoch == old_epoch
            case EpochRule.NEXT:
                return new_epoch == old_epoch + 1
            case EpochRule.HIGHER:
                return new_epoch > old_epoch
            case EpochRule.SAME_OR_HIGHER:
                return new_epoch >= old_epoch


TRANSITIONS: Mapping[RoleName, Mapping[RoleName, EpochRule]] = MappingProxyType(
    {
        RoleName.UNATTACHED: {
            RoleName.UNATTACHED: EpochRule.HIGHER,
            RoleName.PROSPECTIVE: EpochRule.SAME,
            RoleName.FOLLOWER: EpochRule.SAME_OR_HIGHER,
        },
        RoleName.PROSPECTIVE: {
            RoleName.UNATTACHED: EpochRule.SAME_OR_HIGHER,
            RoleName.CANDIDATE: EpochRule.NEXT,
            RoleName.FOLLOWER: EpochRule.SAME_OR_HIGHER,
        },
        RoleName.CANDIDATE: {
            RoleName.UNATTACHED: EpochRule.HIGHER,
            RoleName.PROSPECTIVE: EpochRule.SAME,
            RoleName.FOLLOWER: EpochRule.SAME_OR_HIGHER,
            RoleName.LEADER: EpochRule.SAME,
        },
        RoleName.FOLLOWER: {
            RoleName.UNATTACHED: EpochRule.HIGHER,
            RoleName.PROSPECTIVE: EpochRule.SAME,
            RoleName.FOLLOWER: EpochRule.HIGHER,
        },
        RoleName.LEADER: {
            RoleName.UNATTACHED: EpochRule.HIGHER,
            RoleName.FOLLOWER: EpochRule.HIGHER,
            RoleName.RESIGNED: EpochRule.SAME,
        },
        RoleName.RESIGNED: {
            RoleName.UNATTACHED: EpochRule.HIGHER,
            RoleName.PROSPECTIVE: EpochRule.SAME,  # only the sole voter, when it starts
            RoleName.FOLLOWER: EpochRule.HIGHER,
        },
    }
)


@dataclass(frozen=True, slots=True)
class ToUnattached:
    """Know `epoch`, know no leader.  `election_deadline_ms` keeps a running timer; None draws a new one."""

    epoch: int
    election_deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToProspective:
    """Ask who would vote for this node (pre-vote, KIP-996); epoch and known leader stay."""


@dataclass(frozen=True, slots=True)
class ToCandidate:
    """Vote for itself in the next epoch and ask the others."""


@dataclass(frozen=True, slots=True)
class ToFollower:
    """Follow `leader_id` in `epoch`."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ToLeader:
    """Lead the epoch this node was elected in by `granting_voters`."""

    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToResigned:
    """Stop leading; tell the voters who should go first (`preferred_candidates`)."""

    preferred_candidates: tuple[int, ...]


Transition: TypeAlias = ToUnattached | ToProspective | ToCandidate | ToFollower | ToLeader | ToResigned


def check_transition(old: RoleName, new: RoleName, old_epoch: int, new_epoch: int) -> None:
    """Refuse what the table does not list.

    Raises:
        QuorumInvariantError: no such transition, or the epoch moves against its rule.
    """
    rule = TRANSITIONS[old].get(new)
    if rule is None or not rule.allows(old_epoch, new_epoch):
        raise QuorumInvariantError(f"{old.value} in epoch {old_epoch} cannot become {new.value} in epoch {new_epoch}")
