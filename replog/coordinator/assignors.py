"""Which member reads which partition: what an assignor is given, and what it returns.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import cycle
from typing import NamedTuple, Protocol, TypeAlias
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


def by_id(place: tuple[UUID, object]) -> int:
    """Returns what ids are sorted by: their order, in less time than they take to compare themselves."""
    return place[0].int


class Unit(NamedTuple):
    """Topics that the same members read: as a rule a group has few of them, though it may read hundreds of topics."""

    readers: list[str]
    topic_ids: frozenset[UUID]


def units_of(members: Members, topics: Topics) -> list[Unit]:
    """Returns the topics in units, those that few members read first, in an order that outlives restarts."""
    wishes: dict[frozenset[UUID], list[str]] = {}
    for member_id in in_order(members):
        wishes.setdefault(members[member_id].topic_ids, []).append(member_id)
    places = {member_id: place for place, member_id in enumerate(in_order(members))}
    wanted_in: dict[UUID, list[int]] = {}
    readers = list(wishes.values())
    for number, wish in enumerate(wishes):
        for topic_id in wish:
            wanted_in.setdefault(topic_id, []).append(number)
    units: dict[tuple[int, ...], list[UUID]] = {}
    for topic_id, _ in sorted(topics.items(), key=by_id):
        if topic_id in wanted_in:
            units.setdefault(tuple(wanted_in[topic_id]), []).append(topic_id)
    found = [
        Unit(sorted((each for number in numbers for each in readers[number]), key=places.__getitem__), frozenset(ids))
        for numbers, ids in units.items()
    ]
    return sorted(found, key=lambda unit: len(unit.readers))  # the first topics decide among as many


def readers_by_topic(members: Members, topics: Topics) -> dict[UUID, list[str]]:
    """Returns the members that read each topic that exists, both in an order that outlives restarts."""
    readers = {topic_id: unit.readers for unit in units_of(members, topics) for topic_id in unit.topic_ids}
    return dict(sorted(((each, read) for each, read in readers.items() if topics[each] > 0), key=by_id))


def number(topic_id: UUID) -> int:
    """Returns what topic ids alone are sorted by, as `by_id`."""
    return topic_id.int


def assignment_of(partitions: Iterable[TopicPartition]) -> dict[UUID, frozenset[int]]:
    """Returns partitions by topic."""
    found: dict[UUID, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found, key=number)}


class NamedTopic(Protocol):
    """A topic with partitions of it, as messages and records name them."""

    @property
    def topic_id(self) -> UUID:
        """The topic."""
        ...

    @property
    def partitions(self) -> list[int]:
        """Its partitions."""
        ...


def assignment_in(topics: Sequence[NamedTopic]) -> dict[UUID, frozenset[int]]:
    """Returns the partitions that a message names, by topic."""
    found = {each.topic_id: frozenset(each.partitions) for each in topics}
    if len(found) < len(topics):  # one is named twice
        return assignment_of((each.topic_id, partition) for each in topics for partition in each.partitions)
    return {topic_id: partitions for topic_id in sorted(found, key=number) if (partitions := found[topic_id])}


def partitions_of(assignment: Assignment) -> frozenset[TopicPartition]:
    """Returns all partitions of an assignment."""
    return frozenset((topic_id, each) for topic_id, partitions in assignment.items() for each in partitions)


def without(assignment: Assignment, other: Assignment) -> dict[UUID, frozenset[int]]:
    """Returns what is in an assignment and not in the other one; by topic, since pairs cost several times as much."""
    if not other:
        return dict(assignment)
    nothing: frozenset[int] = frozenset()
    return {topic_id: left for topic_id, each in assignment.items() if (left := each - other.get(topic_id, nothing))}


def together(assignment: Assignment, other: Assignment) -> dict[UUID, frozenset[int]]:
    """Returns what is in one of two assignments, in order."""
    found = dict(assignment)
    for topic_id, partitions in other.items():
        found[topic_id] = partitions | found[topic_id] if topic_id in found else partitions
    return {topic_id: found[topic_id] for topic_id in sorted(found, key=number)}


def is_apart(assignment: Assignment, other: Assignment) -> bool:
    """Whether two assignments have no partition in common."""
    return all(each.isdisjoint(other.get(topic_id, ())) for topic_id, each in assignment.items())


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

    Most groups are of the first kind.  How many each of them is to have is known beforehand there: the partitions are dealt out
    once, without a look for the member with fewest before each.

    Args:
        members: The members of the group, with what they had.
        topics: The topics that exist.

    Returns:
        The partitions of each member.
    """
    kept, taken = _kept(members, topics)
    if len({each.topic_ids for each in members.values()}) == 1:
        topic_ids = next(iter(members.values())).topic_ids
        read = [topic_id for topic_id, _ in sorted(topics.items(), key=by_id) if topic_id in topic_ids]
        _deal(kept, _left_over(read, topics, taken))
        return _result(kept)
    balance = _Balance(kept)
    units = units_of(members, topics)
    for unit in units:
        balance.give(unit, _left_over(sorted(unit.topic_ids, key=number), topics, taken))
    balance.level_all(units)
    return _result(kept)


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
        had = [each for each in member.target.items() if each[0] in member.topic_ids]
        for topic_id, partitions in sorted(had, key=by_id):
            count, others = topics.get(topic_id, 0), taken.setdefault(topic_id, set())
            found = sorted(each for each in partitions - others if each < count)
            others.update(found)
            if found:
                owned[topic_id] = found
    return kept, taken


