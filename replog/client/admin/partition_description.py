"""One partition as its brokers tell it: the leader's view of all replicas, and what each replica says of itself.

Why ask all of them: the metadata names leader and ISR, only the leader knows how far behind the others are and since
when, and only a broker itself knows why its replica stands still.  A broker that does not answer is part of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from replog.client.cluster.addresses import address_of
from replog.client.cluster.image import are_kafkas
from replog.client.cluster.view import ClusterView
from replog.controller.requests import NamedPartition
from replog.errors import ReplogError, UnknownTopicOrPartitionError, UnsupportedVersionError
from replog.rpc.metadata_messages import BrokerInfo, PartitionInfo, TopicInfo
from replog.rpc.node_messages import (
    NO_DETAILS,
    DescribeNodeRequest,
    DescribeNodeResponse,
    ReplicaProgress,
    ReplicaStatus,
)

NO_ANSWER = "no answer"
NOT_TOLD = "not told by Apache Kafka"
DOWN = "down"
NOT_IN_SERVICE = "not in service"
NOT_REGISTERED = "not registered"


class ReplicaDescription(Struct, frozen=True):
    """One replica.  Offsets are exclusive ends; -1 is a number that nobody could tell.

    Attributes:
        state: What its broker says ("leader", "follower, fetching", "offline", ...), or "no answer"; "down" where the
            controller has fenced the broker too, "not registered" where it does not know it; Apache Kafka's brokers do not say it.
        reason: Why it stands still, where it does.
        is_in_isr: Whether it is in the ISR, as the metadata says.
        log_end_offset: The log end as its broker says; without an answer, as the leader heard it last.
        flushed_offset: The same for what is on stable storage; of a broker that is down nobody knows what it flushed
            before.
        lag_records: Offsets behind the leader's log end, as the leader knows; of a broker that is down, if the leader
            ever heard it.
        lag_ms: Time since it is known to have had everything; -1 also where it never had under this leader, or is down.
        broker_epoch: The broker epoch of its last fetch; of the leader, its own.
        is_in_elr: Whether, as the metadata says, it is out of the ISR and has all that is committed.
    """

    broker_id: int
    state: str
    reason: str
    is_in_isr: bool
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    high_watermark: int
    lag_records: int
    lag_ms: int
    broker_epoch: int
    is_in_elr: bool = False

    @property
    def is_away(self) -> bool:
        """Whether its broker does not run, as far as anybody knows."""
        return self.state in {DOWN, NOT_REGISTERED, NOT_IN_SERVICE}


class PartitionDescription(Struct, frozen=True):
    """One partition.  Where the leader did not answer, its numbers are -1 and the sets are those of the metadata.

    Attributes:
        leader: The broker that leads; -1: nobody leads.
        maximal_isr: What the high watermark waits for: the ISR, and whom the controller may just have added to it.
        elr: Eligible leaders outside the ISR.
        min_insync_replicas: The value in force, at most the number of replicas.
        waiting_produces: Batches with acks=all that are not acknowledged yet.
        is_recovering: Whether its leader was elected uncleanly and is not done with that.
        replicas: The replicas in the order of their assignment.
    """

    topic: str
    topic_id: UUID
    partition_id: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    elr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    min_insync_replicas: int
    waiting_produces: int
    is_recovering: bool
    replicas: tuple[ReplicaDescription, ...]


async def describe_partition(
    view: ClusterView, topic: str, partition_id: int, *, timeout_ms: int, visible_within_ms: int
) -> PartitionDescription:
    """Asks for the metadata, then every replica's broker, at the same time and once.

    Args:
        view: The view of the cluster.
        topic: The name of the topic.
        partition_id: The number of the partition, from 0.
        timeout_ms: The limit for the metadata, and then for the brokers, in milliseconds.
        visible_within_ms: The time that a topic that was just created may take to reach the metadata, in milliseconds.

    Raises:
        UnknownTopicOrPartitionError: There is no such partition.
        RequestTimedOutError: No broker tells the metadata.
    """
    metadata = await view.describe(timeout_ms)
    info = next((one for one in metadata.topics if one.name == topic), None)
    info = info or await view.topic_or_raise(topic, within_ms=visible_within_ms)
    partition = next((one for one in info.partitions if one.partition_id == partition_id), None)
    if partition is None:
        raise UnknownTopicOrPartitionError(
            f"{topic} has no partition {partition_id}: it has {len(info.partitions)}, from 0 on"
        )
    name = NamedPartition(topic, partition_id)
    brokers = {broker.broker_id: broker for broker in metadata.brokers}
    answers = await asyncio.gather(
        *(_ask(view, brokers.get(broker_id), name, timeout_ms) for broker_id in partition.replicas)
    )
    return described(info, partition, dict(zip(partition.replicas, answers, strict=True)), brokers)


async def _ask(
    view: ClusterView, broker: BrokerInfo | None, name: NamedPartition, timeout_ms: int
) -> DescribeNodeResponse | None:
    if broker is None:
        return None
    try:
        return await view.read(address_of(broker), DescribeNodeRequest((name,)), timeout_ms=timeout_ms)
    except UnsupportedVersionError:  # a broker of Apache Kafka
        return NO_DETAILS
    except ReplogError:
        return None


def described(
    topic: TopicInfo,
    partition: PartitionInfo,
    answers: Mapping[int, DescribeNodeResponse | None],
    brokers: Mapping[int, BrokerInfo],
) -> PartitionDescription:
    """Puts together what the metadata and the replicas' brokers (None: no answer) say.  Pure."""
    name = (topic.name, partition.partition_id)
    statuses = {broker_id: _replica_in(answer, name) for broker_id, answer in answers.items()}
    status = statuses.get(partition.leader)
    leader = None if status is None else status.leader
    if leader is None:  # whoever answered does not lead (any more): its offsets are not the partition's
        status = None
    progress = {} if leader is None else {replica.replica_id: replica for replica in leader.replicas}
    return PartitionDescription(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition_id=partition.partition_id,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch if leader is None else leader.partition_epoch,
        log_start_offset=-1 if status is None else status.log_start_offset,
        log_end_offset=-1 if status is None else status.log_end_offset,
        high_watermark=-1 if status is None else status.high_watermark,
        isr=partition.isr if status is None else status.isr,
        maximal_isr=partition.isr if leader is None else leader.maximal_isr,
        elr=partition.elr if leader is None else leader.elr,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        min_insync_replicas=-1 if leader is None else leader.min_insync_replicas,
        waiting_produces=-1 if leader is None else leader.waiting_produces,
        is_recovering=leader is not None and leader.recovering,
        replicas=tuple(
            _replica(
                broker_id,
                partition,
                _state(broker_id, answers.get(broker_id), statuses.get(broker_id), brokers),
                answers.get(broker_id),
                statuses.get(broker_id),
                progress.get(broker_id),
            )
            for broker_id in partition.replicas
        ),
    )


