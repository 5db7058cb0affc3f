"""What the leader of a generation does: it gives every member its partitions.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from replog.client.groups.messages import Topics
from replog.coordinator.assignors import AssignedMember, Assignor, assign_in_turns, assign_ranges
from replog.coordinator.classic.requests import JoinedMember, JoinGroupResponse
from replog.coordinator.classic.subscription import Subscription, read_subscription, write_assignment

ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": assign_ranges, "roundrobin": assign_in_turns}
"""The protocols that a member offers, the one that it likes best first.  Every client of Kafka has one of them by default; with both,
a member reads nothing while it joins, so that it need not say what it has."""

_NOTHING: Final = Subscription(0, ())

Shapes = Mapping[str, tuple[UUID, int] | None]
"""The id and the number of partitions of topics; None where there is no such topic."""


def topics_of(members: Iterable[JoinedMember]) -> frozenset[str]:
    """Returns the topics that any member reads."""
    return frozenset(topic for each in members for topic in _read(each).topics)


def shapes_of(names: Iterable[str], topics: Topics) -> Shapes:
    """Returns what an assignment depends on, of topics."""
    found = {name: topics.get(name) for name in names}
    return {name: None if info is None else (info.topic_id, len(info.partitions)) for name, info in found.items()}


def assign(joined: JoinGroupResponse, topics: Topics) -> dict[str, bytes]:
    """Returns what each member gets, in the bytes that members understand, by the protocol of the generation.

    Args:
        joined: The generation, as its leader is told.
        topics: The topics of the cluster.
    """
    told = {each.member_id: _read(each) for each in joined.members}
    ids = {name: topics[name].topic_id for name in topics_of(joined.members) if name in topics}
    names = {topic_id: name for name, topic_id in ids.items()}
    members = {
        each.member_id: AssignedMember(
            frozenset(ids[name] for name in told[each.member_id].topics if name in ids), each.instance_id
        )
        for each in joined.members
    }
    counts = {topic_id: len(topics[name].partitions) for topic_id, name in names.items()}
    assigned = ASSIGNORS[joined.protocol](members, counts)
    return {
        member_id: write_assignment(
            told[member_id].version, {names[topic_id]: sorted(given) for topic_id, given in partitions.items()}
        )
        for member_id, partitions in assigned.items()
    }


def _read(member: JoinedMember) -> Subscription:
    """Returns what a member tells; one that tells nothing that can be read gets nothing."""
    return read_subscription(member.metadata) or _NOTHING