def _left_over(
    topic_ids: Iterable[UUID], topics: Topics, taken: Mapping[UUID, set[int]]
) -> list[tuple[UUID, list[int]]]:
    """Returns the partitions that nobody has, in order."""
    nobody: set[int] = set()
    return [
        (topic_id, sorted(set(range(topics[topic_id])).difference(taken.get(topic_id, nobody))))
        for topic_id in topic_ids
    ]


def _deal(owned: dict[str, dict[UUID, list[int]]], left_over: list[tuple[UUID, list[int]]]) -> None:
    """Deals out partitions among members that read the same topics, and first takes from those what they have too many.

    Args:
        owned: What each member keeps; afterwards what it has.
        left_over: The partitions that nobody has, by topic.
    """
    counts = {member_id: sum(map(len, each.values())) for member_id, each in owned.items()}
    share, more = divmod(sum(counts.values()) + sum(len(each) for _, each in left_over), len(owned))
    by_count = sorted(owned, key=lambda each: -counts[each])  # who has most keeps one more
    shares = {member_id: share + (place < more) for place, member_id in enumerate(by_count)}
    free = [*left_over]
    for member_id, count in counts.items():
        too_many = count - shares[member_id]
        while too_many > 0:
            topic_id, partitions = owned[member_id].popitem()
            free.append((topic_id, partitions[-too_many:]))
            if len(partitions) > too_many:
                owned[member_id][topic_id] = partitions[:-too_many]
            too_many -= len(partitions)
    short = {each: shares[each] - counts[each] for each in sorted(owned, key=counts.__getitem__)}
    turns = deque(member_id for member_id, room in short.items() if room > 0)
    for topic_id, partitions in free:
        for partition in partitions:
            taker = turns[0]
            owned[taker].setdefault(topic_id, []).append(partition)
            short[taker] -= 1
            if short[taker]:
                turns.rotate(-1)
            else:
                turns.popleft()


def _result(owned: Mapping[str, Mapping[UUID, list[int]]]) -> dict[str, Assignment]:
    return {
        member_id: {topic_id: frozenset(each) for topic_id, each in sorted(had.items(), key=by_id) if each}
        for member_id, had in owned.items()
    }


class _Balance:
    """What each member has, of any topics."""

    def __init__(self, owned: dict[str, dict[UUID, list[int]]]) -> None:
        self._owned = owned
        self._counts = {member_id: sum(map(len, each.values())) for member_id, each in owned.items()}
        self._places = {member_id: place for place, member_id in enumerate(owned)}

    def give(self, unit: Unit, left_over: list[tuple[UUID, list[int]]]) -> None:
        """Gives each partition to the member with the fewest of those that read the unit."""
        fewest = [self._entry(each) for each in unit.readers]
        heapify(fewest)
        for topic_id, partitions in left_over:
            for partition in partitions:
                count, place, taker = fewest[0]
                self._owned[taker].setdefault(topic_id, []).append(partition)
                heapreplace(fewest, (count + 1, place, taker))
        self._counts.update((member_id, count) for count, _, member_id in fewest)

    def level_all(self, units: list[Unit]) -> None:
        """Moves partitions until no move would be better; a unit is looked at again when one of its members has another count."""
        units_of: dict[str, list[int]] = {}
        for number, unit in enumerate(units):
            for member_id in unit.readers:
                units_of.setdefault(member_id, []).append(number)
        waiting = dict.fromkeys(range(len(units)))
        while waiting:
            number = next(iter(waiting))
            del waiting[number]
            for member_id in self._level(units[number]):
                waiting.update((each, None) for each in units_of[member_id] if each != number)

    def _level(self, unit: Unit) -> Iterable[str]:
        """Moves partitions of a unit, from the member that has most to the one with fewest; returns whose counts are others."""
        counts, changed = self._counts, dict[str, None]()
        least = min(counts[each] for each in unit.readers)
        stocks = {
            each: stock for each in unit.readers if counts[each] > least + 1 and (stock := self._stock(each, unit))
        }
        if not stocks:
            return changed
        most = [(-counts[each], self._places[each], each) for each in stocks]
        fewest = [self._entry(each) for each in unit.readers]
        heapify(most)
        heapify(fewest)
        while most:
            giver, taker = most[0][2], fewest[0][2]
            if counts[giver] - counts[taker] < 2:
                break
            topic_id = stocks[giver][-1]
            self._owned[taker].setdefault(topic_id, []).append(self._owned[giver][topic_id].pop())
            if not self._owned[giver][topic_id]:
                del self._owned[giver][stocks[giver].pop()]
            counts[giver] -= 1
            counts[taker] += 1
            changed |= {giver: None, taker: None}
            if stocks[giver]:
                heapreplace(most, (-counts[giver], self._places[giver], giver))
            else:
                heappop(most)
            heapreplace(fewest, self._entry(taker))
        return changed

    def _stock(self, member_id: str, unit: Unit) -> list[UUID]:
        """Returns the topics of a unit of which a member has partitions."""
        owned = self._owned[member_id]
        if len(owned) < len(unit.topic_ids):
            return [each for each in owned if each in unit.topic_ids]
        return sorted((each for each in unit.topic_ids if each in owned), key=number)

    def _entry(self, member_id: str) -> tuple[int, int, str]:
        return self._counts[member_id], self._places[member_id], member_id