def _state(
    broker_id: int, answer: DescribeNodeResponse | None, status: ReplicaStatus | None, brokers: Mapping[int, BrokerInfo]
) -> str:
    if status is not None:
        return status.state
    if answer is NO_DETAILS:
        return NOT_TOLD
    if answer is not None:
        return "no replica here yet"
    if (broker := brokers.get(broker_id)) is None:  # Kafka before 4.0 does not tell of fenced ones
        return NOT_IN_SERVICE if are_kafkas(brokers.values()) else NOT_REGISTERED
    return DOWN if broker.fenced else NO_ANSWER


def _replica_in(answer: DescribeNodeResponse | None, name: tuple[str, int]) -> ReplicaStatus | None:
    """Returns what a broker says of one of its replicas; an older broker may name all its others, too."""
    replicas = () if answer is None else answer.replicas
    return next((one for one in replicas if (one.topic, one.partition_id) == name), None)


def _replica(
    broker_id: int,
    partition: PartitionInfo,
    state: str,
    answer: DescribeNodeResponse | None,
    status: ReplicaStatus | None,
    progress: ReplicaProgress | None,
) -> ReplicaDescription:
    heard = -1 if progress is None else progress.log_end_offset
    flushed = -1 if progress is None else progress.flushed_offset
    epoch = -1 if progress is None else progress.broker_epoch
    if epoch < 0 and broker_id == partition.leader and answer is not None:
        epoch = answer.broker_epoch
    found = ReplicaDescription(
        broker_id=broker_id,
        state=state,
        reason="" if status is None else status.reason,
        is_in_isr=broker_id in partition.isr,
        log_start_offset=-1 if status is None else status.log_start_offset,
        log_end_offset=heard if status is None else status.log_end_offset,
        flushed_offset=flushed if status is None else status.flushed_offset,
        high_watermark=-1 if status is None else status.high_watermark,
        lag_records=-1 if progress is None else progress.lag_records,
        lag_ms=-1 if progress is None else progress.lag_ms,
        broker_epoch=epoch,
        is_in_elr=broker_id in partition.elr,
    )
    return _without_guesses(found) if found.is_away else found


def _without_guesses(replica: ReplicaDescription) -> ReplicaDescription:
    """Keeps what is known of a replica that does not run.

    That is where it ended when the leader heard it last, and how far that is behind.
    What it flushed before it stopped, it told nobody; and with the leader's end at its last fetch it is not caught up
    now.
    """
    lag_records = replica.lag_records if replica.log_end_offset >= 0 else -1
    return replace(replica, flushed_offset=-1, lag_records=lag_records, lag_ms=-1)
