"""Decides who of a group is to have what, once in each epoch, and whether its topics are as they were."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from replog.coordinator.assignors import AssignedMember, Assignment, Assignor
from replog.coordinator.consumers.group import MemberMetadata
from replog.coordinator.topic_view import TopicView

VISITS_PER_PAUSE_MS: Final = 50
"""Members, partitions and names that a decision looks at for each millisecond of the pause behind it: about ten times what they cost."""
PAUSE_MS_MAX: Final = 5_000
"""The longest pause, that of a quarter of a million partitions: more hardly go into the one change that a decision is."""

_MEMBER_BYTES = 16
_TOPIC_BYTES = 20
_PARTITION_BYTES = 4


Place: TypeAlias = tuple[UUID, int]
"""Id and number of partitions of a topic."""


class Question(Struct, frozen=True):
    """What a decision is made of; nothing of it changes.  An answer holds as long as the question is the same.

    Attributes:
        epoch: The epoch of the group.
        members: The members.
        targets: What they were to have before.
        patterns: The topics that match each pattern of the members.
        places: The topics that the members name or match, in order of their names; None: there is no such topic.
    """

    epoch: int
    members: Mapping[str, MemberMetadata]
    targets: Mapping[str, Assignment]
    patterns: Mapping[str, frozenset[str]]
    places: Mapping[str, Place | None]

    def visits(self) -> int:
        """Returns how many members, partitions and names a decision looks at; a list that members have in common once."""
        lists = {id(each.subscribed_topic_names): each.subscribed_topic_names for each in self.members.values()}
        names = sum(map(len, lists.values())) + sum(map(len, self.patterns.values()))
        return len(self.members) + names + sum(place[1] for place in self.places.values() if place is not None)


def places_of(
    members: Iterable[MemberMetadata], topics: TopicView, patterns: Mapping[str, frozenset[str]]
) -> dict[str, Place | None]:
    """Returns the topics that members read, in order of their names.

    Args:
        members: The members of the group.
        topics: The topics of the cluster.
        patterns: The topics that match each pattern of the members.
    """
    return {name: topics.find(name) for name in _names(members, patterns)}


def decide_targets(question: Question, assignors: Mapping[str, Assignor]) -> dict[str, Assignment]:
    """Returns the new targets of all members.

    Args:
        question: What they are made of.
        assignors: The assignors by name; the one that most members want decides, the first where they want none.
    """
    members = question.members
    found = {name: place for name, place in question.places.items() if place is not None}
    matching = {pattern: frozenset(_ids(names, found)) for pattern, names in question.patterns.items()}
    read: dict[object, frozenset[UUID]] = {}  # members that share a list of names have one set in common
    specs: dict[str, AssignedMember] = {}
    for member_id, each in members.items():
        wish = id(each.subscribed_topic_names), each.subscribed_topic_regex
        if wish not in read:
            read[wish] = _read_by(each, matching, found)
        specs[member_id] = AssignedMember(read[wish], each.instance_id, question.targets.get(member_id, {}))
    assign = assignors[chosen_assignor(members.values(), assignors)]
    return assign(specs, dict(found.values()))


def pause_ms(visits: int) -> int:
    """Returns how long after a decision the next one may wait: 0 for a few dozen visits (`Question.visits`); `PAUSE_MS_MAX` at most."""
    return min(visits // VISITS_PER_PAUSE_MS, PAUSE_MS_MAX)


def targets_bytes_max(group_id: str, question: Question) -> int:
    """Returns the bytes that the records of a decision have at most, were every target another one.

    Args:
        group_id: The group.
        question: What the decision is made of.
    """
    members = question.members
    counts = [place[1] for place in question.places.values() if place is not None]
    partitions = sum(counts)
    shares = min(partitions, len(members) * len(counts))  # of a topic, in the target of a member
    ids = sum(len(member_id.encode()) for member_id in members) + len(members) * len(group_id.encode())
    return ids + len(members) * _MEMBER_BYTES + shares * _TOPIC_BYTES + partitions * _PARTITION_BYTES


def chosen_assignor(members: Iterable[MemberMetadata], assignors: Mapping[str, Assignor]) -> str:
    """Returns the name of the assignor that most members want; that of the first one where they want none."""
    wanted = Counter(name for each in members if (name := each.server_assignor) is not None and name in assignors)
    return min(wanted, key=lambda each: (-wanted[each], each)) if wanted else next(iter(assignors))


def hash_of_topics(places: Mapping[str, Place | None]) -> int:
    """Returns a number of 64 bits that is another one once a topic that members read has come, gone or grown."""
    told = [
        b"%b\0" % name.encode() if place is None else b"%b\0%b%d\0" % (name.encode(), place[0].bytes, place[1])
        for name, place in places.items()
    ]
    return int.from_bytes(hashlib.sha256(b"".join(told)).digest()[:8], "big", signed=True)


def _read_by(
    member: MemberMetadata, matching: Mapping[str, frozenset[UUID]], found: Mapping[str, tuple[UUID, int]]
) -> frozenset[UUID]:
    """Returns the topics that a member reads: those that it names, and those that match its pattern.

    Args:
        member: The member.
        matching: The topics that match each pattern; members with the same one have them in common.
        found: Id and number of partitions of all topics that are read, by name.
    """
    by_pattern = matching.get(member.subscribed_topic_regex or "", frozenset())
    named = member.subscribed_topic_names
    return by_pattern.union(_ids(named, found)) if named else by_pattern


def _ids(names: Iterable[str], found: Mapping[str, tuple[UUID, int]]) -> Iterable[UUID]:
    return (found[name][0] for name in names if name in found)


def _names(members: Iterable[MemberMetadata], patterns: Mapping[str, frozenset[str]]) -> list[str]:
    members = tuple(members)
    wishes = {id(each.subscribed_topic_names): each.subscribed_topic_names for each in members}
    named = set[str]().union(*wishes.values())
    wanted = {each.subscribed_topic_regex for each in members}
    return sorted(named.union(*(names for pattern, names in patterns.items() if pattern in wanted)))
