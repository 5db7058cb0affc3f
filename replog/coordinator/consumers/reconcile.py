"""Moves one member towards its target: first it gives back, then it gets (KIP-848).

============================ ======================== ==================================================================
state                        comes on when            and then
============================ ======================== ==================================================================
STABLE                       there is a newer target  what is not in the target is revoked: UNREVOKED_PARTITIONS; where
                                                      there is nothing to revoke, what nobody has is assigned
UNREVOKED_PARTITIONS         it has told that it does as above, towards the newest target
                             not read the revoked
UNRELEASED_PARTITIONS        always                   what others have given back meanwhile is assigned; STABLE once it
                                                      has all of its target
============================ ======================== ==================================================================

A member keeps its old epoch until it has given back what is not its own any more.  So a member that has a partition, assigned or not
yet given back, has it alone, and its commits are told from those of a former owner by the epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from replog.coordinator.assignors import Assignment, TopicPartition, is_apart, together, without
from replog.coordinator.consumers.member import MemberAssignment, MemberState
from replog.errors import FencedMemberEpochError


def reconcile(
    current: MemberAssignment,
    *,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[TopicPartition], bool],
) -> MemberAssignment:
    """Returns what a member has after its next step; the same object where there is none.

    Args:
        current: What it has.
        target: What it is to have.
        target_epoch: The epoch of the group in which that was decided.
        owned: The partitions that it says it reads; None where it says nothing.
        is_free: The function that says whether nobody has a partition: neither assigned nor still to be given back.

    Raises:
        FencedMemberEpochError: The log has a state of the member that is not known here, and it reads something.
    """
    epoch = current.epoch
    match current.state:
        case MemberState.STABLE:
            if epoch == target_epoch:
                return current
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or not is_apart(owned, current.revoked):
                return current
            epoch += 1  # it is done with what it had in the epoch before; the commits of that are stale
        case MemberState.UNRELEASED_PARTITIONS:
            pass
        case MemberState.UNKNOWN:
            if owned is None or any(owned.values()):
                raise FencedMemberEpochError(
                    "the member is in a state of a newer release; it has to join the group anew"
                )
            epoch = target_epoch
    return _next(current, epoch, target, target_epoch, owned, is_free)


def _next(
    current: MemberAssignment,
    epoch: int,
    wanted: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[TopicPartition], bool],
) -> MemberAssignment:
    revoked = without(current.assigned, wanted)
    kept = without(current.assigned, revoked)
    if revoked and (owned is None or not is_apart(revoked, owned)):
        return _changed(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    new = without(wanted, current.assigned)
    free = _free(new, is_free)
    state = MemberState.STABLE if free == new else MemberState.UNRELEASED_PARTITIONS
    return _changed(current, target_epoch, state, together(kept, free), {})


def _free(wanted: Assignment, is_free: Callable[[TopicPartition], bool]) -> Assignment:
    """Returns the partitions that nobody has."""
    found = {
        topic_id: frozenset([each for each in partitions if is_free((topic_id, each))])
        for topic_id, partitions in wanted.items()
    }
    return {topic_id: partitions for topic_id, partitions in found.items() if partitions}


def _changed(
    current: MemberAssignment, epoch: int, state: MemberState, assigned: Assignment, revoked: Assignment
) -> MemberAssignment:
    """Returns the new assignment; the same object where nothing is new."""
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    found = MemberAssignment(epoch, previous, state, assigned, revoked)
    return current if found == current else found
