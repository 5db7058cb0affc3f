"""Which brokers get the replicas of a new topic: striped over racks (docs/KAFKA.md 6.6).

Each rack is a ring of brokers, the racks are a ring too, both entered at a random place.  A partition's leader comes
from the next rack that has a live broker; its followers from the racks after it, one each, round after round.  The next
partition starts one rack further, and the rack that has just led one broker further.  So leaders and followers spread
evenly, and a lost rack costs at most one replica of a partition while there are at least as many racks as replicas.

Fenced brokers may follow (they are expected back), never lead.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct

from replog.errors import InvalidReplicationFactorError


class UsableBroker(Struct, frozen=True):
    """A registered broker that is not shutting down; brokers without a rack share one."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers in a circle, entered at a random place."""

    def __init__(self, broker_ids: tuple[int, ...], rng: random.Random) -> None:
        self._broker_ids = broker_ids
        self._start = _below(len(broker_ids), rng)

    def __len__(self) -> int:
        return len(self._broker_ids)

    def advance(self) -> None:
        self._start += 1

    def at(self, place: int) -> int:
        """Returns the broker so many places behind the one that is next; wraps around."""
        return self._broker_ids[(self._start + place) % len(self._broker_ids)]


class _RackBrokers(Struct, frozen=True):
    """The brokers of one rack, by id."""

    live: tuple[int, ...]
    fenced: tuple[int, ...]


class _Rack:
    """One rack while a stripe is placed: live brokers are taken before fenced ones."""

    def __init__(self, brokers: _RackBrokers, rng: random.Random) -> None:
        self.live = _Ring(brokers.live, rng)
        self.fenced = _Ring(brokers.fenced, rng)

    def advance(self) -> None:
        self.live.advance()
        self.fenced.advance()

    def at(self, place: int) -> int | None:
        """Returns the broker that is `place` behind the first; None where there are not so many."""
        live_count = len(self.live)
        if place < live_count:
            return self.live.at(place)
        place -= live_count
        return self.fenced.at(place) if place < len(self.fenced) else None


class ReplicaPlacer:
    """Places the partitions of one topic after another on the same brokers."""

    def __init__(self, brokers: Sequence[UsableBroker], rng: random.Random) -> None:
        by_rack: dict[str, list[UsableBroker]] = {}
        for broker in sorted(brokers, key=lambda broker: broker.broker_id):
            by_rack.setdefault(broker.rack or "", []).append(broker)
        self._racks = [
            _RackBrokers(
                tuple(broker.broker_id for broker in rack if not broker.fenced),
                tuple(broker.broker_id for broker in rack if broker.fenced),
            )
            for _, rack in sorted(by_rack.items())
        ]
        self._brokers_count = len(brokers)
        self._live_count = sum(len(rack.live) for rack in self._racks)
        self._rng = rng

    def place(self, num_partitions: int, replication_factor: int) -> tuple[tuple[int, ...], ...]:
        """Chooses the replicas of each partition, the leader first.

        Raises:
            InvalidReplicationFactorError: There are fewer usable brokers than replicas, or no live one to lead.
        """
        if replication_factor > self._brokers_count:
            raise InvalidReplicationFactorError(
                f"replication factor {replication_factor} is more than the {self._brokers_count} usable brokers"
            )
        if self._live_count == 0:
            raise InvalidReplicationFactorError(
                "all brokers are fenced: there is none to lead; try again once one is up"
            )
        assignments: list[tuple[int, ...]] = []
        if len(self._racks) == 1 and replication_factor <= self._live_count:
            circle = self._circle_of_one_rack(replication_factor)
            while len(assignments) < num_partitions:
                start = _below(self._live_count, self._rng)
                assignments += circle[start:]
                assignments += circle[:start]
        while len(assignments) < num_partitions:
            assignments += self._stripe(min(self._live_count, num_partitions - len(assignments)), replication_factor)
        return tuple(assignments[:num_partitions])

    def _stripe(self, partitions_count: int, replication_factor: int) -> list[tuple[int, ...]]:
        """Places partitions, at most as many as there are live brokers; after them the rings are entered anew."""
        racks = [_Rack(brokers, self._rng) for brokers in self._racks]
        start = _below(len(racks), self._rng)
        racks = racks[start:] + racks[:start]
        stripe: list[tuple[int, ...]] = []
        for _ in range(partitions_count):
            leading = next(index for index, rack in enumerate(racks) if len(rack.live))
            stripe.append(_one_partition(racks, leading, replication_factor))
            racks[leading].advance()
            racks.append(racks.pop(0))
        return stripe

    def _circle_of_one_rack(self, replication_factor: int) -> list[tuple[int, ...]]:
        """Returns the replicas that each leader has where most clusters are: no racks, enough live brokers."""
        row = self._racks[0].live * 2
        return [row[first : first + replication_factor] for first in range(self._live_count)]


def _below(count: int, rng: random.Random) -> int:
    return int(rng.random() * count)


def _one_partition(racks: Sequence[_Rack], leading: int, replication_factor: int) -> tuple[int, ...]:
    """Returns the replicas of a partition, the leader first; looks only at the brokers that it takes, or passes over."""
    leader = racks[leading].live.at(0)
    replicas = [leader]
    taken = [0] * len(racks)
    taken[leading] = 1  # the leader is the first of its rack
    index = leading  # the leader's rack has had its first turn
    while len(replicas) < replication_factor:
        index = (index + 1) % len(racks)
        broker = racks[index].at(taken[index])
        if broker is not None:
            taken[index] += 1
            replicas.append(broker)
    return tuple(replicas)
