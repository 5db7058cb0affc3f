"""Topics are created, grow and are deleted (docs/KAFKA.md 6.6)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import TypeVar
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from replog.controller.config import ControllerConfig
from replog.controller.managers.mutation_quotas import MutationQuota, MutationQuotas
from replog.controller.partitions.placement import ReplicaPlacer, UsableBroker
from replog.controller.requests import (
    CreateInternalTopic,
    CreatePartitions,
    CreatePartitionsResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    ForkTopic,
    ForkTopicResponse,
    NewPartitions,
    NewTopic,
    Result,
    TopicResult,
)
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.configuration import ConfigurationControl
from replog.controller.state.features import FeatureControl
from replog.controller.state.replication import ReplicationState
from replog.errors import (
    ErrorCode,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    PolicyViolationError,
    ReplogError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.features import METADATA_VERSION_FORKS
from replog.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from replog.metadata.topic_names import INTERNAL_TOPICS, RESERVED_NAME, topic_name_trouble

T = TypeVar("T", bound=Hashable)

Assignments = tuple[tuple[int, ...], ...]
"""Replicas of partition after partition, the preferred leader first."""


class _Batch(Struct):
    """What one request has made so far; later topics count against the bounds together with earlier ones."""

    records: list[MetadataRecord] = field(default_factory=list[MetadataRecord])
    topics_count: int = 0
    partitions_count: int = 0
    replicas_count: int = 0
    metric_names: dict[str, str] = field(default_factory=dict[str, str])


class _Deletions(Struct):
    """The topics that one request deletes, in order, and how many partitions they have together."""

    topic_ids: dict[UUID, None] = field(default_factory=dict[UUID, None])
    partitions_count: int = 0


class TopicControl:
    """Makes the records of new topics, new partitions and deletions; a topic that fails does not stop the others."""

    def __init__(
        self,
        config: ControllerConfig,
        brokers: BrokerRegistry,
        configs: ConfigurationControl,
        features: FeatureControl,
        replication: ReplicationState,
        quotas: MutationQuotas,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._quotas = quotas
        self._brokers = brokers
        self._configs = configs
        self._features = features
        self._replication = replication
        self._rng = rng
        self._usable: tuple[UsableBroker, ...] = ()
        self._placer = ReplicaPlacer((), rng)  # on `_usable`

    # ---- create -----------------------------------------------------------------------------------------------------

    def create(self, request: CreateTopics, now_ms: int) -> Result:
        """Creates topics: one result for each, in order; all topics that succeed are one atomic change."""
        quota = self._quotas.of(request.client, now_ms)
        repeated = _repeated([topic.name for topic in request.topics])
        batch = _Batch()
        results: list[TopicResult] = []
        for topic in request.topics:
            try:
                if topic.name in repeated:
                    raise InvalidRequestError(f'topic "{topic.name}" is given more than once')
                results.append(self._create_one(topic, batch, quota))
            except ReplogError as error:
                results.append(TopicResult(topic.name, error.code, str(error)))
        records = () if request.validate_only else tuple(batch.records)
        if request.validate_only:
            results = [replace(result, topic_id=None) for result in results]
        return Result(records, CreateTopicsResponse(tuple(results), quota.throttle_time_ms))

    def create_internal(self, request: CreateInternalTopic, now_ms: int) -> Result:
        """Creates a topic of coordinators.

        Raises:
            InvalidTopicError: It is none: topics of clients are created for clients, who need a right to it.
        """
        if request.topic.name not in INTERNAL_TOPICS:
            raise InvalidTopicError(f'topic "{request.topic.name[:300]}" is none of the cluster\'s own')
        return self.create(CreateTopics((request.topic,)), now_ms)

    def _create_one(self, topic: NewTopic, batch: _Batch, quota: MutationQuota) -> TopicResult:
        name = topic.name
        self._check_name(name, batch)
        config_records = self._configs.initial(name, topic.configs)
        assignments = self._manual(topic) if topic.assignments else self._placed(topic, len(config_records), batch)
        partitions_count = len(assignments)
        replicas_count = sum(map(len, assignments))
        records_count = 1 + len(config_records) + partitions_count
        self._check_bounds(partitions_count, replicas_count, records_count, batch, new_topics=1)
        quota.take(partitions_count)
        topic_id = UUID(int=self._rng.getrandbits(128), version=4)
        batch.records.append(TopicRecord(name, topic_id))
        batch.records += config_records
        for index, replicas in enumerate(assignments):
            batch.records.append(self._partition(topic_id, index, replicas))
        batch.topics_count += 1
        batch.partitions_count += partitions_count
        batch.replicas_count += replicas_count
        if "." in name or "_" in name:
            batch.metric_names[name.replace(".", "_")] = name
        return TopicResult(name, ErrorCode.NONE, "", topic_id, partitions_count, len(assignments[0]))

    def _check_name(self, name: str, batch: _Batch) -> None:
        if (trouble := topic_name_trouble(name)) is not None:
            raise InvalidTopicError(trouble)
        if name == RESERVED_NAME:
            raise InvalidRequestError(f'"{name}" is the metadata log, and no topic; choose another name')
        if name in self._replication.topic_ids:
            raise TopicExistsError(f'topic "{name}" exists')
        if "." not in name and "_" not in name:
            return
        other = self._replication.colliding_name(name) or batch.metric_names.get(name.replace(".", "_"))
        if other is not None:
            raise InvalidTopicError(f'topic "{name}" collides with "{other}": "." and "_" are one in metric names')

    def _check_bounds(
        self, partitions_count: int, replicas_count: int, records_count: int, batch: _Batch, *, new_topics: int
    ) -> None:
        config = self._config
        topics = len(self._replication.topics) + batch.topics_count + new_topics
        partitions = len(self._replication.partitions) + batch.partitions_count + partitions_count
        if topics > config.max_topics:
            raise PolicyViolationError(f"the cluster may have {config.max_topics} topics; delete one first")
        if partitions > config.max_partitions:
            raise PolicyViolationError(
                f"the cluster may have {config.max_partitions} partitions, with these {partitions}"
            )
        if len(batch.records) + records_count > config.max_records_per_request:
            too_many = (
                f"{config.max_records_per_request:,} records (partitions, topics, configurations); "
                f"these {partitions_count:,} partitions"
            )
        elif batch.replicas_count + replicas_count > config.max_replicas_per_request:
            too_many = f"{config.max_replicas_per_request:,} replicas; these {replicas_count:,}"
        else:
            return
        others_count = len(batch.records) + records_count - partitions_count
        replication_factor = max(1, replicas_count // partitions_count)
        advice = self._how_to_grow(replication_factor, others_count, batch, is_new=bool(new_topics))
        raise PolicyViolationError(f"one request makes at most {too_many} are too many. {advice}")

    def _how_to_grow(self, replication_factor: int, others_count: int, batch: _Batch, *, is_new: bool) -> str:
        """Says with how many partitions a topic can begin, and by how many it can grow at a time.

        Args:
            replication_factor: The number of replicas of each partition.
            others_count: The number of records in the request that are not partitions of this topic.
            batch: The topics before it in the same request.
            is_new: Whether the topic is to be created; otherwise it is to grow.
        """
        config = self._config
        growth = min(config.max_records_per_request, config.max_replicas_per_request // replication_factor)
        if not is_new:
            return f"Add at most {growth} at a time"
        replicas_left = config.max_replicas_per_request - batch.replicas_count
        first = min(config.max_records_per_request - others_count, replicas_left // replication_factor)
        if first < 1:
            return "Create the topic in a request of its own"
        return (
            f"Create the topic with at most {first} (`--partitions {first}`), then add at most {growth} at a time "
            f"(`replog topics alter TOPIC --partitions {first + growth}`)"
        )

    # ---- where replicas go ------------------------------------------------------------------------------------------

    def _placed(self, topic: NewTopic, configs_count: int, batch: _Batch) -> Assignments:
        num_partitions = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        replication_factor = topic.replication_factor
        if replication_factor == -1:
            replication_factor = self._config.default_replication_factor
        if num_partitions < 1:
            raise InvalidPartitionsError(f"a topic has at least 1 partition, not {num_partitions}")
        if replication_factor < 1:
            raise InvalidReplicationFactorError(f"replication factor is at least 1, not {replication_factor}")
        if num_partitions > 1:  # before as many assignments are made
            replicas_count = num_partitions * replication_factor
            self._check_bounds(num_partitions, replicas_count, 1 + configs_count + num_partitions, batch, new_topics=1)
        return self._place(num_partitions, replication_factor)

    def _place(self, partitions_count: int, replication_factor: int) -> Assignments:
        usable = self._brokers.usable()
        if usable is not self._usable:
            self._usable, self._placer = usable, ReplicaPlacer(usable, self._rng)
        return self._placer.place(partitions_count, replication_factor)

    def _manual(self, topic: NewTopic) -> Assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise InvalidRequestError("give the number of partitions and replicas, or the assignments, not both")
        self._check_assignments(topic.assignments, 0, len(topic.assignments[0]))
        return topic.assignments

    def _check_assignments(self, assignments: Assignments, first_partition: int, replicas_count: int) -> None:
        for index, replicas in enumerate(assignments, first_partition):
            if not replicas or len(set(replicas)) < len(replicas):
                raise InvalidReplicaAssignmentError(
                    f"partition {index}: replicas {list(replicas)} are empty or repeated"
                )
            if len(replicas) != replicas_count:
                raise InvalidReplicaAssignmentError(
                    f"partition {index} has {len(replicas)} replicas, the others of its topic have {replicas_count}"
                )
            if unknown := [replica for replica in replicas if self._brokers.get(replica) is None]:
                raise InvalidReplicaAssignmentError(f"partition {index}: brokers {unknown} are not registered")
            if not any(self._brokers.is_active(replica) for replica in replicas):
                raise InvalidReplicaAssignmentError(f"partition {index}: brokers {list(replicas)} are all fenced")

    def _partition(self, topic_id: UUID, partition_id: int, replicas: tuple[int, ...]) -> PartitionRecord:
        isr = tuple([replica for replica in replicas if self._brokers.is_active(replica)])
        return PartitionRecord(partition_id, topic_id, replicas, isr, isr[0], 0, 0)

    # ---- fork -------------------------------------------------------------------------------------------------------

    def fork(self, request: ForkTopic, now_ms: int) -> Result:
        """Creates a topic with the partitions, replicas and configurations of another one, which begins with its records.

        Each replica makes its log from that of the source beside it (`replog.log.directories.fork` has the argument).  The ISR is that
        of the source: its members have all that is below a high watermark.  The leader epoch is one higher, so that no batch below the
        end of the fork is of a later one.

        Raises:
            UnsupportedVersionError: A node may be too old to make forks.
            UnknownTopicOrPartitionError, UnknownTopicIdError: There is no such source, or it was created anew.
            TopicExistsError, InvalidTopicError, PolicyViolationError: The copy is refused as a new topic, or a topic is the cluster's own.
            LeaderNotAvailableError: A partition of the source has no leader, or is moving to other brokers.
            InvalidRequestError: The ends are not those of its partitions.
        """
        self._features.require_metadata_version(METADATA_VERSION_FORKS, "forks of topics")
        quota = self._quotas.of(request.client, now_ms)
        source_id = self._existing_or_raise(request.topic_id)
        if self._topic_id_or_raise(request.source) != source_id:
            raise UnknownTopicIdError(f'topic "{request.source}" was created anew')
        if request.source in INTERNAL_TOPICS or request.copy in INTERNAL_TOPICS:
            raise InvalidTopicError("topics of the cluster's own are not forked, and no fork takes their place")
        batch = _Batch()
        self._check_name(request.copy, batch)
        partitions = [self._replication.partitions[key] for key in self._replication.partitions_of(source_id)]
        if len(partitions) != len(request.end_offsets) or min(request.end_offsets) < 0:
            raise InvalidRequestError(
                f'topic "{request.source}" has {len(partitions)} partitions, and needs an end for each: ask for the ends again'
            )
        configs = self._configs.values.get((ResourceType.TOPIC, request.source), {})
        replicas_count = sum(len(partition.replicas) for partition in partitions)
        records_count = 1 + len(configs) + len(partitions)
        self._check_bounds(len(partitions), replicas_count, records_count, batch, new_topics=1)
        quota.take(len(partitions))
        topic_id = UUID(int=self._rng.getrandbits(128), version=4)
        records: list[MetadataRecord] = [TopicRecord(request.copy, topic_id)]
        records += [ConfigRecord(ResourceType.TOPIC, request.copy, name, value) for name, value in configs.items()]
        for index, (partition, end_offset) in enumerate(zip(partitions, request.end_offsets, strict=True)):
            if partition.is_reassigning or not self._brokers.is_active(partition.leader):
                raise LeaderNotAvailableError(
                    f"{request.source}-{index} has no leader, or is moving to other brokers: fork it when that is over"
                )
            isr = tuple(member for member in partition.isr if self._brokers.is_active(member))
            leader, epoch = partition.leader, partition.leader_epoch + 1
            records.append(
                PartitionRecord(
                    index, topic_id, partition.replicas, isr, leader, epoch, 0,
                    forked_topic_id=source_id, forked_end_offset=end_offset,
                )
            )  # fmt: skip
        return Result(tuple(records), ForkTopicResponse(topic_id, quota.throttle_time_ms))

    # ---- grow -------------------------------------------------------------------------------------------------------

    def create_partitions(self, request: CreatePartitions, now_ms: int) -> Result:
        """Adds partitions to topics: one result per topic, in order; all that succeed are one atomic change."""
        quota = self._quotas.of(request.client, now_ms)
        repeated = _repeated([topic.topic for topic in request.topics])
        batch = _Batch()
        results: list[TopicResult] = []
        for item in request.topics:
            try:
                if item.topic in repeated:
                    raise InvalidRequestError(f'topic "{item.topic}" is given more than once')
                results.append(self._grow_one(item, batch, quota))
            except ReplogError as error:
                results.append(TopicResult(item.topic, error.code, str(error)))
        records = () if request.validate_only else tuple(batch.records)
        return Result(records, CreatePartitionsResponse(tuple(results), quota.throttle_time_ms))

    def _grow_one(self, item: NewPartitions, batch: _Batch, quota: MutationQuota) -> TopicResult:
        topic_id = self._topic_id_or_raise(item.topic)
        if item.topic in INTERNAL_TOPICS:
            raise InvalidPartitionsError(
                f'topic "{item.topic}" keeps its partitions: what each holds would be looked for in another one'
            )
        old_count = self._replication.partitions.count(topic_id)
        added_count = item.count - old_count
        if added_count < 1:
            raise InvalidPartitionsError(
                f'topic "{item.topic}" has {old_count} partitions; it can only grow, {item.count} is not more'
            )
        first = self._replication.partitions[topic_id, 0]
        replication_factor = len(set(first.replicas) - set(first.removing_replicas))
        self._check_bounds(added_count, added_count * replication_factor, added_count, batch, new_topics=0)
        assignments = item.assignments or self._place(added_count, replication_factor)
        if len(assignments) != added_count:
            raise InvalidReplicaAssignmentError(
                f'topic "{item.topic}" gets {added_count} partitions, assignments are given for {sum(map(bool, assignments))}'
            )
        self._check_assignments(assignments, old_count, replication_factor)
        quota.take(added_count)
        batch.records += [
            self._partition(topic_id, index, replicas) for index, replicas in enumerate(assignments, old_count)
        ]
        batch.partitions_count += added_count
        batch.replicas_count += added_count * replication_factor
        return TopicResult(item.topic, ErrorCode.NONE, "", topic_id, item.count, replication_factor)

    # ---- delete -----------------------------------------------------------------------------------------------------

    def delete(self, request: DeleteTopics, now_ms: int) -> Result:
        """Deletes topics: one result per name, then per id, in order; all deletions are one atomic change.

        A topic is deleted by one record, of any size; together with others only as long as their partitions are few.
        """
        quota = self._quotas.of(request.client, now_ms)
        wishes: list[str | UUID] = [*request.names, *request.topic_ids]
        repeated = _repeated(wishes)
        deletions = _Deletions()
        results: list[TopicResult] = []
        for wish in wishes:
            named, topic_id = (wish, None) if isinstance(wish, str) else ("", wish)
            try:
                if wish in repeated:
                    raise InvalidRequestError(f'topic "{wish}" is given more than once')
                topic_id = self._topic_id_or_raise(named) if topic_id is None else self._existing_or_raise(topic_id)
                self._delete_one(topic_id, deletions, quota)
                results.append(TopicResult(self._replication.topics[topic_id], ErrorCode.NONE, topic_id=topic_id))
            except ReplogError as error:
                results.append(TopicResult(named, error.code, str(error), topic_id))
        answer = DeleteTopicsResponse(tuple(results), quota.throttle_time_ms)
        return Result(tuple(map(RemoveTopicRecord, deletions.topic_ids)), answer)

    def _delete_one(self, topic_id: UUID, deletions: _Deletions, quota: MutationQuota) -> None:
        if topic_id in deletions.topic_ids:
            raise InvalidRequestError(f'topic "{self._replication.topics[topic_id]}" is given by name and by id')
        if self._replication.topics[topic_id] in INTERNAL_TOPICS:
            raise InvalidTopicError(
                f'topic "{self._replication.topics[topic_id]}" is the cluster\'s own, and cannot be deleted: groups and '
                "their offsets are deleted one by one, transactional ids expire"
            )
        own_count = self._replication.partitions.count(topic_id)
        partitions_count = deletions.partitions_count + own_count
        if deletions.topic_ids and partitions_count > self._config.max_records_per_request:
            raise PolicyViolationError(
                f"one request deletes at most {self._config.max_records_per_request:,} partitions; delete the topic in "
                "another one"
            )
        quota.take(own_count)
        deletions.topic_ids[topic_id] = None
        deletions.partitions_count = partitions_count

    def _existing_or_raise(self, topic_id: UUID) -> UUID:
        if topic_id not in self._replication.topics:
            raise UnknownTopicIdError(f"there is no topic with the id {topic_id}")
        return topic_id

    def _topic_id_or_raise(self, name: str) -> UUID:
        topic_id = self._replication.topic_ids.get(name)
        if topic_id is None:
            raise UnknownTopicOrPartitionError(f'topic "{name}" does not exist')
        return topic_id


def _repeated(names: Sequence[T]) -> Collection[T]:
    if len(names) < 2:
        return ()
    return {name for name, times in Counter(names).items() if times > 1}
