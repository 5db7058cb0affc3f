"""The health of a cluster: what the metadata, the metadata quorum and every broker say, put together and judged.

Why here: a status on a screen, an alert and a test should not each have their own idea of "healthy".

A partition is in the worst of its states, in this order:

| trouble          | what it means                                                               |
|------------------|-----------------------------------------------------------------------------|
| unavailable      | nobody leads it: it can be neither written nor read                         |
| under-min-isr    | fewer in-sync replicas than `min.insync.replicas`: acks=all writes are refused |
| under-replicated | a replica is not in sync; one that is only being added does not count       |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.admin.awaited import NOBODY, Awaited, AwaitedBy, awaited, nobody_has_everything
from replog.client.admin.group_health import GroupsHealth
from replog.client.admin.operations import CLUSTER
from replog.client.admin.transactions import OPEN_STATES
from replog.client.cluster.addresses import address_of
from replog.client.cluster.image import are_kafkas
from replog.client.protocol.transactions import TransactionListing
from replog.controller.requests import ConfigEntry
from replog.errors import ReplogError, UnsupportedVersionError
from replog.metadata.records import ResourceType
from replog.rpc.metadata_messages import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from replog.rpc.node_messages import (
    NO_DETAILS,
    DescribeNodeResponse,
    DescribeQuorumResponse,
    LateTransaction,
    QuorumMember,
)

if TYPE_CHECKING:
    from replog.client.admin.admin import Admin

MIN_ISR_KEY = "min.insync.replicas"
ASK_TIMEOUT_MS = 3_000
CONFIGS_ASKED_MAX = 500
"""Topics of Apache Kafka whose configurations are asked for."""

NAMED_MAX = 20
"""Partitions that are named; the others are only counted."""

VOTER_SILENT_MS = 10_000
"""A voter fetches several times a second; one that has not had everything for so long is behind."""


# ---- one partition -----------------------------------------------------------------------------------------------------


class PartitionTrouble(StrEnum):
    """What is wrong with a partition; see the module."""

    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    UNDER_REPLICATED = "under-replicated"


def is_unavailable(partition: PartitionInfo) -> bool:
    """Whether nobody leads the partition."""
    return partition.leader < 0


def is_under_min_isr(partition: PartitionInfo, min_insync_replicas: int) -> bool:
    """Whether acks=all writes are refused."""
    return len(partition.isr) < min(min_insync_replicas, len(partition.replicas))


def is_under_replicated(partition: PartitionInfo) -> bool:
    """Whether a replica that is not just being added is out of sync."""
    return bool(missing_replicas(partition))


def missing_replicas(partition: PartitionInfo) -> tuple[int, ...]:
    """Returns the brokers of replicas that should be in sync and are not."""
    return tuple(
        broker_id
        for broker_id in partition.replicas
        if broker_id not in partition.isr and broker_id not in partition.adding_replicas
    )


def trouble_of(partition: PartitionInfo, min_insync_replicas: int) -> PartitionTrouble | None:
    """Returns the worst trouble of a partition; None: all is well."""
    if is_unavailable(partition):
        return PartitionTrouble.UNAVAILABLE
    if is_under_min_isr(partition, min_insync_replicas):
        return PartitionTrouble.UNDER_MIN_ISR
    return PartitionTrouble.UNDER_REPLICATED if is_under_replicated(partition) else None


def min_insync_replicas_of(topic: TopicInfo, default: int) -> int:
    """Returns the topic's own `min.insync.replicas`, else the brokers' `default`."""
    values = {entry.name: entry.value for entry in topic.configs}
    return int(values.get(MIN_ISR_KEY) or default)


async def default_min_insync_replicas(admin: Admin, *, timeout_ms: int = ASK_TIMEOUT_MS) -> int:
    """Asks for the `min.insync.replicas` of topics that do not say it.

    It is set for the cluster, or in the file of the broker that answers, or 1.  Of Apache Kafka's topics it is not looked up here:
    see `with_min_insync_replicas`.

    Raises:
        RequestTimedOutError: No broker answers.
    """
    return int(await _min_insync_replicas(admin, CLUSTER, timeout_ms) or 1)


async def _min_insync_replicas(admin: Admin, resource: tuple[ResourceType, str], timeout_ms: int) -> str | None:
    configs = await admin.describe_configs(resource, timeout_ms=timeout_ms)
    return next((config.value for config in configs if config.name == MIN_ISR_KEY), None)


async def with_min_insync_replicas(
    admin: Admin, topics: Iterable[TopicInfo], *, timeout_ms: int = ASK_TIMEOUT_MS
) -> tuple[TopicInfo, ...]:
    """Returns topics of Apache Kafka with their `min.insync.replicas`, which the metadata leave out.

    It is asked for where a replica is missing, of `CONFIGS_ASKED_MAX` topics at most.

    Raises:
        ReplogError: No broker answers, or a topic was deleted meanwhile.
    """
    topics = tuple(topics)
    named = [topic.name for topic in topics if any(map(is_under_replicated, topic.partitions))][:CONFIGS_ASKED_MAX]
    resources = [(ResourceType.TOPIC, name) for name in named]
    values = await asyncio.gather(*(_min_insync_replicas(admin, one, timeout_ms) for one in resources))
    found = dict(zip(named, values, strict=True))
    return tuple(
        replace(topic, configs=(ConfigEntry(MIN_ISR_KEY, value),)) if (value := found.get(topic.name)) else topic
        for topic in topics
    )


# ---- the cluster -------------------------------------------------------------------------------------------------------


class BrokerStanding(StrEnum):
    """Where a broker stands, as its own answer and the metadata say."""

    IN_SERVICE = "in service"
    SHUTTING_DOWN = "shutting down"
    FENCED = "fenced"
    """It answers, and may not serve (yet)."""
    SILENT = "silent"
    """The controller still counts on it, and it does not answer us."""
    DOWN = "down"
    UNKNOWN = "not registered"
    AWAY = "not in service"
    """It holds replicas, and Apache Kafka does not tell of it: before 4.0 fenced brokers are left out, like those that are gone."""


class BrokerHealth(Struct, frozen=True):
    """One broker.

    Attributes:
        leaders_count: Partitions it leads.
        replicas_count: Partitions it holds, led ones included.
        rss_bytes: The memory of its process; -1 without an answer.
        version: The version that it runs; "" without an answer.
    """

    broker_id: int
    address: str
    rack: str | None
    state: BrokerStanding
    is_drained: bool
    leaders_count: int
    replicas_count: int
    rss_bytes: int
    version: str

    @property
    def is_up(self) -> bool:
        return self.state is BrokerStanding.IN_SERVICE

    @property
    def is_missed(self) -> bool:
        """Whether it should serve and does not; one that was drained and is empty may go."""
        return not self.is_up and not (self.is_drained and not self.replicas_count)


class TroubledPartition(Struct, frozen=True):
    """A partition that is not as it should be.

    Attributes:
        missing: Brokers whose replica should be in sync and is not.
        offline: Those of them that say their replica cannot be used (its disk, its bytes).
        awaited: The brokers that must come back before it has a leader, or takes acks=all writes.
        needs_unclean_election: Whether no replica is known to have everything, and one that runs may lead if somebody says so.
    """

    topic: str
    partition_id: int
    trouble: PartitionTrouble
    leader: int
    isr: tuple[int, ...]
    missing: tuple[int, ...]
    offline: tuple[int, ...]
    awaited: Awaited = NOBODY
    needs_unclean_election: bool = False


class ClusterHealth(Struct, frozen=True):
    """A cluster at one moment.

    Attributes:
        metadata_offset: The offset that the metadata are up to; -1: brokers of Apache Kafka, which do not tell it.
        quorum: The metadata quorum as its leader tells it; None: there is no leader that answers.
        default_min_insync_replicas: The value for topics that do not say it.
        unavailable_count: Partitions of each trouble; a partition is counted in the worst of its states only.
        missing_brokers: Brokers whose replicas are missing from ISRs.
        troubled: The first of the partitions with trouble, the worst first.
        moving: The first of the partitions that are being reassigned.
        awaited: The brokers that must come back, with how many partitions wait for the same ones: the most first.
        groups: The consumer groups, which do not count for whether the cluster is well; None: they were not asked for.
        late_transactions: Transactions that nobody may be going to end, so that readers wait before them; at most 20 of a
            broker.
        late_owners: By producer id, the transactional ids whose coordinators know these transactions; the others hang.
    """

    cluster_id: str
    metadata_offset: int
    brokers: tuple[BrokerHealth, ...]
    quorum: DescribeQuorumResponse | None
    default_min_insync_replicas: int
    topics_count: int
    partitions_count: int
    unavailable_count: int
    under_min_isr_count: int
    under_replicated_count: int
    missing_brokers: tuple[int, ...]
    troubled: tuple[TroubledPartition, ...]
    moving_count: int
    moving: tuple[str, ...]
    awaited: tuple[AwaitedBy, ...] = ()
    groups: GroupsHealth | None = None
    late_transactions: tuple[LateTransaction, ...] = ()
    late_owners: Mapping[int, TransactionListing] = {}

    @property
    def troubled_count(self) -> int:
        return self.unavailable_count + self.under_min_isr_count + self.under_replicated_count

    @property
    def voters_behind(self) -> tuple[int, ...]:
        """Voters of the metadata quorum that do not follow its leader."""
        members = () if self.quorum is None else self.quorum.members
        return tuple(member.node_id for member in members if member.is_voter and _is_behind(member))

    @property
    def voters_elsewhere(self) -> tuple[int, ...]:
        """Nodes that follow with another log directory than they vote with, so that their vote is missing."""
        return () if self.quorum is None else tuple(sorted(other_directories(self.quorum)))

    @property
    def draining(self) -> tuple[BrokerHealth, ...]:
        """Brokers that are to be empty and are not yet."""
        return tuple(broker for broker in self.brokers if broker.is_drained and broker.replicas_count)

    @property
    def is_healthy(self) -> bool:
        """Whether every partition has all its replicas and its readers go on, every broker serves, and every voter follows."""
        return not (
            self.quorum is None
            or self.troubled_count
            or self.late_transactions
            or self.voters_behind
            or any(broker.is_missed for broker in self.brokers)
        )


def other_directories(quorum: DescribeQuorumResponse) -> dict[int, UUID]:
    """Returns by node id the directory that the voter set names, of each node that follows with another one."""
    following = {one.node_id for one in quorum.members if not one.is_voter and not _is_behind(one)}
    return {
        one.node_id: one.directory_id
        for one in quorum.members
        if one.is_voter and one.node_id in following and one.directory_id is not None and _is_behind(one)
    }


def _is_behind(member: QuorumMember) -> bool:
    return not 0 <= member.last_caught_up_age_ms <= VOTER_SILENT_MS


async def cluster_health(admin: Admin, *, timeout_ms: int = ASK_TIMEOUT_MS) -> ClusterHealth:
    """Asks for the metadata, then for the quorum and the default `min.insync.replicas`, then all brokers, and judges.

    Args:
        admin: The client of the cluster.
        timeout_ms: The limit of each step, in milliseconds; who does not answer by then is shown so.

    Raises:
        RequestTimedOutError: No broker tells the metadata, or the default.
    """
    metadata = await admin.describe_cluster(timeout_ms=timeout_ms)
    quorum, default = await asyncio.gather(
        _quorum(admin, timeout_ms), default_min_insync_replicas(admin, timeout_ms=timeout_ms)
    )
    if are_kafkas(metadata.brokers):
        with suppress(ReplogError):
            topics = await with_min_insync_replicas(admin, metadata.topics, timeout_ms=timeout_ms)
            metadata = replace(metadata, topics=topics)
    named = [(topic.name, one.partition_id) for topic, one, _ in _worst_first(metadata, default)[:NAMED_MAX]]
    answers = await asyncio.gather(*(_ask(admin, broker, named, timeout_ms) for broker in metadata.brokers))
    by_broker = {broker.broker_id: answer for broker, answer in zip(metadata.brokers, answers, strict=True)}
    found = judged(metadata, quorum, default, by_broker)
    return replace(found, late_owners=await _late_owners(admin, found.late_transactions, timeout_ms))


async def _quorum(admin: Admin, timeout_ms: int) -> DescribeQuorumResponse | None:
    try:
        return await admin.describe_quorum(timeout_ms=timeout_ms)
    except ReplogError:
        return None


async def _late_owners(
    admin: Admin, late: Iterable[LateTransaction], timeout_ms: int
) -> Mapping[int, TransactionListing]:
    """Returns the open transactional ids of producers; none where a broker does not tell its own: what ends them is refused then."""
    producer_ids = sorted({one.producer_id for one in late})
    if not producer_ids:
        return {}
    try:
        listed = await admin.list_transactions(producer_ids=producer_ids, timeout_ms=timeout_ms)
    except ReplogError:
        return {}
    return {one.producer_id: one for one in listed if one.state in OPEN_STATES}


async def _ask(
    admin: Admin, broker: BrokerInfo, named: Iterable[tuple[str, int]], timeout_ms: int
) -> DescribeNodeResponse | None:
    try:
        return await admin.describe_node(address_of(broker), partitions=named, timeout_ms=timeout_ms)
    except UnsupportedVersionError:  # a broker of Apache Kafka, which has answered that
        return NO_DETAILS
    except ReplogError:
        return None


def judged(
    metadata: ClusterMetadata,
    quorum: DescribeQuorumResponse | None,
    default_min_isr: int,
    answers: Mapping[int, DescribeNodeResponse | None],
) -> ClusterHealth:
    """Judges a cluster by what was heard of it.  Pure.

    Args:
        metadata: The brokers and topics.
        quorum: The metadata quorum as its leader tells it; None: nobody could tell.
        default_min_isr: The `min.insync.replicas` of topics that do not say it.
        answers: The answers of the brokers by id; None, or no entry: no answer.
    """
    brokers = tuple(_broker(broker, metadata, answers.get(broker.broker_id)) for broker in metadata.brokers)
    if are_kafkas(metadata.brokers):
        brokers = (*brokers, *(_away(broker_id, metadata) for broker_id in _untold(metadata)))
    looks = _Looks(answers, frozenset(broker.broker_id for broker in brokers if broker.is_up), default_min_isr)
    found = _worst_first(metadata, default_min_isr)
    counts = Counter(trouble for _, _, trouble in found)
    partitions = [(topic.name, one) for topic in metadata.topics for one in topic.partitions]
    moving = [
        f"{topic}-{one.partition_id}" for topic, one in partitions if one.adding_replicas or one.removing_replicas
    ]
    return ClusterHealth(
        cluster_id=metadata.cluster_id,
        metadata_offset=metadata.metadata_offset,
        brokers=brokers,
        quorum=quorum,
        default_min_insync_replicas=default_min_isr,
        topics_count=len(metadata.topics),
        partitions_count=len(partitions),
        unavailable_count=counts[PartitionTrouble.UNAVAILABLE],
        under_min_isr_count=counts[PartitionTrouble.UNDER_MIN_ISR],
        under_replicated_count=counts[PartitionTrouble.UNDER_REPLICATED],
        missing_brokers=tuple(sorted({broker_id for _, one, _ in found for broker_id in missing_replicas(one)})),
        troubled=tuple(_troubled(*one, looks) for one in found[:NAMED_MAX]),
        moving_count=len(moving),
        moving=tuple(moving[:NAMED_MAX]),
        awaited=_awaited_by(looks.awaited(topic, partition) for topic, partition, _ in found),
        late_transactions=tuple(
            one for answer in answers.values() if answer is not None for one in answer.late_transactions
        ),
    )


def _worst_first(
    metadata: ClusterMetadata, default_min_isr: int
) -> list[tuple[TopicInfo, PartitionInfo, PartitionTrouble]]:
    """Returns (topic, partition, its trouble) of each partition with trouble, by name within each trouble."""
    found = []
    for topic in metadata.topics:
        min_isr = min_insync_replicas_of(topic, default_min_isr)
        for partition in topic.partitions:
            trouble = trouble_of(partition, min_isr)
            if trouble is not None:
                found.append((topic, partition, trouble))
    order = list(PartitionTrouble)
    return sorted(found, key=lambda one: (order.index(one[2]), one[0].name, one[1].partition_id))


class _Looks(Struct, frozen=True):
    """What was heard, as far as it counts for single partitions."""

    answers: Mapping[int, DescribeNodeResponse | None]
    brokers_up: frozenset[int]
    default_min_isr: int

    def offline(self, broker_id: int, topic: str, partition_id: int) -> bool:
        return _says_offline(self.answers.get(broker_id), topic, partition_id)

    def awaited(self, topic: TopicInfo, partition: PartitionInfo) -> Awaited:
        def is_away(broker_id: int) -> bool:
            return broker_id not in self.brokers_up or self.offline(broker_id, topic.name, partition.partition_id)

        return awaited(partition, min_insync_replicas_of(topic, self.default_min_isr), is_away)


def _troubled(
    topic: TopicInfo, partition: PartitionInfo, trouble: PartitionTrouble, looks: _Looks
) -> TroubledPartition:
    name, number, missing = topic.name, partition.partition_id, missing_replicas(partition)
    offline = tuple(broker_id for broker_id in missing if looks.offline(broker_id, name, number))
    waits_for = looks.awaited(topic, partition)
    needs_election = nobody_has_everything(partition) and not looks.brokers_up.intersection(missing) <= set(offline)
    return TroubledPartition(
        name, number, trouble, partition.leader, partition.isr, missing, offline, waits_for, needs_election
    )


def _awaited_by(found: Iterable[Awaited]) -> tuple[AwaitedBy, ...]:
    """Counts the partitions that wait for the same brokers."""
    counts = Counter(one for one in found if one.brokers)
    return tuple(AwaitedBy(one.brokers, one.needed_count, count) for one, count in counts.most_common(NAMED_MAX))


def _says_offline(answer: DescribeNodeResponse | None, topic: str, number: int) -> bool:
    replicas = () if answer is None else answer.replicas
    return any((one.topic, one.partition_id, one.state) == (topic, number, "offline") for one in replicas)


def _broker(broker: BrokerInfo, metadata: ClusterMetadata, answer: DescribeNodeResponse | None) -> BrokerHealth:
    partitions = [partition for topic in metadata.topics for partition in topic.partitions]
    return BrokerHealth(
        broker_id=broker.broker_id,
        address=address_of(broker),
        rack=broker.rack,
        state=_state(broker, answer),
        is_drained=broker.drained,
        leaders_count=sum(partition.leader == broker.broker_id for partition in partitions),
        replicas_count=sum(broker.broker_id in partition.replicas for partition in partitions),
        rss_bytes=-1 if answer is None else answer.rss_bytes,
        version="" if answer is None else answer.version,
    )


def _untold(metadata: ClusterMetadata) -> list[int]:
    """Returns the brokers that hold replicas, and of which nothing is told."""
    partitions = (partition for topic in metadata.topics for partition in topic.partitions)
    holders = {broker_id for partition in partitions for broker_id in partition.replicas}
    return sorted(holders - {broker.broker_id for broker in metadata.brokers})


def _away(broker_id: int, metadata: ClusterMetadata) -> BrokerHealth:
    found = _broker(BrokerInfo(broker_id, "", -1, -1, fenced=True), metadata, None)
    return replace(found, address="-", state=BrokerStanding.AWAY)


def _state(broker: BrokerInfo, answer: DescribeNodeResponse | None) -> BrokerStanding:
    if answer is None:
        return BrokerStanding.DOWN if broker.fenced else BrokerStanding.SILENT
    if broker.fenced:
        return BrokerStanding.FENCED
    return BrokerStanding.SHUTTING_DOWN if broker.in_controlled_shutdown else BrokerStanding.IN_SERVICE
