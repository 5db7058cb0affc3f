"""Messages and effects of a membership: plain data, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from replog.coordinator.consumers.requests import ConsumerHeartbeat, ConsumerHeartbeatResponse
from replog.errors import ReplogError

IdPartition: TypeAlias = tuple[UUID, int]
"""Topic id and partition: a topic that is deleted and made anew has another id."""

IdPartitions: TypeAlias = frozenset[IdPartition]

# ---- messages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Read these topics from now on."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The coordinator has answered the heartbeat that is under way."""

    response: ConsumerHeartbeatResponse


@dataclass(frozen=True, slots=True)
class Failed:
    """The heartbeat that is under way has failed."""

    error: ReplogError


@dataclass(frozen=True, slots=True)
class Released:
    """What a `Revoke` or a `Lose` named is not read any more, and nothing of it is committed from now on."""

    partitions: IdPartitions


@dataclass(frozen=True, slots=True)
class ReaderLate:
    """The application has not asked for records for too long."""

    late_ms: int


@dataclass(frozen=True, slots=True)
class ReaderBack:
    """The application asks for records again."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The coordinator has refused a commit in a way that says that the member may not be what it takes itself for."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The application is done, and has given everything back: leave, and be still."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; look whether a heartbeat is due."""


Message: TypeAlias = Subscribe | Answered | Failed | Released | ReaderLate | ReaderBack | Doubt | Leave | Tick

# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Ask the coordinator; answer with `Answered` or `Failed`.  One at a time is under way."""

    request: ConsumerHeartbeat


@dataclass(frozen=True, slots=True)
class Assign:
    """Begin to read these partitions, from their committed offsets."""

    partitions: IdPartitions


@dataclass(frozen=True, slots=True)
class Revoke:
    """Tell the application, stop reading, let the commit of what it is done with end; then answer with `Released`."""

    partitions: IdPartitions


@dataclass(frozen=True, slots=True)
class Lose:
    """Stop reading what is not the member's any more, tell the application; then answer with `Released`."""

    partitions: IdPartitions


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the operator."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell the application: the group does not take this member, and asking again does not help."""

    error: ReplogError


Effect: TypeAlias = SendHeartbeat | Assign | Revoke | Lose | Say | Fail
