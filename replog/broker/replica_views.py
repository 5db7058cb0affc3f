"""What an image says about one replica's partition, and what the controller wants to know of this broker's replicas."""

from __future__ import annotations

from collections.abc import Mapping

from replog.broker.config import ServerConfig
from replog.broker.replica import Replica, ReplicaKey
from replog.broker.topic_settings import TopicSettings
from replog.controller.messages import ReplicaEnd
from replog.metadata.image import MetadataImage, awaiting_report
from replog.metadata.records import LeaderRecoveryState
from replog.replication.messages import PartitionState


def partition_state(replica: Replica, image: MetadataImage, config: ServerConfig) -> PartitionState:
    """The partition as its leader has to see it."""
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


def awaited_ends(
    image: MetadataImage, broker_id: int, replicas: Mapping[ReplicaKey, Replica]
) -> tuple[ReplicaEnd, ...]:
    """How far the replicas reach for which a `recovered` election waits for this broker; offline ones have no say."""
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
