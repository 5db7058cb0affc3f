"""What an assignor is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct, field

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic; a topic that is here has at least one."""

TopicPartition: TypeAlias = tuple[UUID, int]
"""Topic id and partition."""


class AssignedMember(Struct, frozen=True):
    """A member, as an assignor sees it.

    Attributes:
        topic_ids: The topics that it reads.
        instance_id: The instance id of a static member.
        target: The partitions that the last assignment gave to it.
    """

    topic_ids: frozenset[UUID]
    instance_id: str | None = None
    target: Assignment = field(default_factory=dict[UUID, frozenset[int]])


Members: TypeAlias = Mapping[str, AssignedMember]
"""Members by id."""

Topics: TypeAlias = Mapping[UUID, int]
"""How many partitions each topic has; one that does not exist is left out."""

Assignor: TypeAlias = Callable[[Members, Topics], dict[str, Assignment]]
"""Gives each member its partitions.  Each partition of a topic that somebody reads goes to exactly one of its readers."""


def in_order(members: Members) -> list[str]:
    """Returns the ids of members in an order that outlives restarts: static ones by instance, then the others by id."""

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, instance_id or "", member_id)

    return sorted(members, key=place)


def readers_by_topic(members: Members, topics: Topics) -> dict[UUID, list[str]]:
    """Returns the members that read each topic that exists, both in an order that outlives restarts."""
    readers: dict[UUID, list[str]] = {}
    for member_id in in_order(members):
        for topic_id in members[member_id].topic_ids:
            if topics.get(topic_id, 0) > 0:
                readers.setdefault(topic_id, []).append(member_id)
    return {topic_id: readers[topic_id] for topic_id in sorted(readers)}


def assignment_of(partitions: Iterable[TopicPartition]) -> dict[UUID, frozenset[int]]:
    """Returns partitions by topic."""
    found: dict[UUID, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found)}


def partitions_of(assignment: Assignment) -> frozenset[TopicPartition]:
    """Returns all partitions of an assignment."""
    return frozenset((topic_id, each) for topic_id, partitions in assignment.items() for each in partitions)
