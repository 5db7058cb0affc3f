"""What is wrong with a join, whatever the group is."""

from __future__ import annotations

from typing import Final

from replog.coordinator.classic.requests import JoinGroup, Protocol
from replog.coordinator.config import ClassicConfig
from replog.errors import InvalidGroupIdError, InvalidRequestError, InvalidSessionTimeoutError
from replog.wire.primitives import TEXT_BYTES_MAX

PROTOCOLS_MAX: Final = 100
"""The protocols of one member."""
NAME_BYTES_MAX: Final = TEXT_BYTES_MAX - 64
"""The bytes of a text of a member: an id that is made of one has to fit into a record, too."""


def check_group_id(group_id: str) -> None:
    """Checks the id of a group.

    Raises:
        InvalidGroupIdError: It is empty.
    """
    if not group_id:
        raise InvalidGroupIdError("the group id is empty; give the group a name")


def check_join(request: JoinGroup, config: ClassicConfig) -> None:
    """Checks a join by itself.

    Raises:
        InvalidRequestError: A field cannot be used.
    """
    check_group_id(request.group_id)
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        raise InvalidSessionTimeoutError(
            f"the session timeout is {request.session_timeout_ms} ms, and may be from {config.min_session_timeout_ms} to "
            f"{config.max_session_timeout_ms}: change session.timeout.ms of the client"
        )
    problem = _problem(request)
    if problem:
        raise InvalidRequestError(f"the join is wrong: {problem}")


def _problem(request: JoinGroup) -> str:
    if request.rebalance_timeout_ms < 0:
        return f"the rebalance timeout is {request.rebalance_timeout_ms} ms"
    if request.instance_id == "":
        return "the instance id is empty; leave it out"
    if len(request.protocols) > PROTOCOLS_MAX:
        return f"there are {len(request.protocols)} protocols, and may be {PROTOCOLS_MAX}"
    names = (request.group_id, request.member_id, request.instance_id or "", request.client_id, request.client_host)
    longest = max(
        len(each.encode()) for each in (*names, request.protocol_type, *(one.name for one in request.protocols))
    )
    return f"a name has {longest} bytes, and may have {NAME_BYTES_MAX}" if longest > NAME_BYTES_MAX else ""


def distinct(protocols: tuple[Protocol, ...]) -> tuple[Protocol, ...]:
    """Returns protocols, each name once: the first of several counts."""
    found: dict[str, Protocol] = {}
    for each in protocols:
        found.setdefault(each.name, each)
    return tuple(found.values())
