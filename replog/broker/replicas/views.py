"""Views of partitions: one replica's in an image, and those of this broker for the controller and for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from replog.broker.replicas.disk_trouble import UnusableReplica
from replog.broker.replicas.open_transactions import open_transactions_of
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.topic_settings import TopicSettings
from replog.config.server import ServerConfig
from replog.controller.requests import ReplicaEnd
from replog.log import Log, LogDirectory
from replog.metadata.image import MetadataImage, awaiting_report
from replog.metadata.records import LeaderRecoveryState
from replog.replication.leader import Leader
from replog.replication.messages import PartitionState
from replog.rpc.node_messages import (
    LateTransaction,
    LeaderView,
    LogDir,
    LogDirReplica,
    ReplicaMoveStatus,
    ReplicaProgress,
    ReplicaStatus,
)
from replog.waiting.sorting import sorted_in_pieces
from replog_checkpoints import TopicPartition


def partition_state(replica: Replica, image: MetadataImage, config: ServerConfig) -> PartitionState:
    """Returns the partition as its leader has to know it."""
    registration = replica.registration
    brokers = image.brokers
    eligible = {
        broker_id: brokers[broker_id].broker_epoch
        for broker_id in registration.replicas
        if broker_id in brokers and brokers[broker_id].is_active
    }
    return PartitionState(
        leader=registration.leader,
        leader_epoch=registration.leader_epoch,
        partition_epoch=registration.partition_epoch,
        replicas=registration.replicas,
        isr=registration.isr,
        elr=registration.elr,
        min_insync_replicas=TopicSettings(replica.topic, image, config).min_insync_replicas,
        eligible=eligible,
        recovering=registration.leader_recovery_state is LeaderRecoveryState.RECOVERING,
    )


def late_transactions(replicas: Iterable[Replica], config: ServerConfig, wall_ms: int) -> tuple[LateTransaction, ...]:
    """Returns the late transaction of each partition that is led here and has one."""
    found = [
        (replica, transactions)
        for replica in replicas
        if isinstance(replica.role, Leader)
        and (transactions := open_transactions_of(replica, config, wall_ms)) is not None
        and transactions.is_late
    ]
    return tuple(
        LateTransaction(
            replica.topic,
            replica.partition_id,
            transactions.producer_id,
            transactions.first_offset,
            transactions.silent_ms,
        )
        for replica, transactions in found
    )


def awaited_ends(
    image: MetadataImage, broker_id: int, replicas: Mapping[ReplicaKey, Replica]
) -> tuple[ReplicaEnd, ...]:
    """Returns how far the replicas reach for which a `recovered` election waits for this broker.

    Replicas that are offline are left out.
    """
    ends = []
    for awaited in awaiting_report(image, broker_id):
        replica = replicas.get((awaited.topic_id, awaited.partition_id))
        if replica is not None:
            last_epoch = replica.log.last_epoch
            ends.append(
                ReplicaEnd(
                    awaited.topic_id,
                    awaited.partition_id,
                    -1 if last_epoch is None else last_epoch,
                    replica.log.log_end_offset,
                )
            )
    return tuple(ends)


def has_awaited_ends(image: MetadataImage, broker_id: int, replicas: Collection[ReplicaKey]) -> bool:
    """Whether `awaited_ends` finds any; of thousands that wait, this looks at the first."""
    return any(
        key in replicas and broker_id in partition.last_known_elr for key, partition in image.awaiting_reports.items()
    )


def replica_statuses(
    replicas: Iterable[Replica],
    offline: Iterable[UnusableReplica],
    names: Collection[tuple[str, int]] | None,
    now_ms: int,
) -> tuple[ReplicaStatus, ...]:
    """Returns the statuses of this broker's replicas, sorted by name.

    Args:
        replicas: The replicas that can be used.
        offline: The replicas that cannot be used.
        names: (topic, partition) of the replicas wanted, which then come with their size and their leader's view;
            None: all.
        now_ms: The monotonic time.
    """
    found = [replica.status() for replica in offline if _is_wanted(replica, names)]
    for replica in replicas:
        if _is_wanted(replica, names):
            status = replica.status()
            if names is not None:
                size_bytes = replica.log.size_from(replica.log.log_start_offset)
                leader = leader_view(replica.role, replica.log, now_ms) if isinstance(replica.role, Leader) else None
                status = replace(status, leader=leader, size_bytes=size_bytes)
            found.append(status)
    return tuple(sorted(found, key=lambda status: f"{status.topic}-{status.partition_id}"))


def _is_wanted(replica: Replica | UnusableReplica, names: Collection[tuple[str, int]] | None) -> bool:
    return names is None or (replica.topic, replica.partition_id) in names


def leader_view(leader: Leader, log: Log, now_ms: int) -> LeaderView:
    """Returns the leader's view of its partition and of the other replicas."""
    status = leader.status()
    return LeaderView(
        partition_epoch=status.partition_epoch,
        epoch_start_offset=status.epoch_start_offset,
        maximal_isr=status.maximal_isr,
        elr=status.elr,
        min_insync_replicas=status.min_insync_replicas,
        recovering=status.recovering,
        waiting_produces=status.waiting_produces,
        replicas=tuple(
            ReplicaProgress(
                replica_id=replica.replica_id,
                log_end_offset=replica.log_end_offset,
                flushed_offset=replica.flushed_offset,
                lag_records=replica.lag,
                lag_ms=_or_unknown(replica.lag_ms(now_ms)),
                broker_epoch=_or_unknown(replica.broker_epoch),
                lag_bytes=log.size_from(max(replica.log_end_offset, log.log_start_offset)),
            )
            for replica in status.replicas
        ),
    )


def log_dir(directory: LogDirectory, replicas: tuple[LogDirReplica, ...], moves: Sequence[ReplicaMoveStatus]) -> LogDir:
    """Returns a log directory of a broker, with the replicas that `log_dir_replicas` made."""
    return LogDir(
        path=directory.path,
        error="" if directory.failure is None else str(directory.failure),
        free_bytes=directory.space.free_bytes,
        replicas=replicas,
        moves=tuple(move for move in moves if move.path == directory.path),
        total_bytes=directory.space.total_bytes,
    )


def log_sizes(directory: LogDirectory, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the bytes of those of these replicas that a directory has."""
    return {key: log.size_bytes for key in keys if (log := directory.logs.get(key)) is not None}


def log_dir_replicas(sizes: Mapping[TopicPartition, int]) -> tuple[LogDirReplica, ...]:
    """Returns the replicas of a directory, sorted, from the bytes of each."""
    return tuple(LogDirReplica(*key, size_bytes) for key, size_bytes in sorted_in_pieces(sizes.items()))


def _or_unknown(value: int | None) -> int:
    return -1 if value is None else value
