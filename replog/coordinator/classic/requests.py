"""What members of the classic protocol ask, and the answers.

What a member wants and what it gets are bytes that only the members understand.  A request that fails is answered with an error;
in which fields of which version a client finds it is known to the handlers of clients' requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from replog.errors import ReplogError
from replog.waiting.asks import Asks

NO_MEMBER_ID: Final = ""
"""The member id of a client that has none yet, and leaves the choice to the coordinator."""


class Protocol(NamedTuple):
    """A way to assign that a member supports.

    Attributes:
        metadata: What the member tells the leader that assigns in this way.
    """

    name: str
    metadata: bytes


class JoinGroup(Asks["JoinGroupResponse"], frozen=True):
    """A member takes part in the next generation; answered when that has begun.

    Attributes:
        member_id: The id; "" for a member that joins for the first time.
        protocol_type: The kind of members, such as "consumer" or "connect".
        protocols: The protocols that it supports, the one that it likes best first.
        rebalance_timeout_ms: How long the others wait for it to join again; the session timeout for clients that do not say.
        instance_id: The instance id of a static member.
        reason: Why it joins, for people.
        is_id_required: Whether a member without an id is told one, and has to come again with it (JoinGroup 4 and newer).
        can_skip_assignment: Whether it understands `JoinGroupResponse.skip_assignment` (JoinGroup 9 and newer).
        client_id: The name that the client gives itself.
        client_host: Where it connects from.
    """

    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    reason: str = ""
    is_id_required: bool = True
    can_skip_assignment: bool = True
    client_id: str = ""
    client_host: str = ""


class JoinedMember(NamedTuple):
    """A member, as the leader of its generation sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinGroupResponse(Struct, frozen=True):
    """The generation that a member is in.

    Attributes:
        leader_id: The member that assigns.
        members: The members and what each wants, for the leader; empty for all others.
        skip_assignment: Whether the leader need not assign, since everybody keeps what it has.
    """

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncGroup(Asks["SyncGroupResponse"], frozen=True):
    """A member wants to know what it gets; answered when the leader has assigned.

    Attributes:
        protocol_type: The kind of members; None where the client does not say.
        protocol: The protocol of the generation; None where the client does not say.
        assignments: What each member gets, by member id, from the leader.
    """

    group_id: str
    member_id: str
    generation: int
    assignments: Mapping[str, bytes]
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


class SyncGroupResponse(Struct, frozen=True):
    """What a member gets."""

    protocol_type: str
    protocol: str
    assignment: bytes


class ClassicHeartbeat(Asks["ClassicHeartbeatResponse"], frozen=True):
    """A member is alive; the error, if there is one, says what it has to do."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class ClassicHeartbeatResponse(Struct, frozen=True):
    """All is as it was."""


class LeavingMember(Struct, frozen=True):
    """A member that leaves.

    Attributes:
        member_id: The id; "" for a static member that somebody else removes by its instance id.
        reason: Why, for people.
    """

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class LeaveGroup(Asks["LeaveGroupResponse"], frozen=True):
    """These members leave, and do not come back to what they had."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(Struct, frozen=True):
    """What has become of one member; the error is of this one alone."""

    member_id: str
    instance_id: str | None = None
    error: ReplogError | None = None


class LeaveGroupResponse(Struct, frozen=True):
    """What has become of the members, in the order of the request."""

    members: tuple[LeftMember, ...]
