"""Partitions by topic and number, so that all of a topic are removed at once, however many they are.

A key in one flat dictionary has the hash of its topic's id computed for each partition, which is most of what the removal of a
hundred thousand of them takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from replog_timeline import TimelineNestedMap

PartitionKey: TypeAlias = tuple[UUID, int]

V = TypeVar("V")

SORTED_AT_ONCE: Final = 2_000
"""Ids of topics that are sorted in one piece: a millisecond."""
_REST_BITS: Final = 120
"""The bits of an id behind its first byte."""


class PartitionMap(TimelineNestedMap[UUID, int, V]):
    """A value for each partition that it has.  `remove` takes out a topic."""

    __slots__ = ()

    def __getitem__(self, key: PartitionKey) -> V:
        return self._current[key[0]][key[1]]

    def __contains__(self, key: PartitionKey) -> bool:
        numbers = self._current.get(key[0])
        return numbers is not None and key[1] in numbers

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[PartitionKey]:
        return ((topic_id, number) for topic_id, numbers in self._current.items() for number in numbers)

    def get(self, key: PartitionKey) -> V | None:
        """Returns the value of a partition; None where it has none."""
        numbers = self._current.get(key[0])
        return None if numbers is None else numbers.get(key[1])

    def items(self, *, epoch: int | None = None) -> Iterator[tuple[PartitionKey, V]]:
        """Yields the partitions with their values; with an epoch as they were at that snapshot, of which a copy is made."""
        tables = self._current if epoch is None else self.at(epoch)
        return (((topic_id, number), value) for topic_id, table in tables.items() for number, value in table.items())

    def count(self, topic_id: UUID) -> int:
        """Returns how many partitions of a topic have a value."""
        return len(self._current.get(topic_id, ()))

    def in_order(self, *others: PartitionMap[V]) -> Iterator[PartitionKey]:
        """Yields the partitions, and those of other maps, in the same order on every controller: by the ids of topics, then by number.

        What changes meanwhile is seen only of topics that have not been reached.
        """
        maps = [each.current for each in (self, *others)]
        for topic_id in topics_in_order(*maps):
            numbers = [each.get(topic_id, {}) for each in maps]
            for number in sorted(numbers[0] if not others else set[int]().union(*numbers)):
                yield topic_id, number


def topics_in_order(*topic_ids: Collection[UUID]) -> Iterator[UUID]:
    """Yields topics by their ids, each once; many are sorted some at a time, as they are asked for, since ids are random.

    In one piece a hundred thousand take most of a tenth of a second, before the first one is looked at; to join two
    collections of so many takes nearly as long.
    """
    if sum(map(len, topic_ids)) <= SORTED_AT_ONCE:
        yield from sorted(set[UUID]().union(*topic_ids), key=_number)
        return
    by_first_byte: list[list[UUID]] = [[] for _ in range(256)]
    for some in topic_ids:
        for each in some:
            by_first_byte[each.int >> _REST_BITS].append(each)
    for some in by_first_byte:
        yield from sorted(set(some) if len(topic_ids) > 1 else some, key=_number)


def _number(topic_id: UUID) -> int:
    return topic_id.int
