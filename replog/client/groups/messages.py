"""Messages and effects of a membership: plain data, both ways."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import ReplogError

IdPartition: TypeAlias = tuple[UUID, int]
"""Topic id and partition: a topic that is deleted and made anew has another id."""

IdPartitions: TypeAlias = frozenset[IdPartition]

# ---- messages -------------------------------------------------------------------------------------------------------


class Subscribe(Struct, frozen=True):
    """Read these topics from now on."""

    topics: tuple[str, ...]


class Answered(Struct, frozen=True):
    """The coordinator has answered the heartbeat that is under way."""

    response: ConsumerHeartbeatResponse


class Failed(Struct, frozen=True):
    """The heartbeat that is under way has failed."""

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
    """Time has passed; look whether a heartbeat is due."""


Message: TypeAlias = Subscribe | Answered | Failed | Released | ReaderLate | ReaderBack | Doubt | Leave | Tick

# ---- effects --------------------------------------------------------------------------------------------------------


class SendHeartbeat(Struct, frozen=True):
    """Ask the coordinator; answer with `Answered` or `Failed`.  One at a time is under way."""

    request: ConsumerHeartbeat


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


Effect: TypeAlias = SendHeartbeat | Assign | Revoke | Lose | Say | Fail
