"""Flights and mean departure delay per carrier and origin: computed four times, compared row by row.

Sums are whole minutes, so equal means equal: no tolerance hides a lost or doubled record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class GroupStats(NamedTuple):
    """One carrier at one origin.

    Attributes:
        flights: The number of all rows.
        delays: The number of rows with a departure delay; a cancelled flight has none.
        delay_minutes: The sum of the delays; may be negative.
    """

    flights: int
    delays: int
    delay_minutes: int

    @property
    def mean_delay_minutes(self) -> float | None:
        """The mean delay of the flights that have one; None where there is none."""
        return self.delay_minutes / self.delays if self.delays else None


GroupKey: TypeAlias = tuple[str, str]
"""(carrier, origin)"""

Groups: TypeAlias = Mapping[GroupKey, GroupStats]


class GroupCounter:
    """Adds up one row at a time."""

    def __init__(self) -> None:
        self._sums: dict[GroupKey, list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(self, carrier: str, origin: str, delay_minutes: int | None) -> None:
        sums = self._sums[carrier, origin]
        sums[0] += 1
        if delay_minutes is not None:
            sums[1] += 1
            sums[2] += delay_minutes

    def groups(self) -> Groups:
        return {key: GroupStats(*sums) for key, sums in sorted(self._sums.items())}


def counted(groups: Groups) -> int:
    """Returns the number of flights in all groups."""
    return sum(stats.flights for stats in groups.values())


def differing_rows(expected: Groups, found: Groups) -> list[GroupKey]:
    """Returns the groups that are not equal in both, or are missing in one."""
    return sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
