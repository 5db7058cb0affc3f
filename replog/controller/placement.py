"""Which brokers get the replicas of a new topic: striped over racks (kafka-reference 6.6).

Each rack is a ring of brokers, the racks are a ring too, both entered at a random place.  A partition's leader comes
from the next rack that has a live broker; its followers from the racks after it, one each, round after round.  The next
partition starts one rack further, and the rack that has just led one broker further.  So leaders and followers spread
evenly, and a lost rack costs at most one replica of a partition while there are at least as many racks as replicas.

Fenced brokers may follow (they are expected back), never lead.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from replog.errors import InvalidReplicationFactorError


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A registered broker that is not shutting down; brokers without a rack share one."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers in a circle, entered at a random place."""

    def __init__(self, broker_ids: Sequence[int], rng: random.Random) -> None:
        self._broker_ids = sorted(broker_ids)
        self._start = rng.randrange(len(broker_ids)) if broker_ids else 0

    def __len__(self) -> int:
        return len(self._broker_ids)

    def advance(self) -> None:
        self._start += 1

    def in_order(self) -> list[int]:
        start = self._start % max(1, len(self))
        return self._broker_ids[start:] + self._broker_ids[:start]


class _Rack:
    """The brokers of one rack: live ones are taken before fenced ones."""

    def __init__(self, brokers: Sequence[UsableBroker], rng: random.Random) -> None:
        self.live = _Ring([broker.broker_id for broker in brokers if not broker.fenced], rng)
        self.fenced = _Ring([broker.broker_id for broker in brokers if broker.fenced], rng)

    def advance(self) -> None:
        self.live.advance()
        self.fenced.advance()

    def in_order(self) -> list[int]:
        return self.live.in_order() + self.fenced.in_order()


class ReplicaPlacer:
    """Places the partitions of one topic after another."""

    def __init__(self, brokers: Sequence[UsableBroker], rng: random.Random) -> None:
        self._brokers = sorted(brokers, key=lambda broker: broker.broker_id)
        self._live_count = sum(not broker.fenced for broker in brokers)
        self._rng = rng

    def place(self, num_partitions: int, replication_factor: int) -> tuple[tuple[int, ...], ...]:
        """Replicas of each partition, the leader first.

        Raises:
            InvalidReplicationFactorError: fewer usable brokers than replicas, or no live one to lead.
        """
        if replication_factor > len(self._brokers):
            raise InvalidReplicationFactorError(
                f"replication factor {replication_factor} is more than the {len(self._brokers)} usable brokers"
            )
        if self._live_count == 0:
            raise InvalidReplicationFactorError(
                "all brokers are fenced: there is none to lead; try again once one is up"
            )
        assignments: list[tuple[int, ...]] = []
        while len(assignments) < num_partitions:
            assignments += self._stripe(min(self._live_count, num_partitions - len(assignments)), replication_factor)
        return tuple(assignments)

    def _stripe(self, partitions_count: int, replication_factor: int) -> list[tuple[int, ...]]:
        """As many partitions as there are live brokers; then the rings are entered anew."""
        racks = self._shuffled_racks()
        stripe: list[tuple[int, ...]] = []
        for _ in range(partitions_count):
            leading = next(index for index, rack in enumerate(racks) if len(rack.live))
            stripe.append(_one_partition(racks, leading, replication_factor))
            racks[leading].advance()
            racks.append(racks.pop(0))
        return stripe

    def _shuffled_racks(self) -> list[_Rack]:
        by_rack: dict[str, list[UsableBroker]] = {}
        for broker in self._brokers:
            by_rack.setdefault(broker.rack or "", []).append(broker)
        racks = [_Rack(brokers, self._rng) for _, brokers in sorted(by_rack.items())]
        start = self._rng.randrange(len(racks))
        return racks[start:] + racks[:start]


def _one_partition(racks: Sequence[_Rack], leading: int, replication_factor: int) -> tuple[int, ...]:
    leader = racks[leading].live.in_order()[0]
    queues = [[broker for broker in rack.in_order() if broker != leader] for rack in racks]
    replicas = [leader]
    index = leading  # the leader's rack has had its first turn
    while len(replicas) < replication_factor:
        index = (index + 1) % len(queues)
        if queues[index]:
            replicas.append(queues[index].pop(0))
    return tuple(replicas)
