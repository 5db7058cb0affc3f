"""Codes that members of groups can act on, and the bounds of their requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from replog.errors import ErrorCode, ReplogError
from replog.protocol.handlers.node import Failure

R = TypeVar("R")

TIMEOUT_MS: Final = 5_000
"""How long a change of a group waits for its commit, as Kafka's offsets.commit.timeout.ms."""

_TOLD: Final = {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,  # but of a commit
}


def group_code(code: ErrorCode) -> ErrorCode:
    """Returns the code that a member is told: it knows nothing of the partition behind its coordinator."""
    return _TOLD.get(code, code)


def failure_of(error: ReplogError) -> Failure:
    """Returns the failure that a client is told for an error."""
    return Failure(group_code(error.code), error.told)


async def each_or_failure(names: Sequence[str], ask: Callable[[str], Awaitable[R]]) -> list[tuple[str, R | Failure]]:
    """Returns each group with its answer or its failure; a failure of one concerns no other.

    A group that is named again is answered once: otherwise a short request could have a giant answer.

    Args:
        names: The groups.
        ask: The function that asks for one.
    """
    found: list[tuple[str, R | Failure]] = []
    for name in dict.fromkeys(names):
        try:
            found.append((name, await ask(name)))
        except ReplogError as error:
            found.append((name, failure_of(error)))
    return found
