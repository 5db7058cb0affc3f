"""Messages and effects of a membership: plain data, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.coordinator.classic.requests import (
    ClassicHeartbeat,
    ClassicHeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    SyncGroup,
    SyncGroupResponse,
)
from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import ReplogError
from replog.rpc.metadata_messages import TopicInfo

IdPartition: TypeAlias = tuple[UUID, int]
"""Topic id and partition: a topic that is deleted and made anew has another id."""

IdPartitions: TypeAlias = frozenset[IdPartition]

Said: TypeAlias = ConsumerHeartbeat | JoinGroup | SyncGroup | ClassicHeartbeat | LeaveGroup
"""What a member says to its coordinator: the first in a group of KIP-848, the others by the classic protocol."""

Told: TypeAlias = (
    ConsumerHeartbeatResponse | JoinGroupResponse | SyncGroupResponse | ClassicHeartbeatResponse | LeaveGroupResponse
)
"""What the coordinator answers."""

Topics: TypeAlias = Mapping[str, TopicInfo]
"""The topics of the cluster by name."""

# ---- messages -------------------------------------------------------------------------------------------------------


class Subscribe(Struct, frozen=True):
    """Read these topics from now on."""

    topics: tuple[str, ...]


class TopicsChanged(Struct, frozen=True):
    """The cluster has these topics from now on."""

    topics: Topics


class Answered(Struct, frozen=True):
    """The coordinator has answered what is under way."""

    response: Told


class Failed(Struct, frozen=True):
    """What is under way has failed."""

    error: ReplogError


class Released(Struct, frozen=True):
    """What a `Revoke` or a `Lose` named is not read any more, and nothing of it is committed from now on."""

    partitions: IdPartitions


class ReaderLate(Struct, frozen=True):
    """The application has not asked for records for too long."""

    late_ms: int


class ReaderBack(Struct, frozen=True):
    """The application asks for records again."""


class Doubt(Struct, frozen=True):
    """The coordinator has refused a commit in a way that says that the member may not be what it takes itself for."""


class Leave(Struct, frozen=True):
    """The application is done, and has given everything back: leave, and be still."""


class Tick(Struct, frozen=True):
    """Time has passed; look whether something is due."""


Message: TypeAlias = (
    Subscribe | TopicsChanged | Answered | Failed | Released | ReaderLate | ReaderBack | Doubt | Leave | Tick
)

# ---- effects --------------------------------------------------------------------------------------------------------


class Ask(Struct, frozen=True):
    """Ask the coordinator; answer with `Answered` or `Failed`.  One at a time is under way.

    Attributes:
        wait_ms: How long the coordinator may hold the answer back, beside the time that any answer takes, milliseconds.
    """

    request: Said
    wait_ms: int = 0


class GiveUp(Struct, frozen=True):
    """Wait no longer for the answer to what is under way, and drop it should it come."""


class SpeakClassic(Struct, frozen=True):
    """Go on by the classic protocol, as who owns the same: this group is none of KIP-848.

    Attributes:
        reason: Why, in the words of the coordinator.
    """

    reason: ReplogError


class Assign(Struct, frozen=True):
    """Begin to read these partitions, from their committed offsets."""

    partitions: IdPartitions


class Revoke(Struct, frozen=True):
    """Tell the application, stop reading, let the commit of what it is done with end; then answer with `Released`."""

    partitions: IdPartitions


class Lose(Struct, frozen=True):
    """Stop reading what is not the member's any more, tell the application; then answer with `Released`."""

    partitions: IdPartitions


class Say(Struct, frozen=True):
    """Tell the operator."""

    text: str


class Fail(Struct, frozen=True):
    """Tell the application: the group does not take this member, and asking again does not help."""

    error: ReplogError


Effect: TypeAlias = Ask | GiveUp | SpeakClassic | Assign | Revoke | Lose | Say | Fail
