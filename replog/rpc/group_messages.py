"""What clients ask about consumer groups.

Heartbeats, commits and what is asked about groups and offsets are the messages of the coordinator itself
(`replog.coordinator`): they travel as they are.  Only the question who coordinates a group is not for the coordinator.  Field names equal those of
``proto/replog/pb/v1/data.proto``.
"""

from __future__ import annotations

from msgspec import Struct


class FindCoordinator(Struct, frozen=True):
    """Asks any broker who coordinates a group."""

    group_id: str


class FindCoordinatorResponse(Struct, frozen=True):
    """The broker that coordinates it, by its id: where it listens is part of the metadata."""

    broker_id: int
