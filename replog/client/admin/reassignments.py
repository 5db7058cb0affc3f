"""How far the reassignments under way are: bytes there, bytes needed, rate, and the time that is left.

Only the leader of a partition knows how much of its log a new replica does not have (`ReplicaProgress.lag_bytes`); only
the new replica's broker knows why it stands still.  Rates come from two looks at the same reassignment::

    look            needed   there   since the look before       left
    at 10 s          1,000     400
    at 12 s          1,100     700   150 bytes a second          (600 - 400) / 2 = 100 a second nearer: 400 / 100 = 4 s

`needed` grows while producers write, so the time left comes from how fast the gap closes, not from how fast bytes arrive;
where the gap does not close it is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from replog.client.admin.operations import require_moves
from replog.client.cluster.addresses import address_of
from replog.client.cluster.view import ClusterView
from replog.client.types import TopicPartition
from replog.controller.requests import NamedPartition
from replog.errors import ReplogError, UnsupportedVersionError
from replog.metadata.config_keys import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
    ConfigKey,
)
from replog.metadata.records import ResourceType
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo
from replog.rpc.node_messages import DescribeConfigsRequest, DescribeLogDirsRequest, DescribeNodeRequest, ReplicaStatus

NAMED_MAX = 500
"""Partitions that are named in one question to a broker."""


class CopyProgress(Struct, frozen=True):
    """One replica that a reassignment adds.

    Attributes:
        broker_id: The broker that holds it.
        is_in_sync: Whether it has everything, and waits for the others.
        needed_bytes: The size of the leader's log; None: nobody could tell.
        copied_bytes: How much of that it has; None: nobody could tell.
        bytes_per_s: Bytes that arrived per second since the look before; None: there was none.
        eta_s: Time left at this rate; None: not known, or never at this rate.
        throttle_bytes_per_s: The lower of what its leader may give and its broker may take; None: there is no limit.
        is_stalled: Whether something is missing, and since the look before nothing arrived and the gap has not closed.
        trouble: What is known to keep it from going on; "": nothing.
    """

    broker_id: int
    is_in_sync: bool
    needed_bytes: int | None = None
    copied_bytes: int | None = None
    bytes_per_s: float | None = None
    eta_s: float | None = None
    throttle_bytes_per_s: int | None = None
    is_stalled: bool = False
    trouble: str = ""

    @property
    def missing_bytes(self) -> int | None:
        """The bytes that the replica does not have yet; None: nobody could tell."""
        if self.needed_bytes is None or self.copied_bytes is None:
            return None
        return self.needed_bytes - self.copied_bytes


class PartitionReassignment(Struct, frozen=True):
    """One partition that moves.

    Attributes:
        replicas: The brokers that will hold it.
        removing_replicas: The brokers that give it up when the new ones are in sync.
        copies: The new replicas, and how far each has come.
    """

    topic: str
    partition_id: int
    replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    copies: tuple[CopyProgress, ...]


class Reassignments(Struct, frozen=True):
    """All that is under way at one moment.

    Attributes:
        at_s: Time of the client's loop; only differences say something.
        partitions: Partitions that move, by name and number.
    """

    at_s: float
    partitions: tuple[PartitionReassignment, ...]

    @property
    def copies(self) -> tuple[CopyProgress, ...]:
        return tuple(copy for partition in self.partitions for copy in partition.copies)

    @property
    def total(self) -> CopyTotal:
        return total_of(self.copies)


class CopyTotal(Struct, frozen=True):
    """Several copies together; what nobody could tell is not in the sums.

    Attributes:
        bytes_per_s: Bytes that arrived per second since the look before; None: not known of any.
        eta_s: Time left for the slowest, since they go on side by side; None: not known of all.
    """

    needed_bytes: int
    copied_bytes: int
    bytes_per_s: float | None
    eta_s: float | None
    stalled_count: int


def total_of(copies: Iterable[CopyProgress]) -> CopyTotal:
    """Sums up several copies.  Pure."""
    copies = tuple(copies)
    rates = [copy.bytes_per_s for copy in copies if copy.bytes_per_s is not None]
    etas = [copy.eta_s for copy in copies if copy.eta_s is not None]
    known = [(copy.needed_bytes, copy.copied_bytes) for copy in copies]
    return CopyTotal(
        needed_bytes=sum(needed for needed, copied in known if needed is not None and copied is not None),
        copied_bytes=sum(copied for needed, copied in known if needed is not None and copied is not None),
        bytes_per_s=sum(rates) if rates else None,
        eta_s=max(etas) if etas and len(etas) == len(copies) else None,
        stalled_count=sum(copy.is_stalled for copy in copies),
    )


# ---- from two looks ----------------------------------------------------------------------------------------------------


def compared(before: Reassignments, after: Reassignments) -> Reassignments:
    """Returns `after` with rates, times left and stalls, from the copies that are in both.  Pure."""
    known = {
        (partition.topic, partition.partition_id, copy.broker_id): copy
        for partition in before.partitions
        for copy in partition.copies
    }
    seconds = after.at_s - before.at_s
    return replace(
        after,
        partitions=tuple(
            replace(
                partition,
                copies=tuple(
                    _measured(known.get((partition.topic, partition.partition_id, copy.broker_id)), copy, seconds)
                    for copy in partition.copies
                ),
            )
            for partition in after.partitions
        ),
    )


def _measured(before: CopyProgress | None, after: CopyProgress, seconds: float) -> CopyProgress:
    if after.is_in_sync:
        return replace(after, eta_s=0.0)
    was, missing = None if before is None else before.missing_bytes, after.missing_bytes
    if before is None or before.copied_bytes is None or after.copied_bytes is None or was is None or missing is None:
        return after
    if seconds <= 0:
        return after
    bytes_per_s = max(0, after.copied_bytes - before.copied_bytes) / seconds
    closing_per_s = (was - missing) / seconds
    eta_s = 0.0 if missing == 0 else missing / closing_per_s if closing_per_s > 0 else None
    is_stalled = missing > 0 and bytes_per_s == 0 and closing_per_s <= 0
    return replace(after, bytes_per_s=bytes_per_s, eta_s=eta_s, is_stalled=is_stalled)


# ---- from one look -----------------------------------------------------------------------------------------------------


class BrokerSays(Struct, frozen=True):
    """What one broker answered.

    Attributes:
        replicas: Replicas by topic and partition; None: it did not answer.
        throttles: Rates in force there, by name.
        sizes: The sizes of its replicas, where it tells no more: a broker of Apache Kafka.
    """

    replicas: Mapping[TopicPartition, ReplicaStatus] | None
    throttles: Mapping[str, int]
    sizes: Mapping[TopicPartition, int] | None = None


SILENT = BrokerSays(None, {})


def looked_at(metadata: ClusterMetadata, answers: Mapping[int, BrokerSays], at_s: float) -> Reassignments:
    """Puts together what the metadata and the brokers say.  Pure."""
    brokers = {broker.broker_id: broker for broker in metadata.brokers}
    return Reassignments(
        at_s,
        tuple(
            PartitionReassignment(
                topic=topic,
                partition_id=partition.partition_id,
                replicas=tuple(one for one in partition.replicas if one not in partition.removing_replicas),
                removing_replicas=partition.removing_replicas,
                copies=tuple(
                    _copy(TopicPartition(topic, partition.partition_id), partition, broker_id, brokers, answers)
                    for broker_id in partition.adding_replicas
                ),
            )
            for topic, partition in moving(metadata)
        ),
    )


def moving(metadata: ClusterMetadata) -> list[tuple[str, PartitionInfo]]:
    """Returns (topic, partition) of what is being reassigned, by name and number."""
    found = [
        (topic.name, one)
        for topic in metadata.topics
        for one in topic.partitions
        if one.adding_replicas or one.removing_replicas
    ]
    return sorted(found, key=lambda one: (one[0], one[1].partition_id))


def _copy(
    name: TopicPartition,
    partition: PartitionInfo,
    broker_id: int,
    brokers: Mapping[int, BrokerInfo],
    answers: Mapping[int, BrokerSays],
) -> CopyProgress:
    leader_says, says = answers.get(partition.leader, SILENT), answers.get(broker_id, SILENT)
    leader = None if leader_says.replicas is None else leader_says.replicas.get(name)
    own = None if says.replicas is None else says.replicas.get(name)
    if leader_says.sizes is not None:
        needed_bytes, copied_bytes = _sizes_told(leader_says.sizes, says.sizes, name)
    else:
        needed_bytes, copied_bytes = _sizes(leader, own, broker_id)
    given = _rate(leader_says, LEADER_REPLICATION_THROTTLED_RATE)
    taken = _rate(says, FOLLOWER_REPLICATION_THROTTLED_RATE)
    return CopyProgress(
        broker_id=broker_id,
        is_in_sync=broker_id in partition.isr,
        needed_bytes=needed_bytes,
        copied_bytes=copied_bytes,
        throttle_bytes_per_s=min((rate for rate in (given, taken) if rate is not None), default=None),
        trouble=_trouble(partition, leader, brokers.get(broker_id), says, own),
    )


def _sizes(leader: ReplicaStatus | None, own: ReplicaStatus | None, broker_id: int) -> tuple[int | None, int | None]:
    """Returns (needed, copied), as the leader says; None for what nobody could tell.

    A copy that has not fetched from this leader counts with its size, the size of the leader's log at most.
    """
    if leader is None or leader.leader is None or leader.size_bytes is None:
        return None, None
    needed_bytes = leader.size_bytes
    progress = next((one for one in leader.leader.replicas if one.replica_id == broker_id), None)
    if progress is not None and progress.log_end_offset >= 0 and progress.lag_bytes is not None:
        return needed_bytes, max(0, needed_bytes - progress.lag_bytes)
    own_bytes = 0 if own is None else own.size_bytes
    return needed_bytes, None if own_bytes is None else min(needed_bytes, own_bytes)


def _sizes_told(
    leaders: Mapping[TopicPartition, int], own: Mapping[TopicPartition, int] | None, name: TopicPartition
) -> tuple[int | None, int | None]:
    """Returns (needed, copied) by the sizes of both logs; None for what nobody could tell."""
    needed_bytes = leaders.get(name)
    if needed_bytes is None or own is None:
        return needed_bytes, None
    return needed_bytes, min(needed_bytes, own.get(name, 0))


def _trouble(
    partition: PartitionInfo,
    leader: ReplicaStatus | None,
    broker: BrokerInfo | None,
    says: BrokerSays,
    own: ReplicaStatus | None,
) -> str:
    if partition.leader < 0:
        return "nobody leads the partition"
    if broker is None or broker.fenced:
        return "its broker is down"
    if says.replicas is None:
        return "its broker does not answer" if says.sizes is None else ""
    if own is not None and own.reason:
        return own.reason
    if leader is None or leader.leader is None:
        return f"broker {partition.leader} does not answer as the leader"
    return ""


def _rate(says: BrokerSays, key: ConfigKey) -> int | None:
    rate = says.throttles.get(key.name)
    return None if rate is None or rate == key.default else rate


# ---- asking ------------------------------------------------------------------------------------------------------------


async def describe_reassignments(view: ClusterView, *, timeout_ms: int) -> Reassignments:
    """Asks for the metadata, then every broker that leads or takes what moves, at the same time and once.

    Args:
        view: The view of the cluster.
        timeout_ms: The limit for the metadata, and then for each question to a broker, in milliseconds.

    Raises:
        RequestTimedOutError: No broker tells the metadata.
        BrokerNotAvailableError: These are brokers of Apache Kafka, and no controller answers.
    """
    metadata = await view.describe(timeout_ms)
    require_moves(metadata)
    wanted: dict[int, list[TopicPartition]] = {}
    for topic, partition in moving(metadata):
        for broker_id in {partition.leader, *partition.adding_replicas}:
            wanted.setdefault(broker_id, []).append(TopicPartition(topic, partition.partition_id))
    known = {broker.broker_id: broker for broker in metadata.brokers if broker.broker_id in wanted}
    answers = await asyncio.gather(*(_ask(view, broker, wanted[one], timeout_ms) for one, broker in known.items()))
    return looked_at(metadata, dict(zip(known, answers, strict=True)), asyncio.get_running_loop().time())


async def _ask(view: ClusterView, broker: BrokerInfo, names: Sequence[TopicPartition], timeout_ms: int) -> BrokerSays:
    address = address_of(broker)
    replicas: dict[TopicPartition, ReplicaStatus] = {}
    try:
        for first in range(0, len(names), NAMED_MAX):
            part = names[first : first + NAMED_MAX]
            request = DescribeNodeRequest(tuple(NamedPartition(*name) for name in part))
            answer = await view.read(address, request, timeout_ms=timeout_ms)
            replicas |= {TopicPartition(one.topic, one.partition_id): one for one in answer.replicas}
    except UnsupportedVersionError:
        return await _ask_kafka(view, address, timeout_ms)
    except ReplogError:
        return SILENT
    try:
        of_broker = DescribeConfigsRequest(ResourceType.BROKER, str(broker.broker_id))
        configs = (await view.read(address, of_broker, timeout_ms=timeout_ms)).configs
    except ReplogError:
        return SILENT
    names_of_rates = {LEADER_REPLICATION_THROTTLED_RATE.name, FOLLOWER_REPLICATION_THROTTLED_RATE.name}
    return BrokerSays(
        replicas, {one.name: int(one.value) for one in configs if one.name in names_of_rates and one.value}
    )


async def _ask_kafka(view: ClusterView, address: str, timeout_ms: int) -> BrokerSays:
    """Asks a broker of Apache Kafka, which tells no more than the sizes of its replicas."""
    try:
        answer = await view.read(address, DescribeLogDirsRequest(), timeout_ms=timeout_ms)
    except ReplogError:
        return SILENT
    held = (replica for directory in answer.directories for replica in directory.replicas)
    return BrokerSays(None, {}, {TopicPartition(one.topic, one.partition_id): one.size_bytes for one in held})
