"""Who must come back before a partition goes on: what an operator wants to know who looks at a cluster with dead brokers.

| partition                                       | goes on when                                             |
|-------------------------------------------------|----------------------------------------------------------|
| nobody leads, somebody is in the ISR or the ELR | any one of them is there: each has all that is committed |
| nobody leads, both are empty                    | all of the last known ELR are there: the longest log leads |
| too few in sync for acks=all                    | as many replicas as are missing have caught up           |

Where nobody leads and nobody is known to have everything, no broker's return helps: an operator decides.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from replog.rpc.metadata_messages import PartitionInfo


class Awaited(Struct, frozen=True):
    """Brokers that do not serve, `needed_count` of which must do so again; nobody where there are none."""

    brokers: tuple[int, ...] = ()
    needed_count: int = 0


class AwaitedBy(Awaited, frozen=True):
    """The same, and how many partitions wait for them."""

    partitions_count: int = 0


NOBODY = Awaited()


def nobody_has_everything(partition: PartitionInfo) -> bool:
    """Whether nobody leads, and no replica is known to have all that is committed: then an operator decides."""
    return partition.leader < 0 and not (partition.isr or partition.elr or partition.last_known_elr)


def awaited(partition: PartitionInfo, min_insync_replicas: int, is_away: Callable[[int], bool]) -> Awaited:
    """Tells whom a partition waits for.  Pure.

    Args:
        partition: The partition as the metadata has it.
        min_insync_replicas: The minimum of its topic.
        is_away: Whether a broker, or its replica of this partition, cannot be used now.

    Returns:
        Nobody where it goes on without a broker that is away, or may never do so.
    """
    if partition.leader < 0:
        eligible = partition.isr or partition.elr
        known = eligible or partition.last_known_elr
        needed_count = 1 if eligible else len(known)
    else:
        known = tuple(broker_id for broker_id in partition.replicas if broker_id not in partition.isr)
        needed_count = min(min_insync_replicas, len(partition.replicas)) - len(partition.isr)
    away = tuple(sorted(broker_id for broker_id in known if is_away(broker_id)))
    needed_count -= len(known) - len(away)
    return Awaited(away, needed_count) if needed_count > 0 else NOBODY
