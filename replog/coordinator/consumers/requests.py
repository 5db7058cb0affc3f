"""What members of KIP-848 ask, and the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from msgspec import Struct

from replog.coordinator.assignors import Assignment
from replog.waiting.asks import Asks

Sees: TypeAlias = Callable[[str], bool]
"""Whether somebody may describe the topic of a name."""


class ConsumerHeartbeat(Asks["ConsumerHeartbeatResponse"], frozen=True):
    """A member joins, stays, or leaves.  A field is None where it is as the member has told before.

    Attributes:
        member_id: The id; "" for a member that joins and leaves the choice to the coordinator.
        member_epoch: The epoch that it was told last; 0 to join, -1 to leave, -2 for a static member that comes back.
        owned: The partitions that it reads.
        client_id: The name that the client gives itself.
        client_host: Where it connects from: the node that is asked sees that by itself.
        sees: The function that says whether it may describe the topic of a name; None: it may describe all.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: Annotated[str, "in process"] = ""
    sees: Annotated[Sees | None, "in process"] = None


class ConsumerHeartbeatResponse(Struct, frozen=True):
    """The member's epoch from now on.

    Attributes:
        assignment: The partitions that it may read; None where that is as it has been told before.
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None = None


class WaitForGroupNews(Asks["GroupNews"], frozen=True):
    """Tell a member when its next heartbeat will tell it something, another epoch or other partitions.

    Attributes:
        member_epoch: The epoch that it was told last.
        wait_ms: How long the answer may wait, milliseconds; at most a minute.
    """

    group_id: str
    member_id: str
    member_epoch: int
    wait_ms: int


class GroupNews(Struct, frozen=True):
    """Whether there is something to be told; False: not within the time that was asked for."""

    is_news: bool


class DeleteGroup(Asks["DeleteGroupResponse"], frozen=True):
    """Forget a group without members, and its offsets."""

    group_id: str


class DeleteGroupResponse(Struct, frozen=True):
    """It is gone."""
