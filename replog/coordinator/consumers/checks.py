"""What is wrong with a heartbeat, whatever the group is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from replog.coordinator.assignors import without
from replog.coordinator.consumers.member import JOINING_EPOCH, LEAVING_STATIC_EPOCH, MemberAssignment
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.errors import FencedMemberEpochError, InvalidRequestError, UnsupportedAssignorError

TOPICS_MAX: Final = 10_000
"""The topics that one member may name, or match with its pattern."""
NAME_CHARS_MAX: Final = 249
"""The characters of the name of a topic."""


def check_heartbeat(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Checks a heartbeat by itself.

    Raises:
        InvalidRequestError: A field is missing, or contradicts another one.
    """
    problem = _empty_name(request) or _problem(request) or _problem_of_topics(request.subscribed_topics or ())
    if problem:
        raise InvalidRequestError(f"the heartbeat is wrong: {problem}")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignorError(
            f"there is no assignor {request.server_assignor!r}, but {', '.join(map(repr, assignors))}"
        )


def _empty_name(request: ConsumerHeartbeat) -> str:
    if not request.group_id:
        return "the group id is empty"
    if request.instance_id == "" or request.rack_id == "":
        return "an instance id and a rack are left out, or are not empty"
    return ""


def _problem(request: ConsumerHeartbeat) -> str:
    epoch = request.member_epoch
    if epoch < LEAVING_STATIC_EPOCH:
        return f"the member epoch is {epoch}"
    if not request.member_id and epoch != JOINING_EPOCH:
        return "the member id is empty"
    if epoch == LEAVING_STATIC_EPOCH and request.instance_id is None:
        return "only a member with an instance id leaves for a while"
    if epoch != JOINING_EPOCH:
        return ""
    if request.rebalance_timeout_ms < 0:
        return "a member that joins has to name its rebalance timeout"
    if request.owned is None or any(request.owned.values()):
        return "a member that joins has no partitions, and has to say so"
    if request.subscribed_topics is None and request.subscribed_regex is None:
        return "a member that joins has to name topics, or a pattern of their names"
    return ""


def _problem_of_topics(names: Sequence[str]) -> str:
    if len(names) > TOPICS_MAX:
        return f"it names {len(names)} topics, and may name {TOPICS_MAX}"
    longest = max(map(len, names), default=0)
    return f"a topic has {longest} characters, and may have {NAME_CHARS_MAX}" if longest > NAME_CHARS_MAX else ""


def check_member_epoch(request: ConsumerHeartbeat, current: MemberAssignment) -> None:
    """Checks the epoch with which a member comes.

    It may be the one before, if the answer with the new one was lost; then it has at most what it may have.  No member comes back
    so that has left for a while: what it said before comes late, and its instance may be started elsewhere.

    Raises:
        FencedMemberEpochError: It has been put out and has joined again, has come back from elsewhere, or has left.
    """
    if request.member_epoch == current.epoch:
        return
    is_retry = (
        current.epoch >= JOINING_EPOCH
        and request.member_epoch == current.previous_epoch
        and request.owned is not None
        and not without(request.owned, current.assigned)
    )
    if not is_retry:
        raise FencedMemberEpochError(
            f"member {request.member_id!r} comes with epoch {request.member_epoch}, and is in {current.epoch}: it has to "
            "give up its partitions and join anew"
        )
