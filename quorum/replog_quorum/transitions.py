"""The roles and the legal ways between them, as data (docs/KAFKA.md 5.1).

A role decides *that* it must change by returning one of the `To...` values; `RoleMachine.become` carries it out and
checks it against `TRANSITIONS` first.  Diagram and table in `docs/PROTOCOL.md` and `quorum/README.md` are written from it
by `tools/quorum_roles.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

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


class Way(Struct, frozen=True):
    """One legal transition: how the epoch may move, and when it is taken."""

    epoch: EpochRule
    when: str


TRANSITIONS: Mapping[RoleName, Mapping[RoleName, Way]] = MappingProxyType(
    {
        RoleName.UNATTACHED: {
            RoleName.UNATTACHED: Way(EpochRule.HIGHER, "a higher epoch"),
            RoleName.PROSPECTIVE: Way(EpochRule.SAME, "election timeout"),
            RoleName.FOLLOWER: Way(EpochRule.SAME_OR_HIGHER, "leader found"),
        },
        RoleName.PROSPECTIVE: {
            RoleName.UNATTACHED: Way(EpochRule.SAME_OR_HIGHER, "lost or timeout, no leader known; a higher epoch"),
            RoleName.CANDIDATE: Way(EpochRule.NEXT, "a majority would vote for it"),
            RoleName.FOLLOWER: Way(EpochRule.SAME_OR_HIGHER, "lost or timeout, leader known; leader found"),
        },
        RoleName.CANDIDATE: {
            RoleName.UNATTACHED: Way(EpochRule.HIGHER, "a higher epoch"),
            RoleName.PROSPECTIVE: Way(EpochRule.SAME, "election timeout"),
            RoleName.FOLLOWER: Way(EpochRule.SAME_OR_HIGHER, "leader found"),
            RoleName.LEADER: Way(EpochRule.SAME, "a majority has voted for it"),
        },
        RoleName.FOLLOWER: {
            RoleName.UNATTACHED: Way(EpochRule.HIGHER, "a higher epoch"),
            RoleName.PROSPECTIVE: Way(EpochRule.SAME, "fetch timeout; at start, if it is the sole voter"),
            RoleName.FOLLOWER: Way(EpochRule.HIGHER, "leader of a higher epoch found"),
        },
        RoleName.LEADER: {
            RoleName.UNATTACHED: Way(EpochRule.HIGHER, "a higher epoch"),
            RoleName.FOLLOWER: Way(EpochRule.HIGHER, "leader of a higher epoch found"),
            RoleName.RESIGNED: Way(EpochRule.SAME, "shutdown, resign, check-quorum, own removal committed"),
        },
        RoleName.RESIGNED: {
            RoleName.UNATTACHED: Way(EpochRule.HIGHER, "election timeout (epoch + 1); a higher epoch"),
            RoleName.PROSPECTIVE: Way(EpochRule.SAME, "at start, if it is the sole voter"),
            RoleName.FOLLOWER: Way(EpochRule.HIGHER, "leader of a higher epoch found"),
        },
    }
)


class ToUnattached(Struct, frozen=True):
    """Know `epoch`, know no leader.  `election_deadline_ms` keeps a running timer; None draws a new one."""

    epoch: int
    election_deadline_ms: int | None = None


class ToProspective(Struct, frozen=True):
    """Ask who would vote for this node (pre-vote, KIP-996); epoch and known leader stay."""


class ToCandidate(Struct, frozen=True):
    """Vote for itself in the next epoch and ask the others."""


class ToFollower(Struct, frozen=True):
    """Follow `leader_id` in `epoch`."""

    leader_id: int
    epoch: int


class ToLeader(Struct, frozen=True):
    """Lead the epoch this node was elected in by `granting_voters`."""

    granting_voters: tuple[int, ...]


class ToResigned(Struct, frozen=True):
    """Stop leading; tell the voters who should go first (`preferred_candidates`)."""

    preferred_candidates: tuple[int, ...]


Transition: TypeAlias = ToUnattached | ToProspective | ToCandidate | ToFollower | ToLeader | ToResigned


def check_transition(old: RoleName, new: RoleName, old_epoch: int, new_epoch: int) -> None:
    """Raises on a transition that the table does not list.

    Raises:
        QuorumInvariantError: There is no such transition, or the epoch moves against its rule.
    """
    way = TRANSITIONS[old].get(new)
    if way is None or not way.epoch.allows(old_epoch, new_epoch):
        raise QuorumInvariantError(f"{old.value} in epoch {old_epoch} cannot become {new.value} in epoch {new_epoch}")
