"""Which member reads which partition: what an assignor is given, and what it returns.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import cycle
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


def assign_in_turns(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Gives the partitions of all topics to members in turn; a member that does not read a topic is passed over.

    Where all members read the same topics, no two differ by more than one partition.

    Args:
        members: The members of the group.
        topics: The topics that exist.

    Returns:
        The partitions of each member.
    """
    given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    turns = cycle(in_order(members))
    for topic_id in readers_by_topic(members, topics):
        for partition in range(topics[topic_id]):
            reader = next(each for each in turns if topic_id in members[each].topic_ids)
            given[reader].append((topic_id, partition))
    return {member_id: assignment_of(partitions) for member_id, partitions in given.items()}


def assign_ranges(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Gives each member of a topic a range of its partitions, the first members one more where they do not divide.

    Members that read several topics of as many partitions get the same partitions of each, so they can join them.  The price
    is that one partition too many of each topic goes to the same first members, and that a new member moves many partitions.

    Args:
        members: The members of the group.
        topics: The topics that exist.

    Returns:
        The partitions of each member.
    """
    given: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, readers in readers_by_topic(members, topics).items():
        least, extra = divmod(topics[topic_id], len(readers))
        start = 0
        for place, member_id in enumerate(readers):
            end = start + least + (place < extra)
            if end > start:
                given[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(given)


def assign_uniformly(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Gives all members as equal a number of partitions as their subscriptions allow, and moves as few as that takes.

    1. Each member keeps what it had, as far as the topics are there and it still reads them.
    2. Each partition that is left over goes to the member with the fewest among those that read its topic; partitions that few
       read go first, since they have the least choice.
    3. While one member has at least two more than another that reads a topic of its partitions, one of these moves, from the
       member with most to the one with fewest.

    A move makes the sum of the squares of the counts smaller, so there is an end.  Where all members read the same topics it is
    the best balance, with the fewest moves; where they do not, no single move could improve it.

    Args:
        members: The members of the group, with what they had.
        topics: The topics that exist.

    Returns:
        The partitions of each member.
    """
    readers = readers_by_topic(members, topics)
    kept, taken = _kept(members, topics)
    shares = _Shares(kept, readers)
    for topic_id in sorted(readers, key=lambda each: (len(readers[each]), each)):
        for partition in sorted(set(range(topics[topic_id])).difference(taken.get(topic_id, ()))):
            shares.give(topic_id, partition)
    shares.balance()
    return shares.result()


def _kept(members: Members, topics: Topics) -> tuple[dict[str, dict[UUID, list[int]]], dict[UUID, set[int]]]:
    """Returns what each member keeps, members in an order that outlives restarts, and what all keep together.

    Nobody has what another one has.
    By topic: a set of ten thousand pairs would ask each id for its hash several times, most of the time of an assignment.
    """
    taken: dict[UUID, set[int]] = {}
    kept: dict[str, dict[UUID, list[int]]] = {}
    for member_id in in_order(members):
        member = members[member_id]
        owned = kept[member_id] = {}
        for topic_id in sorted(member.topic_ids & member.target.keys()):
            count, others = topics.get(topic_id, 0), taken.setdefault(topic_id, set())
            found = sorted(each for each in member.target[topic_id] - others if each < count)
            others.update(found)
            if found:
                owned[topic_id] = found
    return kept, taken


class _Shares:
    """What each member has, and which has fewest and most: heaps whose entries are passed over once a count has changed.

    Topics that the same members read have one heap: a group reads hundreds of topics, and as a rule each member all of them.
    """

    def __init__(self, given: dict[str, dict[UUID, list[int]]], readers: dict[UUID, list[str]]) -> None:
        self._counts = {member_id: sum(map(len, owned.values())) for member_id, owned in given.items()}
        self._places = {member_id: place for place, member_id in enumerate(given)}
        keys = {topic_id: tuple(members) for topic_id, members in readers.items()}
        heaps: dict[tuple[str, ...], list[tuple[int, int, str]]] = {}
        self._heaps_of: dict[str, list[list[tuple[int, int, str]]]] = {member_id: [] for member_id in given}
        for members in dict.fromkeys(keys.values()):
            heap = heaps[members] = [self._entry(each) for each in members]
            heapify(heap)
            for member_id in members:
                self._heaps_of[member_id].append(heap)
        self._owned = given
        self._fewest = {topic_id: heaps[members] for topic_id, members in keys.items()}

    def result(self) -> dict[str, Assignment]:
        """Returns the partitions of each member."""
        return {
            member_id: {topic_id: frozenset(owned[topic_id]) for topic_id in sorted(owned) if owned[topic_id]}
            for member_id, owned in self._owned.items()
        }

    def give(self, topic_id: UUID, partition: int) -> None:
        """Gives a partition to the member with the fewest among those that read its topic."""
        self._add(self._with_fewest(topic_id), topic_id, partition)

    def balance(self) -> None:
        """Moves one partition after the other, from the member that has most of those that have too many."""
        most = [(-count, place, member_id) for count, place, member_id in map(self._entry, self._counts)]
        heapify(most)
        stuck: list[str] = []
        while most:
            count, _, giver = heappop(most)
            if -count != self._counts[giver]:
                continue
            taker = self._move_from(giver)
            if taker is None:
                stuck.append(giver)
                continue
            for each in (giver, taker, *stuck):
                heappush(most, (-self._counts[each], self._places[each], each))
            stuck.clear()

    def _move_from(self, giver: str) -> str | None:
        """Moves a partition to the member with the fewest that can take one; returns it, None where that is no better."""
        least, choice = self._counts[giver] - 1, None
        asked: set[int] = set()  # heaps
        for topic_id, partitions in self._owned[giver].items():
            heap = id(self._fewest[topic_id])
            if not partitions or heap in asked:
                continue
            taker = self._with_fewest(topic_id)
            if self._counts[taker] < least:
                least, choice = self._counts[taker], (topic_id, taker)
            asked.add(heap)
            if len(asked) == len(self._heaps_of[giver]):
                break
        if choice is None:
            return None
        topic_id, taker = choice
        moved = self._owned[giver][topic_id].pop()
        self._set_count(giver, self._counts[giver] - 1)
        self._add(taker, topic_id, moved)
        return taker

    def _add(self, member_id: str, topic_id: UUID, partition: int) -> None:
        self._owned[member_id].setdefault(topic_id, []).append(partition)
        self._set_count(member_id, self._counts[member_id] + 1)

    def _set_count(self, member_id: str, count: int) -> None:
        self._counts[member_id] = count
        for heap in self._heaps_of[member_id]:
            heappush(heap, self._entry(member_id))

    def _with_fewest(self, topic_id: UUID) -> str:
        heap = self._fewest[topic_id]
        while heap[0][0] != self._counts[heap[0][2]]:
            heappop(heap)
        return heap[0][2]

    def _entry(self, member_id: str) -> tuple[int, int, str]:
        return self._counts[member_id], self._places[member_id], member_id
