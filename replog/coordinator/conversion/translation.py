"""Says in the words of one protocol what stands in those of the other: names of topics and their ids, members, bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from replog.coordinator.assignors import Assignment, assignment_of
from replog.coordinator.classic.group import ClassicMember
from replog.coordinator.classic.requests import Protocol
from replog.coordinator.classic.subscription import NamedPartitions, subscription_version, write_assignment
from replog.coordinator.consumers.group import ClassicMetadata, MemberMetadata, classic_of
from replog.coordinator.consumers.member import MemberAssignment
from replog.coordinator.consumers.targets import Place
from replog.coordinator.messages import ConsumerGroupMemberMetadataValue
from replog.coordinator.topic_view import TopicView

Find: TypeAlias = Callable[[str], Place | None]
"""Returns id and number of partitions of a topic by its name; None where there is none."""


def by_id(partitions: NamedPartitions, topics: TopicView) -> Assignment:
    """Returns partitions by the ids of their topics; those that do not exist are left out."""
    places = {name: topics.find(name) for name, _ in partitions}
    found = ((place, partition) for name, partition in partitions if (place := places[name]) is not None)
    return assignment_of((topic_id, partition) for (topic_id, count), partition in found if 0 <= partition < count)


def by_name(assignment: Assignment, names: Iterable[str], find: Find) -> dict[str, list[int]]:
    """Returns partitions by the names of their topics; those of topics that do not exist are left out.

    Args:
        assignment: The partitions.
        names: The names that they may have.
        find: The function that returns id and number of partitions of a topic by its name.
    """
    found: dict[str, list[int]] = {}
    for name in sorted(names):
        place = find(name)
        if place is not None and place[0] in assignment:
            found[name] = sorted(assignment[place[0]])
    return found


def classic_metadata(session_timeout_ms: int, protocols: Iterable[Protocol]) -> ClassicMetadata:
    """Returns what only a member of the classic protocol tells."""
    told = [ConsumerGroupMemberMetadataValue.ClassicProtocol(name, metadata) for name, metadata in protocols]
    return ClassicMetadata(session_timeout_ms, told)


def protocols_of(classic: ClassicMetadata) -> tuple[Protocol, ...]:
    """Returns the protocols of a member of the classic protocol, the one that it likes best first."""
    return tuple(Protocol(each.name, each.metadata) for each in classic.supported_protocols)


def assignment_bytes(told: MemberMetadata, current: MemberAssignment, find: Find) -> bytes | None:
    """Returns what a member of the classic protocol may read, in its own words; None where they are not known."""
    classic = classic_of(told)
    version = None if classic is None else subscription_version(classic.supported_protocols[0].metadata)
    if version is None:
        return None
    return write_assignment(version, by_name(current.assigned, told.subscribed_topic_names, find))


def classic_member(member_id: str, told: MemberMetadata, current: MemberAssignment, find: Find) -> ClassicMember | None:
    """Returns a member of a group of KIP-848 as one of a classic group; None where it is not one of the classic protocol."""
    classic, assignment = classic_of(told), assignment_bytes(told, current, find)
    if classic is None or assignment is None:
        return None
    return ClassicMember(
        member_id,
        told.instance_id,
        told.client_id,
        told.client_host,
        classic.session_timeout_ms,
        max(told.rebalance_timeout_ms, 0) or classic.session_timeout_ms,
        protocols_of(classic),
        assignment,
    )
