"""Topics are created and deleted (kafka-reference 6.6)."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from uuid import UUID

from replog.controller.broker_registry import BrokerRegistry
from replog.controller.config import ControllerConfig
from replog.controller.configuration import ConfigurationControl
from replog.controller.messages import (
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    NewTopic,
    TopicResult,
)
from replog.controller.placement import ReplicaPlacer, UsableBroker
from replog.controller.replication_control import ReplicationControl
from replog.controller.result import Result
from replog.errors import (
    ErrorCode,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    ReplogError,
    TopicExistsError,
    TopicLimitError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)

_NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


@dataclass(slots=True)
class _Batch:
    """What one request has made so far; later topics count against the bounds together with earlier ones."""

    records: list[MetadataRecord]
    names: list[str]
    partitions_count: int = 0


class TopicControl:
    """Makes the records of new topics and of deletions; a topic that fails does not stop the others of its request."""

    def __init__(
        self,
        config: ControllerConfig,
        brokers: BrokerRegistry,
        configs: ConfigurationControl,
        replication: ReplicationControl,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._configs = configs
        self._replication = replication
        self._rng = rng

    # ---- create -----------------------------------------------------------------------------------------------------

    def create(self, request: CreateTopics) -> Result:
        """One result per topic, in order; all topics that succeed are one atomic batch."""
        counts = Counter(topic.name for topic in request.topics)
        batch = _Batch([], [])
        results: list[TopicResult] = []
        for topic in request.topics:
            try:
                if counts[topic.name] > 1:
                    raise InvalidRequestError(f'topic "{topic.name}" is given more than once')
                results.append(self._create_one(topic, batch))
            except ReplogError as error:
                results.append(TopicResult(topic.name, error.code, str(error)))
        if request.validate_only:
            return Result((), CreateTopicsResponse(tuple(replace(result, topic_id=None) for result in results)))
        return Result(tuple(batch.records), CreateTopicsResponse(tuple(results)))

    def _create_one(self, topic: NewTopic, batch: _Batch) -> TopicResult:
        self._check_name(topic.name, batch)
        config_records = self._configs.change(ResourceType.TOPIC, topic.name, topic.configs)
        assignments = self._manual(topic) if topic.assignments else self._placed(topic, batch)
        records_count = 1 + len(config_records) + len(assignments)
        self._check_bounds(len(assignments), records_count, batch)
        topic_id = self._new_topic_id()
        batch.records += (
            TopicRecord(topic.name, topic_id),
            *config_records,
            *(self._partition(topic_id, index, replicas) for index, replicas in enumerate(assignments)),
        )
        batch.names.append(topic.name)
        batch.partitions_count += len(assignments)
        return TopicResult(
            topic.name,
            ErrorCode.NONE,
            topic_id=topic_id,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
        )

    def _check_name(self, name: str, batch: _Batch) -> None:
        if name in {"", ".", ".."} or len(name) > _NAME_LENGTH_MAX or not _NAME.match(name):
            raise InvalidTopicError(
                f'topic name "{name[:_NAME_LENGTH_MAX]}" is not 1 to {_NAME_LENGTH_MAX} of letters, digits, ".", "_", "-"'
            )
        if name in self._replication.topic_ids:
            raise TopicExistsError(f'topic "{name}" exists')
        if "." not in name and "_" not in name:
            return
        for other in (*self._replication.topic_ids, *batch.names):
            if other.replace(".", "_") == name.replace(".", "_"):
                raise InvalidTopicError(f'topic "{name}" collides with "{other}": "." and "_" are one in metric names')

    def _check_bounds(self, partitions_count: int, records_count: int, batch: _Batch) -> None:
        topics = len(self._replication.topics) + len(batch.names) + 1
        partitions = len(self._replication.partitions) + batch.partitions_count + partitions_count
        if topics > self._config.max_topics:
            raise TopicLimitError(f"the cluster may have {self._config.max_topics} topics; delete one first")
        if partitions > self._config.max_partitions:
            raise TopicLimitError(
                f"the cluster may have {self._config.max_partitions} partitions, with this topic {partitions}"
            )
        if len(batch.records) + records_count > self._config.max_records_per_batch:
            raise TopicLimitError("too much for one request; create fewer topics at a time")

    def _placed(self, topic: NewTopic, batch: _Batch) -> tuple[tuple[int, ...], ...]:
        num_partitions = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        replication_factor = topic.replication_factor
        if replication_factor == -1:
            replication_factor = self._config.default_replication_factor
        if num_partitions < 1:
            raise InvalidPartitionsError(f"a topic has at least 1 partition, not {num_partitions}")
        if replication_factor < 1:
            raise InvalidReplicationFactorError(f"replication factor is at least 1, not {replication_factor}")
        self._check_bounds(num_partitions, num_partitions, batch)  # before as many assignments are made
        usable = [
            UsableBroker(registration.broker_id, registration.rack, registration.fenced)
            for registration in self._brokers.all()
            if not registration.in_controlled_shutdown
        ]
        return ReplicaPlacer(usable, self._rng).place(num_partitions, replication_factor)

    def _manual(self, topic: NewTopic) -> tuple[tuple[int, ...], ...]:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise InvalidRequestError("give the number of partitions and replicas, or the assignments, not both")
        for index, replicas in enumerate(topic.assignments):
            if not replicas or len(set(replicas)) < len(replicas):
                raise InvalidReplicaAssignmentError(
                    f"partition {index}: replicas {list(replicas)} are empty or repeated"
                )
            if len(replicas) != len(topic.assignments[0]):
                raise InvalidReplicaAssignmentError(
                    f"partition {index} has another number of replicas than partition 0"
                )
            if unknown := [replica for replica in replicas if self._brokers.get(replica) is None]:
                raise InvalidReplicaAssignmentError(f"partition {index}: brokers {unknown} are not registered")
            if not any(self._brokers.is_active(replica) for replica in replicas):
                raise InvalidReplicaAssignmentError(f"partition {index}: brokers {list(replicas)} are all fenced")
        return topic.assignments

    def _partition(self, topic_id: UUID, partition_id: int, replicas: tuple[int, ...]) -> PartitionRecord:
        isr = tuple(replica for replica in replicas if self._brokers.is_active(replica))
        return PartitionRecord(partition_id, topic_id, replicas, isr, leader=isr[0], leader_epoch=0, partition_epoch=0)

    def _new_topic_id(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)

    # ---- delete -----------------------------------------------------------------------------------------------------

    def delete(self, request: DeleteTopics) -> Result:
        """One result per name, in order; all deletions are one atomic batch."""
        records: list[MetadataRecord] = []
        results: list[TopicResult] = []
        counts = Counter(request.names)
        for name in request.names:
            topic_id = self._replication.topic_ids.get(name)
            try:
                if counts[name] > 1:
                    raise InvalidRequestError(f'topic "{name}" is given more than once')
                if topic_id is None:
                    raise UnknownTopicOrPartitionError(f'topic "{name}" does not exist')
            except ReplogError as error:
                results.append(TopicResult(name, error.code, str(error)))
            else:
                records.append(RemoveTopicRecord(topic_id))
                results.append(TopicResult(name, ErrorCode.NONE, topic_id=topic_id))
        return Result(tuple(records), DeleteTopicsResponse(tuple(results)))
